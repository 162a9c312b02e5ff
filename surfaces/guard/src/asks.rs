//! Files that programs ask about: whether they are to be guarded, and beginning to. The first look
//! at a file may take long, so it is made on a thread of its own; who asked waits for it, and
//! nobody else does.
//!
//! | who has a file that is guarded since now | what is done |
//! |---|---|
//! | who asked, by the handle that it asked for | nothing: what it does from now on is announced |
//! | who asked, by others, or mapped | it is told to tell of that; nothing is judged meanwhile |
//! | another guarded program | contested: nobody tells what it has |
//! | who asked, and did not wait for the answer | contested |
//!
//! What was written while the file was looked at shows as not announced.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Instant;

use holdfast_guard_wire::{Answer, MOST_FILES, Refusal, link};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{FileType, fstat};

use crate::choose::{Choice, choose, fits, side_of};
use crate::error::Error;
use crate::file::{self, Guarded};
use crate::names::{Beside, Born, Named, born};
use crate::serve::{Guard, Settling};
use crate::summary::FileReport;

/// A program that waits for an answer.
#[derive(Debug)]
pub(crate) struct Asker {
    pub(crate) peer: OwnedFd,
    pub(crate) process: u32,
    /// Its space, if the file was given a name rather than opened.
    pub(crate) named: Option<u64>,
}

/// A file that is being looked at for the first time, or opened.
#[derive(Debug)]
struct Beginning {
    number: u32,
    key: (u64, u64),
    path: PathBuf,
    /// What comes of it.
    found: Receiver<Result<Guarded, String>>,
    askers: Vec<Asker>,
}

/// A file that is being closed, since nobody had it any more.
#[derive(Debug)]
struct Ending {
    number: u32,
    key: (u64, u64),
    path: PathBuf,
    found: Receiver<Option<FileReport>>,
}

/// A file that was let go of: when it was made, and its side file.
#[derive(Debug)]
struct Closed {
    born: Born,
    side: Named,
}

/// Files on their way in and out.
#[derive(Debug)]
pub(crate) struct Asks {
    beginning: Vec<Beginning>,
    ending: Vec<Ending>,
    /// Who asks for a file that is being closed.
    later: Vec<(Asker, OwnedFd)>,
    /// Written to by threads that are done.
    done: Arc<OwnedFd>,
    /// Numbers that were never used: from here on, below those.
    unused: u32,
    most: u32,
    /// Numbers of files that were let go of, the oldest first.
    free: VecDeque<u32>,
    /// What became of those.
    pub(crate) reports: Vec<FileReport>,
    /// Names under which files were guarded: whoever gets one is to be, too.
    names: BTreeSet<PathBuf>,
    /// Names that were given up, or given to others, of late.
    lost: Vec<PathBuf>,
    /// Files that were let go of, for who meets them again.
    closed: BTreeMap<(u64, u64), Closed>,
    /// Files that cannot be guarded.
    refused: BTreeMap<PathBuf, (u64, u64)>,
    pub(crate) looked: Instant,
}

impl Asks {
    /// For so many files at a time.
    pub(crate) fn new(most: u32) -> Result<Self, Error> {
        let done = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Self {
            beginning: Vec::new(),
            ending: Vec::new(),
            later: Vec::new(),
            done: Arc::new(done.map_err(Error::io("eventfd"))?),
            unused: 0,
            most: most.min(MOST_FILES),
            free: VecDeque::new(),
            reports: Vec::new(),
            names: BTreeSet::new(),
            lost: Vec::new(),
            closed: BTreeMap::new(),
            refused: BTreeMap::new(),
            looked: Instant::now(),
        })
    }

    /// Readable when a thread is done.
    pub(crate) fn done(&self) -> &OwnedFd {
        &self.done
    }

    /// Work on a thread that says when it is done.
    fn start<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> std::io::Result<Receiver<T>> {
        let done = Arc::clone(&self.done);
        let (tell, found) = channel();
        let thread = std::thread::Builder::new().name("hf-file".to_owned());
        thread.spawn(move || {
            // There is always somebody who waits for it, and looks now and then in any case.
            let _ = tell.send(work());
            let _ = rustix::io::write(&*done, &1_u64.to_le_bytes());
        })?;
        Ok(found)
    }

    /// Whether a side file is being made, or closed, under the name that this file's would have.
    fn uses(&self, path: &Path) -> bool {
        let begins = self.beginning.iter().any(|file| file.path == path);
        begins || self.ending.iter().any(|file| file.path == path)
    }

    /// Names that guarded files had until now.
    pub(crate) fn lost_names(&mut self, names: Vec<PathBuf>) {
        self.lost.extend(names);
    }

    fn number(&mut self) -> Option<u32> {
        if self.unused < self.most {
            self.unused += 1;
            return Some(self.unused - 1);
        }
        self.free.pop_front()
    }
}

/// Why a file is not guarded that has the name of one that was.
const REPLACED: &str = "it took the name of a guarded file, and no guarded program opened it since";

/// What is to be said to who asks.
enum Decision {
    Is(Answer),
    /// As soon as the beginning of that index is over.
    Wait(usize),
    /// As soon as it is closed.
    After,
}

impl Guard {
    /// Sees to who asks about a file.
    pub(crate) fn ask(&mut self, asker: Asker, with: Option<OwnedFd>) {
        let Some(with) = with else { return self.reply(&asker, Err(Refusal::NoDescriptor)) };
        match self.decide(&asker, &with) {
            Ok(Decision::Is(answer)) => self.reply(&asker, Ok(answer)),
            Ok(Decision::Wait(at)) => {
                if let Some(beginning) = self.asks.beginning.get_mut(at) {
                    beginning.askers.push(asker);
                }
            }
            Ok(Decision::After) => self.asks.later.push((asker, with)),
            Err(why) => self.reply(&asker, Err(why)),
        }
    }

    fn reply(&mut self, asker: &Asker, answer: Result<Answer, Refusal>) {
        self.send(&asker.peer, Some(asker.process), answer);
    }

    fn decide(&mut self, asker: &Asker, with: &OwnedFd) -> Result<Decision, Refusal> {
        const NO: Result<Decision, Refusal> = Ok(Decision::Is(Answer::Unguarded));
        if let Some(space) = asker.named {
            self.mine(asker.process, space)?;
        }
        let stat = fstat(with).map_err(|_| Refusal::Failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_nlink == 0 {
            return NO;
        }
        let key = (stat.st_dev, stat.st_ino);
        if let Some(file) = self.ledger.find(key.0, key.1) {
            if asker.named.is_some() {
                self.follow_names();
            }
            return Ok(Decision::Is(Answer::Guarded { file }));
        }
        if let Some(at) = self.asks.beginning.iter().position(|file| file.key == key) {
            return Ok(Decision::Wait(at));
        }
        if self.asks.ending.iter().any(|file| file.key == key) {
            return Ok(Decision::After);
        }
        // One that cannot be opened for writing by us is not repaired by us, and not covered.
        let (opened, path) = file::reopen(with.as_fd());
        let Some(path) = path else { return NO };
        if self.asks.uses(&path) {
            return Ok(Decision::After);
        }
        let beside = self.beside(key, born(with.as_fd()), &path, asker.named.is_some());
        if self.choose(&path) == Choice::Leave || self.asks.refused.get(&path) == Some(&key) {
            return NO;
        }
        // The side file that is there may be that of a file which had the name.
        self.follow_names();
        let choice = self.choose(&path);
        let number = match opened {
            Ok(file) => match self.a_number() {
                Some(number) => return self.begin((number, key), (file, path), choice, beside),
                None => Err("too many files are guarded already".to_owned()),
            },
            Err(error) => Err(format!(
                "what is written to it is not observed: the guard cannot open it: {error}"
            )),
        };
        number.or_else(|why: String| {
            self.refuse(path, key, why);
            NO
        })
    }

    /// Whose the side file beside a file may be. One that was let go of, and has another name now,
    /// has its own brought after it.
    fn beside(&mut self, key: (u64, u64), born: Born, path: &Path, named: bool) -> Beside {
        let otherwise = if named { Beside::Perhaps } else { Beside::Own };
        let Some(mut before) = self.asks.closed.remove(&key) else { return otherwise };
        let side = side_of(path);
        let there = before.side.is_there();
        if before.born != born {
            // A number that is used again.
            let here = there && before.side.path() == side;
            return if here { Beside::Others } else { otherwise };
        }
        if there && before.side.path() != side {
            // Where it cannot be, this one is covered anew.
            let _ = before.side.rename(side);
        }
        otherwise
    }

    /// Whoever has a name under which another was guarded is guarded as well.
    fn choose(&self, path: &Path) -> Choice {
        match choose(path, &self.options.globs) {
            Choice::Leave if self.asks.names.contains(path) => Choice::Protect(side_of(path)),
            found => found,
        }
    }

    fn a_number(&mut self) -> Option<u32> {
        if self.asks.unused == self.asks.most && self.asks.free.is_empty() {
            self.let_go(std::time::Duration::ZERO);
            // Those that are about to be closed are worth waiting for.
            self.join_ending(true);
        }
        self.asks.number()
    }

    fn refuse(&mut self, path: PathBuf, key: (u64, u64), why: String) {
        self.asks.refused.insert(path.clone(), key);
        if !self.refused.iter().any(|(known, _)| *known == path) {
            self.refused.push((path, why));
        }
    }

    /// Begins to guard a file.
    fn begin(
        &mut self,
        (number, key): (u32, (u64, u64)),
        (file, path): (File, PathBuf),
        choice: Choice,
        beside: Beside,
    ) -> Result<Decision, Refusal> {
        let (ledger, clock) = (Arc::clone(&self.ledger), Arc::clone(&self.clock));
        let (protect, how) = (self.options.protect.clone(), (self.options.hears, beside));
        let named = path.clone();
        let work = move || {
            Guarded::begin(number, (file, named), &choice, &protect, (&ledger, &clock), how)
        };
        match self.asks.start(work) {
            Ok(found) => {
                let askers = Vec::new();
                self.asks.beginning.push(Beginning { number, key, path, found, askers });
                Ok(Decision::Wait(self.asks.beginning.len() - 1))
            }
            Err(error) => {
                self.asks.free.push_back(number);
                self.refuse(path, key, format!("no thread for its first look: {error}"));
                Ok(Decision::Is(Answer::Unguarded))
            }
        }
    }

    /// Sees to files whose threads are done.
    pub(crate) fn join(&mut self) {
        let mut count = [0; 8];
        // How often it was written to does not matter.
        let _ = rustix::io::read(&*self.asks.done, &mut count);
        let mut at = 0;
        while let Some(file) = self.asks.beginning.get(at) {
            let begun = match file.found.try_recv() {
                Ok(begun) => begun,
                Err(TryRecvError::Disconnected) => Err("its first look failed".to_owned()),
                Err(TryRecvError::Empty) => {
                    at += 1;
                    continue;
                }
            };
            let file = self.asks.beginning.remove(at);
            self.begun(file, begun);
        }
        self.join_ending(false);
    }

    fn join_ending(&mut self, wait: bool) {
        let mut at = 0;
        while let Some(file) = self.asks.ending.get(at) {
            let ended = match file.found.try_recv() {
                Err(TryRecvError::Empty) if !wait => {
                    at += 1;
                    continue;
                }
                Err(TryRecvError::Empty) => file.found.recv().ok(),
                ended => ended.ok(),
            };
            self.asks.free.push_back(file.number);
            self.asks.ending.remove(at);
            match ended {
                Some(report) => self.asks.reports.extend(report),
                None => self.not_observed.push("a file could not be closed".to_owned()),
            }
        }
        for (asker, with) in core::mem::take(&mut self.asks.later) {
            self.ask(asker, Some(with));
        }
    }

    /// Whether anything is under way.
    pub(crate) fn is_joining(&self) -> bool {
        !(self.asks.beginning.is_empty() && self.asks.ending.is_empty())
    }

    /// The first look at a file is over.
    fn begun(&mut self, file: Beginning, begun: Result<Guarded, String>) {
        let Beginning { number, key, path, askers, .. } = file;
        let index = number as usize;
        match begun {
            Ok(file) if self.ledger.enter(number, file.device, file.inode) => {
                self.files.insert(index, file);
                self.schedule.add(index, &path);
                self.withdraw(&path);
                if !self.options.globs.iter().any(|glob| fits(glob, &path)) {
                    self.asks.names.insert(path);
                }
                self.follow_names();
                self.hand_out(index, askers);
            }
            begun => {
                let why = begun.err().unwrap_or_else(|| "there is no room for it".to_owned());
                self.asks.free.push_back(number);
                self.refuse(path, key, why);
                for asker in askers {
                    self.reply(&asker, Ok(Answer::Unguarded));
                }
            }
        }
    }

    /// Tells all who asked that a file is guarded since now.
    fn hand_out(&mut self, index: usize, askers: Vec<Asker>) {
        let mut asked = BTreeSet::new();
        for asker in askers {
            asked.insert(asker.process);
            let Some(file) = self.files.get_mut(&index) else { return };
            let means = file.watch(|watch| watch.means_of(asker.process));
            let tells = asker.named.is_some() || means.0 > 1 || means.1;
            let theirs = |(number, space): (&u64, &crate::spaces::Space)| {
                (space.process == asker.process).then_some(*number)
            };
            // One that comes late tells of everything by and by.
            let late = self.settling.iter().any(|it| it.late && it.process == asker.process);
            let space = self.spaces.iter().find_map(theirs).filter(|_| tells && !late);
            let file = index as u32;
            let answer = match space {
                Some(space) => {
                    self.settling.push(Settling::new(space, asker.process, false));
                    Answer::Taken { file }
                }
                None => Answer::Guarded { file },
            };
            if link::send(&asker.peer, &answer.encode(), self.with(answer)).is_err() {
                let why = format!(
                    "process {} did not wait until it was looked at: what it did meanwhile is \
                     not known",
                    asker.process
                );
                self.settling.retain(|it| it.late || Some(it.space) != space);
                self.contest(index, why);
            }
        }
        self.contest_present(index, &asked);
    }

    fn contest(&mut self, index: usize, why: String) {
        if let Some(file) = self.files.get_mut(&index) {
            file.contest(why);
        }
    }

    /// Writers that were there before the guard, guarded programs that have the file and did not
    /// ask, and standard streams, whose writes inside the C library nobody announces unless the
    /// program that has them was asked to tell.
    fn contest_present(&mut self, index: usize, asked: &BTreeSet<u32>) {
        let known = self.known().guarded;
        let late = self.settling.iter().filter(|it| it.late);
        let late: BTreeSet<u32> = late.map(|it| it.process).collect();
        let programs: Vec<u32> = self.spaces.values().map(|space| space.process).collect();
        let Some(file) = self.files.get_mut(&index) else { return };
        if let Some(why) = file.watch(|watch| watch.present(&known)) {
            file.contest(why);
        }
        if is_own_output(file.key()) {
            file.contest("it is the standard output or error of the guard".to_owned());
        }
        for process in programs {
            if asked.contains(&process) && !late.contains(&process) {
                continue;
            }
            let Some(file) = self.files.get_mut(&index) else { return };
            if file.watch(|watch| watch.is_stream_of(process)) {
                file.contest(format!("it is a standard stream of process {process}"));
            } else if !asked.contains(&process) && file.watch(|watch| watch.is_held_by(process)) {
                file.contest(format!("process {process} had it before it was guarded"));
            }
        }
    }

    /// Tells of files that have the names of guarded ones and are not guarded, since no guarded
    /// program gave them those, or opened them since.
    pub(crate) fn look_for_others(&mut self) {
        use std::os::unix::fs::MetadataExt;
        for path in core::mem::take(&mut self.asks.lost) {
            let found = std::fs::symlink_metadata(&path).ok().filter(std::fs::Metadata::is_file);
            let Some(key) = found.map(|found| (found.dev(), found.ino())) else { continue };
            let comes = self.asks.beginning.iter().any(|file| file.key == key);
            let goes = self.asks.ending.iter().any(|file| file.key == key);
            let was = comes || goes || self.asks.closed.contains_key(&key);
            let told = self.refused.iter().any(|(refused, _)| *refused == path);
            if !was && !told && self.ledger.find(key.0, key.1).is_none() {
                self.refused.push((path, REPLACED.to_owned()));
            }
        }
    }

    /// Lets go of files that nobody had for so long.
    pub(crate) fn let_go(&mut self, after: std::time::Duration) {
        self.asks.looked = Instant::now();
        if self.files.is_empty() || !self.settling.is_empty() {
            return;
        }
        let held = self.held();
        let mut idle = Vec::new();
        for (index, file) in &mut self.files {
            if held.contains(&file.key().1) || !file.source.is_idle() || file.is_passed() {
                file.idle = None;
            } else if file.idle.get_or_insert_with(Instant::now).elapsed() >= after {
                idle.push(*index);
            }
        }
        if idle.is_empty() {
            return;
        }
        // Who has not found it by now does not find it, and has to ask; who has found it has it.
        idle.iter().for_each(|index| self.ledger.leave(*index as u32));
        let held = self.held();
        for index in idle {
            let Some(file) = self.files.get(&index) else { continue };
            if held.contains(&file.key().1) || !file.source.is_idle() {
                self.ledger.stay(index as u32);
            } else if let Some(file) = self.files.remove(&index) {
                self.close(index, file);
            }
        }
    }

    /// Closes a file that nobody has, on a thread of its own.
    fn close(&mut self, index: usize, mut file: Guarded) {
        let (period, oldest) = self.schedule.of(index);
        self.schedule.remove(index);
        let (known, scrub) = (self.known(), self.options.final_scrub);
        let (number, key, path) = (index as u32, file.key(), file.path().to_path_buf());
        let side = file.names().1.clone();
        let closed = side.map(|side| Closed { born: born(file.descriptor()), side });
        (file.report().period, file.report().oldest) = (period, oldest);
        // Handed over once there is a thread, so that it is here if there is none.
        let (give, take) = channel::<Guarded>();
        let work = move || take.recv().ok().map(|file| file.finish(&known, scrub));
        match self.asks.start(work) {
            Ok(found) => {
                self.asks.ending.push(Ending { number, key, path, found });
                self.asks.closed.extend(closed.map(|closed| (key, closed)));
                // It waits for this.
                let _ = give.send(file);
            }
            Err(_) => {
                self.ledger.stay(number);
                self.schedule.add(index, &path);
                self.files.insert(index, file);
            }
        }
    }

    /// Inodes of all files that any of those who are guarded, or come of them, have open or mapped,
    /// on whatever device. Processes that are about to introduce themselves are among them.
    fn held(&self) -> BTreeSet<u64> {
        use holdfast_pmem::track::{holders, maps};
        use std::os::unix::fs::MetadataExt;
        let me = std::process::id();
        let roots = self.spaces.values().map(|space| space.process).chain([me]).collect();
        let mut held = BTreeSet::new();
        for process in crate::proc::family(&roots).into_iter().filter(|process| *process != me) {
            for fd in holders::numbers(&format!("/proc/{process}/fd")).unwrap_or_default() {
                let found = std::fs::metadata(format!("/proc/{process}/fd/{fd}"));
                held.extend(found.ok().filter(|found| found.is_file()).map(|found| found.ino()));
            }
            // A list that cannot be read is that of a process that is gone.
            let _ =
                maps::walk(Some(process), |vma| held.extend((vma.inode > 0).then_some(vma.inode)));
        }
        held
    }
}

/// Whether a file is where the guard itself writes.
fn is_own_output(key: (u64, u64)) -> bool {
    let is = |found: rustix::io::Result<rustix::fs::Stat>| {
        found.is_ok_and(|found| (found.st_dev, found.st_ino) == key)
    };
    is(fstat(std::io::stdout())) || is(fstat(std::io::stderr()))
}
