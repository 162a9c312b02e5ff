//! Files that programs ask about: whether they are to be guarded, and beginning to. The first look
//! at a file may take long, so it is made on a thread of its own; who asked waits for it, and
//! nobody else does.
//!
//! | who has a file that is guarded since now | what is done |
//! |---|---|
//! | who asked, by the handle that it asked for | nothing: what it does from now on is announced |
//! | who asked, by others, or mapped | it is told to tell of that; nothing is judged meanwhile |
//! | another guarded program | contested: nobody tells what it has |
//! | who asked, and did not wait for the answer | contested, unless it was killed while it waited |
//!
//! What was written while the file was looked at shows as not announced. Where a file cannot be
//! guarded for a reason that may pass, it is tried again when it is asked about later, if no
//! guarded program but the one that asks has it by then.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use holdfast_guard_wire::{Answer, MOST_FILES, Refusal, link};
use holdfast_pmem::MAPPINGS;
use holdfast_pmem::track::holders::{self, FileId, Holds};
use holdfast_pmem::track::is_direct;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{FileType, fstat};

use crate::choose::{Choice, choose, fits, side_of};
use crate::error::Error;
use crate::file::{self, Guarded};
use crate::names::{self, Beside, Born, born, remember};
use crate::proc;
use crate::release::{Closed, Ending, Later};
use crate::serve::Guard;
use crate::settling::Settling;
use crate::source::Source;
use crate::summary::FileReport;

/// What was refused may be tried again after this.
const AGAIN: Duration = Duration::from_secs(1);
/// Files that can be guarded at a time, each of which has its side file mapped. A few mappings are
/// left for side files that are looked at.
const MOST_MAPPED: u32 = (MAPPINGS - 6) as u32;
/// How often the name of a file is asked for that gets others all the time.
const TRIES: usize = 8;

/// A program that waits for an answer.
#[derive(Debug)]
pub(crate) struct Asker {
    pub(crate) peer: OwnedFd,
    pub(crate) process: u32,
    /// Its space, if the file was given a name rather than opened.
    pub(crate) named: Option<u64>,
    /// It did not begin to wait before this.
    earliest: Instant,
    /// It had the file by no other handle, and not mapped, while it waited already.
    only: bool,
    /// It does not wait as long as others.
    hasty: bool,
}

impl Asker {
    pub(crate) fn new(peer: OwnedFd, process: u32, earliest: Instant) -> Self {
        Self { peer, process, named: None, earliest, only: false, hasty: false }
    }

    /// What it asks: about a file that was given a name in its space, or that it opened; and
    /// whether it may give up sooner than others.
    pub(crate) fn of(self, named: Option<u64>, hasty: bool) -> Self {
        Self { named, hasty, ..self }
    }

    /// Looks by what else it has the file.
    fn look(&mut self, with: &OwnedFd) {
        let Ok(id) = FileId::of(with.as_fd()) else { return };
        let handles = holders::writing_handles(self.process, &id);
        let maps = holders::stores(self.process, &id);
        self.only = self.named.is_none()
            && handles.is_some_and(|handles| handles.len() <= 1)
            && maps.is_some_and(|maps| maps != Holds::Writes);
    }

    /// Whether it was killed while it waited: it did not give up before, and nothing of it is left
    /// that could write.
    pub(crate) fn was_killed(&self, patience: Duration) -> bool {
        let patience = if self.hasty { link::hasty(patience) } else { patience };
        self.earliest.elapsed() < patience && proc::is_dead(self.process)
    }
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
    /// Other names that guarded programs gave it.
    names: Vec<PathBuf>,
}

/// Files on their way in and out.
#[derive(Debug)]
pub(crate) struct Asks {
    beginning: Vec<Beginning>,
    pub(crate) ending: Vec<Ending>,
    /// Who asks for a file that is being closed, or whose name or number is still in use.
    pub(crate) later: Vec<Later>,
    /// Written to by threads that are done.
    done: Arc<OwnedFd>,
    /// Numbers that were never used: from here on, below those.
    unused: u32,
    most: u32,
    /// Numbers of files that were let go of, the oldest first.
    pub(crate) free: VecDeque<u32>,
    /// What became of those.
    pub(crate) reports: Vec<FileReport>,
    /// Names under which files were guarded: whoever gets one is to be, too.
    names: BTreeSet<PathBuf>,
    /// Names that were given up, or given to others, of late.
    lost: Vec<PathBuf>,
    /// Files that were let go of, for who meets them again.
    pub(crate) closed: BTreeMap<(u64, u64), Closed>,
    /// Files that cannot be guarded, and when that was found out.
    refused: BTreeMap<PathBuf, ((u64, u64), Instant)>,
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
            most: most.min(MOST_FILES).min(MOST_MAPPED),
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
    pub(crate) fn start<T: Send + 'static>(
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

    /// Programs that wait for an answer.
    pub(crate) fn waiting(&self) -> usize {
        let first = self.beginning.iter().map(|file| file.askers.len());
        first.sum::<usize>() + self.later.len()
    }

    /// Where writes to a file that is being closed are announced.
    pub(crate) fn source_of(&self, number: u32) -> Option<&Arc<Source>> {
        self.ending.iter().find(|file| file.number == number).map(|file| &file.source)
    }

    /// Names that guarded files had until now.
    pub(crate) fn lost_names(&mut self, names: Vec<PathBuf>) {
        self.lost.extend(names);
    }

    /// Whether a file is being looked at for the first time, by its key.
    pub(crate) fn begins(&self, which: impl Fn((u64, u64)) -> bool) -> bool {
        self.beginning.iter().any(|file| which(file.key))
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

/// Why what lies on persistent memory is left alone.
const DIRECT: &str = "what is written to it is not observed: it is on persistent memory without a \
                      page cache (fs-dax), where the kernel cannot track a program's stores; \
                      protect it from inside (holdfast protect, and the library)";

/// Why a file is not guarded whose name is not its own from here.
const ELSEWHERE: &str = "what is written to it is not observed: a guarded program has a file of \
                         that name, and the name leads somewhere else from here (it lost the name, \
                         or the program has mounts of its own: start the guard where those are)";

/// What is to be said to who asks.
enum Decision {
    Is(Answer),
    /// As soon as the beginning of that index is over.
    Wait(usize),
    /// As soon as it, or another, is closed.
    After((u64, u64)),
}

impl Guard {
    /// Sees to who asks about a file.
    pub(crate) fn ask(&mut self, mut asker: Asker, with: Option<OwnedFd>) {
        let Some(with) = with else { return self.reply(&asker, Err(Refusal::NoDescriptor)) };
        match self.decide(&asker, &with) {
            Ok(Decision::Is(answer)) => {
                // Who is answered closes its own, and nobody else has that open any longer.
                drop(with);
                match answer {
                    Answer::Guarded { file } => self.tell_guarded(&asker, file),
                    answer => self.reply(&asker, Ok(answer)),
                }
            }
            Ok(Decision::Wait(at)) => {
                asker.look(&with);
                if let Some(beginning) = self.asks.beginning.get_mut(at) {
                    beginning.askers.push(asker);
                }
            }
            Ok(Decision::After(key)) => {
                // Whatever it waits for is closed as soon as can be.
                self.asks.ending.iter().for_each(|file| file.call.hurry());
                asker.look(&with);
                self.asks.later.push(Later { asker, with, key });
            }
            Err(why) => {
                drop(with);
                self.reply(&asker, Err(why));
            }
        }
    }

    fn reply(&mut self, asker: &Asker, answer: Result<Answer, Refusal>) {
        self.send(&asker.peer, Some(asker.process), answer);
    }

    /// A file was guarded already, or still is. Who opened it while it was about to be let go of,
    /// and did not wait to hear that, may have mapped it.
    fn tell_guarded(&mut self, asker: &Asker, file: u32) {
        let answer = Answer::Guarded { file };
        let heard = link::send(&asker.peer, &answer.encode(), self.with(answer)).is_ok();
        if !heard && asker.named.is_none() && !asker.was_killed(self.options.patience) {
            self.contest(file as usize, did_not_wait(asker.process));
        }
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
        // Its name, if it was given one.
        let name = || file::name_of(with.as_fd()).ok();
        if let Some(file) = self.number_of(key) {
            if asker.named.is_some() {
                let known = self.files.get_mut(&(file as usize));
                known.zip(name()).into_iter().for_each(|(file, name)| file.has_name(name));
                self.follow_names();
            }
            return Ok(Decision::Is(Answer::Guarded { file }));
        }
        let given = || asker.named.and_then(|_| name());
        if let Some(at) = self.asks.beginning.iter().position(|file| file.key == key) {
            let names = &mut self.asks.beginning[at].names;
            given().into_iter().for_each(|name| remember(names, name));
            return Ok(Decision::Wait(at));
        }
        if let Some(file) = self.asks.ending.iter_mut().find(|file| file.key == key) {
            given().into_iter().for_each(|name| remember(&mut file.names, name));
            file.call.want();
            return Ok(Decision::After(key));
        }
        self.decide_anew((asker, with), key)
    }

    /// Decides about a file that is not guarded. One that is not going to be is left alone: whoever
    /// watches it, or has a lease of it, would notice if it was opened or closed.
    fn decide_anew(
        &mut self,
        (asker, with): (&Asker, &OwnedFd),
        key: (u64, u64),
    ) -> Result<Decision, Refusal> {
        const NO: Result<Decision, Refusal> = Ok(Decision::Is(Answer::Unguarded));
        let Some((path, leads)) = name_and_whether_it_leads(with, key) else { return NO };
        if !leads {
            if self.choose(&path) != Choice::Leave {
                self.refuse(path, key, ELSEWHERE.to_owned());
            }
            return NO;
        }
        if self.asks.uses(&path) {
            return Ok(Decision::After(key));
        }
        let beside = self.beside(key, born(with.as_fd()), &path, asker.named.is_some());
        if self.choose(&path) == Choice::Leave || self.is_refused(&path, key, asker, with) {
            return NO;
        }
        // The side file that is there may be that of a file which had the name.
        self.follow_names();
        let choice = self.choose(&path);
        let why = match self.a_number() {
            Some(number) => match file::reopen(with.as_fd()) {
                Ok(file) if is_direct(file.as_fd()) => {
                    self.asks.free.push_back(number);
                    DIRECT.to_owned()
                }
                Ok(file) => return self.begin((number, key), (file, path), choice, beside),
                // One that cannot be opened for writing by us is not repaired by us, and not
                // covered.
                Err(error) => {
                    self.asks.free.push_back(number);
                    format!(
                        "what is written to it is not observed: the guard cannot open it: {error}"
                    )
                }
            },
            // Those that are about to be closed are worth waiting for.
            None if !self.asks.ending.is_empty() => return Ok(Decision::After(key)),
            None => "too many files are guarded already".to_owned(),
        };
        self.refuse(path, key, why);
        NO
    }

    /// The number of a guarded file. Not from the ledger, which any guarded program can write to.
    fn number_of(&self, key: (u64, u64)) -> Option<u32> {
        let found = self.files.iter().find(|(_, file)| file.key() == key);
        found.map(|(index, _)| *index as u32)
    }

    /// Whose the side file beside a file may be. One that was let go of, and has another name now,
    /// has its own brought after it.
    fn beside(&mut self, key: (u64, u64), born: Born, path: &Path, named: bool) -> Beside {
        let otherwise = if named { Beside::Perhaps } else { Beside::Own };
        // Forgotten once the file is guarded again.
        let Some(mut before) = self.asks.closed.get(&key).cloned() else { return otherwise };
        let side = side_of(path);
        let there = before.side.is_there();
        if before.born != born {
            // A number that is used again.
            let here = there && before.side.path() == side;
            return if here { Beside::Others } else { otherwise };
        }
        if there && before.side.path() != side && !before.side.rename_to_free(side) {
            return Beside::Elsewhere { own: before.side, named };
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
            self.let_go(Duration::ZERO);
        }
        self.asks.number()
    }

    fn refuse(&mut self, path: PathBuf, key: (u64, u64), why: String) {
        self.asks.refused.insert(path.clone(), (key, Instant::now()));
        if !self.refused.iter().any(|(known, _)| *known == path) {
            self.refused.push((path, why));
        }
    }

    /// Whether a file was refused, and still is. Not if that was a while ago, and nobody has it
    /// since whose writes would not be known.
    fn is_refused(&self, path: &Path, key: (u64, u64), asker: &Asker, with: &OwnedFd) -> bool {
        let Some((_, since)) = self.asks.refused.get(path).filter(|(known, _)| *known == key)
        else {
            return false;
        };
        let Ok(id) = FileId::of(with.as_fd()) else { return true };
        let holds = |process: u32| {
            let handles = holders::writing_handles(process, &id);
            let none = handles.is_some_and(|handles| handles.is_empty());
            !none || holders::stores(process, &id).is_none_or(|it| it == Holds::Writes)
        };
        let mut others = self.spaces.values().map(|space| space.process);
        since.elapsed() < AGAIN || others.any(|it| it != asker.process && holds(it))
    }

    /// Begins to guard a file.
    fn begin(
        &mut self,
        (number, key): (u32, (u64, u64)),
        (file, path): (File, PathBuf),
        choice: Choice,
        beside: Beside,
    ) -> Result<Decision, Refusal> {
        let born = born(file.as_fd());
        let before = self.asks.closed.remove(&key).filter(|before| before.born == born);
        let names = before.map(|before| before.names).unwrap_or_default();
        let (ledger, clock) = (Arc::clone(&self.ledger), Arc::clone(&self.clock));
        let (protect, how) = (self.options.protect.clone(), (self.options.hears, beside));
        let named = path.clone();
        let work = move || {
            Guarded::begin(number, (file, named), &choice, &protect, (&ledger, &clock), how)
        };
        match self.asks.start(work) {
            Ok(found) => {
                let askers = Vec::new();
                let beginning = Beginning { number, key, path, found, askers, names };
                self.asks.beginning.push(beginning);
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
        let mut any = false;
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
            any = true;
            let file = self.asks.beginning.remove(at);
            self.begun(file, begun);
        }
        any |= self.join_ending();
        if any || !self.is_joining() {
            for Later { asker, with, .. } in core::mem::take(&mut self.asks.later) {
                self.ask(asker, Some(with));
            }
        }
    }

    /// Whether anything is under way.
    pub(crate) fn is_joining(&self) -> bool {
        !(self.asks.beginning.is_empty() && self.asks.ending.is_empty())
    }

    /// The first look at a file is over.
    fn begun(&mut self, file: Beginning, begun: Result<Guarded, String>) {
        let Beginning { number, key, path, askers, names, .. } = file;
        let index = number as usize;
        match begun {
            Ok(mut file) if self.ledger.enter(number, file.device, file.inode) => {
                names.into_iter().for_each(|name| file.has_name(name));
                file.know(&self.known());
                file.trace_to(self.traces.of(key, &path));
                self.files.insert(index, file);
                self.schedule.add(index, &path);
                self.tell_of(index);
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
        let asked = askers.iter().map(|asker| asker.process).collect();
        self.tell_askers(index, askers);
        self.contest_present(index, &asked);
    }

    /// The same of those alone who asked.
    pub(crate) fn tell_askers(&mut self, index: usize, askers: Vec<Asker>) {
        for asker in askers {
            let Some(file) = self.files.get_mut(&index) else { return };
            let means = file.watch(|watch| watch.means_of(asker.process));
            let tells = asker.named.is_some() || means.0 > 1 || means.1;
            let theirs = |(number, space): (&u64, &crate::spaces::Space)| {
                (space.process == asker.process).then_some(*number)
            };
            // One that comes late tells of everything by and by.
            let late = self.settling.iter().any(|it| it.is_late() && it.process == asker.process);
            let space = self.spaces.iter().find_map(theirs).filter(|_| tells && !late);
            let file = index as u32;
            let answer = match space {
                Some(_) => Answer::Taken { file },
                None => Answer::Guarded { file },
            };
            let heard = link::send(&asker.peer, &answer.encode(), self.with(answer)).is_ok();
            match space {
                Some(space) if heard => {
                    self.settling.push(Settling::new(space, asker.process, Some(index)));
                }
                _ if heard || asker.only && asker.was_killed(self.options.patience) => {}
                _ => self.contest(index, did_not_wait(asker.process)),
            }
        }
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
        let late = self.settling.iter().filter(|it| it.is_late());
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
            } else if !asked.contains(&process) && file.watch(|watch| watch.may_be_held_by(process))
            {
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
            if !was && !told && self.number_of(key).is_none() {
                self.refused.push((path, REPLACED.to_owned()));
            }
        }
    }
}

/// The name of a file, and whether that leads to it from here: what has that name may be another
/// file, with a side file of its own. `None` if it has no name any more.
fn name_and_whether_it_leads(with: &OwnedFd, key: (u64, u64)) -> Option<(PathBuf, bool)> {
    let mut found = None;
    // It may get another name in between.
    for _ in 0..TRIES {
        let name = file::name_of(with.as_fd()).ok()?;
        let leads = names::id(&name) == Some(key);
        found = Some((name, leads));
        if leads {
            return found;
        }
    }
    found.filter(|_| fstat(with).is_ok_and(|stat| stat.st_nlink > 0))
}

/// Why a file is contested whose asker is not there any more.
fn did_not_wait(process: u32) -> String {
    format!(
        "process {process} did not wait until it was looked at: what it did meanwhile is not known"
    )
}

/// Whether a file is where the guard itself writes.
fn is_own_output(key: (u64, u64)) -> bool {
    let is = |found: rustix::io::Result<rustix::fs::Stat>| {
        found.is_ok_and(|found| (found.st_dev, found.st_ino) == key)
    };
    is(fstat(std::io::stdout())) || is(fstat(std::io::stderr()))
}
