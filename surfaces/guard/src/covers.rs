//! Passes, and covering what programs sync. Both may take long, so others are served meanwhile; who
//! wants something covered then waits until what is under way is over, since no two passes go over
//! one file at a time.
//!
//! Where redundancy has to outlive a power cut, a pass syncs the data first. All that the program
//! wrote since the last time may have to go to the disk then, so that is done before, on a thread.
//!
//! A pace spreads passes over time. It holds for all files together, so others' passes wait, too.
//!
//! | the file that is synced | what is answered, and when |
//! |---|---|
//! | is guarded | *covered*, once it is |
//! | a program still tells what it has of it | the same, when all is told |
//! | is about to be let go of, and who syncs has it | the same: it is not let go of |
//! | is about to be let go of | *covered*, once the last pass is made |
//! | was let go of, or a pass went wrong; or it took longer than programs wait | *not covered* |
//!
//! What is not covered counts as no sync: the next pass has it, and the program's own sync is made
//! in any case.

use std::os::fd::OwnedFd;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

use holdfast_guard_wire::Answer;
use holdfast_mapped::Rearm;

use crate::file::Guarded;
use crate::serve::{Guard, MOST_PEERS, NAP};

/// A pass that takes longer than this lets others be served.
const PATIENCE: Duration = Duration::from_millis(2);

/// A program that waits until what it syncs is covered.
#[derive(Debug)]
pub(crate) struct Covering {
    peer: OwnedFd,
    process: u32,
    file: usize,
    at: u64,
    len: u64,
    since: Instant,
    /// It has the file, which was about to be let go of: so that is broken off.
    holds: bool,
}

impl Covering {
    pub(crate) fn new(peer: OwnedFd, process: u32, file: u32, (at, len): (u64, u64)) -> Self {
        let since = Instant::now();
        Self { peer, process, file: file as usize, at, len, since, holds: false }
    }

    fn is_whole(&self) -> bool {
        self.at == 0 && self.len == u64::MAX
    }
}

/// What becomes of a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It can be covered.
    Now,
    /// As soon as the file may be judged, or it is clear what becomes of it.
    Later,
    Is(Answer),
}

/// Covered.
const YES: Answer = Answer::Done;
/// Not covered, and nobody is to believe so.
const NO: Answer = Answer::Unguarded;

impl Guard {
    /// Passes a signal on in the middle of something else.
    pub(crate) fn pass_on_now(&mut self) {
        let child = self.child.as_mut();
        let lives = child.is_some_and(|child| matches!(child.try_wait(), Ok(None)));
        self.pass_on(lives);
    }

    /// Whether programs run that work goes on beside, and nobody waits for it.
    pub(crate) fn is_unhurried(&self) -> bool {
        !self.spaces.is_empty() && self.covers.is_empty() && self.settling.is_empty()
    }

    /// A pass over a file, between whose steps others are served; whether it was made.
    pub(crate) fn pass_in_steps(&mut self, index: usize, synced: bool) -> bool {
        // Who syncs wants to know of damage from here on.
        let rearm = if synced { Rearm::All } else { Rearm::WhereItPays };
        self.pass_by(index, rearm, synced)
    }

    /// The same, and what is protected again is said.
    pub(crate) fn pass_by(&mut self, index: usize, rearm: Rearm, synced: bool) -> bool {
        self.sync_first(index);
        // Others were served meanwhile.
        let settles = self.settles(index);
        let engine = self.files.get(&index).filter(|_| !settles);
        let engine = engine.and_then(|file| file.to_pass(synced));
        let Some(engine) = engine else { return false };
        let done = engine.pass_in_steps(rearm, &mut |bytes| self.between_steps(bytes, synced));
        drop(engine);
        let well = done.is_ok();
        if let Some(file) = self.files.get_mut(&index) {
            file.note(Some(done));
        }
        well
    }

    /// A pass over a file, or one as soon as what is under way is over.
    pub(crate) fn pass_soon(&mut self, index: usize) {
        if self.nested {
            self.schedule.hurry(index);
        } else {
            self.pass_in_steps(index, false);
        }
    }

    /// Serves whoever waits, in the middle of something else.
    fn serve_between(&mut self, patience: Duration) {
        let nested = core::mem::replace(&mut self.nested, true);
        self.serve(patience);
        self.served = Instant::now();
        self.nested = nested;
    }

    /// The same if nobody was served for a while.
    pub(crate) fn serve_now_and_then(&mut self) {
        if self.served.elapsed() >= PATIENCE {
            self.serve_between(Duration::ZERO);
        }
    }

    /// A step of a pass is made. The next one is put off as far as the pace wants it, unless
    /// somebody waits for the pass, or nobody is left who is to be spared.
    fn between_steps(&mut self, bytes: u64, synced: bool) {
        self.serve_now_and_then();
        let wait = Duration::from_nanos(self.pace.wait_after(self.clock.now(), bytes));
        let until = Instant::now() + wait;
        while !synced && self.is_unhurried() && Instant::now() < until {
            self.serve_between(NAP.min(until.saturating_duration_since(Instant::now())));
            self.pass_on_now();
            self.look_around();
        }
    }

    /// Has the data of a file synced, if a pass is to do so and there is something new. It stays to
    /// be done by the pass where it cannot be had.
    fn sync_first(&mut self, index: usize) {
        let slow = self.options.slow;
        let Some(file) = self.files.get_mut(&index).and_then(Guarded::unsynced) else { return };
        let work = move || {
            std::thread::sleep(slow);
            // What is wrong with it, the pass finds as well.
            let _ = file.sync_data();
        };
        let Ok(done) = self.asks.start(work) else { return };
        while matches!(done.try_recv(), Err(TryRecvError::Empty)) {
            self.serve_between(NAP);
        }
    }

    /// A program syncs: what it wrote is covered before it is answered.
    pub(crate) fn cover_for(&mut self, mut wish: Covering) {
        let ending = self.asks.ending.iter().find(|file| file.number as usize == wish.file);
        if let Some(ending) = ending
            && ending.eyes.watch(|watch| watch.is_held_by(wish.process))
        {
            wish.holds = true;
            ending.call.want();
        }
        match self.fate(&wish) {
            Fate::Is(answer) => self.answer_cover(&wish, answer),
            // Those who have still to tell what the file waits for have to find room.
            Fate::Later if self.covers.len() >= MOST_PEERS / 2 => self.answer_cover(&wish, NO),
            Fate::Later => self.covers.push_back(wish),
            Fate::Now => {
                let file = self.files.get(&wish.file);
                let long = wish.is_whole() || file.is_some_and(Guarded::is_durable);
                if self.nested && long {
                    self.covers.push_back(wish);
                } else {
                    self.cover_all(wish.file, vec![wish]);
                }
            }
        }
    }

    fn fate(&self, wish: &Covering) -> Fate {
        let patient = wish.since.elapsed() < self.options.patience;
        let later = if patient { Fate::Later } else { Fate::Is(NO) };
        if !self.options.cover_on_sync {
            return Fate::Is(NO);
        }
        if self.files.contains_key(&wish.file) {
            return if self.settles(wish.file) { later } else { Fate::Now };
        }
        let mut ending = self.asks.ending.iter();
        match ending.find(|file| file.number as usize == wish.file) {
            // Who does not have it wrote to it before it was about to be let go of, if at all.
            Some(ending) if ending.call.covered() && !wish.holds => Fate::Is(YES),
            Some(_) => later,
            None => Fate::Is(NO),
        }
    }

    fn answer_cover(&mut self, wish: &Covering, answer: Answer) {
        self.send(&wish.peer, Some(wish.process), Ok(answer));
    }

    /// A file was let go of: answers who syncs it.
    pub(crate) fn answer_closed(&mut self, at: usize) {
        let Some(ending) = self.asks.ending.get(at) else { return };
        let (file, covered) = (ending.number as usize, ending.call.covered());
        let all = core::mem::take(&mut self.covers);
        let (now, later): (Vec<_>, Vec<_>) = all.into_iter().partition(|it| it.file == file);
        self.covers = later.into();
        for wish in now {
            self.answer_cover(&wish, if covered && !wish.holds { YES } else { NO });
        }
    }

    /// Covers what programs have been waiting for, file by file.
    pub(crate) fn cover_waiting(&mut self) {
        let mut at = 0;
        while let Some(wish) = self.covers.get(at) {
            match self.fate(wish) {
                Fate::Later => at += 1,
                Fate::Is(answer) => {
                    if let Some(wish) = self.covers.remove(at) {
                        self.answer_cover(&wish, answer);
                    }
                }
                Fate::Now => {
                    let file = wish.file;
                    let all = core::mem::take(&mut self.covers);
                    let (now, later): (Vec<_>, Vec<_>) =
                        all.into_iter().partition(|it| it.file == file);
                    self.covers = later.into();
                    self.cover_all(file, now);
                    at = 0;
                }
            }
        }
    }

    /// All of a file at once, for whoever wants that; or parts of it. Who comes to tell of the file
    /// meanwhile keeps them waiting on.
    fn cover_all(&mut self, index: usize, wishes: Vec<Covering>) {
        let whole = wishes.iter().any(Covering::is_whole);
        let passed = if whole {
            self.pass_in_steps(index, true)
        } else {
            self.sync_first(index);
            false
        };
        if let (true, Some(file)) = (passed, self.files.get_mut(&index)) {
            file.synced(wishes.len() as u64);
        }
        for wish in wishes {
            let ready = self.fate(&wish) == Fate::Now;
            let file = self.files.get_mut(&index).filter(|_| ready && !whole);
            if passed || file.is_some_and(|file| file.cover(wish.at, wish.len)) {
                self.answer_cover(&wish, YES);
            } else if self.fate(&wish) == Fate::Later {
                self.covers.push_back(wish);
            } else {
                self.answer_cover(&wish, NO);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::release::tests::{guarded, holds};
    use crate::settling::Settling;
    use holdfast_guard_wire::MESSAGE;

    /// A guard with one file, and a program that syncs; skipped where no guard can be.
    fn with_file(slow: Duration) -> Option<(Guard, tempfile::TempDir)> {
        let folder = tempfile::tempdir().unwrap();
        let mut guard = match Guard::prepare(Options { slow, ..Options::new("/nowhere".into()) }) {
            Ok((guard, _)) => guard,
            Err(error) => {
                println!("skipped: {error}");
                return None;
            }
        };
        guard.files.insert(0, guarded(&folder.path().join("a.db")));
        Some((guard, folder))
    }

    /// Syncs by way of this process or another; the end at which the answer comes.
    fn sync(guard: &mut Guard, process: u32) -> OwnedFd {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (here, there) = socketpair(family, kind, SocketFlags::NONBLOCK, None).unwrap();
        guard.cover_for(Covering::new(there, process, 0, (0, u64::MAX)));
        here
    }

    fn answer(of: &OwnedFd) -> Option<Answer> {
        let mut bytes = [0; MESSAGE];
        let (len, _) = holdfast_guard_wire::link::receive(of, &mut bytes).ok()??;
        Some(Answer::decode(&bytes[..len]).unwrap())
    }

    #[test]
    fn who_syncs_what_is_still_being_told_waits_and_is_covered() {
        let _alone = crate::alone();
        let Some((mut guard, _folder)) = with_file(Duration::ZERO) else { return };
        let me = std::process::id();
        guard.settling.push(Settling::new(7, me, Some(0)));
        let waits = sync(&mut guard, me);
        guard.cover_waiting();
        assert_eq!(answer(&waits), None, "nothing is covered yet");
        guard.settle(7, Some(0));
        guard.cover_waiting();
        assert_eq!(answer(&waits), Some(YES));
        assert_eq!(guard.files.get_mut(&0).unwrap().report().covered_on_sync, 1);
        // Not for longer than the program does.
        guard.options.patience = Duration::from_millis(5);
        guard.settling.push(Settling::new(7, me, Some(0)));
        let late = sync(&mut guard, me);
        // All the others would be in the way of who tells.
        let refused = sync(&mut guard, me);
        assert_eq!((answer(&late), answer(&refused)), (None, Some(NO)));
        std::thread::sleep(Duration::from_millis(10));
        guard.cover_waiting();
        assert_eq!(answer(&late), Some(NO));
        assert_eq!(guard.files.get_mut(&0).unwrap().report().covered_on_sync, 1);
    }

    #[test]
    fn who_syncs_what_is_about_to_be_let_go_of_is_covered() {
        let _alone = crate::alone();
        for has_it in [true, false] {
            let Some((mut guard, folder)) = with_file(Duration::from_millis(200)) else { return };
            let mut child = has_it.then(|| holds(&folder.path().join("a.db")));
            let process = child.as_ref().map_or(1, std::process::Child::id);
            let file = guard.files.remove(&0).unwrap();
            guard.close(0, file);
            let waits = sync(&mut guard, process);
            guard.cover_waiting();
            assert_eq!(answer(&waits), None, "nothing is covered yet");
            while !guard.join_ending() {
                std::thread::sleep(Duration::from_millis(2));
            }
            guard.cover_waiting();
            assert_eq!(answer(&waits), Some(YES));
            assert_eq!(guard.files.contains_key(&0), has_it, "who has it has it back");
            let synced = guard.files.get_mut(&0).map(|file| file.report().covered_on_sync);
            assert_eq!(synced, has_it.then_some(1));
            if let Some(child) = &mut child {
                drop(child.stdin.take());
                child.wait().unwrap();
            }
            if !has_it {
                let gone = sync(&mut guard, process);
                assert_eq!(answer(&gone), Some(NO), "nobody guards it any more");
            }
        }
    }
}
