//! The guarded address spaces: who they belong to, and what they ask.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use holdfast_guard_wire::{Answer, Place, Refusal, Request};
use holdfast_pmem::track::pagemap::Pagemap;
use rustix::process::{Pid, Signal, kill_process, pidfd_send_signal};

use crate::anchors::Anchor;
use crate::code::{Layout, Makes};
use crate::file::Guarded;
use crate::foreign::Known;
use crate::proc;
use crate::serve::{Guard, LATEST, NAP};
use crate::settling::Settling;
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
    anchor_process: Option<Anchor>,
    pages: Arc<Pagemap>,
    /// It is being replaced by a program that may not know us.
    pub(crate) leaving: bool,
    /// Looks that found it on its way in; none any more once it joined: until then the program may
    /// have given up, and announces nothing.
    coming: Option<u32>,
    /// Its executable memory when it was last looked at, and what was found in it.
    layout: Option<Layout>,
    makes: Makes,
    /// It has code that does not find the hooks.
    unfollowed: bool,
}

/// Looks that a program is given to get itself ready.
const READY: u32 = 3;
/// No process has this number.
const NOBODY: u32 = 0;
/// How long a new process may take to introduce itself, or to become another program.
const TO_COME: Duration = Duration::from_millis(200);

impl Space {
    /// Whether what its process does is announced: it is set up, and no other program yet.
    fn is_believed(&self) -> bool {
        !self.leaving && self.coming.is_none()
    }

    /// Whether it has said who it is, and not yet that it is set up.
    pub(crate) fn is_coming(&self) -> bool {
        self.coming.is_some()
    }

    /// Whether its executable memory is what it was when it was looked at.
    pub(crate) fn has_same_code(&self) -> bool {
        self.layout.is_some() && self.layout == Layout::of(self.eldest())
    }

    /// The process that has its memory for longest: the program may be dead, or another one.
    fn eldest(&self) -> u32 {
        self.kept_by().unwrap_or(self.process)
    }

    /// The anchor's process, if that lives.
    fn kept_by(&self) -> Option<u32> {
        self.anchor_process.as_ref().and_then(Anchor::process)
    }
}

/// Bytes of a file that is looked at before a program goes on: that takes milliseconds.
const SMALL: u64 = 16 << 20;

impl Guard {
    /// The processes whose writes are announced.
    pub(crate) fn known(&self) -> Known {
        let spaces = self.spaces.values();
        let anchors = spaces.clone().filter_map(Space::kept_by);
        let programs = spaces.clone().filter(|space| space.is_believed());
        let others = spaces.clone().filter(|space| !space.is_believed());
        let coming = others.map(|space| space.process).collect();
        let programs = programs.map(|space| space.process);
        let past = || self.past.iter().chain(&self.long_past);
        let that = |which: fn(&Makes) -> bool| {
            let now = spaces.clone().filter(move |space| which(&space.makes));
            let gone = past().filter(move |(_, makes)| which(makes)).map(|(process, _)| *process);
            now.map(|space| space.process).chain(gone).collect()
        };
        let coming: BTreeSet<u32> = coming;
        let guarded = programs.chain(anchors).chain(past().map(|(process, _)| *process));
        Known {
            // A number may have been that of a program which was guarded.
            guarded: guarded.filter(|process| !coming.contains(process)).collect(),
            handed: self.handed(),
            own_calls: that(|makes| matches!(makes, Makes::Calls(_))),
            make_code: that(|makes| *makes == Makes::Code),
            coming,
        }
    }

    /// The processes that keep the page tables of programs.
    pub(crate) fn anchors(&self) -> BTreeSet<u32> {
        self.spaces.values().filter_map(Space::kept_by).collect()
    }

    /// The anchor of a space is gone. What is still heard of it is its own for a while.
    pub(crate) fn unanchored(&mut self, space: u64) {
        let Some(space) = self.spaces.get_mut(&space) else { return };
        space.anchor = None;
        let gone = space.anchor_process.take().map(|anchor| anchor.number());
        self.dying.extend(gone);
        self.past.extend(gone.map(|anchor| (anchor, Makes::Nothing)));
        self.know();
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
            Request::Joined { space } => self.joined(peer, space),
            Request::Ready { space, file } => {
                self.mine(peer, space)?;
                Ok(self.settle(space, file.map(|file| file as usize)))
            }
            Request::Anchored { space, process } => {
                self.mine(peer, space)?;
                self.anchored(space, process)
            }
            // They are seen to before: their answers may have to wait, or it counts since when they
            // have waited themselves.
            Request::Ask { .. }
            | Request::Named { .. }
            | Request::Cover { .. }
            | Request::Heal { .. } => Err(Refusal::Failed),
            Request::Listen => Ok(Answer::Done),
            Request::Board { file } => {
                let leaves = self.asks.source_of(file).is_some();
                let known = leaves || self.files.contains_key(&(file as usize));
                if known { Ok(Answer::Guarded { file }) } else { Err(Refusal::NoFile) }
            }
            Request::Map { space, file, place, at, writable, replaced, late } => {
                self.mine(peer, space)?;
                self.map(space, file, place, at, (writable, replaced, late), with)
            }
            Request::Unmap { space, place } => {
                self.every_file(peer, space, |file| file.source.remove(space, place))
            }
            Request::Harvest { space, place } => {
                self.every_file(peer, space, |file| file.source.harvest(space, place))
            }
            Request::Writable { space, place } => self.every_file(peer, space, |file| {
                file.source.open_up(space, place, &file.allocated());
            }),
            Request::Stream { space, file, begins } => self.stream(peer, space, file, begins),
            Request::Unfollowed { space } => {
                self.mine(peer, space).and_then(|()| self.unfollowed(space))
            }
            Request::Exec { space, stays } => {
                self.leave(peer, space, stays);
                self.becomes(peer, stays);
                Ok(Answer::Done)
            }
            // Whoever says so: it can only make more of what is doubted.
            Request::Spawn { ticket, all, .. } => {
                self.spawn(peer, ticket, all);
                Ok(Answer::Done)
            }
            Request::Spawned { ticket, child, .. } => {
                self.spawned(peer, ticket, child);
                Ok(Answer::Done)
            }
            Request::Handed { file, .. } => self.send_on(peer, file, with.as_ref()),
        }
    }

    /// Does something of a space to every file.
    fn every_file(
        &self,
        peer: u32,
        space: u64,
        each: impl FnMut(&Guarded),
    ) -> Result<Answer, Refusal> {
        self.mine(peer, space)?;
        self.files.values().for_each(each);
        Ok(Answer::Done)
    }

    /// A program begins to write to a file through a stream, or has ended it.
    fn stream(
        &mut self,
        peer: u32,
        space: u64,
        file: u32,
        begins: bool,
    ) -> Result<Answer, Refusal> {
        self.mine(peer, space)?;
        let process = self.spaces.get(&space).ok_or(Refusal::NoSpace)?.process;
        if begins {
            self.look_before_stream(file as usize);
        }
        let file = self.files.get(&(file as usize)).ok_or(Refusal::NoFile)?;
        file.source.stream(space, process, begins);
        Ok(Answer::Done)
    }

    /// A program is set up. Nobody else may say so, not even who shares its addresses.
    fn joined(&mut self, peer: u32, space: u64) -> Result<Answer, Refusal> {
        let owner = self.spaces.get(&space).ok_or(Refusal::NoSpace)?.process;
        if owner != peer {
            return Err(Refusal::Stranger);
        }
        // What it did until now was a stranger's doing.
        let known = self.known();
        self.files.values_mut().for_each(|file| file.look(&known));
        if let Some(space) = self.spaces.get_mut(&space) {
            space.coming = None;
        }
        self.arrived(peer);
        self.know();
        Ok(Answer::Done)
    }

    /// Who is known has changed: nobody is to be judged by what was, not even in the middle of a
    /// pass, or while a file is looked at for the last time.
    pub(crate) fn know(&self) {
        let known = self.known();
        self.files.values().for_each(|file| file.know(&known));
        self.asks.ending.iter().for_each(|file| file.eyes.know(&known));
    }

    /// Passes a signal on that was meant for the program.
    pub(crate) fn pass_on(&self, lives: bool) {
        if !lives && self.spaces.is_empty() {
            // It waits for whoever is about to come.
            return;
        }
        let came =
            self.options.signals.iter().filter(|(_, came)| came.swap(false, Ordering::AcqRel));
        for signal in came.filter_map(|(signal, _)| Signal::from_named_raw(*signal)) {
            // Those that are gone need none.
            match self.child.as_ref().map(Pid::from_child) {
                Some(program) if lives => {
                    let _ = kill_process(program, signal);
                }
                _ => self.spaces.values().for_each(|space| {
                    let _ = pidfd_send_signal(&space.end, signal);
                }),
            }
        }
    }

    /// Forgets a space of which its program never heard.
    pub(crate) fn forget(&mut self, space: u64) {
        self.spaces.remove(&space);
        self.settling.retain(|settling| settling.space != space);
    }

    fn anchored(&mut self, space: u64, process: u32) -> Result<Answer, Refusal> {
        let space = self.spaces.get_mut(&space).ok_or(Refusal::NoSpace)?;
        space.anchor_process = Anchor::of(process, space.process);
        Ok(Answer::Done)
    }

    /// A space has code that does not find the hooks: its calls are not announced.
    fn unfollowed(&mut self, space: u64) -> Result<Answer, Refusal> {
        let space = self.spaces.get_mut(&space).ok_or(Refusal::NoSpace)?;
        space.unfollowed = true;
        space.makes = Makes::unfollowed();
        Ok(Answer::Done)
    }

    /// Looks at all of a small file before a stream may write to it for the first time: afterwards,
    /// what rotted before would be taken for written. Also in the middle of a pass over this file
    /// or another one: between its steps, the files are anybody's.
    fn look_before_stream(&mut self, index: usize) {
        let Some(file) = self.files.get(&index) else { return };
        let small = file.size() <= SMALL && !file.is_new();
        if !small || self.settles(index) || !file.source.is_first_stream() {
            return;
        }
        let known = self.known();
        if let Some(file) = self.files.get_mut(&index) {
            file.look(&known);
        }
        let done = self.with_writers(index, |file, writers| file.scrub_all(writers));
        if let (Err(error), Some(file)) = (&done, self.files.get_mut(&index)) {
            file.note_error(error);
        }
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
        self.replaced(peer);
        self.counted += 1;
        let (number, pages) = (self.counted, Arc::new(pages));
        let space = Space {
            process: peer,
            end,
            anchor: None,
            anchor_process: None,
            pages,
            leaving: false,
            coming: Some(0),
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
            self.settling.push(Settling::new(number, peer, None));
        }
        Ok(Answer::Welcome { space: number, process: peer })
    }

    /// Ends all spaces of a process: what was stored to is taken from what the anchor kept.
    pub(crate) fn end_of(&mut self, process: u32) {
        let theirs = self.spaces.iter().filter(|(_, space)| space.process == process);
        let ended: Vec<u64> = theirs.map(|(number, _)| *number).collect();
        for number in ended {
            for file in self.files.values() {
                file.source.end(number);
            }
            self.end_settling(number);
            self.check_code();
            if let Some(space) = self.spaces.remove(&number) {
                // Anchors are ours to bury, and so are programs whose parents are gone.
                let anchor = space.anchor_process.as_ref().map(Anchor::number);
                self.dying.extend(anchor.into_iter().chain([process]));
                self.past.extend(anchor.map(|anchor| (anchor, Makes::Nothing)));
                self.past.extend(space.is_believed().then_some((process, space.makes)));
            }
        }
    }

    /// A process is another program than it was, and has announced nothing yet: what the one before
    /// was writing is over, also where its first thread did, whose number lives on.
    fn replaced(&self, process: u32) {
        let ending = self.asks.ending.iter().map(|file| &file.source);
        let sources = self.files.values().map(|file| &file.source).chain(ending);
        sources.for_each(|source| source.reap_replaced(process));
    }

    /// Those that were about to become other programs, and became such as know nobody: they say
    /// nothing. One that never joined may be about to have the list.
    fn replaced_unsaid(&self) -> Vec<u32> {
        let gone = |space: &&Space| {
            let leaves = space.leaving && space.coming.is_none();
            leaves && proc::has_inode_mapped(space.process, self.ledger_inode) == Some(false)
        };
        self.spaces.values().filter(gone).map(|space| space.process).collect()
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
        self.know();
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

    /// Looks whether every program is still the one that joined, and whether its mappings are what
    /// it told; ways of writing that nobody sees contest the files.
    pub(crate) fn check_spaces(&mut self) {
        let (mut strange, mut untold) = (Vec::new(), Vec::new());
        let mut replaced = self.replaced_unsaid();
        // What is about to be told is not untold.
        let settling: BTreeSet<usize> =
            self.files.keys().copied().filter(|file| self.settles(*file)).collect();
        for (number, space) in self.spaces.iter_mut().filter(|(_, space)| !space.leaving) {
            let mut knows = true;
            let settled = self.files.iter().filter(|(file, _)| !settling.contains(file));
            for (_, file) in settled {
                knows &= file.source.check(*number, space.process, self.ledger_inode).knows;
            }
            match &mut space.coming {
                None if !knows => {
                    replaced.push(space.process);
                    strange.push(format!("process {} became a program without us", space.process));
                }
                // What it does meanwhile is a stranger's doing.
                Some(looks) => {
                    *looks = looks.saturating_add(1);
                    let gave_up = format!("process {} could not be set up", space.process);
                    untold.extend((*looks > READY && !knows).then_some(gave_up));
                }
                None => {}
            }
            // Where nobody can tell, nothing is repaired meanwhile.
            if proc::has_ring(space.process) == Some(true) {
                strange.push(format!("process {} has an io_uring", space.process));
            }
        }
        if self.ledger.rings() > 0 {
            strange.push("a guarded program asked for an io_uring, or for kernel aio".to_owned());
        }
        replaced.into_iter().for_each(|process| self.replaced(process));
        // If nobody knows now, the next look does; nothing is repaired before.
        let holders = self.strange_family(None).unwrap_or_default();
        let before = core::mem::take(&mut self.strangers);
        let joining: BTreeSet<u32> = self.joining();
        for process in holders {
            let since = before.get(&process).copied().unwrap_or_else(Instant::now);
            self.strangers.insert(process, since);
            // It may be about to introduce itself, or to say that it is set up.
            let patience = if joining.contains(&process) { LATEST } else { TO_COME };
            if since.elapsed() > patience && self.all_heard() {
                let why = format!("process {process} came of a guarded one, and is not guarded");
                // Of the others, it is heard like any stranger.
                let has = |file: &&mut Guarded| file.may_be_held_by(process);
                self.files.values_mut().filter(has).for_each(|file| file.contest(why.clone()));
                untold.push(why);
            }
        }
        for why in &strange {
            self.files.values_mut().for_each(|file| file.contest(why.clone()));
        }
        for why in strange.into_iter().chain(untold) {
            if !self.not_observed.contains(&why) && self.not_observed.len() < 64 {
                self.not_observed.push(why);
            }
        }
    }

    /// Processes that have said who they are, and not yet that they are set up.
    fn joining(&self) -> BTreeSet<u32> {
        let joining = |space: &&Space| !space.leaving && space.coming.is_some();
        self.spaces.values().filter(joining).map(|space| space.process).collect()
    }

    /// Whether somebody adopted is about to introduce itself: it was started, perhaps by a program
    /// that is gone, and did not come so far as to say so. Only asked when nobody else is guarded.
    pub(crate) fn awaits(&mut self) -> bool {
        let known = self.known().guarded;
        let before = core::mem::take(&mut self.coming);
        // Where nobody can tell, somebody may be: nobody's number stands for that.
        let all = proc::children(std::process::id());
        let all = all.unwrap_or_else(|| before.keys().copied().chain([NOBODY]).collect());
        let new = all.into_iter().filter(|process| {
            let over = *process != NOBODY && proc::is_dead(*process);
            !known.contains(process) && !self.dying.contains(process) && !over
        });
        let now = Instant::now();
        // Those that are given up stay in the list, or they would begin anew.
        self.coming = new
            .map(|process| {
                let (first, mut last) = before.get(&process).copied().unwrap_or((now, now));
                // One that has our library, or that of its parent, goes on to speak. While it
                // becomes another program it has nothing for a moment.
                let waits = (NAP..TO_COME).contains(&last.elapsed());
                let comes = || proc::may_have_mapped(process, &self.options.preload);
                if waits && process != NOBODY && comes() {
                    last = now;
                }
                (process, (first, last))
            })
            .collect();
        let waits = |(first, last): &(Instant, Instant)| {
            last.elapsed() < TO_COME && first.elapsed() < LATEST
        };
        self.coming.values().any(waits)
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

    /// Descendants of guarded processes that are not guarded and can change this file, or any.
    /// While there are such, it is not repaired. `None` if processes cannot be listed.
    pub(crate) fn strange_family(&self, of: Option<&Guarded>) -> Option<BTreeSet<u32>> {
        let known = self.known().guarded;
        let roots = self.spaces.values().map(|space| space.process).collect();
        let others = proc::family(&roots)?.into_iter().filter(|process| !known.contains(process));
        // This one may have been started by the program itself.
        let others = others.filter(|process| *process != std::process::id());
        let holds = |file: &Guarded, process| file.watch(|watch| watch.is_held_by(process));
        let holders = others.filter(|process| match of {
            Some(file) => holds(file, *process),
            None => self.files.values().any(|file| holds(file, *process)),
        });
        Some(holders.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::anchors::tests::{child, end};

    /// The number of an anchor that is gone may be anybody's.
    #[test]
    fn an_anchor_that_is_gone_is_not_guarded() {
        let _alone = crate::alone();
        let mut guard = match Guard::prepare(crate::Options::new("/nowhere".into())) {
            Ok((guard, _)) => guard,
            Err(error) => return println!("skipped: {error}"),
        };
        let Ok(Answer::Welcome { space, .. }) = guard.hello(std::process::id(), false) else {
            panic!("this process may be looked into")
        };
        let process = child();
        assert_eq!(guard.anchored(space, process), Ok(Answer::Done));
        assert!(guard.known().guarded.contains(&process));
        assert_eq!(guard.anchors(), BTreeSet::from([process]));
        end(process);
        assert!(!guard.known().guarded.contains(&process) && guard.anchors().is_empty());
        // Nor once what it did last can have been heard.
        guard.unanchored(space);
        guard.long_past = core::mem::take(&mut guard.past);
        assert!(guard.known().guarded.contains(&process));
        guard.long_past = core::mem::take(&mut guard.past);
        assert!(!guard.known().guarded.contains(&process));
    }
}
