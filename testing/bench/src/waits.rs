//! What repairs cost those who commit meanwhile: a repair holds the columns of one unit, and
//! commits elsewhere go on.
//!
//! The longest commit of a round also contains whatever the machine did to the thread. So there
//! are several rounds, with and without repairs, and the goal is judged by the best of them: a
//! wait that the engine causes would be in every one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use holdfast_layout::RawPtr;
use holdfast_object::{OpenOptions, Pool, VerifyReads};
use holdfast_pmem::{Mapped, Medium, Site};
use holdfast_txn::Transaction;
use holdfast_workloads::rng::Rng;

use crate::Options;
use crate::object::{MODES, options, overwrite};
use crate::report::{Limit, Report, Spread};
use crate::rig::{Rig, fill};

/// Damage done behind the engine's back.
const STRAY: Site = Site::new("bench.waits.stray");
/// Repairs of a round.
const REPAIRS: usize = 1000;
/// Bytes of the objects.
const LEN: usize = 256;

/// Measures; see the top of the file.
pub(crate) fn waits(o: &Options, report: &mut Report) -> anyhow::Result<()> {
    let open = OpenOptions { verify: VerifyReads::Always, ..OpenOptions::default() };
    let rig = Rig::new(&o.dir, &options(64 << 20, MODES[3]), open)?;
    let pool = rig.pool();
    let objects = fill(pool, 20_000, LEN as u64)?;
    let (victims, others) = objects.split_at(REPAIRS);
    let rounds = if o.quick { 5 } else { 10 };
    let mut longest = [Vec::new(), Vec::new()];
    for round in 0..2 * rounds {
        let repairing = round % 2 == 1;
        let before = pool.stats().repaired;
        let worst = one_round(pool, victims, others, repairing)?;
        let repaired = pool.stats().repaired - before;
        anyhow::ensure!(
            repaired >= if repairing { REPAIRS as u64 } else { 0 },
            "{repaired} repairs in a round of {REPAIRS}"
        );
        longest[usize::from(repairing)].push(worst.as_secs_f64() * 1e3);
    }
    let [without, with] = longest.map(Spread::of);
    report.figure("longest commit of a round, no repairs", "ms", without);
    report.figure("longest commit of a round, 1,000 repairs", "ms", with);
    report.goal("commit_wait_in_1000_repairs_ms", with.low, Limit::AtMost(1.0));
    Ok(())
}

/// Commits on this thread while another damages and reads `victims`, or sleeps as long. The
/// longest commit.
fn one_round(
    pool: &Pool<Mapped>,
    victims: &[RawPtr],
    others: &[RawPtr],
    repairing: bool,
) -> anyhow::Result<Duration> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let repairs = scope.spawn(|| {
            let worked = if repairing { damage_and_read(pool, victims) } else { pause() };
            done.store(true, Ordering::Release);
            worked
        });
        let mut rng = Rng::new(3);
        let mut worst = Duration::ZERO;
        let mut bytes = [0; LEN];
        while !done.load(Ordering::Acquire) {
            bytes.fill(rng.next_u64() as u8);
            let object = others[rng.below(others.len() as u64) as usize];
            let start = Instant::now();
            overwrite(pool, object, &bytes)?;
            worst = worst.max(start.elapsed());
        }
        repairs.join().map_err(|_| anyhow::anyhow!("the repairing thread panicked"))??;
        Ok(worst)
    })
}

fn pause() -> anyhow::Result<()> {
    std::thread::sleep(Duration::from_millis(50));
    Ok(())
}

fn damage_and_read(pool: &Pool<Mapped>, victims: &[RawPtr]) -> anyhow::Result<()> {
    let m = pool.medium();
    let mut bytes = [0; LEN];
    for victim in victims {
        let at = victim.offset() + 40;
        let mut byte = [0];
        m.read(at, &mut byte)?;
        m.begin_write();
        m.put(STRAY, at, &[!byte[0]])?;
        m.end_write();
        pool.run(|tx| tx.read_bytes(*victim, 0, &mut bytes))?;
    }
    Ok(())
}
