//! The supervisor's loop: requests, ends, passes.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_guard_wire::{Answer, Ledger, MESSAGE, NAME, Refusal, Request, link};
use holdfast_pmem::Clock;
use holdfast_pmem::track::uffd::Uffd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{acceptfrom, sockopt::socket_peercred};
use rustix::process::{Pid, WaitOptions, waitpid};

use crate::clock::WallClock;
use crate::code::{Codes, Makes};
use crate::error::Error;
use crate::file::Guarded;
use crate::freeze::Freezer;
use crate::options::Options;
use crate::proc;
use crate::program;
use crate::spaces::Space;
use crate::strict;
use crate::summary::Summary;

/// Longest sleep: the end of a program that never spoke to us is seen by looking.
const NAP: Duration = Duration::from_millis(50);
/// How long a connection may stay silent, and how many may be open.
const SILENCE: Duration = Duration::from_secs(2);
const MOST_PEERS: usize = 1024;
/// How long anchors may take to go when all is over.
const LAST_WAIT: Duration = Duration::from_millis(500);

/// A program that runs under guard.
#[derive(Debug)]
pub struct Guard {
    pub(crate) options: Options,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) ledger_inode: u64,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) files: Vec<Guarded>,
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
    pub(crate) counted: u64,
    pub(crate) refused: Vec<(PathBuf, String)>,
    pub(crate) not_observed: Vec<String>,
    server: OwnedFd,
    peers: Vec<(OwnedFd, Instant)>,
    child: Child,
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
        let program = program::find(program, path.as_deref())?;
        program::check(&program)?;
        let preload = std::fs::canonicalize(&options.preload)
            .map_err(|_| Error::NoPreload { path: options.preload.clone() })?;
        let codes = Codes::new(&preload, &options.trusted);
        drop(Uffd::open().map_err(Error::Track)?);
        raise_limit();
        let ledger = Ledger::create().map_err(Error::io("memfd_create"))?;
        let ledger_inode = match ledger.file() {
            Some(file) => rustix::fs::fstat(file).map_err(Error::io("fstat"))?.st_ino,
            None => 0,
        };
        let name = format!("holdfast-{}", random());
        let server = link::serve(name.as_bytes()).map_err(Error::io("bind"))?;
        // SAFETY: sets a flag of this process.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
        let mut preloads = preload.into_os_string();
        if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
            preloads.push(":");
            preloads.push(others);
        }
        let mut command = Command::new(&program);
        command
            .args(arguments)
            .env("LD_PRELOAD", preloads)
            .env(NAME, &name)
            .envs(options.environment.iter().map(|(name, value)| (name, value)));
        if options.strict {
            use std::os::unix::process::CommandExt;
            // SAFETY: two system calls, which allocate nothing.
            unsafe { command.pre_exec(strict::refuse_rings) };
        }
        let child = command.spawn().map_err(Error::io("starting the program"))?;
        Ok(Self {
            options,
            ledger: Arc::new(ledger),
            ledger_inode,
            clock: Arc::new(WallClock::new()),
            files: Vec::new(),
            spaces: BTreeMap::new(),
            past: BTreeMap::new(),
            long_past: BTreeMap::new(),
            codes,
            dying: BTreeSet::new(),
            strangers: BTreeMap::new(),
            counted: 0,
            refused: Vec::new(),
            not_observed: Vec::new(),
            server,
            peers: Vec::new(),
            child,
            hostile: 0,
        })
    }

    /// The program's process.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Serves until the program and everything it started under guard are gone, then closes the
    /// files.
    ///
    /// # Errors
    /// [`Error::Io`] if the end of the program cannot be waited for.
    pub fn run(mut self) -> Result<Summary, Error> {
        let mut status = None;
        let mut due = Instant::now() + self.options.period;
        while status.is_none() || !self.spaces.is_empty() {
            let left = due.saturating_duration_since(Instant::now()).min(NAP);
            self.serve(left);
            if status.is_none() {
                status = self.child.try_wait().map_err(Error::io("waitpid"))?;
            }
            self.bury();
            if Instant::now() >= due {
                self.tick();
                // One that took longer than the period is followed by the next soon: programs wait
                // for answers meanwhile.
                let soon = Instant::now() + self.options.period / 2;
                due = (due + self.options.period).max(soon);
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
        let known = self.known();
        let scrub = self.options.final_scrub;
        let files = self.files.drain(..).map(|file| file.finish(&known, scrub)).collect();
        Ok(Summary {
            status,
            spaces: self.counted,
            files,
            refused: self.refused,
            untold: self.ledger.lost() + self.hostile,
            not_observed: self.not_observed,
        })
    }

    /// Waits for those of the dying that are dead. Those that are not our children go to whoever
    /// is their parent.
    fn bury(&mut self) {
        let child = self.child.id();
        self.dying.retain(|process| {
            let number = i32::try_from(*process).ok().and_then(Pid::from_raw);
            let ours = *process != child && number.is_some();
            ours && matches!(waitpid(number, WaitOptions::NOHANG | ALL_KINDS), Ok(None))
        });
    }

    /// Waits for things to happen, for a while, and sees to them.
    fn serve(&mut self, patience: Duration) {
        let numbers: Vec<u64> = self.spaces.keys().copied().collect();
        let mut anchored = Vec::new();
        let ready: Vec<bool> = {
            let mut all = vec![PollFd::new(&self.server, PollFlags::IN)];
            all.extend(self.peers.iter().map(|(peer, _)| PollFd::new(peer, PollFlags::IN)));
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
        let (peers, rest) = ready[1..].split_at(self.peers.len());
        let (ends, anchors) = rest.split_at(numbers.len());
        let gone: Vec<u64> =
            anchored.iter().zip(anchors).filter(|(_, gone)| **gone).map(|(n, _)| *n).collect();
        for number in gone {
            // Nothing is ever said on it: the other end is gone.
            if let Some(space) = self.spaces.get_mut(&number) {
                space.anchor = None;
            }
        }
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
        if ready[0] {
            self.accept();
        }
    }

    /// Whether nobody waits to be heard.
    pub(crate) fn all_heard(&self) -> bool {
        self.peers.is_empty()
    }

    fn accept(&mut self) {
        while let Ok((peer, _)) = acceptfrom(&self.server) {
            if self.peers.len() < MOST_PEERS {
                self.peers.push((peer, Instant::now()));
            }
        }
    }

    fn serve_peers(&mut self, asking: &[bool]) {
        let mut asking = asking.iter();
        for (peer, since) in core::mem::take(&mut self.peers) {
            if *asking.next().unwrap_or(&false) {
                self.serve_peer(peer);
            } else if since.elapsed() < SILENCE {
                self.peers.push((peer, since));
            }
        }
    }

    /// One request. Whatever is wrong with it is answered, and goes no further.
    fn serve_peer(&mut self, peer: OwnedFd) {
        let mut bytes = [0; MESSAGE];
        let Ok(Some((len, with))) = link::receive(&peer, &mut bytes) else { return };
        let request = bytes.get(..len).ok_or(Refusal::Malformed).and_then(Request::decode);
        let process = self.who(&peer);
        let answer = match (request, process) {
            (Ok(request), Some(process)) => self.answer(process, request, with),
            (Err(why), _) => Err(why),
            (_, None) => Err(Refusal::Stranger),
        };
        if answer.is_err() {
            // One that died over its question asks nothing any more.
            self.hostile += u64::from(process.is_some_and(|id| proc::parent(id).is_some()));
        }
        let answer = answer.unwrap_or_else(Answer::Refused);
        let with = match answer {
            Answer::Welcome { .. } => self.ledger.file(),
            Answer::Guarded { file } => {
                self.files.get(file as usize).map(|file| file.source.board().file())
            }
            _ => None,
        };
        // One that does not listen any more needs no answer.
        let _ = link::send(&peer, &answer.encode(), with);
        if let Answer::Welcome { space } = answer
            && let Some(space) = self.spaces.get_mut(&space)
        {
            space.anchor = Some(peer);
        }
    }

    /// Who is at the other end, if it may be there: the same user, or anybody if this is root.
    fn who(&self, peer: &OwnedFd) -> Option<u32> {
        let found = socket_peercred(peer.as_fd()).ok()?;
        let me = rustix::process::getuid();
        if found.uid != me && !me.is_root() {
            return None;
        }
        u32::try_from(found.pid.as_raw_nonzero().get()).ok()
    }

    /// A pass over everything, and a part of the scrub.
    fn tick(&mut self) {
        self.check_spaces();
        self.check_code();
        let known = self.known();
        for file in &mut self.files {
            file.tick(&known);
        }
        self.long_past = core::mem::take(&mut self.past);
        self.scrub();
    }

    fn scrub(&mut self) {
        let roots: BTreeSet<u32> = self.spaces.values().map(|space| space.process).collect();
        for index in 0..self.files.len() {
            let mut failed = None;
            let file = &self.files[index];
            let sure = || self.is_sure(file);
            let writers = Freezer::new(&roots, &sure);
            for _ in 0..self.options.scrub_regions {
                match file.scrub_step(&writers) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => {
                        failed = Some(error);
                        break;
                    }
                }
            }
            let file = &mut self.files[index];
            if let Some(error) = failed {
                file.note_error(&error);
            }
        }
    }

    /// Whether everything is as it was told, asked while all guarded processes stand.
    fn is_sure(&self, file: &Guarded) -> bool {
        let spaces = self.spaces.iter().all(|(number, space)| {
            let checked = file.source.check(*number, space.process, self.ledger_inode);
            let code = space.has_same_code() && !proc::has_ring(space.process);
            !space.leaving && checked.knows && checked.told && code
        });
        let quiet = self.ledger.rings() == 0 && self.strange_family().is_empty();
        file.is_sure() && spaces && quiet
    }
}

/// Children that send a signal when they end, and those that do not.
const ALL_KINDS: WaitOptions = WaitOptions::from_bits_retain(libc::__WALL as u32);

/// Each mapping takes a descriptor.
fn raise_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Where it is refused, fewer mappings can be guarded; they say so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// A name nobody can guess.
fn random() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    let text = text.trim();
    if text.is_empty() { std::process::id().to_string() } else { text.to_owned() }
}
