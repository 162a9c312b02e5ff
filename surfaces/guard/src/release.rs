//! Letting go of files that nobody has any more: closed, and their numbers free for others.
//!
//! | step | who writes | who opens |
//! |---|---|---|
//! | nobody had it for a while | announces | finds it |
//! | it is *leaving* | announces | asks, and waits |
//! | nobody has it, nobody wrote: a last pass and look, on a thread | announces | has it back |
//! | nobody used it, or has it by no list, before and after (`lease.rs`) | the same | the same |
//! | nobody opens it any more | nobody | waits |
//! | closed, and out of the list | is seen by the date of the file | has it guarded anew |
//!
//! Guarded programs live on while the last look is made, and are not stopped for it. So whoever has
//! the file keeps it from being repaired, guarded or not; and one that wants it is not to wait for
//! all of the look: it is broken off, and the file is as if it had not been let go of.
//!
//! From the last question to the end nobody opens it, where the system grants a lease: who wants to
//! waits for the last syncs, and has it guarded anew then. Where it grants none, what the file is
//! dated is asked for first, and whether somebody was heard last, so that what is written in
//! between leaves another date than the side file has. A handle that is in no list was opened
//! before, and nobody is asked when it is taken out: so that one has to be found.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use crate::asks::Asker;
use crate::eyes::Eyes;
use crate::file::Guarded;
use crate::names::{self, Born, Named, born};
use crate::proc;
use crate::serve::Guard;
use crate::source::Source;
use crate::summary::FileReport;

/// A file that is being closed, since nobody had it any more.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) number: u32,
    pub(crate) key: (u64, u64),
    pub(crate) path: PathBuf,
    /// Names that it was given since.
    pub(crate) names: Vec<PathBuf>,
    /// Whoever was overlooked announces its writes there.
    pub(crate) source: Arc<Source>,
    /// Who is known is told there.
    pub(crate) eyes: Arc<Eyes>,
    pub(crate) call: Arc<Call>,
    found: Receiver<Option<Ended>>,
}

/// What is said to who looks at a file for the last time, and what that one says.
#[derive(Debug, Default)]
pub(crate) struct Call {
    wanted: AtomicBool,
    covered: AtomicBool,
    hurried: AtomicBool,
}

impl Call {
    /// Somebody wants it after all.
    pub(crate) fn want(&self) {
        self.wanted.store(true, Ordering::SeqCst);
    }

    /// Whether somebody does.
    pub(crate) fn wanted(&self) -> bool {
        self.wanted.load(Ordering::SeqCst)
    }

    /// Somebody waits until it is closed.
    pub(crate) fn hurry(&self) {
        self.hurried.store(true, Ordering::SeqCst);
    }

    /// Whether somebody does.
    pub(crate) fn is_hurried(&self) -> bool {
        self.hurried.load(Ordering::SeqCst)
    }

    /// The last pass over it is made.
    pub(crate) fn cover(&self) {
        self.covered.store(true, Ordering::SeqCst);
    }

    /// Whether what was written before it was to be closed is covered.
    pub(crate) fn covered(&self) -> bool {
        self.covered.load(Ordering::SeqCst)
    }
}

/// What became of a file that was to be closed.
#[derive(Debug)]
pub(crate) enum Ended {
    Closed(Box<FileReport>),
    /// Somebody wanted it before.
    Back(Box<Guarded>),
}

/// Who asks for a file that is being closed.
#[derive(Debug)]
pub(crate) struct Later {
    pub(crate) asker: Asker,
    pub(crate) with: OwnedFd,
    pub(crate) key: (u64, u64),
}

/// A file that was let go of: when it was made, its side file, and names that it had.
#[derive(Debug, Clone)]
pub(crate) struct Closed {
    pub(crate) born: Born,
    pub(crate) side: Named,
    pub(crate) names: Vec<PathBuf>,
}

impl Guard {
    /// Lets go of files that nobody had for so long.
    pub(crate) fn let_go(&mut self, after: Duration) {
        self.asks.looked = Instant::now();
        if self.files.is_empty() || self.attaches() {
            return;
        }
        let handed = self.handed();
        let held = self.held();
        let settling: BTreeSet<usize> =
            self.files.keys().copied().filter(|file| self.settles(*file)).collect();
        let mut idle = Vec::new();
        for (index, file) in &mut self.files {
            let had = held.as_ref().is_none_or(|held| held.contains(&file.key().1));
            let had = had || handed.has(file.key());
            if had || settling.contains(index) || !file.source.is_idle() || file.is_passed() {
                file.idle = None;
            } else if file.idle.get_or_insert_with(Instant::now).elapsed() >= after {
                idle.push(*index);
            }
        }
        if idle.is_empty() {
            return;
        }
        std::thread::sleep(self.options.slow);
        // Who has not found it by now has to ask; who has found it has it, and announces writes.
        idle.iter().for_each(|index| self.ledger.leaving(*index as u32));
        let known = self.known();
        let mut announced = Vec::new();
        for index in idle {
            if let Some(file) = self.files.get_mut(&index) {
                // What was heard until now was the doing of those who had it.
                file.look(&known);
                announced.push((index, self.ledger.announced(index as u32)));
            }
        }
        std::thread::sleep(self.options.slow);
        let (handed, held) = (self.handed(), self.held());
        for (index, before) in announced {
            let Some(file) = self.files.get(&index) else { continue };
            let had = held.as_ref().is_none_or(|held| held.contains(&file.key().1));
            let had = had || handed.has(file.key());
            // Who wrote meanwhile had it, wherever it is now.
            let quiet = file.source.is_idle() && self.ledger.announced(index as u32) == before;
            if had || !quiet {
                self.ledger.stay(index as u32);
            } else if let Some(file) = self.files.remove(&index) {
                self.close(index, file);
            }
        }
    }

    /// Closes a file that nobody has, on a thread of its own.
    pub(crate) fn close(&mut self, index: usize, mut file: Guarded) {
        self.tell_no_more(index, &file);
        let (period, oldest) = self.schedule.of(index);
        self.schedule.remove(index);
        file.know(&self.known());
        let scrub = self.options.final_scrub;
        let (number, key, path) = (index as u32, file.key(), file.path().to_path_buf());
        let side = file.names().1.clone();
        let mut names = file.names.clone();
        names::remember(&mut names, path.clone());
        let closed = side.map(|side| Closed { born: born(file.descriptor()), side, names });
        file.report().period = period;
        file.report().oldest = file.report().oldest.max(oldest);
        let (source, eyes) = (Arc::clone(&file.source), Arc::clone(file.eyes()));
        let call = Arc::new(Call::default());
        let heard = Arc::clone(&call);
        // Handed over once there is a thread, so that it is here if there is none.
        let (give, take) = channel::<Guarded>();
        let slow = self.options.slow;
        let work = move || {
            let file = take.recv().ok()?;
            std::thread::sleep(slow);
            Some(file.let_go(scrub, &heard))
        };
        match self.asks.start(work) {
            Ok(found) => {
                let names = Vec::new();
                let ending = Ending { number, key, path, names, source, eyes, call, found };
                self.asks.ending.push(ending);
                self.asks.closed.extend(closed.map(|closed| (key, closed)));
                // It waits for this.
                let _ = give.send(file);
            }
            Err(_) => self.keep(number, file),
        }
    }

    /// A file stays that was to be closed.
    fn keep(&mut self, number: u32, file: Guarded) {
        self.asks.closed.remove(&file.key());
        self.schedule.add(number as usize, file.path());
        self.files.insert(number as usize, file);
        self.ledger.stay(number);
        self.tell_of(number as usize);
    }

    /// Sees to files that are closed; whether there were any.
    pub(crate) fn join_ending(&mut self) -> bool {
        let (mut any, mut at) = (false, 0);
        while let Some(file) = self.asks.ending.get(at) {
            let ended = match file.found.try_recv() {
                Err(TryRecvError::Empty) => {
                    at += 1;
                    continue;
                }
                ended => ended.ok().flatten(),
            };
            any = true;
            if !matches!(ended, Some(Ended::Back(_))) {
                self.answer_closed(at);
            }
            let Ending { number, key, names, .. } = self.asks.ending.remove(at);
            match ended {
                Some(Ended::Back(file)) => self.take_back((number, key), *file, names),
                Some(Ended::Closed(report)) => {
                    if let Some(closed) = self.asks.closed.get_mut(&key) {
                        names.into_iter().for_each(|it| names::remember(&mut closed.names, it));
                    }
                    self.ledger.leave(number);
                    self.asks.free.push_back(number);
                    self.asks.reports.push(*report);
                }
                None => {
                    self.ledger.leave(number);
                    self.asks.free.push_back(number);
                    self.not_observed.push("a file could not be closed".to_owned());
                }
            }
        }
        any
    }

    /// Somebody wanted a file before it was closed: whoever did is told as of one that is guarded
    /// since now.
    fn take_back(
        &mut self,
        (number, key): (u32, (u64, u64)),
        mut file: Guarded,
        names: Vec<PathBuf>,
    ) {
        names.into_iter().for_each(|name| file.has_name(name));
        self.keep(number, file);
        self.follow_names();
        let all = core::mem::take(&mut self.asks.later);
        let (now, later): (Vec<_>, Vec<_>) = all.into_iter().partition(|it| it.key == key);
        self.asks.later = later;
        // Others who opened it meanwhile ask as well, or they are noticed not to have waited.
        self.tell_askers(number as usize, now.into_iter().map(|it| it.asker).collect());
    }

    /// Inodes of all files that any of those who are guarded, or come of them, have open or mapped,
    /// on whatever device. Processes that are about to introduce themselves are among them. `None`
    /// if one of them cannot be looked into: it may have any file.
    fn held(&self) -> Option<BTreeSet<u64>> {
        let me = std::process::id();
        let roots = self.spaces.values().map(|space| space.process).chain([me]).collect();
        let mut held = BTreeSet::new();
        for process in proc::family(&roots)?.into_iter().filter(|process| *process != me) {
            if !proc::files_of(process, &mut held) && !proc::is_dead(process) {
                return None;
            }
        }
        Some(held)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::choose::{Choice, side_of};
    use crate::clock::WallClock;
    use crate::foreign::Known;
    use crate::names::Beside;
    use holdfast_guard_wire::Ledger;
    use holdfast_mapped::ProtectOptions;
    use holdfast_pmem::Clock;
    use holdfast_pmem::track::ear::Hears;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;
    use std::path::Path;
    use std::process::{Child, Command, Stdio};

    const PAGE: u64 = 4096;

    pub(crate) fn guarded(path: &Path) -> Guarded {
        std::fs::write(path, vec![7; 64 * PAGE as usize]).unwrap();
        let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
        let side = Choice::Protect(side_of(path));
        let (ledger, clock) = (Arc::new(Ledger::create().unwrap()), WallClock::new());
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let how = (Hears::Everybody, Beside::Own);
        let (file, protect) = ((file, path.to_path_buf()), ProtectOptions::default());
        Guarded::begin(0, file, &side, &protect, (&ledger, &clock), how).unwrap()
    }

    /// Damage, by this process, which the guard takes for itself.
    fn rot(path: &Path) {
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.write_all_at(b"rotten", 5 * PAGE).unwrap();
    }

    /// A program that has the file, and does nothing with it.
    pub(crate) fn holds(path: &Path) -> Child {
        let script = format!("exec 3<>{}; echo; read end", path.display());
        let mut shell = Command::new("sh");
        let shell = shell.arg("-c").arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        let mut line = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        child
    }

    /// A socket with a handle of a file in it, which nobody else has.
    fn in_a_socket(path: &Path) -> (OwnedFd, OwnedFd) {
        use rustix::net::{
            AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
            SocketType, sendmsg, socketpair,
        };
        let (unix, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (to, from) = socketpair(unix, kind, SocketFlags::CLOEXEC, None).unwrap();
        let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
        let handles = [file.as_fd()];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        assert!(beside.push(SendAncillaryMessage::ScmRights(&handles)));
        let words = [std::io::IoSlice::new(b"x")];
        sendmsg(&to, &words, &mut beside, SendFlags::empty()).unwrap();
        (to, from)
    }

    /// Whoever takes it out of the socket has the file, and nobody asks.
    #[test]
    fn who_has_a_file_and_is_in_no_list_keeps_it() {
        let _alone = crate::alone();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let file = guarded(&path);
        rot(&path);
        let kept = in_a_socket(&path);
        let Ended::Back(file) = file.let_go(true, &Call::default()) else {
            panic!("it was let go of");
        };
        assert!(file.idle.is_none(), "it is not asked again at once");
        drop(kept);
        // As soon as nobody has it.
        let Ended::Closed(report) = file.let_go(true, &Call::default()) else {
            panic!("nobody has it");
        };
        assert!(report.closed && report.counts.repaired == 1, "{report}");
    }

    /// It may store just when a page is replaced.
    #[test]
    fn who_is_in_no_list_keeps_a_file_from_its_last_repairs() {
        let _alone = crate::alone();
        let folder = tempfile::tempdir().unwrap();
        for taken in [true, false] {
            let path = folder.path().join(format!("{taken}.db"));
            let file = guarded(&path);
            rot(&path);
            let kept = taken.then(|| in_a_socket(&path));
            let report = file.finish(&Known::default(), true);
            drop(kept);
            assert_eq!(report.counts.repaired, u64::from(!taken), "{report}");
            assert_eq!(report.damaged, 1, "{report}");
        }
    }

    /// It may have stored through a mapping that nobody knows of.
    #[test]
    fn whoever_has_a_file_that_is_let_go_of_keeps_it_from_repairs() {
        let _alone = crate::alone();
        let folder = tempfile::tempdir().unwrap();
        for (taken, repaired) in [(false, 1), (true, 0)] {
            let path = folder.path().join(format!("{taken}.db"));
            let file = guarded(&path);
            let mut child = taken.then(|| holds(&path));
            let guarded = child.iter().map(Child::id).collect();
            let known = Known { guarded, ..Known::default() };
            rot(&path);
            file.know(&known);
            let call = Call::default();
            call.want();
            let Ended::Back(file) = file.let_go(true, &call) else {
                panic!("somebody wanted it");
            };
            let report = match file.let_go(true, &Call::default()) {
                Ended::Closed(report) => {
                    assert!(!taken && report.closed, "somebody has it: {report}");
                    *report
                }
                Ended::Back(file) => {
                    assert!(taken && file.idle.is_none(), "nobody wanted it");
                    file.finish(&known, false)
                }
            };
            assert_eq!(report.counts.repaired, repaired, "{report}");
            assert!(report.contested.is_empty(), "{report}");
            let now = std::fs::read(&path).unwrap();
            assert_eq!(now[5 * PAGE as usize..].starts_with(b"rotten"), taken, "{report}");
            if let Some(child) = &mut child {
                drop(child.stdin.take());
                child.wait().unwrap();
            }
        }
    }

    /// Who comes to be known while a file is looked at for the last time is no stranger to it.
    #[test]
    fn who_is_known_changes_during_the_last_look_as_well() {
        let _alone = crate::alone();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let options = crate::Options {
            slow: std::time::Duration::from_millis(300),
            ..crate::Options::new("/nowhere".into())
        };
        let mut guard = match Guard::prepare(options) {
            Ok((guard, _)) => guard,
            Err(error) => {
                println!("skipped: {error}");
                return;
            }
        };
        guard.close(0, guarded(&path));
        let mut child = holds(&path);
        guard.past.insert(child.id(), crate::code::Makes::Nothing);
        guard.know();
        while !guard.join_ending() {
            std::thread::sleep(Duration::from_millis(2));
        }
        drop(child.stdin.take());
        child.wait().unwrap();
        let file = guard.files.get_mut(&0).expect("who has it keeps it");
        assert!(file.report().contested.is_empty(), "{}", file.report());
    }
}
