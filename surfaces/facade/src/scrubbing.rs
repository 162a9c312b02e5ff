//! The scrub of a pool: one at a time, followed at each step, stopped from other threads.
//!
//! The pool's own record of a pass is written now and then only, so that a pass costs few writes.
//! Where the one that runs is at this moment is kept beside it, in memory.

use core::time::Duration;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use holdfast_object::{ScrubControl, ScrubOptions, Scrubbed};
use holdfast_pmem::Medium;
use holdfast_redundancy::Progress;
use holdfast_redundancy::progress::ScrubState;

use crate::error::{Error, ErrorKind, Result};
use crate::pool::Pool;

/// How long a scrub that was told to stop is waited for,
const STOP_WAIT: Duration = Duration::from_secs(30);
/// and how often it is looked at.
const STOP_LOOK: Duration = Duration::from_millis(5);

/// What an open pool knows of its scrub.
#[derive(Debug, Default)]
pub(crate) struct Scrubbing {
    control: ScrubControl,
    /// Whether one runs.
    running: AtomicBool,
    /// Where that one is.
    live: Mutex<Option<Progress>>,
}

/// How far the scrub of a pool is or was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScrubStatus {
    /// Whether somebody works at it.
    pub running: bool,
    /// The pass: the one that runs, or the last.
    pub progress: Progress,
    /// Bytes of the pool.
    pub size: u64,
}

impl ScrubStatus {
    /// What the pass is doing in a word. One that nobody works at is not running, whatever its
    /// record says: a crash interrupted it.
    #[must_use]
    pub const fn state(&self) -> &'static str {
        match self.progress.state {
            ScrubState::Running if !self.running => "interrupted",
            ScrubState::Running => "running",
            ScrubState::Idle => "idle",
            ScrubState::Paused => "paused",
            ScrubState::Cancelled => "cancelled",
        }
    }

    pub(crate) fn words(&self) -> String {
        let Progress { pass, next, started_ns, scanned, objects, object_bytes, .. } = self.progress;
        let Progress { found, repaired, lost, undecided, state, .. } = self.progress;
        let state = STATES.iter().position(|known| *known == state).unwrap_or_default();
        format!(
            "{} {} {state} {pass} {next} {started_ns} {scanned} {objects} {object_bytes} {found} \
             {repaired} {lost} {undecided}",
            u8::from(self.running),
            self.size,
        )
    }

    pub(crate) fn parse(words: &[u64]) -> Option<Self> {
        let &[
            running,
            size,
            state,
            pass,
            next,
            started_ns,
            scanned,
            objects,
            object_bytes,
            found,
            repaired,
            lost,
            undecided,
        ] = words
        else {
            return None;
        };
        let state = *STATES.get(usize::try_from(state).ok()?)?;
        let progress = Progress {
            pass,
            next,
            started_ns,
            scanned,
            objects,
            object_bytes,
            found,
            repaired,
            lost,
            undecided,
            state,
        };
        Some(Self { running: running != 0, progress, size })
    }
}

/// The states by their numbers in answers.
const STATES: [ScrubState; 4] =
    [ScrubState::Idle, ScrubState::Running, ScrubState::Paused, ScrubState::Cancelled];

impl<M: Medium> Pool<M> {
    /// The same as [`check`](Self::check), and repairs what it finds. Only the column under repair
    /// waits meanwhile.
    ///
    /// # Errors
    /// Another scrub runs; or something other than damage stopped it.
    pub fn scrub(
        &self,
        options: ScrubOptions,
        mut progress: impl FnMut(&Progress, u64),
    ) -> Result<Scrubbed> {
        let own = &self.inner().scrubbing;
        let Some(_running) = own.begin() else {
            let error = Error::new(ErrorKind::Locked, "a scrub of this pool is running already");
            return Err(self.fail(error.with_remedy("wait for it, pause it or cancel it")));
        };
        own.control.run();
        let done = self.engine().scrub(options, &own.control, |state, all| {
            own.note(Some(*state));
            progress(state, all);
        });
        own.note(None);
        done.map_err(|error| self.fail(error))
    }

    /// Pauses, resumes or cancels the scrub that runs, from another thread.
    #[must_use]
    pub fn scrub_control(&self) -> &ScrubControl {
        &self.inner().scrubbing.control
    }

    /// How far the scrub is, also one of an earlier opening.
    #[must_use]
    pub fn scrub_progress(&self) -> Progress {
        self.scrub_status().progress
    }

    /// How far the scrub is, and whether it runs.
    #[must_use]
    pub fn scrub_status(&self) -> ScrubStatus {
        let live = self.inner().scrubbing.live();
        ScrubStatus {
            running: live.is_some(),
            progress: live.unwrap_or_else(|| self.engine().scrub_progress()),
            size: self.superblock().size,
        }
    }

    /// Makes the scrub that runs stop where it is, to be resumed later, and waits until it has.
    ///
    /// # Errors
    /// No scrub is running, or it does not stop.
    pub fn pause_scrub(&self) -> Result<ScrubStatus> {
        if self.stop_scrub(ScrubControl::pause)? {
            return Ok(self.scrub_status());
        }
        let error = Error::new(ErrorKind::NotFound, "no scrub is running");
        Err(self.fail(error.with_remedy("start or resume one")))
    }

    /// Makes the scrub that runs stop and forget where it was, or gives up one that was paused or
    /// interrupted: the next one starts from the front.
    ///
    /// # Errors
    /// There is none to be given up, or it does not stop.
    pub fn cancel_scrub(&self) -> Result<ScrubStatus> {
        if !self.stop_scrub(ScrubControl::cancel)? {
            let left = self.engine().scrub_progress().state;
            if !matches!(left, ScrubState::Paused | ScrubState::Running) {
                let error = Error::new(ErrorKind::NotFound, "no scrub is running or paused");
                return Err(self.fail(error.with_remedy("start one")));
            }
            let Some(_running) = self.inner().scrubbing.begin() else {
                return Err(self.fail(unstoppable()));
            };
            // A pass that goes on and is told to stop before its first step only says so.
            let control = ScrubControl::default();
            control.cancel();
            let options = ScrubOptions { resume: true, ..ScrubOptions::default() };
            self.engine().scrub(options, &control, |_, _| {}).map_err(|error| self.fail(error))?;
        }
        Ok(self.scrub_status())
    }

    /// Tells the scrub that runs to stop and waits for it; whether there was one.
    fn stop_scrub(&self, how: impl Fn(&ScrubControl)) -> Result<bool> {
        let own = &self.inner().scrubbing;
        let begun = Instant::now();
        let mut told = false;
        while own.running.load(Ordering::Acquire) {
            // Again and again: one that is just beginning sets out by forgetting what it was told.
            how(&own.control);
            told = true;
            if begun.elapsed() >= STOP_WAIT {
                return Err(self.fail(unstoppable()));
            }
            std::thread::sleep(STOP_LOOK);
        }
        Ok(told)
    }
}

fn unstoppable() -> Error {
    Error::new(ErrorKind::Locked, "the scrub that runs does not stop").with_remedy("try again")
}

/// A scrub that runs; there is at most one of a pool.
struct Running<'a>(&'a AtomicBool);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Scrubbing {
    /// Begins a scrub unless one runs.
    fn begin(&self) -> Option<Running<'_>> {
        (!self.running.swap(true, Ordering::AcqRel)).then(|| Running(&self.running))
    }

    fn note(&self, state: Option<Progress>) {
        *self.live.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    fn live(&self) -> Option<Progress> {
        *self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_goes_through_words() {
        for (number, state) in STATES.into_iter().enumerate() {
            let progress = Progress {
                pass: 1,
                next: 2,
                started_ns: 3,
                scanned: 4,
                objects: 10,
                object_bytes: 11,
                found: 5,
                repaired: 6,
                lost: 7,
                undecided: 8,
                state,
            };
            let status = ScrubStatus { running: number == 1, progress, size: 9 };
            let words: Vec<u64> =
                status.words().split(' ').map(|word| word.parse().unwrap_or(u64::MAX)).collect();
            assert_eq!(ScrubStatus::parse(&words), Some(status));
            assert_eq!(ScrubStatus::parse(&words[1..]), None);
        }
        assert_eq!(ScrubStatus::parse(&[0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), None);
    }
}
