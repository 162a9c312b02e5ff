//! A protected file at rest: nobody stores to it while it is looked at or repaired.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use holdfast_mapped::{
    Durability, Force, Identity, Mapped, Mended, OpenOptions, Opened, State, Writers,
};
use holdfast_pmem::{Access, Clock, Durability as Survive, ForeignFile, Medium, Ours, PAGE};
use holdfast_redundancy::events::Event;
use holdfast_redundancy::{Pace, PageVerdict, Unsure};

use crate::clock::WallClock;
use crate::error::{Error, ErrorKind, Result};
use crate::protect::Engine;
use crate::protect::area::{self, Area, InPool};
use crate::protect::error::of_engine;
use crate::protect::file;
use crate::protect::options::{ProtectOptions, to_open};
use crate::protect::pointer::Pointer;
use crate::protect::side;
use crate::protect::source::Source;
use crate::protect::status::ProtectStatus;
use crate::protect::watch::{Listening, Rest};

/// A file that is protected, and not in use. Other processes that could write to it are found out;
/// other handles of this one are its own affair: nobody writes through them meanwhile. While a page
/// is replaced, whoever wants to open it waits, where the file system grants that.
#[derive(Debug)]
pub struct ProtectedFile {
    pub(super) engine: Engine,
    pub(super) data: ForeignFile,
    /// Whoever disturbs it.
    rest: Arc<Rest>,
    opened: Option<Opened>,
    path: PathBuf,
    side: PathBuf,
    /// Where its redundancy is, if that is no side file.
    region: Option<InPool>,
    write: bool,
    in_use: Option<Option<u32>>,
}

/// What a look at all pages came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    /// Pages looked at.
    pub pages: u64,
    /// Pages that are good.
    pub good: u64,
    /// Pages that are not covered, which is no fault.
    pub uncovered: u64,
    /// Damaged pages, by number in the file.
    pub corrupt: Vec<u64>,
    /// Pages in doubt, and why.
    pub undecided: Vec<(u64, Unsure)>,
    /// Pages of those that cannot be read.
    pub unread: u64,
    /// Pages that were covered and lie behind the end of the file now, in whole or in part.
    pub gone: u64,
    /// Bytes that the file has grown by since, which nothing covers yet.
    pub grown: u64,
    /// The file is not the one that was left: another inode, length or time of change.
    pub changed: bool,
    /// Who has it open for writing: then nothing that differs is called damage.
    pub unrest: Option<String>,
    /// Whether it was stopped before the end.
    pub stopped: bool,
}

impl Verified {
    /// Whether nothing is wrong and nothing in doubt.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.corrupt.is_empty() && self.undecided.is_empty() && self.gone == 0
    }
}

/// What a repair came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Pages looked at.
    pub pages: u64,
    /// Damaged pages that are what they were when they were covered.
    pub repaired: Vec<u64>,
    /// Undecided pages that were replaced, by force, with what they were.
    pub forced: Vec<u64>,
    /// Damaged pages that parity cannot give back, or whose places take no other bytes: a bad
    /// device, a file system without room, of which the next repair may find more.
    pub lost: Vec<u64>,
    /// Damaged pages that were left alone, since nobody could be kept from storing to the file
    /// meanwhile: the next repair may have more luck.
    pub busy: Vec<u64>,
    /// Pages in doubt, which keep their content, and why.
    pub undecided: Vec<(u64, Unsure)>,
    /// Parity pages and records of the side file made anew.
    pub redundancy: u64,
    /// Whether it was stopped before the end.
    pub stopped: bool,
}

impl ProtectedFile {
    /// Protects the file `path` as it is now: everything is read and covered, and durable. Pages
    /// that cannot be read are not; [`undecided`](Self::undecided) tells which.
    ///
    /// # Errors
    /// It is protected already; somebody has it open for writing, or changed it meanwhile; the
    /// side file cannot be made. The file is never changed, and nothing is left behind.
    pub fn protect(path: impl AsRef<Path>, options: &ProtectOptions) -> Result<Self> {
        let made = Self::protect_in_steps(path.as_ref(), options, |_, _| true)?;
        made.ok_or_else(|| stopped(path.as_ref()))
    }

    /// The same in steps. `progress` is told how many of how many pages are done, and answers
    /// whether to go on. `None` if it was stopped: nothing is left behind.
    ///
    /// # Errors
    /// As [`protect`](Self::protect).
    pub fn protect_in_steps(
        path: impl AsRef<Path>,
        options: &ProtectOptions,
        progress: impl FnMut(u64, u64) -> bool,
    ) -> Result<Option<Self>> {
        let path = path.as_ref();
        let side = options.side_of(path);
        let mut progress = paced(options.pace, progress);
        let there = side.symlink_metadata().is_ok();
        if there && !area::remove_ended(path, &side, options.pool.as_deref()) {
            return Err(Error::new(ErrorKind::Exists, "it is protected already")
                .with_remedy(
                    "`holdfast verify` holds it against what was covered; `protect --again` takes \
                     it as it is now",
                )
                .at(path));
        }
        Self::begin(path, &side, options, None, &mut progress)
    }

    /// Protects a file anew that is protected already, as it is now: what was undecided counts as
    /// right, and what it was before is forgotten.
    ///
    /// # Errors
    /// Pages are damaged, which are to be repaired first, or cannot be read; somebody was at the
    /// file while it was looked at, so that damage cannot be told from writes; and as
    /// [`protect`](Self::protect). Nothing was changed.
    pub fn protect_again(path: impl AsRef<Path>, options: &ProtectOptions) -> Result<Self> {
        let made = Self::protect_again_in_steps(path.as_ref(), options, |_, _| true)?;
        made.ok_or_else(|| stopped(path.as_ref()))
    }

    /// The same in steps, as [`protect_in_steps`](Self::protect_in_steps): all pages are looked at
    /// first, then covered. If it is stopped, the side file is the one that was there.
    ///
    /// # Errors
    /// As [`protect_again`](Self::protect_again).
    pub fn protect_again_in_steps(
        path: impl AsRef<Path>,
        options: &ProtectOptions,
        progress: impl FnMut(u64, u64) -> bool,
    ) -> Result<Option<Self>> {
        let path = path.as_ref();
        let side = options.side_of(path);
        let mut progress = paced(options.pace, progress);
        if area::remove_ended(path, &side, options.pool.as_deref()) {
            // There is nothing that it could be held against.
            return Self::begin(path, &side, options, None, &mut progress);
        }
        let old = Self::look(path, options)?;
        if let Some(original) = old.copy_of() {
            return Err(area::copied(&side, original));
        }
        // A change that nothing tells of but this is one, too.
        let before = identity_of(&old.data, path)?;
        let looked = old.pages();
        let found = old.verify(|done, all| progress(done, all.saturating_mul(2)))?;
        if found.stopped {
            return Ok(None);
        }
        worth_replacing(&found, path)?;
        let region = old.region.as_ref().map(|there| there.path.clone());
        // Who was heard in the first half is known in the second: what differed then was called a
        // doubt because of him, and may be damage.
        let heard = Heard { data: old.data.clone(), rest: Arc::clone(&old.rest), before };
        drop(old);
        // Keeps others out until the new one has the name; in a pool, the lock of that does.
        let _lock = match region {
            None => Some(side::open(&side, Access::Write, Survive::Process)?),
            Some(_) => None,
        };
        let options = ProtectOptions { pool: region, ..options.clone() };
        let mut after = |done: u64, all: u64| progress(looked + done, looked + all);
        Self::begin(path, &side, &options, Some(heard), &mut after)
    }

    fn begin(
        path: &Path,
        to: &Path,
        options: &ProtectOptions,
        again: Option<Heard>,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Option<Self>> {
        let instead = again.is_some();
        // Opened first: what is no file is refused before anything reads it.
        let Heard { data, rest, before } = match again {
            Some(heard) => heard,
            None => Heard::from_now(path)?,
        };
        if side::is_side(path) || Pointer::is_at(path) {
            let what = "is a side file itself";
            return Err(Error::new(ErrorKind::Refused, what)
                .with_remedy("protect its data file; nothing was changed")
                .at(path));
        }
        at_rest(&rest, path)?;
        let engine_options = options.to_protect()?;
        let room = (data.size(), (options.data, options.parity));
        let (area, medium) = Area::begin(path, to, room, options.pool.as_deref(), instead)?;
        let engine = Mapped::protect_in_steps(
            data.clone(),
            medium,
            Arc::new(Source::default()),
            Arc::new(Listening(data.clone(), Arc::clone(&rest))),
            Arc::new(WallClock::new()),
            &engine_options,
            progress,
        );
        let engine = engine.map_err(|error| area.explain(of_engine(&error, (path, to))))?;
        let Some(engine) = engine else { return Ok(None) };
        at_rest(&rest, path)?;
        if identity_of(&data, path)? != before {
            let what = "it was changed while it was being covered";
            return Err(Error::new(ErrorKind::Locked, what)
                .with_remedy("try again when nobody writes to it; it is not protected")
                .at(path));
        }
        if instead && !engine.undecided_pages(1).is_empty() {
            // What it was, only the side file that is there can tell.
            return Err(unreadable(engine.undecided().iter().map(|(_, pages)| pages).sum(), path));
        }
        engine.side().sync(SYNC)?;
        // That may have taken its time. From here on it is protected.
        if !progress(engine.pages(), engine.pages()) {
            return Ok(None);
        }
        let region = area.keep(engine.side(), instead)?;
        Ok(Some(Self {
            engine,
            data,
            rest,
            opened: None,
            path: path.into(),
            side: to.into(),
            region,
            write: true,
            in_use: None,
        }))
    }

    /// Opens a protected file to look at it. Nothing is changed, not even to recover after a crash.
    ///
    /// # Errors
    /// It is not protected, the side file cannot be used, or somebody works with it.
    pub fn look(path: impl AsRef<Path>, options: &ProtectOptions) -> Result<Self> {
        Self::open_whole(path.as_ref(), options, Access::PrivateCopy)
    }

    /// The same beside the process that has the file mapped: for its status only.
    ///
    /// # Errors
    /// It is not protected, or the side file cannot be used.
    pub fn look_beside(path: impl AsRef<Path>, options: &ProtectOptions) -> Result<Self> {
        let (path, side) = (path.as_ref(), options.side_of(path.as_ref()));
        let holder = holdfast_pmem::Mapped::writer_of(&side).unwrap_or(None);
        let this = Self::open_whole(path, options, Access::ReadOnly)?;
        Ok(Self { in_use: holder, ..this })
    }

    /// Opens a protected file to repair it.
    ///
    /// # Errors
    /// As [`look`](Self::look); or somebody has the file open for writing.
    pub fn open(path: impl AsRef<Path>, options: &ProtectOptions) -> Result<Self> {
        Self::open_whole(path.as_ref(), options, Access::Write)
    }

    /// The same in steps: after a crash, what may have been written is looked at first. `progress`
    /// as for [`protect_in_steps`](Self::protect_in_steps). `None` if it was stopped: the next
    /// opening begins again, and the file is what it was.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_in_steps(
        path: impl AsRef<Path>,
        options: &ProtectOptions,
        mut progress: impl FnMut(u64, u64) -> bool,
    ) -> Result<Option<Self>> {
        Self::open_as(path.as_ref(), options, Access::Write, &mut progress)
    }

    fn open_whole(path: &Path, options: &ProtectOptions, access: Access) -> Result<Self> {
        Self::open_as(path, options, access, &mut |_, _| true)?.ok_or_else(|| stopped(path))
    }

    fn open_as(
        path: &Path,
        options: &ProtectOptions,
        access: Access,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Option<Self>> {
        let side = options.side_of(path);
        let write = access == Access::Write;
        let looked = file::open(path, false)?;
        let survive = if write { Survive::Auto } else { Survive::Process };
        let (medium, region) =
            area::open(&looked, &side, access, survive, options.pool.as_deref())?;
        // Only with the lock of the side file: opened for writing by us, a file that somebody else
        // guards would count as written to by a stranger.
        let data = if write {
            // A second handle of ours would keep us from seeing whether there are others.
            drop(looked);
            file::open(path, true)?
        } else {
            looked
        };
        // Who looks beside a program that has it does not ask who else may write.
        let beside = access == Access::ReadOnly;
        let (data, rest) = if beside { listen(data, path)? } else { listen_anew(&data, path)? };
        if write {
            at_rest(&rest, path)?;
        }
        let found = Mapped::open_in_steps(
            data.clone(),
            medium,
            Arc::new(Source::default()),
            Arc::new(Listening(data.clone(), Arc::clone(&rest))),
            Arc::new(WallClock::new()),
            OpenOptions { read_only: !write, ..to_open(Durability::Power) },
            progress,
        )
        .map_err(|error| of_engine(&error, (path, &side)))?;
        if let Some((there, (engine, _))) = region.as_ref().zip(found.as_ref()).filter(|_| write) {
            area::tend(&side, there, engine);
        }
        let (path, in_use) = (path.into(), None);
        Ok(found.map(|(engine, opened)| {
            let opened = Some(opened);
            Self { engine, data, rest, opened, path, side, region, write, in_use }
        }))
    }

    pub(super) fn failed(&self, error: &holdfast_mapped::Error) -> Error {
        of_engine(error, (&self.path, &self.side))
    }

    /// The side file.
    #[must_use]
    pub fn side(&self) -> &Path {
        &self.side
    }

    /// The pool in which its redundancy is, if it is in one: the side file only points to it then.
    #[must_use]
    pub fn pool(&self) -> Option<&Path> {
        self.region.as_ref().map(|there| there.path.as_path())
    }

    /// The pointer of the file that the redundancy belongs to, if this file and its pointer are
    /// copies: it is only looked at then.
    #[must_use]
    pub fn copy_of(&self) -> Option<&Path> {
        self.region.as_ref()?.original.as_deref()
    }

    /// Pages that are looked after.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.engine.pages()
    }

    /// What is covered.
    ///
    /// # Errors
    /// The side file cannot be read.
    pub fn status(&self) -> Result<ProtectStatus> {
        let status = ProtectStatus::of(&self.engine, self.data.size());
        let mut status = status.map_err(|error| self.failed(&error))?;
        if let Some(opened) = &self.opened {
            status.changed = opened.changed && self.in_use.is_none();
            (status.doubtful, status.damaged) = (opened.doubtful, opened.damaged);
            if !self.write {
                status.state = opened.state;
            }
        }
        status.in_use = self.in_use;
        if self.in_use.is_none() {
            let again = status.look_again(&self.engine);
            again.map_err(|error| self.failed(&error))?;
        }
        Ok(status)
    }

    /// When the region of a page was last verified, and nothing in it was damaged or in doubt, in
    /// nanoseconds since 1970; 0 if never. A page that is damaged now was right then. Looking at a
    /// file changes nothing, this included: [`repair`](Self::repair) does, and scrubs in use.
    #[must_use]
    pub fn verified_ns(&self, page: u64) -> u64 {
        self.engine.verified_ns(page)
    }

    /// Pages that are on record as undecided, ascending, and why; at most `most` of them. After it
    /// was protected, these are pages that could not be read: nothing is covered there.
    #[must_use]
    pub fn undecided(&self, most: usize) -> Vec<(u64, Unsure)> {
        self.engine.undecided_pages(most)
    }

    /// The journal: what was found and repaired.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.engine.events()
    }

    /// Looks at all pages and changes nothing. `progress` is told how many of how many are done,
    /// and answers whether to go on.
    ///
    /// # Errors
    /// The side file cannot be read.
    pub fn verify(&self, mut progress: impl FnMut(u64, u64) -> bool) -> Result<Verified> {
        let mut found = Verified {
            changed: self.opened.is_some_and(|opened| opened.changed),
            grown: self.data.size().saturating_sub(self.engine.size()),
            unrest: self.rest.unrest(),
            ..Verified::default()
        };
        let (all, there) = (self.engine.pages(), self.data.size().div_ceil(PAGE));
        // The side file may say what it likes: what is cut off is counted, not looked at.
        let end = all.min(there);
        found.gone = all - end;
        found.pages = found.gone;
        let mut looked = 0;
        for page in self.engine.to_look_at(end).into_iter().flatten() {
            if looked % 64 == 0 && !progress(page, all) {
                found.stopped = true;
                break;
            }
            looked += 1;
            let judged = self.engine.verify(page).map_err(|error| self.failed(&error))?;
            found.pages += 1;
            match judged.verdict {
                // What is left of the last page.
                PageVerdict::Undecided(Unsure::Uncovered) if !judged.readable => found.gone += 1,
                PageVerdict::Good => found.good += 1,
                PageVerdict::Corrupt => found.corrupt.push(page),
                PageVerdict::Undecided(why) if why.is_doubt() => {
                    found.unread += u64::from(!judged.readable);
                    found.undecided.push((page, why));
                }
                PageVerdict::Undecided(_) => found.uncovered += 1,
            }
        }
        if !found.stopped {
            // Holes that never had anything to cover.
            found.pages += end - looked;
            found.good += end - looked;
        }
        found.unrest = found.unrest.or_else(|| self.rest.unrest());
        if found.unrest.is_some() {
            let doubted = core::mem::take(&mut found.corrupt);
            found.undecided.extend(doubted.into_iter().map(|page| (page, Unsure::Contested)));
            found.undecided.sort_unstable_by_key(|(page, _)| *page);
        }
        Ok(found)
    }

    /// Repairs what is damaged, in the file and in the side file. With `force`, undecided pages are
    /// replaced as well with what they were when they were covered. `progress` as for
    /// [`verify`](Self::verify).
    ///
    /// # Errors
    /// It was opened to look; an error of either file. What was repaired before stays so.
    pub fn repair(
        &self,
        force: bool,
        mut progress: impl FnMut(u64, u64) -> bool,
    ) -> Result<Repaired> {
        let failed = |error| self.failed(&error);
        let mut done = Repaired::default();
        let mut corrupt = BTreeSet::new();
        let all = self.engine.pages();
        loop {
            if !progress(done.pages.min(all), all) {
                done.stopped = true;
                break;
            }
            // A writer that comes now would be repaired away.
            at_rest(&self.rest, &self.path)?;
            let step = self.engine.scrub_step(Some(&*self.rest)).map_err(failed)?;
            done.pages += step.report.pages;
            corrupt.extend(step.report.corrupt);
            done.undecided.extend(step.report.undecided);
            done.redundancy += step.parity + step.records;
            if step.finished {
                break;
            }
        }
        // Where nobody can be kept out, nothing was tried.
        let alone = corrupt.is_empty() || Writers::freeze(&*self.rest);
        Writers::thaw(&*self.rest);
        for page in corrupt {
            match self.engine.verify(page).map_err(failed)?.verdict {
                PageVerdict::Good => done.repaired.push(page),
                PageVerdict::Corrupt if alone => done.lost.push(page),
                PageVerdict::Corrupt => done.busy.push(page),
                PageVerdict::Undecided(why) => done.undecided.push((page, why)),
            }
        }
        if force && !done.stopped {
            self.force(&mut done, &mut progress)?;
        }
        done.undecided.sort_unstable_by_key(|(page, _)| *page);
        Ok(done)
    }

    fn force(&self, done: &mut Repaired, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<()> {
        let all = self.engine.pages();
        for (page, why) in core::mem::take(&mut done.undecided) {
            done.stopped |= !progress(all, all);
            if done.stopped {
                done.undecided.push((page, why));
                continue;
            }
            let mended = self.engine.repair(page, &*self.rest, Force::Undecided);
            match mended.map_err(|error| self.failed(&error))? {
                Mended::Good | Mended::Repaired => done.forced.push(page),
                Mended::Lost | Mended::Busy => done.undecided.push((page, why)),
                Mended::Undecided(why) => done.undecided.push((page, why)),
            }
        }
        Ok(())
    }

    /// Takes the file for right as it is, undecided pages included.
    ///
    /// # Errors
    /// It was opened to look; an error of the side file.
    pub fn accept(&self) -> Result<u64> {
        let covered = self.engine.accept(0, u64::MAX);
        covered.map(|covered| covered.pages).map_err(|error| self.failed(&error))
    }

    /// Closes it: the file as it is now is what was left.
    ///
    /// # Errors
    /// An error of either file.
    pub fn close(self) -> Result<()> {
        let Self { engine, path, side, .. } = self;
        engine.close().map_err(|error| of_engine(&error, (&path, &side)))
    }

    /// Ends the protection and removes the side file. What is damaged stays so for good.
    ///
    /// # Errors
    /// An error of the side file, or of its folder, where a name has to go: it is protected as
    /// before then.
    pub fn unprotect(self) -> Result<()> {
        let Self { engine, path, side, region, .. } = self;
        // First of all what may be refused, and what a kill leaves in order.
        let aside = area::put_aside(&side)?;
        if let Err(error) = engine.unprotect() {
            let _ = aside.back();
            return Err(of_engine(&error, (&path, &side)));
        }
        area::remove(aside, region.as_ref());
        Ok(())
    }

    /// Removes a side file that cannot be used any more: damaged, cut off, of another file. Of a
    /// pointer that is a copy only that is removed. The pool in which redundancy may have been
    /// left, because the pool could not be had or the region is damaged.
    ///
    /// # Errors
    /// It does not look like one; somebody works with it; it cannot be removed.
    pub fn remove_side(
        path: impl AsRef<Path>,
        options: &ProtectOptions,
    ) -> Result<Option<PathBuf>> {
        let side = options.side_of(path.as_ref());
        if Pointer::is_at(&side) {
            return area::remove_pointer(&side, options.pool.as_deref());
        }
        match side::open(&side, Access::Write, Survive::Process) {
            Ok(_) if side::is_side(&side) || options.side.is_none() => {}
            Err(error) if error.kind() == ErrorKind::Truncated && options.side.is_none() => {}
            Err(error) => return Err(error),
            Ok(_) => {
                return Err(Error::new(ErrorKind::NotAPool, "this is not a side file")
                    .with_remedy("check the path; it was not removed")
                    .at(&side));
            }
        }
        side::remove(&side).map(|()| None)
    }

    /// Whether the side file was left by somebody who did not close it.
    #[must_use]
    pub fn was_interrupted(&self) -> bool {
        self.opened.is_some_and(|opened| opened.state == State::Open)
    }
}

/// A file that is listened to, and what it was when that began.
struct Heard {
    data: ForeignFile,
    rest: Arc<Rest>,
    before: Identity,
}

impl Heard {
    fn from_now(path: &Path) -> Result<Self> {
        let (data, rest) = listen_anew(&file::open(path, false)?, path)?;
        let before = identity_of(&data, path)?;
        Ok(Self { data, rest, before })
    }
}

fn identity_of(data: &ForeignFile, path: &Path) -> Result<Identity> {
    holdfast_mapped::Facts::identity(data).map_err(|error| file::failed(path, &error))
}

/// Asks `progress`, and takes its time: so that no more bytes than `pace` are done in a second.
/// Meanwhile it is asked again, whether to go on.
fn paced(
    pace: Option<u64>,
    mut progress: impl FnMut(u64, u64) -> bool,
) -> impl FnMut(u64, u64) -> bool {
    let (mut pace, clock, mut before) = (Pace::new(pace), WallClock::new(), 0);
    move |done, all| {
        let bytes = done.saturating_sub(before).saturating_mul(PAGE);
        before = before.max(done);
        let wait = pace.wait_after(clock.now(), bytes);
        let until = clock.now().saturating_add(wait);
        loop {
            if !progress(done, all) {
                return false;
            }
            match until.saturating_sub(clock.now()) {
                0 => return true,
                left => std::thread::sleep(Duration::from_nanos(left).min(NAP)),
            }
        }
    }
}

/// Refuses to take a file as it is while what it was could still be wanted, or told from damage.
fn worth_replacing(found: &Verified, path: &Path) -> Result<()> {
    if let Some(why) = &found.unrest {
        // What differs is called a doubt because of him, and would be taken for right.
        return Err(Error::new(ErrorKind::Locked, why.clone())
            .with_remedy("close it there first; nothing was changed")
            .at(path));
    }
    if !found.corrupt.is_empty() {
        let what = format!("{} of its pages are damaged", found.corrupt.len());
        return Err(Error::new(ErrorKind::Damaged, what)
            .with_remedy("repair it first, or unprotect it by force; nothing was changed")
            .at(path));
    }
    if found.unread > 0 { Err(unreadable(found.unread, path)) } else { Ok(()) }
}

/// Of a file with pages that cannot be read, whose redundancy was to be replaced.
fn unreadable(pages: u64, path: &Path) -> Error {
    Error::new(ErrorKind::Damaged, format!("{pages} of its pages cannot be read"))
        .with_remedy(
            "`repair --force` brings back what they were, if parity can; nothing was changed",
        )
        .at(path)
}

/// Of whoever wanted all of it and let nobody stop it.
fn stopped(path: &Path) -> Error {
    Error::new(ErrorKind::Cancelled, "it was stopped").at(path)
}

/// How long is waited between two questions whether to go on.
const NAP: Duration = Duration::from_millis(20);
const SYNC: holdfast_pmem::Site = holdfast_pmem::Site::new("facade.rest.sync");

/// Begins to listen to a file, before anything of it is believed.
fn listen(data: ForeignFile, path: &Path) -> Result<(ForeignFile, Arc<Rest>)> {
    let rest = Rest::begin(&data).map_err(|error| file::failed(path, &error))?;
    let rest = Arc::new(rest);
    Ok((data.heard_by(Arc::clone(&rest) as Arc<dyn Ours>), rest))
}

/// The same, anew if somebody was heard, or there. A child that this process forked for another
/// program has the handles of earlier openings, too, and closes them on its way, as a writer does;
/// whoever really wrote has left another date.
fn listen_anew(data: &ForeignFile, path: &Path) -> Result<(ForeignFile, Arc<Rest>)> {
    let mut found = listen(data.clone(), path)?;
    for _ in 0..ANEW {
        if found.1.unrest().is_none() {
            break;
        }
        found = listen(data.clone(), path)?;
    }
    Ok(found)
}

/// How often.
const ANEW: u32 = 2;

/// Refuses a file that another process has open for writing, or wrote to since it was opened.
fn at_rest(rest: &Rest, path: &Path) -> Result<()> {
    match rest.unrest() {
        None => Ok(()),
        Some(why) => Err(Error::new(ErrorKind::Locked, why)
            .with_remedy("close it there first; nothing was changed")
            .at(path)),
    }
}
