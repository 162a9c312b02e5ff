//! Who works with a protected file: a guard is named as such, with the time since when.

use std::path::{Path, PathBuf};

use holdfast::ErrorKind;
use holdfast::protect::side_path;

use crate::failure::{Failure, Outcome};
use crate::size::show_time;

/// A process that has the side file of a protected file.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) process: u32,
    /// When it began, in nanoseconds since 1970; 0 if that is not told.
    pub(crate) since_ns: u64,
    /// It is a guard, rather than a command or a program that protects its own file.
    pub(crate) guards: bool,
}

impl Keeper {
    /// What `/proc` says of a process.
    pub(crate) fn of(process: u32) -> Self {
        let read =
            |what: &str| std::fs::read(format!("/proc/{process}/{what}")).unwrap_or_default();
        let words = read("cmdline");
        let mut words = words.split(|byte| *byte == 0).skip(1).take_while(|word| *word != b"--");
        let guards = read("comm").trim_ascii_end() == b"holdfast" && words.any(|w| w == b"guard");
        let since_ns = began(&read("stat")).unwrap_or(0);
        Self { process, since_ns, guards }
    }

    /// In words.
    pub(crate) fn words(&self) -> String {
        let how = if self.guards { "guarded" } else { "in use" };
        let since = match self.since_ns {
            0 => String::new(),
            at => format!(" since {}", show_time(at)),
        };
        format!("{how} by process {}{since}", self.process)
    }
}

/// When a process began, by its `stat`.
fn began(stat: &[u8]) -> Option<u64> {
    let behind = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = core::str::from_utf8(stat.get(behind + 1..)?).ok()?;
    // The state is the third field, the beginning the 22nd, counted in ticks from that of the
    // machine.
    let ticks: u64 = rest.split_ascii_whitespace().nth(19)?.parse().ok()?;
    let machine = std::fs::read_to_string("/proc/stat").ok()?;
    let machine = machine.lines().find_map(|line| line.strip_prefix("btime "))?;
    let machine: u64 = machine.trim().parse().ok()?;
    let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    machine.checked_mul(1_000_000_000)?.checked_add(ticks.checked_mul(tick)?)
}

/// The outcome of a command on a protected file; if somebody guards it, that is said.
pub(crate) fn explained<T>(done: Outcome<T>, file: &Path, side: Option<&PathBuf>) -> Outcome<T> {
    let Err(Failure::Pool(error)) = done else { return done };
    let side = side.cloned().unwrap_or_else(|| side_path(file));
    let taken = matches!(error.kind(), ErrorKind::Locked | ErrorKind::Exists);
    let holder = if taken { holdfast_pmem::Mapped::writer_of(&side).ok().flatten() } else { None };
    match holder.flatten().map(Keeper::of).filter(|keeper| keeper.guards) {
        Some(keeper) => Err(Failure::new(
            "locked",
            format!("{}: it is {}", file.display(), keeper.words()),
            "it is checked and repaired there; `holdfast status` shows what is covered; wait until \
             the program there has ended; nothing was changed",
        )),
        None => Err(Failure::Pool(error)),
    }
}
