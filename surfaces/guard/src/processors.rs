//! On which processors the supervisor works: what it computes is taken from somebody.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::Error;
use crate::options::Placement;
use crate::proc;

/// Lets the program have what is its own while it is started: what it inherits is what this thread
/// may use at that moment. Then this thread takes its place.
pub(crate) fn apart<T>(
    placement: Placement,
    start: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    let Placement::Own(number) = placement else { return start() };
    let all = sched_getaffinity(None).map_err(Error::io("sched_getaffinity"))?;
    let index = number as usize;
    if index >= CpuSet::MAX_CPU || !all.is_set(index) {
        return Err(Error::Processor { number, why: "this process may not use it" });
    }
    if all.count() < 2 {
        return Err(Error::Processor { number, why: "there is no other one for the program" });
    }
    let mut others = all;
    others.unset(index);
    let mut own = CpuSet::new();
    own.set(index);
    sched_setaffinity(None, &others).map_err(Error::io("sched_setaffinity"))?;
    let started = start();
    sched_setaffinity(None, &own).map_err(Error::io("sched_setaffinity"))?;
    started
}

/// Goes where the program ran last, if that is wanted.
pub(crate) fn follow(placement: Placement, program: u32) {
    if placement != Placement::Same {
        return;
    }
    if let Some(index) = proc::processor(program).filter(|index| *index < CpuSet::MAX_CPU) {
        let mut same = CpuSet::new();
        same.set(index);
        // One that is gone, or not for us: this is as good a place as any.
        let _ = sched_setaffinity(None, &same);
    }
}

/// Time that all processors together spent on this process, in nanoseconds.
pub(crate) fn spent() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one time, which lives across the call.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    if done == 0 { part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_of_its_own_is_left_free_by_the_program() {
        std::thread::spawn(|| {
            let before = sched_getaffinity(None).unwrap();
            let here = (0..CpuSet::MAX_CPU).find(|index| before.is_set(*index)).unwrap();
            let placement = Placement::Own(here as u32);
            let inside = apart(placement, || Ok(sched_getaffinity(None).unwrap()));
            if before.count() < 2 {
                eprintln!("skipped: one processor only");
                assert!(inside.is_err());
                return;
            }
            let (inside, after) = (inside.unwrap(), sched_getaffinity(None).unwrap());
            assert!(!inside.is_set(here) && inside.count() == before.count() - 1);
            assert!(after.is_set(here) && after.count() == 1);
            let error = apart(Placement::Own(9999), || Ok(())).unwrap_err();
            assert!(error.to_string().contains("9999"), "{error}");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn following_stays_on_one_processor_at_a_time() {
        std::thread::spawn(|| {
            follow(Placement::Same, std::process::id());
            assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        })
        .join()
        .unwrap();
        let before = spent();
        while spent() == before {}
    }
}
