//! Writers that nobody tracks: other processes, other handles of this one. They cannot be refused,
//! only noticed; from then on the file is contested, checked and not repaired.
//!
//! | what happens | heard as | taken as |
//! |---|---|---|
//! | somebody can write to it when it begins | a look at all processes | contested |
//! | it is opened | `OPEN`, and another look | contested if for writing |
//! | `write`, `truncate` | `MODIFY`, unless it is our own | contested |
//! | a handle for writing is closed | `CLOSE_WRITE` | contested |
//!
//! Which of the writes are our own the system tells from Linux 5.13 on; where it does not, one by
//! somebody else that falls into one of ours is heard by the handle it takes.
//!
//! Not heard: what `holdfast_pmem::track::holders` cannot see.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_mapped::{Facts, Identity, Writers};
use holdfast_pmem::track::ear::{Ear, Hears, Who};
use holdfast_pmem::track::holders::{self, FileId, Holds};
use holdfast_pmem::track::maps;
use holdfast_pmem::{Alone, ForeignFile, Lease, Ours, Site};

/// How often a lease is asked for, and how long is waited in between, before it is believed that
/// somebody hides.
const TRIES: u32 = 20;
const NAP: Duration = Duration::from_millis(2);
const UNLISTED: &str = "what this process has open and mapped cannot be listed, so it is not known \
                        who writes to it; it may have too many files open";

/// Listens for writers to one file.
#[derive(Debug)]
pub(crate) struct Watch {
    data: ForeignFile,
    id: FileId,
    /// Handles of this process that are ours, and where its bytes would lie that are mapped by us.
    own: Option<(BTreeSet<u32>, BTreeSet<u64>)>,
    ear: Ear,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Why the file is contested.
    why: Option<String>,
    /// Somebody else opened it. That is heard a moment before its handle can be seen.
    visited: bool,
}

/// What this process has of a file before it is opened to be kept.
#[derive(Debug)]
pub(crate) struct Before {
    handles: BTreeSet<u32>,
    mapped: bool,
}

impl Before {
    pub(crate) fn of(path: &Path) -> std::io::Result<Self> {
        // Whoever asks has seen to it that it is no pipe.
        let file = std::fs::File::open(path)?;
        let id = FileId::of(file.as_fd())?;
        let me = std::process::id();
        let mapped = holders::stores(me, &id).ok_or_else(unlisted)? == Holds::Writes;
        Ok(Self { handles: own_handles(&id)?, mapped })
    }
}

/// Handles of this process by which it can write to a file.
fn own_handles(id: &FileId) -> std::io::Result<BTreeSet<u32>> {
    holders::writing_handles(std::process::id(), id).ok_or_else(unlisted)
}

fn unlisted() -> std::io::Error {
    std::io::Error::other(UNLISTED)
}

/// Where the first byte of the file would lie, for each of its mappings in this process that may
/// be stored to, or may become so. `None` if they cannot be listed.
fn mapped_at(id: &FileId) -> Option<BTreeSet<u64>> {
    let mut found = BTreeSet::new();
    let ours = |vma: &maps::Vma| vma.shared && id.is_shown_by(vma);
    let base = |vma: &maps::Vma| (vma.start as u64).wrapping_sub(vma.at);
    let mut some = false;
    let listed = maps::walk(None, |vma| {
        some |= ours(vma) && !vma.writable;
        if ours(vma) && vma.writable {
            found.insert(base(vma));
        }
    });
    listed.ok()?;
    if some {
        let more = std::cell::RefCell::new(&mut found);
        // The answer does not matter: what it was asked about does.
        let asked = maps::may_write(std::process::id(), |vma| {
            if ours(vma) && !vma.writable {
                more.borrow_mut().insert(base(vma));
            }
            false
        });
        asked.ok()?;
    }
    Some(found)
}

impl Watch {
    /// Begins to listen beside a program that maps the file. Every handle and mapping that this
    /// process has of it, of those not in `before`, is taken for ours.
    pub(crate) fn begin(data: &ForeignFile, before: &Before) -> std::io::Result<Self> {
        let id = FileId::of(data.file().as_fd())?;
        let ear = Ear::best(data.file().as_fd(), Hears::Everybody);
        let all = own_handles(&id)?;
        let places = mapped_at(&id).ok_or_else(unlisted)?;
        let own = (all.difference(&before.handles).copied().collect(), places);
        let (data, own) = (data.clone(), Some(own));
        let this = Self { data, id, own, ear, state: Mutex::default() };
        // What was there before the ear was.
        let mapped = before.mapped.then(|| "this process stores to it by a mapping".to_owned());
        let present = mapped.or_else(|| this.present());
        this.state().why = present;
        Ok(this)
    }

    /// Begins to listen to a file at rest; who is there already is looked for later. What this
    /// process does by other handles is its own affair.
    pub(crate) fn at_rest(data: &ForeignFile) -> std::io::Result<Self> {
        let id = FileId::of(data.file().as_fd())?;
        let ear = Ear::best(data.file().as_fd(), Hears::Everybody);
        let data = data.clone();
        Ok(Self { data, id, own: None, ear, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anything can be heard at all.
    pub(crate) fn listens(&self) -> bool {
        self.ear.hears() != Hears::Nothing
    }

    /// Hears what happened since the last look. Why the file is contested, if it is.
    pub(crate) fn look(&self) -> Option<String> {
        let mut state = self.state();
        self.hear(&mut state, false);
        state.why.clone()
    }

    /// Begins anew: what is there now is accepted, whoever wrote it. Only a look of now counts.
    pub(crate) fn forgive(&self) {
        let mut state = self.state();
        self.hear(&mut state, false);
        state.why = self.present();
    }

    /// As [`look`](Self::look), and at all processes if anybody else ever opened it: one that is
    /// writing is heard only when that is over. With `all`, in any case.
    pub(crate) fn look_around(&self, all: bool) -> Option<String> {
        let mut state = self.state();
        self.hear(&mut state, false);
        if state.why.is_none() && (all || state.visited) {
            state.why = self.present();
        }
        state.why.clone()
    }

    fn hear(&self, state: &mut State, ours: bool) {
        let mut opened = false;
        for event in self.ear.hear() {
            let may_be_us = matches!(event.who, Who::Us | Who::Unknown);
            // At rest, nobody asks what else this process does, as far as the system tells.
            let own_affair = self.own.is_none() && event.who == Who::Us;
            let found = if event.overflowed {
                Some("too much happened to it to be followed")
            } else if own_affair || ours && event.modified && may_be_us && !event.closed_written {
                None
            } else if event.modified {
                Some("it was written to by somebody who is not tracked")
            } else if event.closed_written && (self.own.is_some() || event.who != Who::Unknown) {
                Some("somebody who is not tracked had it open for writing")
            } else {
                None
            };
            opened |= event.opened && !own_affair;
            if state.why.is_none() {
                state.why = found.map(str::to_owned);
            }
        }
        state.visited |= opened;
        if opened && state.why.is_none() {
            state.why = self.present();
        }
    }

    /// Who may change the file now, other than through our own handles.
    fn present(&self) -> Option<String> {
        if let Some((handles, places)) = &self.own {
            let (Ok(now), Some(mapped)) = (own_handles(&self.id), mapped_at(&self.id)) else {
                return Some(UNLISTED.to_owned());
            };
            if !now.is_subset(handles) {
                return Some("this process has it open for writing another time".to_owned());
            }
            if !mapped.is_subset(places) {
                return Some("this process maps it for writing another time".to_owned());
            }
        }
        let found = holders::others_to_stay(self.data.file(), &self.id, |_| false);
        found.map(|holder| holder.to_string())
    }

    /// A lease, if the system grants one; it refuses if anybody else has the file open. Who that is
    /// can be seen, or is gone again, unless somebody hides.
    fn lease(&self) -> Result<Option<Lease>, String> {
        for _ in 0..TRIES {
            match self.data.alone() {
                Alone::Yes(lease) => return Ok(Some(lease)),
                Alone::Unknown => return Ok(None),
                Alone::No if holders::is_held(self.data.file(), &self.id) => return Ok(None),
                Alone::No => std::thread::sleep(NAP),
            }
        }
        Err("somebody who cannot be seen has it open, and may write to it".to_owned())
    }
}

impl Ours for Watch {
    fn ours(&self, change: &mut dyn FnMut()) {
        let mut state = self.state();
        self.hear(&mut state, false);
        change();
        self.hear(&mut state, true);
    }
}

/// A file at rest, and whoever disturbs it.
#[derive(Debug)]
pub(crate) struct Rest {
    watch: Watch,
    /// Keeps others from opening it while a page is replaced, where the system grants that.
    lease: Mutex<Option<Lease>>,
    /// What the file was when this began, where nothing can be heard but stores are dated.
    was: Option<(u64, u64, i64)>,
}

impl Rest {
    pub(crate) fn begin(data: &ForeignFile) -> std::io::Result<Self> {
        let watch = Watch::at_rest(data)?;
        let dated = !watch.listens() && data.dates_stores();
        let was = if dated { Some(data.numbers()?) } else { None };
        Ok(Self { watch, lease: Mutex::default(), was })
    }

    /// Who can write to it, or did since this began. A writer that `/proc` does not show is found
    /// by the lease that the system refuses.
    pub(crate) fn unrest(&self) -> Option<String> {
        self.ask(true).err()
    }

    fn ask(&self, all: bool) -> Result<Option<Lease>, String> {
        if let Some(why) = self.watch.look_around(all) {
            return Err(why);
        }
        let lease = self.watch.lease()?;
        // Who came before the lease was heard.
        self.watch.look().map_or(Ok(lease), Err)
    }

    fn lease(&self) -> MutexGuard<'_, Option<Lease>> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Nobody stores to a file at rest, unless somebody comes along.
impl Writers for Rest {
    fn freeze(&self) -> bool {
        let asked = self.watch.listens().then(|| self.ask(false));
        let Some(Ok(lease)) = asked else { return false };
        *self.lease() = lease;
        true
    }

    fn thaw(&self) {
        *self.lease() = None;
    }
}

impl Ours for Rest {
    fn ours(&self, change: &mut dyn FnMut()) {
        self.watch.ours(change);
    }
}

/// The file as the system tells, and whether nobody untracked wrote to it.
#[derive(Debug)]
pub(crate) struct Listening<W>(pub(crate) ForeignFile, pub(crate) std::sync::Arc<W>);

/// Who can say whether a file was written to by somebody untracked.
pub(crate) trait Hearing: Send + Sync + core::fmt::Debug + 'static {
    /// Whether nobody of that kind can have written until now: it would have been noticed. That
    /// nothing was heard says so only where anything can be.
    fn is_quiet(&self) -> bool;
}

impl Hearing for Watch {
    fn is_quiet(&self) -> bool {
        self.listens() && self.look_around(false).is_none()
    }
}

impl Hearing for Rest {
    /// Where nothing can be heard, nothing is replaced by us, so the date of the file is that of
    /// somebody else's write.
    fn is_quiet(&self) -> bool {
        let same = || self.was.is_some() && self.was == self.watch.data.numbers().ok();
        self.watch.look_around(false).is_none() && (self.watch.listens() || same())
    }
}

impl<W: Hearing> Facts for Listening<W> {
    fn identity(&self) -> std::io::Result<Identity> {
        self.0.identity()
    }

    fn sync_identity(&self, site: Site) -> std::io::Result<()> {
        self.0.sync_identity(site)
    }

    fn dates_stores(&self) -> bool {
        self.0.dates_stores()
    }

    fn allocated(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) {
        self.0.parts(at, len, each);
    }

    fn vouches(&self) -> bool {
        self.1.is_quiet()
    }
}
