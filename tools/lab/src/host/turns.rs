//! Scene after scene, and what all of them come to. A scene that cannot be played here is
//! left out, and those after it are played; that one failed is not forgotten for it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::Impossible;
use super::say::{self, say};
use crate::OPERATIONAL;
use crate::scenes::Scene;

/// How often a brief run may take by the clock what it may take of a processor: others may be at
/// work on this machine, but one that stands still has failed.
const BUSY: u32 = 4;

/// When all of it has to be over, if it has to.
///
/// It goes by what the emulators take of a processor, those of one lane one after the other, since
/// a clock would judge what else this machine does. Builds are not counted by either.
#[derive(Debug, Clone)]
pub(crate) struct Deadline {
    begun: Instant,
    within: Option<Duration>,
    /// What the emulators of each lane have taken.
    lanes: Arc<Mutex<BTreeMap<usize, Duration>>>,
}

impl Deadline {
    /// So long from now on, or never.
    pub(crate) fn new(within: Option<Duration>) -> Self {
        Self { begun: Instant::now(), within, lanes: Arc::default() }
    }

    /// An emulator of this lane took so much of a processor.
    pub(crate) fn took(&self, lane: usize, busy: Duration) {
        *self.lock().entry(lane).or_default() += busy;
    }

    /// How long there still is by the clock, but no longer than this.
    pub(crate) fn left(&self, most: Duration) -> Duration {
        let left = self.within.map(|within| (within * BUSY).saturating_sub(self.begun.elapsed()));
        left.map_or(most, |left| left.min(most))
    }

    /// Whether it is over.
    pub(crate) fn is_over(&self) -> bool {
        self.left(Duration::MAX).is_zero() || self.within.is_some_and(|most| self.longest() > most)
    }

    /// What the lane has taken that took most.
    fn longest(&self) -> Duration {
        self.lock().values().max().copied().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Duration>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (clock, longest) = (self.begun.elapsed(), self.longest());
        write!(f, "{:.1} s, emulators {:.1} s", clock.as_secs_f64(), longest.as_secs_f64())?;
        self.within.map_or(Ok(()), |within| write!(f, " of {} s", within.as_secs()))
    }
}

/// What the scenes came to, by their names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CameTo {
    passed: Vec<String>,
    /// Something is wrong with them, or they were not played before all of it had to be over.
    failed: Vec<String>,
    /// They could not be played to their end, for a reason of this machine's or this program's.
    broken: Vec<String>,
    /// They cannot be played here.
    skipped: Vec<String>,
}

impl CameTo {
    fn note(&mut self, name: &str, came: Came) {
        let names = match came {
            Came::Passed => &mut self.passed,
            Came::Failed => &mut self.failed,
            Came::Broken => &mut self.broken,
            Came::Skipped => &mut self.skipped,
        };
        names.push(name.to_owned());
    }

    /// The exit code: nothing that failed passes for anything else.
    pub(crate) fn code(&self, smoke: bool) -> u8 {
        if !self.failed.is_empty() {
            1
        } else if !self.broken.is_empty() || !self.skipped.is_empty() && !smoke {
            OPERATIONAL
        } else {
            0
        }
    }
}

impl fmt::Display for CameTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed", self.passed.len())?;
        let others =
            [(&self.failed, "FAILED"), (&self.broken, "broke off"), (&self.skipped, "not played")];
        for (names, what) in others.into_iter().filter(|(names, _)| !names.is_empty()) {
            write!(f, ", {} {what}: {}", names.len(), names.join(", "))?;
        }
        Ok(())
    }
}

/// Plays all scenes, each on one of so many machines, whatever becomes of the others. `play` is
/// told on which, and answers whether the scene passed.
pub(super) fn each<'a>(
    scenes: impl Iterator<Item = &'a Scene<'a>> + Send,
    deadline: &Deadline,
    machines: usize,
    play: &(dyn Fn(usize, &Scene<'_>) -> Result<bool> + Sync),
) -> CameTo {
    let (scenes, all) = (Mutex::new(scenes), Mutex::new(CameTo::default()));
    let lock_next = || scenes.lock().unwrap_or_else(PoisonError::into_inner).next();
    std::thread::scope(|scope| {
        for machine in 0..machines.max(1) {
            let (all, lock_next) = (&all, &lock_next);
            scope.spawn(move || {
                while let Some(scene) = lock_next() {
                    say::of((machines > 1).then_some(scene.name));
                    let came = one(scene, deadline, &|scene| play(machine, scene));
                    all.lock().unwrap_or_else(PoisonError::into_inner).note(scene.name, came);
                }
            });
        }
    });
    let mut all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    if deadline.is_over() && all.failed.is_empty() {
        println!("lab: FAILED: it took too long");
        all.failed.push("the time".to_owned());
    }
    say!("\nlab: {all}; {deadline}");
    all
}

/// What a scene came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Came {
    Passed,
    Failed,
    Broken,
    Skipped,
}

fn one(scene: &Scene<'_>, deadline: &Deadline, play: &dyn Fn(&Scene<'_>) -> Result<bool>) -> Came {
    let name = scene.name;
    if deadline.is_over() {
        say!("lab: {name} FAILED: there is no time left for it");
        return Came::Failed;
    }
    match play(scene) {
        Ok(true) => Came::Passed,
        Ok(false) => Came::Failed,
        Err(error) if error.is::<Impossible>() => {
            say!("skipped: {name}: {error:#}");
            Came::Skipped
        }
        Err(error) => {
            say!("lab: {name} broke off: {error:#}");
            Came::Broken
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::packages::impossible;
    use super::*;
    use crate::scenes::ALL;

    /// What comes of as many scenes as there are letters: one passes, fails, is impossible or
    /// breaks off.
    fn played(letters: &str, within: Option<Duration>) -> CameTo {
        played_on(letters, within, 1)
    }

    fn played_on(letters: &str, within: Option<Duration>, machines: usize) -> CameTo {
        let letters_left = Mutex::new(letters.chars());
        let scenes = ALL.iter().take(letters.len());
        let next = |_, _: &Scene<'_>| match letters_left.lock().unwrap().next() {
            Some('p') => Ok(true),
            Some('f') => Ok(false),
            Some('i') => Err(impossible("no loop devices").context("more of it")),
            _ => anyhow::bail!("it broke"),
        };
        each(scenes, &Deadline::new(within), machines, &next)
    }

    #[test]
    fn a_failure_stays_one_whatever_cannot_be_done_before_or_after() {
        for letters in ["f", "fi", "if", "pfi", "bf", "fb"] {
            assert_eq!(played(letters, None).code(true), 1, "{letters}");
            assert_eq!(played(letters, None).code(false), 1, "{letters}");
        }
        for letters in ["b", "bi", "ib", "pb"] {
            assert_eq!(played(letters, None).code(true), OPERATIONAL, "{letters}");
        }
    }

    #[test]
    fn what_cannot_be_played_is_left_out_alone_and_told() {
        let all = played("pip", None);
        assert_eq!((all.code(true), all.code(false)), (0, OPERATIONAL));
        assert_eq!((all.passed.len(), &all.skipped[..]), (2, &[ALL[1].name.to_owned()][..]));
        assert!(all.to_string().contains(&format!("1 not played: {}", ALL[1].name)), "{all}");
        assert_eq!(played("pp", None).code(false), 0);
    }

    #[test]
    fn several_machines_play_each_scene_once() {
        let all = played_on("pfibpp", None, 3);
        assert_eq!((all.passed.len(), all.failed.len()), (3, 1));
        assert_eq!((all.broken.len(), all.skipped.len()), (1, 1));
        assert_eq!(all.code(true), 1);
        // Two that wait for each other: only if they are played at once does it end.
        let meet = std::sync::Barrier::new(2);
        let all = each(ALL.iter().take(2), &Deadline::new(None), 2, &|machine, _| {
            meet.wait();
            Ok(machine < 2)
        });
        assert_eq!(all.passed.len(), 2);
    }

    #[test]
    fn what_there_is_no_time_for_has_failed() {
        let all = played("pp", Some(Duration::ZERO));
        assert_eq!((all.code(true), all.failed.len(), all.passed.len()), (1, 2, 0));
        let late = Deadline::new(Some(Duration::from_millis(500)));
        let all = each(ALL.iter().take(1), &late, 1, &|_, _| {
            while !late.is_over() {
                std::thread::sleep(Duration::from_millis(40));
            }
            Ok(true)
        });
        assert_eq!((all.code(true), all.passed.len()), (1, 1), "it passed, but too late");
        assert_eq!(played("p", Some(Duration::from_secs(600))).code(true), 0);
    }

    #[test]
    fn a_machine_has_no_longer_than_all_of_it() {
        let most = Duration::from_secs(900);
        assert_eq!(Deadline::new(None).left(most), most);
        assert!(Deadline::new(Some(Duration::from_secs(5))).left(most) <= Duration::from_secs(20));
    }

    #[test]
    fn emulators_that_take_too_much_of_a_processor_have_failed_whatever_the_clock_says() {
        let minute = Duration::from_secs(60);
        let limit = Deadline::new(Some(4 * minute));
        let beside = limit.clone();
        for lane in [0, 1, 0, 1] {
            beside.took(lane, 2 * minute);
        }
        assert!(!limit.is_over(), "each lane has its four minutes");
        let all = each(ALL.iter().take(2), &limit, 1, &|lane, _| {
            limit.took(lane, minute);
            Ok(true)
        });
        assert_eq!((all.passed.len(), all.failed.len(), all.code(true)), (1, 1, 1));
        assert!(limit.to_string().contains("emulators 300.0 s of 240 s"), "{limit}");
        let never = Deadline::new(None);
        never.took(0, 900 * minute);
        assert!(!never.is_over());
    }
}
