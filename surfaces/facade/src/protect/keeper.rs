//! The thread that covers what was stored, by its period.

use core::time::Duration;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use holdfast_mapped::trace;
use holdfast_pmem::call::start_thread;
use holdfast_redundancy::Pace;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::error::{Error, ErrorKind, Result};
use crate::protect::file;
use crate::protect::live::Shared;
use crate::protect::options::ProtectOptions;

/// The thread of one mapped file.
#[derive(Debug)]
pub(crate) struct Keeper {
    state: Arc<Wish>,
    thread: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Wish {
    wish: Mutex<Wishes>,
    told: Condvar,
}

#[derive(Debug, Default)]
struct Wishes {
    paused: bool,
    stop: bool,
    /// It is at a pass.
    busy: bool,
}

impl Wish {
    fn lock(&self) -> MutexGuard<'_, Wishes> {
        self.wish.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Wishes)) {
        change(&mut self.lock());
        self.told.notify_all();
    }

    /// Lets time go by, unless it is to end.
    fn wait(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut wishes = self.lock();
        while !wishes.stop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.told.wait_timeout(wishes, left);
            wishes = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until the next pass is due; false if it is to end.
    fn due(&self, next: &mut Instant, period: Duration) -> bool {
        // One that lasted longer than its period is followed by the next at once.
        *next = Instant::now().max(*next + period);
        let next = *next;
        let mut wishes = self.lock();
        loop {
            let left = next.saturating_duration_since(Instant::now());
            if wishes.stop {
                return false;
            }
            if left.is_zero() && !wishes.paused {
                wishes.busy = true;
                return true;
            }
            // One that is paused waits to be told.
            let wait = if left.is_zero() { period.max(Duration::from_millis(10)) } else { left };
            let waited = self.told.wait_timeout(wishes, wait);
            wishes = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Keeper {
    /// Starts the thread.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        options: &ProtectOptions,
        trace: Option<File>,
    ) -> io::Result<Self> {
        let how = How {
            period: options.period,
            scrub_regions: options.scrub_regions,
            processor: options.processor,
            pace: Pace::new(options.pace),
            trace,
        };
        let state = Arc::new(Wish::default());
        let (wish, weak) = (Arc::clone(&state), Arc::downgrade(shared));
        let thread = start_thread("holdfast-keeper", move || keep(&wish, &weak, how))?;
        Ok(Self { state, thread })
    }

    /// No passes from now on.
    pub(crate) fn pause(&self) {
        self.state.change(|wishes| wishes.paused = true);
        let mut wishes = self.state.lock();
        while wishes.busy && thread::current().id() != self.thread.thread().id() {
            wishes = self.state.told.wait(wishes).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Passes go on.
    pub(crate) fn resume(&self) {
        self.state.change(|wishes| wishes.paused = false);
    }

    /// Ends the thread, after a pass that is under way.
    pub(crate) fn stop(self) {
        self.state.change(|wishes| wishes.stop = true);
        // One that panicked has left pages uncovered, which is known of them.
        let _ = self.thread.join();
    }
}

/// How the thread works.
#[derive(Debug)]
struct How {
    period: Duration,
    scrub_regions: u32,
    processor: Option<usize>,
    pace: Pace,
    trace: Option<File>,
}

/// An empty trace, in place of an older one that nobody is writing any more. Whoever writes one has
/// its lock; nothing but a trace is overwritten.
pub(crate) fn begin_trace(path: &Path) -> Result<File> {
    let failed = |error: io::Error| file::failed(path, &error);
    let refused = |what| {
        let remedy = "name another place for the trace; it was not changed";
        Err(Error::new(ErrorKind::Refused, what).with_remedy(remedy).at(path))
    };
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    // A pipe would keep us waiting.
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut file = options.custom_flags(flags).open(path).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return refused("is no regular file");
    }
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return refused("somebody is just writing another trace there"),
        Err(error) => return Err(failed(error.into())),
    }
    let mut start = Vec::new();
    let title = trace::title();
    let read = Read::by_ref(&mut file).take(title.len() as u64).read_to_end(&mut start);
    read.map_err(failed)?;
    if !start.is_empty() && start != title.as_bytes() {
        return refused("is there, and is no trace");
    }
    let emptied = file.set_len(0).and_then(|()| file.seek(SeekFrom::Start(0)));
    emptied.and_then(|_| file.write_all(title.as_bytes())).map_err(failed)?;
    Ok(file)
}

fn keep(wish: &Wish, shared: &Weak<Shared>, mut how: How) {
    if let Some(number) = how.processor.filter(|number| *number < CpuSet::MAX_CPU) {
        let mut only = CpuSet::new();
        only.set(number);
        // One that is not for us: the system's choice is as good.
        let _ = sched_setaffinity(None, &only);
    }
    let mut next = Instant::now();
    while wish.due(&mut next, how.period) {
        if let Some(shared) = shared.upgrade() {
            // What fails is noted, and tried again.
            let _ = shared.pass_at(&mut |now, bytes| {
                let wait = Duration::from_nanos(how.pace.wait_after(now, bytes));
                wish.wait(wait);
            });
            for _ in 0..how.scrub_regions {
                shared.scrub_step();
            }
            write_trace(&mut how.trace, &shared);
        }
        wish.change(|wishes| wishes.busy = false);
    }
    if let Some(shared) = shared.upgrade() {
        write_trace(&mut how.trace, &shared);
    }
}

/// Adds what passes found. A trace that cannot be written ends, and nothing else.
fn write_trace(to: &mut Option<File>, shared: &Shared) {
    let windows = shared.take_trace();
    let written = |mut file: &File| {
        windows.iter().try_for_each(|window| file.write_all(window.line().as_bytes()))
    };
    if to.as_ref().is_some_and(|file| written(file).is_err()) {
        *to = None;
    }
}
