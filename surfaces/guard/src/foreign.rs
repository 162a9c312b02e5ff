//! Writers that are not guarded: they cannot be refused, only noticed. Once one is, the file is
//! contested: checked and reported, not repaired, until it is protected anew.
//!
//! | what is heard | by | taken as |
//! |---|---|---|
//! | it was written, or closed by somebody who could | a stranger | contested |
//! | it was opened | a stranger | unsure until it is known what for |
//! | it was written | a guarded program, unannounced | contested |
//! | it was opened, written or closed | a program that makes system calls of its own | doubted |
//! | anything, where no names are told | anybody | doubted |
//!
//! *Doubted*: what differs is undecided, and so is what a pass finds to differ. It ends after a
//! while without anything heard, with a look at every page: those that agree with their sums are
//! believed again, the others stay undecided for good. A program's own calls are never forgotten
//! while it runs, so the doubt they cast ends with the last of them.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_pmem::track::ear::{Ear, Event, Hears, Who};
use holdfast_pmem::track::holders::{self, FileId, Holder, Holds};

use crate::handing::Files;
use crate::proc;

/// Looks in a row at which nothing was heard, before a doubt is settled: settling it reads the
/// whole file.
const QUIET: u32 = 8;

/// Announced writes that are not over, for so many looks and so long at which none is under way,
/// died with who made them. Between counting its write and showing it, a thread is for a moment
/// only.
const DEAD_LOOKS: u32 = 4;
const DEAD: Duration = Duration::from_secs(1);

/// Announced writes at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Announced {
    /// Whether one is shown to be under way, asked before the rest.
    pub(crate) busy: bool,
    pub(crate) began: u64,
    pub(crate) ended: u64,
}

/// Announced writes that nobody will ever say are over: who made them was killed.
#[derive(Debug, Clone, Copy, Default)]
struct Dead {
    count: u64,
    /// Since when more were found, at how many looks, and how many there are at the least.
    more: Option<(Instant, u32, u64)>,
}

impl Dead {
    /// Takes in what a look found; whether there are more than were known.
    fn look(&mut self, now: Announced, at: Instant) -> bool {
        if now.busy {
            return false;
        }
        let open = now.began.saturating_sub(now.ended);
        if open <= self.count {
            // Who died in the middle of a change that is not counted left as much open.
            *self = Self { count: open, more: None };
            return false;
        }
        let (since, looks, least) = self.more.unwrap_or((at, 0, open));
        let (looks, least) = (looks + 1, least.min(open));
        self.more = Some((since, looks, least));
        let dead = looks >= DEAD_LOOKS && at.saturating_duration_since(since) >= DEAD;
        if dead {
            *self = Self { count: least, more: None };
        }
        dead
    }
}

/// Listens for writers to one file.
#[derive(Debug)]
pub(crate) struct Watch {
    file: Arc<File>,
    id: FileId,
    ear: Ear,
    /// Heard, and not looked at yet: those that are alike and follow each other once.
    heard: Vec<Event>,
    /// How often it was heard that somebody else than this process changed it.
    changes: u64,
    /// Processes that opened it and of which nothing more is known.
    pending: BTreeSet<u32>,
    /// Those on their way to another program, or just arrived, that gave up a handle which could
    /// write. The program before had it, unless they never come to be set up.
    closing: BTreeSet<u32>,
    /// Those that opened it on their way. What they did with it before they are set up, nobody saw.
    on_way: BTreeSet<u32>,
    /// Announced writes that were over at the last look.
    ended: u64,
    dead: Dead,
    /// Some were found to be dead since the last look.
    died: bool,
    /// It was written to, and it was not clear yet that it was by an announced write.
    unsettled: bool,
    /// Streams are open, which write without a word: whoever asks after them has its changes told.
    streams: bool,
    doubt: Doubt,
    /// It is about to be let go of, and whether a guarded program wrote to it since, or gave it up
    /// that could have: it may have stored unseen.
    leaves: Option<bool>,
    /// Somebody among those who is not guarded, but came of one that is.
    unseen: Option<u32>,
}

/// Whether a write may have gone unnoticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Doubt {
    #[default]
    None,
    /// Something was heard, and so many looks ago.
    Since(u32),
    /// As before, and it is quiet now: every page is to be looked at.
    Settle,
}

/// What a look found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    /// Why the file is contested from now on.
    pub(crate) contested: Option<String>,
    /// Why what differs is doubted.
    pub(crate) doubted: Option<String>,
}

/// Processes as a watch tells them apart.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    /// Those whose writes are announced.
    pub(crate) guarded: BTreeSet<u32>,
    /// Those of them that have system calls of their own, which nobody announces.
    pub(crate) own_calls: BTreeSet<u32>,
    /// Those of them that make code, which may have such calls.
    pub(crate) make_code: BTreeSet<u32>,
    /// Those that have said who they are, and whose writes are not announced: they are not set up
    /// yet, or about to become other programs.
    pub(crate) coming: BTreeSet<u32>,
    /// Files that are handed on to somebody who is not set up yet.
    pub(crate) handed: Files,
}

impl Known {
    /// Why an event of a guarded process proves that something may have gone unannounced.
    fn doubts(&self, who: u32, event: Event) -> Option<String> {
        let changes = event.modified || event.closed_written;
        if self.own_calls.contains(&who) && (changes || event.opened) {
            return Some(format!("process {who} makes system calls of its own, and used it"));
        }
        let writes = self.make_code.contains(&who) && event.modified;
        writes.then(|| {
            format!(
                "process {who} makes code while it runs, which may make system calls, and wrote \
                 to it"
            )
        })
    }
}

impl Watch {
    /// Listens as well as it may, and no better than `most`.
    pub(crate) fn new(file: Arc<File>, id: FileId, most: Hears) -> Self {
        let ear = Ear::best(file.as_fd(), most);
        Self {
            file,
            id,
            ear,
            heard: Vec::new(),
            changes: 0,
            pending: BTreeSet::new(),
            closing: BTreeSet::new(),
            on_way: BTreeSet::new(),
            ended: 0,
            dead: Dead::default(),
            died: false,
            unsettled: false,
            streams: false,
            doubt: Doubt::None,
            leaves: None,
            unseen: None,
        }
    }

    /// It is about to be let go of, or is not after all: then, who may have stored to it unseen
    /// meanwhile.
    pub(crate) fn let_go(&mut self, leaves: bool) -> Option<u32> {
        self.leaves = leaves.then_some(false);
        self.unseen.take()
    }

    /// Whether a guarded program has used it since it was about to be let go of.
    pub(crate) fn is_used(&self) -> bool {
        self.leaves == Some(true)
    }

    /// Whom it can tell apart.
    pub(crate) fn hears(&self) -> Hears {
        self.ear.hears()
    }

    /// Whether and why anybody but `known` may change the file at this moment.
    pub(crate) fn present(&self, known: &BTreeSet<u32>) -> Option<String> {
        self.holder(known).map(|holder| holder.to_string())
    }

    /// Somebody but `known` who may change the file at this moment.
    pub(crate) fn holder(&self, known: &BTreeSet<u32>) -> Option<Holder> {
        holders::others(&self.file, &self.id, |process| known.contains(&process))
    }

    /// Whether somebody on its way may have it, whose stores nobody would hear of.
    pub(crate) fn is_handed(&self, known: &Known) -> bool {
        known.handed.has((self.id.device, self.id.inode))
    }

    /// Whether a process can change the file.
    pub(crate) fn is_held_by(&self, process: u32) -> bool {
        holders::holds_of(process, &self.id, &self.file) == Holds::Writes
    }

    /// Whether a process can change the file, or may be able to.
    pub(crate) fn may_be_held_by(&self, process: u32) -> bool {
        let holds = holders::holds_of(process, &self.id, &self.file);
        matches!(holds, Holds::Writes | Holds::CannotSee)
    }

    /// By how many handles a process can write to the file, and whether it maps it.
    pub(crate) fn means_of(&self, process: u32) -> (usize, bool) {
        // What cannot be told might be anything.
        let handles = holders::writing_handles(process, &self.id);
        let mapped = holders::stores(process, &self.id).is_none_or(|it| it == Holds::Writes);
        (handles.map_or(usize::MAX, |handles| handles.len()), mapped)
    }

    /// Whether the file is a standard stream of a process.
    pub(crate) fn is_stream_of(&self, process: u32) -> bool {
        holders::has_as_stream(process, &self.id)
    }

    /// Listens, and leaves what is heard to the next look.
    fn listen(&mut self) {
        for event in self.ear.hear() {
            self.changes += u64::from(event.overflowed || event.modified && event.who != Who::Us);
            if self.heard.last() != Some(&event) {
                self.heard.push(event);
            }
        }
    }

    /// How often it was heard until now that others changed it, other than through mappings: a
    /// write is heard once it is over. `None` if nothing is ever heard.
    pub(crate) fn changes(&mut self) -> Option<u64> {
        self.listen();
        (self.hears() != Hears::Nothing).then_some(self.changes)
    }

    /// Streams are open from now on, or none is any more: what is heard meanwhile may be theirs.
    pub(crate) fn expect_streams(&mut self, streams: bool) {
        self.streams = streams;
    }

    /// Announced writes that nobody will say are over, found by what they left open.
    pub(crate) fn reaped(&mut self, count: u64) {
        self.dead.count = self.dead.count.saturating_add(count);
        self.died |= count > 0;
    }

    /// Looks at what happened since the last look. `announced` tells how many writes were announced
    /// and how many of them are over.
    pub(crate) fn look(&mut self, known: &Known, announced: impl Fn() -> Announced) -> Heard {
        let mut heard = Heard::default();
        // Counted before anything is heard: a write that is heard now was announced, and is over
        // only after that.
        let before = announced().ended;
        let mut written = false;
        let mut opened = false;
        let mut anything = false;
        self.listen();
        for event in core::mem::take(&mut self.heard) {
            if event.overflowed {
                heard.contested = Some("too much happened to it to be followed".to_owned());
                return heard;
            }
            let who = match event.who {
                Who::Us => continue,
                Who::Process(who) => who,
                Who::Other | Who::Unknown => {
                    anything = true;
                    written |= event.modified;
                    opened |= event.opened;
                    continue;
                }
            };
            if let Some(why) = known.doubts(who, event) {
                anything = true;
                heard.doubted = Some(why);
            }
            if self.is_ours(who, known) {
                written |= event.modified;
                let used = event.modified || event.closed_written;
                self.leaves = self.leaves.map(|before| before || used);
                if used && !known.guarded.contains(&who) {
                    self.unseen = Some(who);
                }
                continue;
            }
            let event = if known.coming.contains(&who) { self.on_way(who, event) } else { event };
            heard.contested = heard.contested.or_else(|| self.stranger(who, event));
        }
        // Who has it open may be writing, which is heard only when it is over.
        if let Some(who) = known.own_calls.iter().find(|process| self.may_be_held_by(**process)) {
            anything = true;
            heard.doubted =
                Some(format!("process {who} makes system calls of its own, and has it"));
        }
        let unannounced = self.is_unannounced(written, before, announced());
        if unannounced && heard.contested.is_none() {
            let what = "it was written to in a way that was not announced";
            heard.contested = Some(what.to_owned());
        }
        if heard.contested.is_none() && opened {
            heard.contested = self.present(&known.guarded);
        }
        heard.contested = heard.contested.or_else(|| self.arrived(known));
        heard.contested = heard.contested.or_else(|| self.resolve(known));
        self.doubt(anything, &mut heard);
        heard
    }

    /// Whether it is certain that what was heard to be written was not announced: no announced
    /// write was over since the last look, died, or is under way. `before` were over before
    /// anything was heard.
    fn is_unannounced(&mut self, written: bool, before: u64, now: Announced) -> bool {
        let last = core::mem::replace(&mut self.ended, before);
        let mut died = core::mem::take(&mut self.died);
        // A stream counts as one that is under way.
        died |= !self.streams && self.dead.look(now, Instant::now());
        let written = written || self.unsettled;
        self.unsettled = written && now.ended == last && !died && !self.streams;
        let under_way = now.busy || now.began.saturating_sub(now.ended) > self.dead.count;
        self.unsettled && !under_way
    }

    /// Takes in what a process did that is on its way from one program to the next; what is left
    /// of it to be judged.
    fn on_way(&mut self, who: u32, mut event: Event) -> Event {
        let its_own = event.opened || self.pending.contains(&who);
        // Of a handle that it opened on its way, nobody knows what it was used for.
        if event.closed_written && !event.modified && !its_own {
            self.closing.insert(who);
            event.closed_written = false;
        }
        if event.opened {
            self.on_way.insert(who);
        }
        event
    }

    /// Whether a process is guarded, or came of one that is since it is not known who is.
    fn is_ours(&self, who: u32, known: &Known) -> bool {
        let ours = |id: u32| known.guarded.contains(&id);
        ours(who) || self.leaves.is_some() && proc::line(who).any(ours)
    }

    /// Follows what is heard without a name, or of somebody whose calls are not announced.
    fn doubt(&mut self, anything: bool, heard: &mut Heard) {
        self.doubt = match self.doubt {
            _ if anything => Doubt::Since(0),
            Doubt::Since(looks) if looks + 1 < QUIET => Doubt::Since(looks + 1),
            Doubt::Since(_) | Doubt::Settle => Doubt::Settle,
            Doubt::None => Doubt::None,
        };
        if anything && heard.doubted.is_none() {
            let what = "it was used while the system did not tell by whom (no right to ask)";
            heard.doubted = Some(what.to_owned());
        }
    }

    /// Whether it is doubted, and whether that can be settled now.
    pub(crate) fn doubted(&self) -> Doubt {
        self.doubt
    }

    /// Every page was looked at since the doubt was to be settled, and nothing was heard meanwhile.
    pub(crate) fn settled(&mut self) {
        if self.doubt == Doubt::Settle {
            self.doubt = Doubt::None;
        }
    }

    /// The doubt is to be settled at once: nobody is left who could write.
    pub(crate) fn settle_now(&mut self) -> bool {
        let doubted = self.doubt != Doubt::None;
        if doubted {
            self.doubt = Doubt::Settle;
        }
        doubted
    }

    fn stranger(&mut self, who: u32, event: Event) -> Option<String> {
        if event.modified || event.closed_written {
            return Some(format!("process {who} wrote to it"));
        }
        if event.opened {
            self.pending.insert(who);
        }
        if event.closed {
            self.pending.remove(&who);
        }
        None
    }

    /// Finds out what became of those on their way: one that never arrives was a stranger.
    fn arrived(&mut self, known: &Known) -> Option<String> {
        let lost = |who: &&u32| !known.guarded.contains(who) && !known.coming.contains(who);
        let found = self.closing.iter().find(lost).map(|who| format!("process {who} wrote to it"));
        self.closing.retain(|who| known.coming.contains(who));
        found
    }

    /// Finds out what became of those that opened it.
    fn resolve(&mut self, known: &Known) -> Option<String> {
        let arrived = |who: &u32| known.guarded.contains(who) && self.pending.contains(who);
        let mut found = self.on_way.iter().copied().find(arrived).map(Holder::Writes);
        self.on_way.retain(|who| known.coming.contains(who));
        let (id, file) = (&self.id, &self.file);
        self.pending.retain(|process| {
            if known.guarded.contains(process) {
                return false;
            }
            if known.coming.contains(process) {
                return true;
            }
            match holders::holds_of(*process, id, file) {
                Holds::Writes => found = Some(Holder::Writes(*process)),
                Holds::CannotSee => found = Some(Holder::Hidden(*process)),
                Holds::Reads => return false,
                Holds::No => {}
            }
            true
        });
        found.map(|holder| holder.to_string())
    }

    /// Whether everything heard is understood.
    pub(crate) fn is_sure(&self) -> bool {
        self.pending.is_empty()
            && self.closing.is_empty()
            && !self.unsettled
            && self.doubt == Doubt::None
            && self.leaves != Some(true)
            && self.ear.hears() != Hears::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn watched(most: Hears) -> Option<(tempfile::NamedTempFile, Watch)> {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = File::open(file.path()).unwrap();
        let id = FileId::of(open.as_fd()).unwrap();
        let watch = Watch::new(Arc::new(open), id, most);
        if watch.hears() != most {
            eprintln!("skipped: {most:?} is not permitted here");
            return None;
        }
        Some((file, watch))
    }

    /// Whatever is not over is under way.
    fn counts(began: u64, ended: u64) -> Announced {
        Announced { busy: began != ended, began, ended }
    }

    fn contested(watch: &mut Watch, (began, ended): (u64, u64)) -> Option<String> {
        watch.look(&Known::default(), || counts(began, ended)).contested
    }

    fn by_another(file: &tempfile::NamedTempFile, text: &str) {
        let script = format!("printf '{text}' >> {}", file.path().display());
        Command::new("sh").arg("-c").arg(script).status().unwrap();
    }

    #[test]
    fn strangers_are_noticed_and_readers_are_none() {
        let _alone = crate::alone();
        let Some((file, mut watch)) = watched(Hears::Everybody) else { return };
        Command::new("cat").arg(file.path()).output().unwrap();
        drop(file.reopen().unwrap());
        assert_eq!(contested(&mut watch, (0, 0)), None);
        assert!(watch.is_sure());
        std::fs::write(file.path(), b"our own").unwrap();
        assert_eq!(contested(&mut watch, (0, 0)), None);
        by_another(&file, "x");
        assert!(contested(&mut watch, (0, 0)).is_some_and(|why| why.contains("wrote to it")));
    }

    /// Nobody but this test has it open, so only what is heard counts.
    #[test]
    fn what_nobody_announced_is_noticed() {
        let _alone = crate::alone();
        for most in [Hears::Ourselves, Hears::Nobody] {
            let Some((file, mut watch)) = watched(most) else { continue };
            by_another(&file, "announced");
            assert_eq!(contested(&mut watch, (1, 1)), None);
            by_another(&file, "under way");
            assert_eq!(contested(&mut watch, (2, 1)), None);
            assert_eq!(contested(&mut watch, (2, 2)), None);
            by_another(&file, "not announced");
            let why = contested(&mut watch, (2, 2));
            assert!(why.is_some_and(|why| why.contains("not announced")));
        }
    }

    /// One that was killed in the middle of a write says no more that it is over; others that write
    /// are noticed as before, and its own write is none of those.
    #[test]
    fn writes_that_were_cut_off_excuse_nobody() {
        let _alone = crate::alone();
        for most in [Hears::Ourselves, Hears::Nobody] {
            let Some((file, mut watch)) = watched(most) else { continue };
            by_another(&file, "announced");
            assert_eq!(contested(&mut watch, (1, 1)), None);
            by_another(&file, "cut off");
            assert_eq!(contested(&mut watch, (2, 1)), None);
            watch.reaped(1);
            let left = |watch: &mut Watch| {
                let now = Announced { busy: false, began: 2, ended: 1 };
                watch.look(&Known::default(), || now).contested
            };
            assert_eq!(left(&mut watch), None);
            assert!(!watch.unsettled);
            by_another(&file, "not announced");
            assert!(left(&mut watch).is_some_and(|why| why.contains("not announced")));
        }
    }

    #[test]
    fn what_is_never_over_is_dead_after_a_while() {
        let (mut dead, start) = (Dead::default(), Instant::now());
        let counts = |began| Announced { busy: false, began, ended: 1 };
        let after = |look: u32| start + DEAD * look / DEAD_LOOKS;
        // One that is between counting and showing, or being counted.
        assert!(!dead.look(counts(3), after(0)) && !dead.look(counts(1), after(9)));
        // At once, but not for long enough; while something is under way, nothing is known.
        assert!((0..9).all(|_| !dead.look(counts(2), start)));
        let busy = Announced { busy: true, ..counts(7) };
        assert!(!dead.look(busy, after(9)) && dead.count == 0);
        assert!(dead.look(counts(3), after(4)) && dead.count == 1, "the least of all");
        assert!(!dead.look(counts(2), after(5)) && dead.count == 1);
        assert!(!dead.look(counts(1), after(6)) && dead.count == 0, "it was none");
    }

    /// A stranger writes at the moment of an announced write: nothing tells the two apart.
    #[test]
    fn without_names_whatever_is_heard_casts_doubt_until_it_was_quiet() {
        let _alone = crate::alone();
        for most in [Hears::Ourselves, Hears::Nobody] {
            let Some((file, mut watch)) = watched(most) else { continue };
            assert!(watch.is_sure());
            by_another(&file, "announced, or not");
            let heard = watch.look(&Known::default(), || counts(1, 1));
            assert!(heard.contested.is_none() && heard.doubted.is_some() && !watch.is_sure());
            for _ in 0..QUIET {
                assert_ne!(watch.doubted(), Doubt::Settle, "too early");
                watch.settled();
                watch.look(&Known::default(), || counts(1, 1));
            }
            assert_eq!(watch.doubted(), Doubt::Settle);
            by_another(&file, "while it was being settled");
            watch.look(&Known::default(), || counts(2, 2));
            watch.settled();
            assert!(!watch.is_sure());
            assert!(watch.settle_now());
            watch.settled();
            assert!(watch.is_sure());
            std::fs::write(file.path(), b"ours").unwrap();
            watch.look(&Known::default(), || counts(2, 2));
            assert_eq!(watch.is_sure(), most == Hears::Ourselves, "only some know their own");
        }
    }

    /// A handle that is given up on the way from one program to the next was the first one's, if
    /// the next arrives; if it does not, somebody wrote.
    #[test]
    fn who_gives_up_a_handle_on_its_way_is_a_stranger_if_it_never_arrives() {
        let _alone = crate::alone();
        for arrives in [true, false] {
            let Some((file, mut watch)) = watched(Hears::Everybody) else { return };
            let mut child = Command::new("sh")
                .arg("-c")
                .arg(format!("exec 3<>{}; read go; exec 3>&-; read go", file.path().display()))
                .stdin(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let handle = format!("/proc/{}/fd/3", child.id());
            while std::fs::read_link(&handle).ok().as_deref() != Some(file.path()) {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            let coming = BTreeSet::from([child.id()]);
            let known = Known { guarded: coming.clone(), ..Known::default() };
            assert_eq!(watch.look(&known, || counts(0, 0)).contested, None);
            let known = Known { coming: coming.clone(), ..Known::default() };
            use std::io::Write;
            child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
            let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
            while watch.closing.is_empty() && std::time::Instant::now() < until {
                assert_eq!(watch.look(&known, || counts(0, 0)).contested, None);
            }
            assert!(!watch.is_sure() && watch.closing == coming);
            let guarded = if arrives { coming } else { BTreeSet::new() };
            let heard = watch.look(&Known { guarded, ..Known::default() }, || counts(0, 0));
            assert_eq!(heard.contested.is_none(), arrives, "{heard:?}");
            assert!(watch.closing.is_empty());
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }

    /// What it did with it before it was set up, nobody saw.
    #[test]
    fn who_opens_a_file_on_its_way_is_a_stranger_though_it_arrives() {
        let _alone = crate::alone();
        for script in ["exec 3<>FILE; exec 3>&-", "exec 3<>FILE; read go"] {
            let Some((file, mut watch)) = watched(Hears::Everybody) else { return };
            let script = script.replace("FILE", file.path().to_str().unwrap());
            let mut child = Command::new("sh")
                .arg("-c")
                .arg(format!("{script}; read go"))
                .stdin(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let coming = BTreeSet::from([child.id()]);
            let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
            let mut contested = None;
            while contested.is_none() && watch.on_way.is_empty() {
                assert!(std::time::Instant::now() < until, "nothing was heard");
                let known = Known { coming: coming.clone(), ..Known::default() };
                contested = watch.look(&known, || counts(0, 0)).contested;
            }
            let known = Known { guarded: coming, ..Known::default() };
            let contested = contested.or(watch.look(&known, || counts(0, 0)).contested);
            assert!(contested.is_some(), "{script}");
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }

    #[test]
    fn who_may_make_calls_of_its_own_casts_doubt() {
        let _alone = crate::alone();
        let Some((file, mut watch)) = watched(Hears::Everybody) else { return };
        let mut child = Command::new("sh")
            .arg("-c")
            .arg(format!("read go; printf x >> {}; read go", file.path().display()))
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let guarded = BTreeSet::from([child.id()]);
        let own_calls = Known { own_calls: guarded.clone(), guarded, ..Known::default() };
        let make_code = Known { make_code: own_calls.own_calls.clone(), ..Known::default() };
        assert_eq!(watch.look(&own_calls, || counts(0, 0)), Heard::default());
        use std::io::Write;
        child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        while file.as_file().metadata().unwrap().len() == 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let events = watch.ear.hear();
        let why = |known: &Known| events.iter().find_map(|event| known.doubts(child.id(), *event));
        assert!(why(&own_calls).is_some_and(|why| why.contains("of its own")), "{events:?}");
        assert!(why(&make_code).is_some_and(|why| why.contains("makes code")), "{events:?}");
        assert_eq!(why(&Known::default()), None);
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    /// It may have had the file mapped, unseen, until then.
    #[test]
    fn who_used_a_file_that_is_let_go_of_leaves_it_unsure() {
        let _alone = crate::alone();
        for used in [false, true] {
            let Some((file, mut watch)) = watched(Hears::Everybody) else { return };
            let script =
                format!("exec 3{}{}", if used { "<>" } else { "<" }, file.path().display());
            watch.let_go(true);
            let mut child = Command::new("sh").arg("-c").arg(script).spawn().unwrap();
            let known = Known { guarded: BTreeSet::from([child.id()]), ..Known::default() };
            child.wait().unwrap();
            assert_eq!(watch.look(&known, || counts(0, 0)).contested, None);
            assert_eq!((watch.is_sure(), watch.is_used()), (!used, used));
            watch.let_go(false);
            assert!(watch.is_sure());
        }
    }
}
