//! The supervisor's loop: requests, ends, passes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_guard_wire::{Answer, Ledger, MESSAGE, NAME, Refusal, Request, link};
use holdfast_mapped::{Rearm, Writers};
use holdfast_pmem::Clock;
use holdfast_pmem::track::uffd::Uffd;
use holdfast_redundancy::{Pace, PageStripes};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{acceptfrom, sockopt::socket_peercred};
use rustix::process::{Pid, WaitOptions, waitpid};

use crate::asks::{Asker, Asks};
use crate::clock::WallClock;
use crate::code::{Codes, Makes};
use crate::covers::Covering;
use crate::error::Error;
use crate::file::Guarded;
use crate::file::heal::Failed;
use crate::freeze::Freezer;
use crate::handing::Handing;
use crate::inherit::{self, Inherited};
use crate::options::Options;
use crate::proc;
use crate::processors::{apart, follow, spent};
use crate::program;
use crate::schedule::Schedule;
use crate::settling::Settling;
use crate::spaces::Space;
use crate::strict;
use crate::summary::{FileReport, Summary};
use crate::tell::Front;
use crate::traces::Traces;

/// Longest sleep: the end of a program that never spoke to us is seen by looking.
pub(crate) const NAP: Duration = Duration::from_millis(50);
/// How long a connection may stay silent, and how many may be open.
const SILENCE: Duration = Duration::from_secs(2);
pub(crate) const MOST_PEERS: usize = if cfg!(test) { 3 } else { 1024 };
/// How long anchors may take to go when all is over.
const LAST_WAIT: Duration = Duration::from_millis(500);
/// How long a program may take to come, and to tell what it has.
pub(crate) const LATEST: Duration = Duration::from_secs(20);
/// Pages that a pass covers in one step at the least.
const SMALLEST_BATCH: u32 = 64;
/// Files that nobody has are looked for no more often than this.
const LOOK: Duration = Duration::from_millis(20);
/// What is said of files that nobody knows.
const UNASKED: &str = "a program could not ask about files that it opened (it has a network \
                       namespace of its own, or too few descriptors): they are not guarded";

/// Somebody at the socket.
#[derive(Debug)]
struct Peer {
    socket: OwnedFd,
    /// When it was let in.
    since: Instant,
    /// It did not come before this.
    earliest: Instant,
}

/// A program that runs under guard.
#[derive(Debug)]
pub struct Guard {
    pub(crate) options: Options,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) ledger_inode: u64,
    pub(crate) clock: Arc<dyn Clock>,
    /// By their numbers.
    pub(crate) files: BTreeMap<usize, Guarded>,
    pub(crate) asks: Asks,
    /// Tells others about the files, if the system has what it takes.
    front: Front,
    pub(crate) traces: Traces,
    pub(crate) spaces: BTreeMap<u64, Space>,
    /// Processes that were guarded to their end.
    pub(crate) past: BTreeMap<u32, Makes>,
    /// Those of the tick before. Later their numbers may be anybody's.
    pub(crate) long_past: BTreeMap<u32, Makes>,
    /// What is known of the programs' code.
    pub(crate) codes: Codes,
    /// Processes to be waited for, if they are our children.
    pub(crate) dying: BTreeSet<u32>,
    /// Descendants of guarded processes that were not guarded at the last look, and since when.
    pub(crate) strangers: BTreeMap<u32, Instant>,
    /// Adopted processes that did not introduce themselves yet: since when, and when they last had
    /// our library.
    pub(crate) coming: BTreeMap<u32, (Instant, Instant)>,
    pub(crate) handings: Vec<Handing>,
    pub(crate) counted: u64,
    pub(crate) schedule: Schedule,
    /// How fast passes go on, over all files together.
    pub(crate) pace: Pace,
    began: Instant,
    /// Processor time this process had spent by then, in nanoseconds.
    spent: u64,
    /// Refused files that were told of.
    told: usize,
    pub(crate) refused: Vec<(PathBuf, String)>,
    pub(crate) not_observed: Vec<String>,
    server: OwnedFd,
    peers: Vec<Peer>,
    /// When all that had come were let in last.
    emptied: Instant,
    /// Who waits until its file is covered.
    pub(crate) covers: VecDeque<Covering>,
    /// None if the program came by itself.
    pub(crate) child: Option<Child>,
    /// Programs that tell what they have; what that is about is not judged meanwhile.
    pub(crate) settling: Vec<Settling>,
    /// Requests are served in the middle of something else.
    pub(crate) nested: bool,
    /// When that was last.
    pub(crate) served: Instant,
    /// The file of which a page was put right, whose descriptor is part of the answer.
    pub(crate) healed: Option<usize>,
    hostile: u64,
}

impl Guard {
    /// Starts a program under guard. From now on the calling process adopts orphans, so that it
    /// hears of all that the program leaves behind.
    ///
    /// # Errors
    /// An [`Error`]: the program was not started.
    pub fn launch(
        program: &OsStr,
        arguments: &[OsString],
        options: Options,
    ) -> Result<Self, Error> {
        let path = std::env::var_os("PATH");
        let (called, program) = (program, program::find(program, path.as_deref())?);
        program::check(&program)?;
        let inherited = Inherited::now();
        let preload = std::fs::canonicalize(&options.preload)
            .map_err(|_| Error::NoPreload { path: options.preload.clone() })?;
        let (mut this, name) = Self::prepare(options)?;
        // SAFETY: sets a flag of this process.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
        let mut preloads = preload.into_os_string();
        if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
            preloads.push(":");
            preloads.push(others);
        }
        let mut command = Command::new(&program);
        command.arg0(called).args(arguments).env("LD_PRELOAD", preloads).env(NAME, &name);
        command.envs(this.options.environment.iter().map(|(name, value)| (name, value)));
        // SAFETY: a few system calls, which allocate nothing.
        unsafe { command.pre_exec(move || inherited.give()) };
        if this.options.strict {
            // SAFETY: two system calls, which allocate nothing.
            unsafe { command.pre_exec(strict::refuse_rings) };
        }
        let start = || command.spawn().map_err(Error::io("starting the program"));
        this.child = Some(apart(this.options.placement, start)?);
        Ok(this)
    }

    /// Waits for a program to attach itself; the name it is to be told.
    ///
    /// # Errors
    /// An [`Error`].
    pub fn serve_late(options: Options) -> Result<(Self, String), Error> {
        let (this, name) = Self::prepare(options)?;
        apart(this.options.placement, || Ok(()))?;
        Ok((this, name))
    }

    pub(crate) fn prepare(mut options: Options) -> Result<(Self, String), Error> {
        if let Ok(full) = std::fs::canonicalize(&options.preload) {
            options.preload = full;
        }
        options.protect.open.trace |= options.trace.is_some();
        let (data, parity) = (options.protect.data, options.protect.keep.parity);
        if PageStripes::standard(data, parity).is_none() {
            return Err(Error::Stripes { data, parity });
        }
        if let Some(pace) = options.pace {
            // No more at once than in a tenth of a second.
            let batch = u32::try_from(pace / 10 / holdfast_pmem::PAGE).unwrap_or(u32::MAX);
            let open = &mut options.protect.open;
            open.batch_pages = open.batch_pages.min(batch.max(SMALLEST_BATCH));
        }
        let codes = Codes::new(&options.preload, &options.trusted);
        drop(Uffd::open().map_err(Error::Track)?);
        inherit::raise_limit();
        let ledger = Ledger::create().map_err(Error::io("memfd_create"))?;
        let ledger_inode = match ledger.file() {
            Some(file) => rustix::fs::fstat(file).map_err(Error::io("fstat"))?.st_ino,
            None => 0,
        };
        let name = format!("holdfast-{}", random());
        let server = link::serve(name.as_bytes()).map_err(Error::io("bind"))?;
        let this = Self {
            schedule: Schedule::new(&options),
            pace: Pace::new(options.pace),
            asks: Asks::new(options.most_files)?,
            front: Front::default(),
            traces: Traces::new(options.trace.as_deref()),
            began: Instant::now(),
            spent: spent(),
            told: 0,
            options,
            ledger: Arc::new(ledger),
            ledger_inode,
            clock: Arc::new(WallClock::new()),
            files: BTreeMap::new(),
            spaces: BTreeMap::new(),
            past: BTreeMap::new(),
            long_past: BTreeMap::new(),
            codes,
            dying: BTreeSet::new(),
            strangers: BTreeMap::new(),
            coming: BTreeMap::new(),
            handings: Vec::new(),
            counted: 0,
            refused: Vec::new(),
            not_observed: Vec::new(),
            server,
            peers: Vec::new(),
            emptied: Instant::now(),
            covers: VecDeque::new(),
            child: None,
            settling: Vec::new(),
            nested: false,
            served: Instant::now(),
            healed: None,
            hostile: 0,
        };
        Ok((this, name))
    }

    /// The program's process; `None` if it came by itself and is gone, or is not there yet.
    #[must_use]
    pub fn process(&self) -> Option<u32> {
        let child = self.child.as_ref().map(Child::id);
        child.or_else(|| self.spaces.values().next().map(|space| space.process))
    }

    /// How the program ended, if it did. Of one that came by itself, nobody is told: it is over as
    /// soon as it is there, and what lives is guarded on.
    fn ended(&mut self) -> Result<Option<ExitStatus>, Error> {
        match &mut self.child {
            Some(child) => child.try_wait().map_err(Error::io("waitpid")),
            None if self.counted > 0 => Ok(Some(ExitStatus::default())),
            None if self.began.elapsed() > LATEST => {
                let source = std::io::ErrorKind::TimedOut.into();
                Err(Error::Io { call: "waiting for the program that attaches itself", source })
            }
            None => Ok(None),
        }
    }

    /// Serves until the program and everything it started under guard are gone, those that are
    /// still about to introduce themselves included, then closes the files.
    ///
    /// # Errors
    /// [`Error::Io`] if the end of the program cannot be waited for.
    pub fn run(mut self) -> Result<Summary, Error> {
        let mut status = None;
        while status.is_none() || !self.spaces.is_empty() || self.awaits() {
            let left = self.schedule.next().saturating_duration_since(Instant::now()).min(NAP);
            let attaches = self.attaches();
            // What is due then has to wait.
            self.serve(if attaches { NAP } else { left });
            self.cover_waiting();
            self.tell();
            self.pass_on(status.is_none());
            if status.is_none() {
                status = self.ended()?;
            }
            self.bury();
            let often = (self.options.release / 2).max(LOOK);
            if self.asks.looked.elapsed() >= often {
                self.let_go(self.options.release);
            }
            self.expire_settling();
            self.follow_handed(false);
            if !self.attaches()
                && let Some(files) = self.schedule.due(Instant::now())
            {
                self.process().inspect(|process| follow(self.options.placement, *process));
                let files = self.settled_of(files);
                self.tick(&files);
            }
        }
        let Some(status) = status else {
            return Err(Error::Io { call: "waitpid", source: std::io::ErrorKind::Other.into() });
        };
        let patience = Instant::now() + LAST_WAIT;
        while !self.dying.is_empty() && Instant::now() < patience {
            self.bury();
            std::thread::sleep(Duration::from_millis(1));
        }
        while self.is_joining() {
            self.serve(NAP);
        }
        self.follow_handed(true);
        self.follow_names();
        self.look_for_others();
        self.tell();
        let known = self.known();
        let scrub = self.options.final_scrub;
        let mut files = core::mem::take(&mut self.asks.reports);
        // Nobody is told anything from here on.
        self.front = Front::default();
        for (index, file) in core::mem::take(&mut self.files) {
            let (period, oldest) = self.schedule.of(index);
            let report = file.finish(&known, scrub);
            files.push(FileReport { period, oldest: oldest.max(report.oldest), ..report });
        }
        let files = FileReport::join(files);
        self.not_observed.extend((self.ledger.times_unasked() > 0).then(|| UNASKED.to_owned()));
        Ok(Summary {
            status,
            lasted: self.began.elapsed(),
            spent: Duration::from_nanos(spent().saturating_sub(self.spent)),
            placement: self.options.placement,
            pace: self.options.pace,
            drill: self.options.drill,
            spaces: self.counted,
            files,
            refused: self.refused,
            untold: self.ledger.lost() + self.hostile,
            not_observed: self.not_observed,
        })
    }

    /// Says at once which files are not guarded: the end may be far.
    fn tell(&mut self) {
        for (path, why) in self.refused.iter().skip(self.told) {
            (self.options.told)(path, why);
        }
        self.told = self.refused.len();
    }

    /// A file is guarded after all.
    pub(crate) fn withdraw(&mut self, path: &std::path::Path) {
        let before = self.refused.len();
        self.refused.retain(|(refused, _)| refused != path);
        // All that were there had been told of, or will be once more.
        self.told = self.told.saturating_sub(before - self.refused.len());
    }

    /// Those of the files that are due that may be judged; the others are, a little later.
    fn settled_of(&mut self, due: Vec<usize>) -> Vec<usize> {
        let (wait, now): (Vec<_>, Vec<_>) = due.into_iter().partition(|file| self.settles(*file));
        wait.into_iter().for_each(|file| self.schedule.put_off(file, NAP));
        now
    }

    /// Waits for those of the dying that are dead. Those that are not our children go to whoever
    /// is their parent.
    fn bury(&mut self) {
        let child = self.child.as_ref().map(Child::id);
        self.dying.retain(|process| {
            let number = i32::try_from(*process).ok().and_then(Pid::from_raw);
            let ours = Some(*process) != child && number.is_some();
            ours && matches!(waitpid(number, WaitOptions::NOHANG | ALL_KINDS), Ok(None))
        });
        // Those that never said who they are. The program's end is asked about elsewhere: until it
        // was, they wait.
        let others =
            || proc::dead_child().filter(|id| self.options.only_guards && Some(*id) != child);
        while let Some(number) = others().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)) {
            if waitpid(Some(number), WaitOptions::NOHANG | ALL_KINDS).is_err() {
                break;
            }
        }
    }

    /// Waits for things to happen, for a while, and sees to them.
    pub(crate) fn serve(&mut self, patience: Duration) {
        let numbers: Vec<u64> = self.spaces.keys().copied().collect();
        let mut anchored = Vec::new();
        let ready: Vec<bool> = {
            // Whoever there is no room for waits at the door.
            let open = if self.has_room() { PollFlags::IN } else { PollFlags::empty() };
            let mut all = vec![PollFd::new(&self.server, open)];
            all.push(PollFd::new(self.asks.done(), PollFlags::IN));
            all.extend(self.peers.iter().map(|peer| PollFd::new(&peer.socket, PollFlags::IN)));
            all.extend(self.spaces.values().map(|space| PollFd::new(&space.end, PollFlags::IN)));
            for (number, space) in &self.spaces {
                if let Some(anchor) = &space.anchor {
                    anchored.push(*number);
                    all.push(PollFd::new(anchor, PollFlags::IN));
                }
            }
            let timeout = Timespec::try_from(patience).ok();
            // An interrupted wait is one that ended early.
            let _ = poll(&mut all, timeout.as_ref());
            all.iter().map(|fd| !fd.revents().is_empty()).collect()
        };
        let (peers, rest) = ready[2..].split_at(self.peers.len());
        let (ends, anchors) = rest.split_at(numbers.len());
        let gone: Vec<u64> =
            anchored.iter().zip(anchors).filter(|(_, gone)| **gone).map(|(n, _)| *n).collect();
        // Nothing is ever said on these: the other ends are gone.
        gone.into_iter().for_each(|number| self.unanchored(number));
        let asking: Vec<bool> = peers.to_vec();
        let mut ended = BTreeSet::new();
        for (number, _) in numbers.iter().zip(ends).filter(|(_, end)| **end) {
            ended.extend(self.spaces.get(number).map(|space| space.process));
        }
        // Requests before ends: what a program asked last came before its end.
        self.serve_peers(&asking);
        for process in ended {
            self.end_of(process);
        }
        self.join();
        if ready[0] {
            self.accept();
        }
    }

    /// Whether nobody waits to be heard.
    pub(crate) fn all_heard(&self) -> bool {
        self.peers.is_empty()
    }

    /// Whether one more may be let in. Who waits for an answer counts as well.
    fn has_room(&self) -> bool {
        self.peers.len() + self.covers.len() + self.asks.waiting() < MOST_PEERS
    }

    fn accept(&mut self) {
        let (now, earliest) = (Instant::now(), self.emptied);
        while self.has_room() {
            let Ok((socket, _)) = acceptfrom(&self.server) else {
                self.emptied = now;
                return;
            };
            // Who has nothing to say here takes nobody's place.
            if self.who(&socket).is_some() {
                self.peers.push(Peer { socket, since: now, earliest });
            }
        }
    }

    fn serve_peers(&mut self, asking: &[bool]) {
        let mut asking = asking.iter();
        for peer in core::mem::take(&mut self.peers) {
            if *asking.next().unwrap_or(&false) {
                self.serve_peer(peer);
            } else if peer.since.elapsed() < SILENCE {
                self.peers.push(peer);
            }
        }
    }

    /// One request. Whatever is wrong with it is answered, and goes no further.
    fn serve_peer(&mut self, peer: Peer) {
        let Peer { socket: peer, earliest, .. } = peer;
        let mut bytes = [0; MESSAGE];
        let Ok(Some((len, with))) = link::receive(&peer, &mut bytes) else { return };
        let request = bytes.get(..len).ok_or(Refusal::Malformed).and_then(Request::decode);
        let process = self.who(&peer);
        let answer = match (request, process) {
            (Ok(Request::Ask { hasty }), Some(process)) => {
                return self.ask(Asker::new(peer, process, earliest).of(None, hasty), with);
            }
            (Ok(Request::Named { space }), Some(process)) => {
                return self.ask(Asker::new(peer, process, earliest).of(Some(space), true), with);
            }
            (Ok(Request::Cover { file, at, len }), Some(process)) => {
                return self.cover_for(Covering::new(peer, process, file, (at, len)));
            }
            (Ok(Request::Heal { space, file, page, memory }), Some(process)) => {
                self.heal(process, Failed { space, file, page, memory }, earliest)
            }
            (Ok(request), Some(process)) => self.answer(process, request, with),
            (Err(why), _) => Err(why),
            (_, None) => Err(Refusal::Stranger),
        };
        let heard = self.send(&peer, process, answer);
        if let Ok(Answer::Welcome { space: number, .. }) = answer {
            match self.spaces.get_mut(&number) {
                Some(space) if heard => space.anchor = Some(peer),
                _ => self.forget(number),
            }
        }
    }

    /// Answers a process. False if it is gone, or did not wait.
    pub(crate) fn send(
        &mut self,
        peer: &OwnedFd,
        process: Option<u32>,
        answer: Result<Answer, Refusal>,
    ) -> bool {
        if answer.is_err() {
            // One that died over its question asks nothing any more.
            self.hostile += u64::from(process.is_some_and(|id| proc::parent(id).is_some()));
        }
        let answer = answer.unwrap_or_else(Answer::Refused);
        let sent = link::send(peer, &answer.encode(), self.with(answer));
        self.healed = None;
        sent.is_ok()
    }

    /// What an answer comes along with.
    pub(crate) fn with(&self, answer: Answer) -> Option<BorrowedFd<'_>> {
        match answer {
            Answer::Welcome { .. } => self.ledger.file(),
            Answer::Guarded { file } => {
                let source = self.files.get(&(file as usize)).map(|file| &file.source);
                // One that is being closed may be written to by whoever was overlooked.
                source.or(self.asks.source_of(file)).map(|source| source.board().file())
            }
            Answer::Healed => {
                let healed = self.healed.and_then(|index| self.files.get(&index));
                healed.map(Guarded::descriptor)
            }
            _ => None,
        }
    }

    /// Who is at the other end, if it may be there: the same user, or if this is root, a descendant
    /// of what it guards, which may have become another user.
    fn who(&self, peer: &OwnedFd) -> Option<u32> {
        let found = socket_peercred(peer.as_fd()).ok()?;
        let me = rustix::process::getuid();
        let process = u32::try_from(found.pid.as_raw_nonzero().get()).ok()?;
        let may = found.uid == me || me.is_root() && self.is_family(process);
        may.then_some(process)
    }

    /// Whether a process descends from a guarded one, or was adopted by this one, as orphans of
    /// guarded ones are.
    fn is_family(&self, process: u32) -> bool {
        let child = self.child.as_ref().map(Child::id);
        let guarded = |id: &u32| {
            let own = *id == std::process::id() || Some(*id) == child;
            own || self.spaces.values().any(|space| space.process == *id)
        };
        proc::line(process).any(|id| guarded(&id))
    }

    /// A look at who is there, if it is time for one.
    pub(crate) fn look_around(&mut self) {
        // Before events are told apart by whose code may have caused them.
        self.check_code();
        let known = self.known();
        if self.schedule.look(Instant::now()) {
            self.check_spaces();
            // All of them, while it is known who was there.
            let settling: BTreeSet<usize> =
                self.files.keys().copied().filter(|file| self.settles(*file)).collect();
            let settled = self.files.iter_mut().filter(|(file, _)| !settling.contains(file));
            settled.for_each(|(_, file)| file.look(&known));
            // Files that settle were not looked at, and may have been written to by those.
            if settling.is_empty() {
                self.long_past = core::mem::take(&mut self.past);
            }
            self.look_for_others();
            self.follow_names();
            self.front.try_again();
        }
    }

    /// A pass over the files that are due, and a part of the scrub of each.
    fn tick(&mut self, due: &[usize]) {
        self.look_around();
        for index in due {
            let began = Instant::now();
            self.tick_file(*index);
            self.schedule.done(*index, began);
            self.tell_pace(*index);
        }
        self.scrub(due);
        self.drill(due);
    }

    /// Has others told about a file. Where that cannot be, they read its side file.
    pub(crate) fn tell_of(&mut self, index: usize) {
        self.tell_pace(index);
        let Some(file) = self.files.get_mut(&index) else { return };
        let failed = self.front.add(index, file.key(), Arc::clone(file.teller()));
        if let Some(error) = failed {
            file.report().note(format!(
                "`status` could not ask the guard at first, and read the side file: {error}"
            ));
        }
    }

    /// Nobody is told about a file any more.
    pub(crate) fn tell_no_more(&mut self, index: usize, file: &Guarded) {
        self.front.remove(index, file.key());
    }

    fn tell_pace(&self, index: usize) {
        if let Some(file) = self.files.get(&index) {
            file.teller().paced(self.schedule.of(index));
        }
    }

    /// A look, a pass, and the end of a doubt if its time has come.
    fn tick_file(&mut self, index: usize) {
        // Of the file that has the number by now, if it is another one.
        if self.settles(index) {
            return;
        }
        let known = self.known();
        let Some(file) = self.files.get_mut(&index) else { return };
        file.look(&known);
        self.pass_in_steps(index, false);
        if self.files.get_mut(&index).is_some_and(Guarded::begins_to_settle) {
            self.pass_by(index, Rearm::All, false);
            let known = self.known();
            if let Some(file) = self.files.get_mut(&index) {
                file.settled(&known);
            }
        }
    }

    /// Does something to a file with the means to stop all who may write to it.
    pub(crate) fn with_writers<T>(
        &mut self,
        index: usize,
        act: impl FnOnce(&Guarded, &Freezer<'_>) -> T,
    ) -> T {
        let roots: BTreeSet<u32> = self.spaces.values().map(|space| space.process).collect();
        let file = &self.files[&index];
        let sure = || self.is_sure(file);
        let reaches = |process| file.may_be_held_by(process);
        let freezer = Freezer::new(&roots, &sure, &reaches);
        let freezer = freezer.but_for(self.anchors()).noted(&self.ledger);
        let done = act(file, &freezer);
        let ran = freezer.ran();
        drop(freezer);
        self.doubt_repair(index, ran);
        done
    }

    /// A process went on while a page was replaced: what it stored there meanwhile may be lost, and
    /// nobody knows.
    fn doubt_repair(&mut self, index: usize, ran: Option<u32>) {
        if let (Some(process), Some(file)) = (ran, self.files.get_mut(&index)) {
            file.contest(format!(
                "process {process} was made to go on while a page was replaced: a repair is \
                 doubtful"
            ));
        }
    }

    /// A few regions of each; what is damaged there may take long to repair, so others are served.
    fn scrub(&mut self, due: &[usize]) {
        for index in due {
            for _ in 0..self.options.scrub_regions {
                if !self.files.contains_key(index) || self.settles(*index) {
                    break;
                }
                let step = self.with_writers(*index, |file, writers| file.scrub_step(writers));
                if let (Err(error), Some(file)) = (&step, self.files.get_mut(index)) {
                    file.note_error(error);
                }
                if step != Ok(true) {
                    break;
                }
                self.serve_now_and_then();
            }
        }
    }

    /// Damages pages of files that are due, and has them repaired, while everybody stands.
    fn drill(&mut self, due: &[usize]) {
        let Some(drill) = self.options.drill else { return };
        let roots: BTreeSet<u32> = self.spaces.values().map(|space| space.process).collect();
        for index in due.iter().copied().filter(|_| !roots.is_empty()) {
            let Some(file) = self.files.get(&index).filter(|file| file.may_be_drilled()) else {
                continue;
            };
            let sure = || self.is_sure(file);
            // The repair stops them as well, finds that they stand, and leaves them so.
            let reaches = |process| file.may_be_held_by(process);
            let freezer = || Freezer::new(&roots, &sure, &reaches).but_for(self.anchors());
            let (all, again) = (freezer().lasting(), freezer());
            let began = Instant::now();
            let done = all.freeze().then(|| file.drill(drill, &again));
            all.thaw();
            let ran = again.ran().or(all.ran());
            drop((all, again));
            if let Some(file) = self.files.get_mut(&index) {
                file.drilled(done, began.elapsed());
            }
            self.doubt_repair(index, ran);
        }
    }

    /// Whether everything is as it was told, asked while all guarded processes stand. One of which
    /// that is not so, since it could not be set up or became another, keeps only such files from
    /// being repaired as it has, or may have.
    fn is_sure(&self, file: &Guarded) -> bool {
        let spaces = self.spaces.iter().all(|(number, space)| {
            let checked = file.source.check(*number, space.process, self.ledger_inode);
            let told = !space.leaving && checked.knows && checked.told && space.has_same_code();
            let clear = told || !file.may_be_held_by(space.process);
            clear && proc::has_ring(space.process) == Some(false)
        });
        let none = self.strange_family(Some(file)).is_some_and(|found| found.is_empty());
        let quiet = self.ledger.rings() == 0 && none;
        let quiet = quiet && !self.settles(file.number());
        file.is_sure() && spaces && quiet
    }
}

/// Children that send a signal when they end, and those that do not.
const ALL_KINDS: WaitOptions = WaitOptions::from_bits_retain(libc::__WALL as u32);

/// A name nobody can guess.
fn random() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    let text = text.trim();
    if text.is_empty() { std::process::id().to_string() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Signal, kill_process};

    /// A process of another user that nobody here is related to, connected and silent.
    fn stranger(name: &str, user: u32) -> u32 {
        let (read, write) = std::os::unix::net::UnixStream::pair().unwrap();
        // SAFETY: the children connect, tell their number, sleep and exit; they use what was made
        // before. The first one dies at once, so that the second belongs to nobody here.
        unsafe {
            let first = libc::fork();
            if first == 0 {
                let kept = std::os::fd::AsRawFd::as_raw_fd(&write).unsigned_abs();
                // What other tests have open is not for this one to hold.
                libc::syscall(libc::SYS_close_range, 3, kept - 1, 0);
                libc::syscall(libc::SYS_close_range, kept + 1, u32::MAX, 0);
                if libc::fork() == 0 {
                    libc::setuid(user);
                    let socket = link::reach(name.as_bytes(), link::PATIENCE);
                    let number = libc::getpid().to_le_bytes();
                    let _ = rustix::io::write(&write, &number);
                    libc::sleep(60);
                    drop(socket);
                }
                libc::_exit(0);
            }
            libc::waitpid(first, core::ptr::null_mut(), 0);
        }
        let mut number = [0; 4];
        assert_eq!(rustix::io::read(&read, &mut number), Ok(4));
        u32::from_le_bytes(number)
    }

    #[test]
    fn other_users_take_nobodys_place() {
        let _alone = crate::alone();
        if !rustix::process::getuid().is_root() {
            println!("skipped: needs the right to become another user");
            return;
        }
        let (mut guard, name) = match Guard::prepare(Options::new("/nowhere".into())) {
            Ok(found) => found,
            Err(error) => {
                println!("skipped: {error}");
                return;
            }
        };
        for (user, place) in [(65534, 0), (0, 1)] {
            let process = stranger(&name, user);
            guard.accept();
            assert_eq!(guard.peers.len(), place, "user {user}");
            let _ = kill_process(Pid::from_raw(process as i32).unwrap(), Signal::KILL);
        }
        let peer = link::reach(name.as_bytes(), link::PATIENCE).unwrap();
        guard.accept();
        assert_eq!(guard.peers.len(), 2);
        drop(peer);
        // Who waits for an answer takes a place; who finds none waits at the door.
        let wish = |peer| Covering::new(peer, 1, 0, (0, 1));
        guard.covers.push_back(wish(guard.peers.remove(0).socket));
        let _both = [0, 1].map(|_| link::reach(name.as_bytes(), link::PATIENCE).unwrap());
        guard.accept();
        assert_eq!((guard.peers.len(), guard.covers.len()), (2, 1));
        guard.cover_waiting();
        guard.accept();
        assert_eq!((guard.peers.len(), guard.covers.len()), (3, 0));
        assert!(guard.is_family(std::process::id()) && !guard.is_family(1));
    }
}
