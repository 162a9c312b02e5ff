//! A real pool under load, and a store of the program that goes astray into its mapping
//! (`cargo xtask lab`): the processor's protection keys end the program before anything is
//! damaged, and the pool it leaves holds what was acknowledged.
//!
//! With the protection left out, the same store goes through, and has to be found; so have lies
//! that are told of a pool that a program left which died of it.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use holdfast_layout::RegionKind;
use holdfast_object::Pool;
use holdfast_pmem::{Access, Mapped, Medium, Options, PAGE, Protect, Protection, SystemClock};
use holdfast_workloads::Rng;
use serde::{Deserialize, Serialize};

use super::lives::{all_said, lies, make, promised, repeat};
use super::promise::judge;
use super::raw::{Bytes, Scope, survey};
use super::rows::media::device::Orders;
use super::victim::{Voice, Worker, divide, open_options};
use crate::tally::{Fault, Judged, Tally, Violation};

/// What is left out to see the damage found.
const KEYS: &str = "keys";
/// Exit codes: the store went through; other protection is in force than it should be; it did not
/// come to the store.
const SURVIVED: u8 = 3;
const UNPROTECTED: u8 = 5;
const REFUSED: u8 = 6;
/// Longest time of work before the store, in milliseconds.
const WORK: u64 = 400;

/// What the process is told that strays.
#[derive(Debug, Serialize, Deserialize)]
pub struct Stray {
    pool: PathBuf,
    seed: u64,
    guarded: bool,
}

/// Stores that go astray, each by a process of its own, which has to die of it.
#[must_use]
pub fn play(orders: &Orders) -> Tally {
    let mut tally = Tally::default();
    let pool = orders.folder.join("stray-pool");
    let guarded = orders.off.iter().all(|off| off != KEYS);
    let lie = orders.off.iter().find(|off| *off != KEYS).map(String::as_str);
    let mut rng = Rng::part(orders.seed, 0);
    tally.judge(make(&pool));
    for number in 0..orders.lives {
        if tally.violated() > 0 {
            break;
        }
        let stray = Stray { pool: pool.clone(), seed: rng.next_u64() >> 1, guarded };
        let done = once(&stray, (number, lie), &mut tally);
        tally.judge(done.map_err(|v| v.during(format!("stray store {number}"))));
    }
    tally
}

fn once(stray: &Stray, (number, lie): (u64, Option<&str>), tally: &mut Tally) -> Judged<()> {
    let said = |number: u64| stray.pool.with_file_name(format!("stray-said-{}", number % 2));
    let (said, older) = (said(number), said(number + 1));
    let status = started(stray, &said).map_err(|error| refused(error.to_string()))?;
    let (died, code) = (status.signal() == Some(libc::SIGSEGV), status.code());
    if died != stray.guarded || !died && code != Some(i32::from(SURVIVED)) {
        return Err(wrong(format!("the program that stored astray ended: {status}")));
    }
    tally.count += 1;
    tally.add(if died { "stray stores that died" } else { "stray stores that went through" }, 1);
    let all = all_said(&said);
    if all.is_empty() {
        return Err(wrong("the program said nothing before it strayed"));
    }
    // Some are told of two programs, the one after the other.
    if let Some(lie) = lie.filter(|_| number > 0) {
        match lies::judged(lie, &stray.pool, (&said, &older)) {
            Ok(Err(violation)) if violation.fault.is_wrong_state() => return Err(violation),
            // It was not told, or nothing was found: whoever asked for it misses a violation.
            other => eprintln!("stray: {lie}: {other:?}"),
        }
    }
    judge(&stray.pool, Some(&promised(all)?), tally).map(drop)
}

fn started(stray: &Stray, said: &Path) -> std::io::Result<ExitStatus> {
    let orders = serde_json::to_string(stray)?;
    let mut child = Command::new(std::env::current_exe()?);
    child.args(["object", "--stray", &orders]).stdout(File::create(said)?).status()
}

/// Works on the pool, and stores astray. Comes back only if it does not die of that.
#[must_use]
pub fn run(orders: &str) -> ExitCode {
    let Ok(stray) = serde_json::from_str::<Stray>(orders) else { return ExitCode::from(2) };
    match astray(&stray) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("stray: {error}");
            ExitCode::from(REFUSED)
        }
    }
}

#[allow(unsafe_code, reason = "the stray store")]
fn astray(stray: &Stray) -> Result<u8, String> {
    let told = |error: &dyn std::fmt::Display| error.to_string();
    let protection = if stray.guarded { Protect::Auto } else { Protect::None };
    let options = Options { protection, ..Options::default() };
    let medium = Mapped::open(&stray.pool, Access::Write, &options).map_err(|e| told(&e))?;
    if stray.guarded && medium.protection() != Protection::Keys {
        eprintln!("stray: protected by {:?}", medium.protection());
        return Ok(UNPROTECTED);
    }
    let opened = Pool::open(medium, open_options(), Arc::new(SystemClock::new()));
    let (pool, _) = opened.map_err(|error| told(&error))?;
    let found = survey(&Bytes::of(pool.medium()), Scope::OBJECTS).ok_or("no superblock")?;
    let voice = Voice::default();
    repeat(&found.objects, found.anchor, &voice);
    let parts = divide(&found.objects, found.anchor);
    let mut rng = Rng::part(stray.seed, 99);
    // In bytes that parity alone covers: of an object, an opening might find it first, and repair.
    let zone = pool.regions().into_iter().find(|region| region.kind == RegionKind::Zone);
    let zone = zone.ok_or("there is no zone")?;
    let end = zone.start + u64::from(zone.data_rows) * zone.row_len;
    let target = end - 1 - rng.below(PAGE);
    std::thread::scope(|scope| {
        for (thread, objects) in (0_u8..).zip(parts) {
            let (pool, voice, anchor) = (&pool, &voice, found.anchor);
            let mut rng = Rng::part(stray.seed, u64::from(thread));
            let mut worker = Worker { pool, voice, thread, objects, anchor };
            scope.spawn(move || {
                loop {
                    worker.job(&mut rng);
                }
            });
        }
        std::thread::sleep(Duration::from_millis(WORK / 4 + rng.below(WORK)));
        let Some(address) = pool.medium().view(target, 1) else { std::process::exit(2) };
        let address = address.cast_mut();
        // SAFETY: deliberately none: this is the stray store, and the process is to die of it. The
        // address is one of the mapping, which lives as long as the pool.
        unsafe { address.write_volatile(address.read_volatile() ^ 0xff) };
        // At once: a thread might come by and repair it.
        std::process::exit(i32::from(SURVIVED))
    })
}

fn wrong(story: impl Into<String>) -> Violation {
    Violation::new(Fault::Wrong, story)
}

fn refused(story: String) -> Violation {
    Violation::new(Fault::Refused, story)
}
