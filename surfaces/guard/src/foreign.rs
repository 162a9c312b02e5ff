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

use holdfast_pmem::track::ear::{Ear, Event, Hears, Who};
use holdfast_pmem::track::holders::{self, FileId, Holder, Holds};

/// Looks in a row at which nothing was heard, before a doubt is settled: settling it reads the
/// whole file.
const QUIET: u32 = 8;

/// Listens for writers to one file.
#[derive(Debug)]
pub(crate) struct Watch {
    file: Arc<File>,
    id: FileId,
    ear: Ear,
    /// Processes that opened it and of which nothing more is known.
    pending: BTreeSet<u32>,
    /// Announced writes that were over at the last look.
    ended: u64,
    /// It was written to, and it was not clear yet that it was by an announced write.
    unsettled: bool,
    doubt: Doubt,
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
            pending: BTreeSet::new(),
            ended: 0,
            unsettled: false,
            doubt: Doubt::None,
        }
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

    /// Whether a process can change the file.
    pub(crate) fn is_held_by(&self, process: u32) -> bool {
        holders::holds_of(process, &self.id, &self.file) == Holds::Writes
    }

    /// By how many handles a process can write to the file, and whether it maps it.
    pub(crate) fn means_of(&self, process: u32) -> (usize, bool) {
        // What cannot be told might be anything.
        let handles = holders::writing_handles(process, &self.id);
        let mapped = holders::stores(process, &self.id) == Some(Holds::Writes);
        (handles.map_or(usize::MAX, |handles| handles.len()), mapped)
    }

    /// Whether the file is a standard stream of a process.
    pub(crate) fn is_stream_of(&self, process: u32) -> bool {
        holders::has_as_stream(process, &self.id)
    }

    /// Looks at what happened since the last look. `announced` tells how many writes were announced
    /// and how many of them are over.
    pub(crate) fn look(&mut self, known: &Known, announced: impl Fn() -> (u64, u64)) -> Heard {
        let mut heard = Heard::default();
        // Counted before anything is heard: a write that is heard now was announced, and is over
        // only after that.
        let (_, before) = announced();
        let mut written = false;
        let mut opened = false;
        let mut anything = false;
        for event in self.ear.hear() {
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
            if known.guarded.contains(&who) {
                written |= event.modified;
                continue;
            }
            heard.contested = heard.contested.or_else(|| self.stranger(who, event));
        }
        // Who has it open may be writing, which is heard only when it is over.
        if let Some(who) = known.own_calls.iter().find(|process| self.is_held_by(**process)) {
            anything = true;
            heard.doubted =
                Some(format!("process {who} makes system calls of its own, and has it"));
        }
        let last = core::mem::replace(&mut self.ended, before);
        let (began, ended) = announced();
        written |= self.unsettled;
        self.unsettled = written && ended == last;
        if heard.contested.is_none() && self.unsettled && began == ended {
            let what = "it was written to in a way that was not announced";
            heard.contested = Some(what.to_owned());
        }
        if heard.contested.is_none() && opened {
            heard.contested = self.present(&known.guarded);
        }
        heard.contested = heard.contested.or_else(|| self.resolve(&known.guarded));
        self.doubt(anything, &mut heard);
        heard
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

    /// Finds out what became of those that opened it.
    fn resolve(&mut self, known: &BTreeSet<u32>) -> Option<String> {
        let mut found = None;
        let (id, file) = (&self.id, &self.file);
        self.pending.retain(|process| {
            if known.contains(process) {
                return false;
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
            && !self.unsettled
            && self.doubt == Doubt::None
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

    fn contested(watch: &mut Watch, announced: (u64, u64)) -> Option<String> {
        watch.look(&Known::default(), || announced).contested
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

    /// A stranger writes at the moment of an announced write: nothing tells the two apart.
    #[test]
    fn without_names_whatever_is_heard_casts_doubt_until_it_was_quiet() {
        let _alone = crate::alone();
        for most in [Hears::Ourselves, Hears::Nobody] {
            let Some((file, mut watch)) = watched(most) else { continue };
            assert!(watch.is_sure());
            by_another(&file, "announced, or not");
            let heard = watch.look(&Known::default(), || (1, 1));
            assert!(heard.contested.is_none() && heard.doubted.is_some() && !watch.is_sure());
            for _ in 0..QUIET {
                assert_ne!(watch.doubted(), Doubt::Settle, "too early");
                watch.settled();
                watch.look(&Known::default(), || (1, 1));
            }
            assert_eq!(watch.doubted(), Doubt::Settle);
            by_another(&file, "while it was being settled");
            watch.look(&Known::default(), || (2, 2));
            watch.settled();
            assert!(!watch.is_sure());
            assert!(watch.settle_now());
            watch.settled();
            assert!(watch.is_sure());
            std::fs::write(file.path(), b"ours").unwrap();
            watch.look(&Known::default(), || (2, 2));
            assert_eq!(watch.is_sure(), most == Hears::Ourselves, "only some know their own");
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
        assert_eq!(watch.look(&own_calls, || (0, 0)), Heard::default());
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
}
