//! Check, scrub and repair, with a function that is told how far they are.

use core::cell::RefCell;
use core::ffi::{c_int, c_void};

use holdfast::{CheckReport, Pool, ScrubControl, ScrubOptions, ScrubState, Verdict};

use crate::border::{Done, Fail, border, expect_sized, holdfast_code, put_sized};
use crate::pool::{POOLS, holdfast_pool, outside};

/// A function that is told how far a pass is, in bytes. A scrub that gets anything but 0 is
/// cancelled; a check goes on.
pub type holdfast_progress =
    Option<unsafe extern "C" fn(done: u64, all: u64, argument: *mut c_void) -> c_int>;

/// What a pass over a pool came to.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct holdfast_report {
    /// Objects looked at.
    pub objects: u64,
    /// Bytes of objects looked at.
    pub object_bytes: u64,
    /// Bytes of columns looked at.
    pub column_bytes: u64,
    /// Damages found.
    pub found: u64,
    /// Damages repaired; 0 of a check.
    pub repaired: u64,
    /// Damages beyond the redundancy; 0 of a check.
    pub lost: u64,
    /// Verdicts that could not be reached.
    pub undecided: u64,
    /// 1 if the pass was stopped before its end.
    pub stopped: u64,
}

fn report_of(seen: &CheckReport) -> holdfast_report {
    let undecided =
        seen.findings.iter().filter(|f| matches!(f.verdict, Verdict::Undecided(_))).count();
    holdfast_report {
        objects: seen.objects,
        object_bytes: seen.object_bytes,
        column_bytes: seen.column_bytes,
        found: seen.found,
        undecided: undecided as u64,
        ..Default::default()
    }
}

/// Checks every object, every column and every copy of metadata; changes nothing. Transactions of
/// other threads go on meanwhile. Damage found is told by the report, not by the code.
///
/// # Safety
/// `progress` is null or can be called with `argument`; `report` is null or points to a
/// `holdfast_report` and `size` is its `sizeof`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_check(
    pool: holdfast_pool,
    progress: holdfast_progress,
    argument: *mut c_void,
    report: *mut holdfast_report,
    size: usize,
) -> holdfast_code {
    border(|| {
        expect_sized(report, size)?;
        let pool = outside(pool)?;
        let seen = pool.check(|done, all| {
            if let Some(progress) = progress {
                // SAFETY: as the caller vouches.
                unsafe { progress(done, all, argument) };
            }
        })?;
        // SAFETY: as the caller vouches.
        unsafe { put_sized(report, size, &report_of(&seen)) }
    })
}

thread_local! {
    /// Handles of the pools this thread is scrubbing.
    static SCRUBBING: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// While it lives, this thread is known to scrub a pool.
struct Here;

impl Here {
    fn of(pool: holdfast_pool) -> Self {
        SCRUBBING.with_borrow_mut(|scrubbing| scrubbing.push(pool.id));
        Self
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        SCRUBBING.with_borrow_mut(|scrubbing| scrubbing.pop());
    }
}

/// What scrub and repair have in common.
///
/// # Safety
/// As `holdfast_check`.
unsafe fn pass(
    pool: holdfast_pool,
    options: ScrubOptions,
    progress: holdfast_progress,
    argument: *mut c_void,
    (report, size): (*mut holdfast_report, usize),
) -> Done {
    expect_sized(report, size)?;
    let owned = outside(pool)?;
    let _here = Here::of(pool);
    let done = owned.scrub(options, |state, all| {
        if let Some(progress) = progress {
            // SAFETY: as the caller vouches.
            let stop = unsafe { progress(state.next, all, argument) };
            if stop != 0 {
                owned.scrub_control().cancel();
            }
        }
    })?;
    let stopped = matches!(done.state, ScrubState::Paused | ScrubState::Cancelled).into();
    let told = holdfast_report {
        repaired: done.repaired,
        lost: done.lost,
        undecided: done.undecided,
        stopped,
        ..report_of(&done.report)
    };
    // SAFETY: as the caller vouches.
    unsafe { put_sized(report, size, &told) }
}

/// Checks the pool and repairs what it finds, at most `rate` bytes a second (0: as fast as it
/// can), from where an earlier pass stopped if `resume` is not 0; the report is that of the whole
/// pass. Transactions of other threads go on; only the column under repair waits.
/// `HOLDFAST_LOCKED` if a scrub of the pool is running.
///
/// # Safety
/// As `holdfast_check`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_scrub(
    pool: holdfast_pool,
    rate: u64,
    resume: c_int,
    progress: holdfast_progress,
    argument: *mut c_void,
    report: *mut holdfast_report,
    size: usize,
) -> holdfast_code {
    let options = ScrubOptions { rate: (rate > 0).then_some(rate), resume: resume != 0 };
    // SAFETY: as the caller vouches.
    border(|| unsafe { pass(pool, options, progress, argument, (report, size)) })
}

/// Repairs all damage there is: a whole scrub, as fast as it can. `HOLDFAST_DAMAGED` if something
/// is beyond the redundancy; the report is complete then too.
///
/// # Safety
/// As `holdfast_check`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_repair(
    pool: holdfast_pool,
    progress: holdfast_progress,
    argument: *mut c_void,
    report: *mut holdfast_report,
    size: usize,
) -> holdfast_code {
    border(|| {
        expect_sized(report, size)?;
        let mut told = holdfast_report::default();
        let place = (&raw mut told, size_of::<holdfast_report>());
        // SAFETY: `told` is a report; for the rest as the caller vouches.
        unsafe { pass(pool, ScrubOptions::default(), progress, argument, place)? };
        // SAFETY: as the caller vouches.
        unsafe { put_sized(report, size, &told)? };
        if told.lost == 0 {
            return Ok(());
        }
        let text = format!("{} damages are beyond the redundancy", told.lost);
        Err(Fail::new(holdfast_code::HoldfastDamaged, text))
    })
}

/// Pauses the scrub that runs, in this process or by itself, and returns once it has stopped; its
/// position is kept for `resume`. Called by the scrub's own function, it stops it at its next
/// step. `HOLDFAST_NOT_FOUND` if none runs.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_scrub_pause(pool: holdfast_pool) -> holdfast_code {
    border(|| stop(pool, |pool| pool.pause_scrub(), ScrubControl::pause))
}

/// Cancels the scrub that runs, or gives up one that was paused; otherwise as
/// `holdfast_scrub_pause`.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_scrub_cancel(pool: holdfast_pool) -> holdfast_code {
    border(|| stop(pool, |pool| pool.cancel_scrub(), ScrubControl::cancel))
}

/// Stops a scrub: waits for it, unless this thread is the one that is doing it.
fn stop<T>(
    pool: holdfast_pool,
    wait: impl FnOnce(&Pool) -> holdfast::Result<T>,
    tell: impl FnOnce(&ScrubControl),
) -> Done {
    let of = POOLS.get(pool.id)?;
    if SCRUBBING.with_borrow(|scrubbing| scrubbing.contains(&pool.id)) {
        tell(of.scrub_control());
        return Ok(());
    }
    // A scrub that writes where it was is a transaction, and this thread has one under way.
    wait(&*outside(pool)?)?;
    Ok(())
}
