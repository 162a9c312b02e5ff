//! The guarded address spaces: who they belong to, and what they ask.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_guard_wire::{Answer, Place, Refusal, Request};
use holdfast_pmem::track::pagemap::Pagemap;

use crate::code::{Layout, Makes};
use crate::file::Guarded;
use crate::foreign::Known;
use crate::proc;
use crate::serve::{Guard, LATEST, Settling};
use crate::source::View;

/// A guarded address space.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) process: u32,
    /// Readable when the process is gone.
    pub(crate) end: OwnedFd,
    /// The other end is the anchor's: hung up when that is gone.
    pub(crate) anchor: Option<OwnedFd>,
    /// The anchor's process, which has the program's mappings, too.
    anchor_process: Option<u32>,
    pages: Arc<Pagemap>,
    /// It is being replaced by a program that may not know us.
    pub(crate) leaving: bool,
    /// Looks at it in a row that found no program that knows us; none any more once one did.
    doubts: Option<u32>,
    /// Its executable memory when it was last looked at, and what was found in it.
    layout: Option<Layout>,
    makes: Makes,
    /// It has code that does not find the hooks.
    unfollowed: bool,
}

/// Looks that a program is given to get itself ready.
const READY: u32 = 3;
/// How long a new process may take to introduce itself, or to become another program.
const TO_COME: Duration = Duration::from_millis(200);

impl Space {
    /// Whether its executable memory is what it was when it was looked at.
    pub(crate) fn has_same_code(&self) -> bool {
        self.layout.is_some() && self.layout == Layout::of(self.eldest())
    }

    /// The process that has its memory for longest: the program may be dead, or another one.
    fn eldest(&self) -> u32 {
        self.anchor_process.unwrap_or(self.process)
    }
}

impl Guard {
    /// The processes whose writes are announced.
    pub(crate) fn known(&self) -> Known {
        let spaces = self.spaces.values();
        let anchors = spaces.clone().filter_map(|space| space.anchor_process);
        let programs = spaces.clone().filter(|space| !space.leaving).map(|space| space.process);
        let past = || self.past.iter().chain(&self.long_past);
        let that = |which: fn(&Makes) -> bool| {
            let now = spaces.clone().filter(move |space| which(&space.makes));
            let gone = past().filter(move |(_, makes)| which(makes)).map(|(process, _)| *process);
            now.map(|space| space.process).chain(gone).collect()
        };
        Known {
            guarded: programs.chain(anchors).chain(past().map(|(process, _)| *process)).collect(),
            own_calls: that(|makes| matches!(makes, Makes::Calls(_))),
            make_code: that(|makes| *makes == Makes::Code),
        }
    }

    /// Sees to a request.
    pub(crate) fn answer(
        &mut self,
        peer: u32,
        request: Request,
        with: Option<OwnedFd>,
    ) -> Result<Answer, Refusal> {
        match request {
            Request::Hello { late, .. } => self.hello(peer, late),
            Request::Ready { space } => {
                self.mine(peer, space)?;
                Ok(self.settle(space))
            }
            Request::Anchored { space, process } => {
                self.mine(peer, space)?;
                self.anchored(space, process)
            }
            // They are seen to before: their answers may have to wait.
            Request::Ask | Request::Named { .. } => Err(Refusal::Failed),
            Request::Board { file } => {
                self.files.get(&(file as usize)).ok_or(Refusal::NoFile)?;
                Ok(Answer::Guarded { file })
            }
            Request::Map { space, file, place, at, writable, replaced, late } => {
                self.mine(peer, space)?;
                self.map(space, file, place, at, (writable, replaced, late), with)
            }
            Request::Unmap { space, place } => {
                self.mine(peer, space)?;
                self.files.values().for_each(|file| file.source.remove(space, place));
                Ok(Answer::Done)
            }
            Request::Harvest { space, place } => {
                self.mine(peer, space)?;
                self.files.values().for_each(|file| file.source.harvest(space, place));
                Ok(Answer::Done)
            }
            Request::Writable { space, place } => {
                self.mine(peer, space)?;
                for file in self.files.values() {
                    file.source.open_up(space, place, &file.allocated());
                }
                Ok(Answer::Done)
            }
            Request::Cover { file, at, len } => {
                // One that was just let go of is covered.
                if self.options.cover_on_sync && self.settling.is_empty() {
                    self.cover(file as usize, at, len);
                }
                Ok(Answer::Done)
            }
            Request::Stream { space, file, begins } => {
                self.mine(peer, space)?;
                let file = self.files.get(&(file as usize)).ok_or(Refusal::NoFile)?;
                file.source.stream(space, begins);
                Ok(Answer::Done)
            }
            Request::Heal { space, file, page } => {
                self.mine(peer, space)?;
                self.heal(file as usize, page)
            }
            Request::Unfollowed { space } => {
                self.mine(peer, space)?;
                self.unfollowed(space)
            }
            Request::Exec { space, stays } => {
                self.leave(peer, space, stays);
                Ok(Answer::Done)
            }
        }
    }

    /// A program that came late has told what it has. What nobody knows of is told apart from what
    /// it does once it goes on.
    fn settle(&mut self, space: u64) -> Answer {
        if let Some(at) = self.settling.iter().position(|settling| settling.space == space) {
            self.settling.remove(at);
        }
        if self.settling.is_empty() {
            self.files.values_mut().for_each(Guarded::pass);
        }
        Answer::Done
    }

    fn anchored(&mut self, space: u64, process: u32) -> Result<Answer, Refusal> {
        let space = self.spaces.get_mut(&space).ok_or(Refusal::NoSpace)?;
        space.anchor_process = Some(process);
        Ok(Answer::Done)
    }

    /// A space has code that does not find the hooks: its calls are not announced.
    fn unfollowed(&mut self, space: u64) -> Result<Answer, Refusal> {
        let space = self.spaces.get_mut(&space).ok_or(Refusal::NoSpace)?;
        space.unfollowed = true;
        space.makes = Makes::unfollowed();
        Ok(Answer::Done)
    }

    /// Puts a page right that a load could not have.
    fn heal(&mut self, index: usize, page: u64) -> Result<Answer, Refusal> {
        self.files.get(&index).ok_or(Refusal::NoFile)?;
        if !self.settling.is_empty() {
            return Ok(Answer::Unguarded);
        }
        let healed = self.with_writers(index, |file, writers| file.heal(page, writers));
        self.healed = healed.then_some(index);
        Ok(if healed { Answer::Healed } else { Answer::Unguarded })
    }

    /// Refuses those that speak for another's space. A child that shares it may.
    pub(crate) fn mine(&self, peer: u32, space: u64) -> Result<(), Refusal> {
        let owner = self.spaces.get(&space).ok_or(Refusal::NoSpace)?.process;
        let may = owner == peer || proc::parent(peer) == Some(owner);
        if may { Ok(()) } else { Err(Refusal::Stranger) }
    }

    fn hello(&mut self, peer: u32, late: bool) -> Result<Answer, Refusal> {
        let process = i32::try_from(peer).ok().and_then(rustix::process::Pid::from_raw);
        let process = process.ok_or(Refusal::Stranger)?;
        let end = rustix::process::pidfd_open(process, rustix::process::PidfdFlags::empty());
        let end = end.map_err(|_| Refusal::Failed)?;
        let pages = Pagemap::of(peer).map_err(|_| Refusal::Failed)?;
        // What this process was before an exec.
        self.end_of(peer);
        self.counted += 1;
        let (number, pages) = (self.counted, Arc::new(pages));
        let space = Space {
            process: peer,
            end,
            anchor: None,
            anchor_process: None,
            pages,
            leaving: false,
            doubts: Some(0),
            layout: Layout::of(peer),
            makes: self.codes.look(peer),
            unfollowed: false,
        };
        self.spaces.insert(number, space);
        if proc::has_other_numbers(peer) {
            // Its slots bear numbers that are those of others here: nobody knows whose are left.
            self.ledger.lose();
            let why = format!("process {peer} has process numbers of its own (a PID namespace)");
            if !self.not_observed.contains(&why) && self.not_observed.len() < 64 {
                self.not_observed.push(why);
            }
        }
        if late {
            self.settling.push(Settling::new(number, peer, true));
        }
        Ok(Answer::Welcome { space: number })
    }

    /// Ends all spaces of a process: what was stored to is taken from what the anchor kept.
    pub(crate) fn end_of(&mut self, process: u32) {
        let theirs = self.spaces.iter().filter(|(_, space)| space.process == process);
        let ended: Vec<u64> = theirs.map(|(number, _)| *number).collect();
        for number in ended {
            for file in self.files.values() {
                file.source.end(number);
            }
            self.settling.retain(|settling| settling.space != number);
            self.check_code();
            if let Some(space) = self.spaces.remove(&number) {
                // Anchors are ours to bury, and so are programs whose parents are gone.
                self.dying.extend(space.anchor_process.into_iter().chain([process]));
                self.past.extend(space.anchor_process.map(|anchor| (anchor, Makes::Nothing)));
                self.past.extend((!space.leaving).then_some((process, space.makes)));
            }
        }
    }

    /// A program is about to be replaced. What happened until now was its doing.
    fn leave(&mut self, peer: u32, space: u64, stays: bool) {
        self.check_code();
        let known = self.known();
        for file in self.files.values_mut() {
            file.look(&known);
        }
        // Not for a child that only borrows the space on its way to another program.
        if let Some(space) = self.spaces.get_mut(&space)
            && space.process == peer
        {
            space.leaving = !stays;
        }
    }

    fn map(
        &mut self,
        space: u64,
        file: u32,
        place: Place,
        at: u64,
        (writable, replaced, late): (bool, bool, bool),
        with: Option<OwnedFd>,
    ) -> Result<Answer, Refusal> {
        let found = self.spaces.get(&space).ok_or(Refusal::NoSpace)?;
        let file = self.files.get(&(file as usize)).ok_or(Refusal::NoFile)?;
        let pages = Arc::clone(&found.pages);
        let keep = with.map(Arc::new);
        // Alone, a thread stores nothing while it waits for us.
        let raced = replaced && proc::threads(found.process) != Some(1);
        // What was just covered for the first time is covered once more; of another file nobody
        // knows what was stored to.
        let unknown = late && !file.is_new();
        let view = View { space, pages, place, at, writable, keep };
        file.source.add(view, raced || unknown, &file.allocated());
        if late && file.is_new() {
            let len = place.bytes().min(file.size().saturating_sub(at));
            file.source.board().mark(at, len);
        }
        Ok(Answer::Done)
    }

    /// Looks whether every program is still the one that said hello, and whether its mappings are
    /// what it told; ways of writing that nobody sees contest the files.
    pub(crate) fn check_spaces(&mut self) {
        let mut strange = Vec::new();
        for (number, space) in self.spaces.iter_mut().filter(|(_, space)| !space.leaving) {
            let mut knows = true;
            for file in self.files.values() {
                knows &= file.source.check(*number, space.process, self.ledger_inode).knows;
            }
            space.doubts = if knows { None } else { space.doubts.map(|doubts| doubts + 1) };
            if !knows && space.doubts.is_none_or(|doubts| doubts > READY) {
                strange.push(format!("process {} became a program without us", space.process));
            }
            if proc::has_ring(space.process) {
                strange.push(format!("process {} has an io_uring", space.process));
            }
        }
        if self.ledger.rings() > 0 {
            strange.push("a guarded program asked for an io_uring, or for kernel aio".to_owned());
        }
        let holders = self.strange_family();
        let before = core::mem::take(&mut self.strangers);
        for process in holders {
            let since = before.get(&process).copied().unwrap_or_else(Instant::now);
            self.strangers.insert(process, since);
            // It may be about to introduce itself.
            if since.elapsed() > TO_COME && self.all_heard() {
                strange
                    .push(format!("process {process} came of a guarded one, and is not guarded"));
            }
        }
        for why in strange {
            for file in self.files.values_mut() {
                file.contest(why.clone());
            }
            if !self.not_observed.contains(&why) && self.not_observed.len() < 64 {
                self.not_observed.push(why);
            }
        }
    }

    /// Whether somebody adopted is about to introduce itself: it was started, perhaps by a program
    /// that is gone, and did not come so far as to say so. Only asked when nobody else is guarded.
    pub(crate) fn awaits(&mut self) -> bool {
        let known = self.known().guarded;
        let before = core::mem::take(&mut self.coming);
        let new = proc::children().into_iter().filter(|process| {
            !known.contains(process) && !self.dying.contains(process) && !proc::is_dead(*process)
        });
        self.coming = new
            .map(|process| (process, before.get(&process).copied().unwrap_or_else(Instant::now)))
            .filter(|(process, since)| {
                // One that has our library, or that of its parent, goes on to speak.
                let ours = || proc::maps(*process, &self.options.preload);
                since.elapsed() < TO_COME || since.elapsed() < LATEST && ours()
            })
            .collect();
        !self.coming.is_empty()
    }

    /// Looks at the executable memory of programs, where it changed.
    pub(crate) fn check_code(&mut self) {
        for space in self.spaces.values_mut().filter(|space| !space.leaving) {
            let layout = Layout::of(space.eldest());
            if layout.is_none() || layout != space.layout {
                let makes = self.codes.look(space.eldest());
                space.makes = if space.unfollowed { Makes::unfollowed() } else { makes };
                space.layout = layout;
            }
        }
    }

    /// Descendants of guarded processes that are not guarded and can change a file. While there
    /// are any, nothing is repaired.
    pub(crate) fn strange_family(&self) -> BTreeSet<u32> {
        let known = self.known().guarded;
        let roots = self.spaces.values().map(|space| space.process).collect();
        let others = proc::family(&roots).into_iter().filter(|process| !known.contains(process));
        // This one may have been started by the program itself.
        let others = others.filter(|process| *process != std::process::id());
        others
            .filter(|process| {
                self.files.values().any(|file| file.watch(|watch| watch.is_held_by(*process)))
            })
            .collect()
    }
}
