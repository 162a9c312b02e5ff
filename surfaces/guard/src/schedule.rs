//! When each file is due: files may have periods of their own.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::choose::fits;
use crate::options::Options;

/// A new process is given at least so long to introduce itself: between two looks at who is there.
const INTRODUCTION: Duration = Duration::from_millis(100);

/// The times of all files, and of a look at who is there.
#[derive(Debug)]
pub(crate) struct Schedule {
    general: Due,
    /// The last look at who is there.
    looked: Instant,
    periods: Vec<(String, Duration)>,
    files: BTreeMap<usize, Due>,
}

/// What is done again and again.
#[derive(Debug, Clone, Copy)]
struct Due {
    period: Duration,
    /// When it is to be done next.
    at: Instant,
    /// When it was begun last: what was stored since is not covered.
    since: Instant,
    /// The longest time between the beginning of one pass and the end of the next.
    oldest: Duration,
}

impl Due {
    fn new(period: Duration, now: Instant) -> Self {
        Self { period, at: now + period, since: now, oldest: Duration::ZERO }
    }

    fn done(&mut self, began: Instant, ended: Instant) {
        self.oldest = self.oldest.max(ended.saturating_duration_since(self.since));
        self.since = began;
        // One that took longer than its period is followed by the next at once.
        self.at = (self.at + self.period).max(ended);
    }
}

impl Schedule {
    pub(crate) fn new(options: &Options) -> Self {
        let general = Due::new(options.period, Instant::now());
        let (periods, files) = (options.periods.clone(), BTreeMap::new());
        Self { looked: general.since, general, periods, files }
    }

    /// A file, under its number.
    pub(crate) fn add(&mut self, file: usize, path: &Path) {
        let own = self.periods.iter().find(|(glob, _)| fits(glob, path));
        let period = own.map_or(self.general.period, |(_, period)| *period);
        self.files.insert(file, Due::new(period, Instant::now()));
    }

    /// A file that is not looked after any more.
    pub(crate) fn remove(&mut self, file: usize) {
        self.files.remove(&file);
    }

    /// A file is due now.
    pub(crate) fn hurry(&mut self, file: usize) {
        if let Some(due) = self.files.get_mut(&file) {
            due.at = due.at.min(Instant::now());
        }
    }

    /// A file that is due cannot be looked at: not before so long.
    pub(crate) fn put_off(&mut self, file: usize, by: Duration) {
        if let Some(due) = self.files.get_mut(&file) {
            due.at = Instant::now() + by;
        }
    }

    /// When something is due.
    pub(crate) fn next(&self) -> Instant {
        self.files.values().fold(self.general.at, |next, due| next.min(due.at))
    }

    /// The files that are due; `None` if not even a look is.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Vec<usize>> {
        let ready = |due: &Due| due.at <= now;
        let due = self.files.iter().filter(|(_, due)| ready(due));
        let files: Vec<usize> = due.map(|(file, _)| *file).collect();
        let general = ready(&self.general);
        if general {
            self.general.done(now, now);
        }
        (general || !files.is_empty()).then_some(files)
    }

    /// Whether it is time for a look at who is there: never sooner after the last than the shortest
    /// period, since a new process is given from one look to the next to introduce itself.
    pub(crate) fn look(&mut self, now: Instant) -> bool {
        let shortest = self.files.values().map(|due| due.period).min();
        let shortest = shortest.map_or(self.general.period, |own| own.min(self.general.period));
        let due = now.saturating_duration_since(self.looked) >= shortest.max(INTRODUCTION);
        if due {
            self.looked = now;
        }
        due
    }

    /// A pass over a file was made.
    pub(crate) fn done(&mut self, file: usize, began: Instant) {
        if let Some(due) = self.files.get_mut(&file) {
            due.done(began, Instant::now());
        }
    }

    /// Period of a file, and the longest that a store to it went uncovered until now.
    pub(crate) fn of(&self, file: usize) -> (Duration, Duration) {
        self.files.get(&file).map_or((self.general.period, Duration::ZERO), |due| {
            (due.period, due.oldest.max(due.since.elapsed()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_has_its_own_time() {
        let mut options = Options::new("/lib".into());
        options.period = Duration::from_secs(10);
        let quick = ("*.log".to_owned(), Duration::from_secs(1));
        options.periods = vec![quick, ("/a/*".to_owned(), Duration::from_secs(3))];
        let mut schedule = Schedule::new(&options);
        for (file, path) in ["/a/x.log", "/a/y.db", "/b/z.db", "/a/gone.log"].iter().enumerate() {
            schedule.add(file, Path::new(path));
        }
        schedule.remove(3);
        let start = Instant::now();
        let seconds = Duration::from_secs;
        assert!(schedule.next() <= start + seconds(1));
        let mut passes = [0; 3];
        for second in 0..=30 {
            let now = start + seconds(second);
            for file in schedule.due(now).unwrap_or_default() {
                passes[file] += 1;
                schedule.files.get_mut(&file).unwrap().done(now, now);
            }
        }
        assert_eq!(passes, [30, 10, 3]);
        let (start, half) = (start + seconds(60), Duration::from_millis(500));
        let looks = [start, start + half, start + 2 * half, start + 3 * half];
        assert_eq!(looks.map(|now| schedule.look(now)), [true, false, true, false]);
        assert_eq!(schedule.of(1).0, seconds(3));
        assert!(schedule.of(2).1 < seconds(11) && schedule.of(2).1 >= seconds(9));
    }

    #[test]
    fn a_pass_that_takes_too_long_is_told_and_followed_at_once() {
        let start = Instant::now();
        let mut due = Due::new(Duration::from_secs(1), start);
        let late = start + Duration::from_secs(7);
        due.done(start + Duration::from_secs(1), late);
        assert_eq!((due.at, due.oldest), (late, Duration::from_secs(7)));
    }
}
