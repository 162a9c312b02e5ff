//! One guarded file: its engine, its source, and who else writes to it.

pub(crate) mod heal;
pub(crate) mod rest;

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_guard_wire::{Ledger, SLOTS};
use holdfast_mapped::{
    Covered, Durability, Facts, Mapped, ProtectOptions, Scrubbed, When, Writers, Writing,
};
use holdfast_pmem::track::ear::Hears;
use holdfast_pmem::track::holders::FileId;
use holdfast_pmem::track::{Board, folios};
use holdfast_pmem::{Clock, ForeignFile, PAGE};

use self::rest::{Close, Rest};
use crate::choose::Choice;
use crate::drill::{self, Drill, Drilled, Ground};
use crate::eyes::Eyes;
use crate::foreign::{Doubt, Known, Watch};
use crate::lease::lease;
use crate::names::{Beside, Named};
use crate::release::{Call, Ended};
use crate::sides::{anew, bring, engine, is_of_another};
use crate::source::Source;
use crate::summary::FileReport;
use crate::tell::Teller;

pub(crate) type Engine = Mapped<ForeignFile, holdfast_pmem::Mapped, Arc<Source>>;

/// A program runs this many times as long as it was stopped for a drill.
const REST: u32 = 4;
/// Why a file is contested that was so before it was opened.
const EARLIER: &str =
    "somebody wrote to it unseen before this time: it is checked only until it is protected anew";
/// Bytes of file a board has bits for, at least.
const BOARD: u64 = 1 << 40;

/// A guarded file.
pub(crate) struct Guarded {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    number: u32,
    file: Arc<File>,
    data: ForeignFile,
    /// None after an error that ended its protection. Shared with a pass that is under way.
    engine: Option<Arc<Engine>>,
    /// Whether passes cover anything.
    lazily: bool,
    /// Where its side file is, if it has a name.
    side: Option<Named>,
    /// Other names that guarded programs gave it.
    pub(crate) names: Vec<PathBuf>,
    pub(crate) source: Arc<Source>,
    ledger: Arc<Ledger>,
    eyes: Arc<Eyes>,
    contested: bool,
    /// Since when nobody has it, as far as was looked.
    pub(crate) idle: Option<Instant>,
    /// Whether what is written has to outlive a power cut.
    durable: bool,
    /// Writes announced when its data was synced last.
    synced: Option<(u64, u64)>,
    /// When it may be drilled next.
    rested: Instant,
    /// What others are told.
    teller: Arc<Teller>,
    /// Where it is written which pages passes found stored to, if anywhere.
    trace: Option<File>,
    report: FileReport,
}

fn link_of(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// The name of the file behind a descriptor that a program sent. It is not opened for that.
pub(crate) fn name_of(fd: BorrowedFd<'_>) -> std::io::Result<PathBuf> {
    std::fs::read_link(link_of(fd))
}

/// The same file, opened for ourselves.
pub(crate) fn reopen(fd: BorrowedFd<'_>) -> std::io::Result<File> {
    // Nobody here waits until somebody gives up a lease.
    let at_once = libc::O_NONBLOCK;
    OpenOptions::new().read(true).write(true).custom_flags(at_once).open(link_of(fd))
}

/// Sees to how the page cache keeps a file; what came of it. Before anybody maps it: a first store
/// is ten times as dear in large pieces of the cache.
fn cached(file: &File, len: u64, protect: &ProtectOptions) -> String {
    let small = match protect.folios {
        holdfast_mapped::Folios::Small => folios::Folios::Small,
        holdfast_mapped::Folios::Any => folios::Folios::AsFound,
    };
    let cache = folios::apply(file.as_fd(), len, small);
    cache.map_or_else(|error| error.to_string(), |cache| cache.to_string())
}

impl Guarded {
    /// Begins to guard a file.
    pub(crate) fn begin(
        number: u32,
        (file, path): (File, PathBuf),
        choice: &Choice,
        protect: &ProtectOptions,
        (ledger, clock): (&Arc<Ledger>, &Arc<dyn Clock>),
        (hears, beside): (Hears, Beside),
    ) -> Result<Self, String> {
        let found = file.metadata().map_err(|error| error.to_string())?;
        let file = Arc::new(file);
        let id = FileId::of(file.as_fd()).map_err(|error| error.to_string())?;
        let watch = Watch::new(Arc::clone(&file), id, hears);
        let len = BOARD.max(found.len().saturating_mul(2)).next_multiple_of(PAGE);
        let board = Board::create(len, SLOTS).map_err(|error| error.to_string())?;
        let board = Arc::new(board);
        let source = Arc::new(Source::new(number, id, Arc::clone(&board), Arc::clone(ledger)));
        let data = ForeignFile::new(Arc::clone(&file));
        let cached = cached(&file, found.len(), protect);
        let eyes = Arc::new(Eyes::new(data.clone(), watch, number, (Arc::clone(ledger), board)));
        source.hear_by(Arc::clone(&eyes));
        let facts = Arc::clone(&eyes) as Arc<dyn Facts>;
        let parts = (data.clone(), Arc::clone(&source), Arc::clone(clock), facts);
        let mut report = FileReport::new(path, found.ino());
        report.folios = cached;
        let beside = bring(beside, (&mut report, found.ino()));
        let anew = is_of_another(&parts, choice, protect, beside).then(|| {
            report.note("another file had its name before, whose side file is removed".to_owned());
            anew(choice)
        });
        let choice = anew.as_ref().unwrap_or(choice);
        let (engine, making) = engine(parts, choice, protect, &mut report)?;
        engine.admit(0, u64::MAX, Writing::NotYet).map_err(|error| error.to_string())?;
        // From here on it covers everything.
        let kept = making.map_or(Ok(()), |mut making| making.keep(false));
        kept.map_err(|error| error.to_string())?;
        let side = match choice {
            Choice::Open(side) | Choice::Protect(side) => Named::of(side.clone()),
            Choice::Leave => None,
        };
        let contested = engine.is_contested();
        if contested {
            report.contested.push(EARLIER.to_owned());
        }
        report.stripe = (engine.stripes().data(), engine.stripes().parity());
        let engine = Arc::new(engine);
        Ok(Self {
            teller: Arc::new(Teller::of(&engine, &data, clock)),
            trace: None,
            side,
            names: Vec::new(),
            synced: None,
            lazily: protect.open.when == When::Lazily,
            idle: None,
            device: found.dev(),
            inode: found.ino(),
            number,
            rested: Instant::now(),
            durable: protect.open.durability == Durability::Power,
            file,
            data,
            contested,
            engine: Some(engine),
            source,
            ledger: Arc::clone(ledger),
            eyes,
            report,
        })
    }

    /// Asks or tells the watch over it something.
    pub(crate) fn watch<T>(&self, ask: impl FnOnce(&mut Watch) -> T) -> T {
        self.eyes.watch(ask)
    }

    /// Whether a process can write to it, or may be able to.
    pub(crate) fn may_be_held_by(&self, process: u32) -> bool {
        self.watch(|watch| watch.may_be_held_by(process))
    }

    /// Whether it was covered for the first time when it began to be guarded.
    pub(crate) fn is_new(&self) -> bool {
        self.report.opened.is_none()
    }

    pub(crate) fn size(&self) -> u64 {
        self.data.size()
    }

    pub(crate) fn number(&self) -> usize {
        self.number as usize
    }

    /// Whether what is written has to outlive a power cut.
    pub(crate) fn is_durable(&self) -> bool {
        self.durable
    }

    /// The file, if its data is to be synced before the next pass: nothing can be new where nobody
    /// wrote since the last time, or maps it to store to it.
    pub(crate) fn unsynced(&mut self) -> Option<Arc<File>> {
        let announced = self.ledger.announced(self.number);
        let new = self.synced != Some(announced) || self.source.is_stored_to();
        self.synced = Some(announced);
        (self.durable && new).then(|| Arc::clone(&self.file))
    }

    /// The parts that have storage: what is worth arming.
    pub(crate) fn allocated(&self) -> Vec<(u64, u64)> {
        let mut parts = Vec::new();
        let size = self.size().next_multiple_of(PAGE);
        self.data.parts(0, size, &mut |at, len| parts.push((at, len)));
        parts
    }

    /// Somebody writes to it of whom nothing is seen: from now on it is checked only.
    pub(crate) fn contest(&mut self, why: String) {
        if self.report.contested.len() < 16 && !self.report.contested.contains(&why) {
            self.report.contested.push(why);
        }
        if self.contested {
            return;
        }
        self.contested = true;
        if let Some(engine) = &self.engine
            && let Err(error) = engine.contest(true)
        {
            self.fail(&error.to_string());
        }
    }

    /// Something went wrong; what is not covered stays known as such.
    fn fail(&mut self, error: &str) {
        if self.report.errors.len() < 16 {
            self.report.errors.push(error.to_owned());
        }
    }

    /// Others are known from now on.
    pub(crate) fn know(&self, known: &Known) {
        self.eyes.know(known);
    }

    /// What listens to it, for who has not the file itself meanwhile.
    pub(crate) fn eyes(&self) -> &Arc<Eyes> {
        &self.eyes
    }

    /// Looks for writes that nobody told of.
    pub(crate) fn look(&mut self, known: &Known) {
        self.know(known);
        self.look_on();
    }

    /// The same with the processes that were known last.
    fn look_on(&mut self) {
        let heard = self.eyes.look();
        if let Some(why) = heard.contested {
            self.contest(why);
        }
        if let Some(why) = heard.doubted
            && self.report.doubted.len() < 16
            && !self.report.doubted.contains(&why)
        {
            self.report.doubted.push(why);
        }
    }

    /// If it was quiet for long enough: the next pass looks at every page, and decides about those
    /// that differ for good. Whether there is to be such a pass, and [`settled`](Self::settled)
    /// afterwards.
    pub(crate) fn begins_to_settle(&mut self) -> bool {
        let settles = self.watch(|watch| watch.doubted()) == Doubt::Settle;
        if settles
            && let Some(Err(error)) = self.engine.as_ref().map(|engine| engine.doubt_unseen())
        {
            self.note_error(&error.to_string());
        }
        settles
    }

    /// That pass was made.
    pub(crate) fn settled(&mut self, known: &Known) {
        self.know(known);
        self.settled_on();
    }

    fn settled_on(&mut self) {
        self.look_on();
        self.watch(Watch::settled);
        self.look_on();
    }

    fn settle(&mut self) {
        if self.begins_to_settle() {
            self.pass();
            self.settled_on();
        }
    }

    /// Whether nobody but the guarded is known to write, and all that they did is known. Asked
    /// while they stand; the next look tells what was found out.
    pub(crate) fn is_sure(&self) -> bool {
        self.eyes.is_sure() && self.source.is_whole()
    }

    /// What a pass in steps needs, if there is to be one: others may be served between them. One
    /// because of a sync is made whatever the policy.
    pub(crate) fn to_pass(&self, synced: bool) -> Option<Arc<Engine>> {
        self.source.reap();
        self.engine.clone().filter(|_| self.lazily || synced)
    }

    /// A pass, and nothing else; whether all that was stored is covered by it.
    pub(crate) fn pass(&mut self) -> bool {
        self.source.reap();
        let engine = self.engine.as_ref().filter(|_| self.lazily);
        let done = engine.map(|engine| engine.update_now());
        let well = matches!(done, Some(Ok(_)));
        self.note(done);
        well
    }

    /// Covers a range at once, for who syncs it; whether it is covered.
    pub(crate) fn cover(&mut self, at: u64, len: u64) -> bool {
        let done = self.engine.as_ref().map(|engine| engine.cover(at, len));
        let well = matches!(done, Some(Ok(_)));
        self.synced(u64::from(well));
        self.note(done);
        well
    }

    /// A pass was made because the program syncs, so many times at once.
    pub(crate) fn synced(&mut self, times: u64) {
        self.report.covered_on_sync += times;
    }

    pub(crate) fn note(&mut self, done: Option<holdfast_mapped::Result<Covered>>) {
        match done {
            Some(Ok(_)) => self.report.passes += 1,
            Some(Err(error)) => self.fail(&error.to_string()),
            None => {}
        }
        self.write_trace();
    }

    /// From now on it is written there which pages passes find stored to.
    pub(crate) fn trace_to(&mut self, trace: Option<Result<(File, Option<String>), String>>) {
        match trace {
            Some(Ok((trace, note))) => {
                self.trace = Some(trace);
                note.into_iter().for_each(|note| self.report.note(note));
            }
            Some(Err(why)) => self.report.note(format!("it has no trace: {why}")),
            None => {}
        }
    }

    /// Adds what passes found. A trace that cannot be written ends, and nothing else.
    fn write_trace(&mut self) {
        let (Some(engine), Some(mut trace)) = (&self.engine, self.trace.as_ref()) else { return };
        let mut windows = engine.take_trace().into_iter();
        if let Err(error) = windows.try_for_each(|one| trace.write_all(one.line().as_bytes())) {
            self.trace = None;
            self.report.note(format!("its trace ended: {error}"));
        }
    }

    /// Looks at the next region, and repairs what is damaged there. False at the end of the file.
    pub(crate) fn scrub_step(&self, writers: &dyn Writers) -> Result<bool, String> {
        let Some(engine) = &self.engine else { return Ok(false) };
        let writers = (!self.contested).then_some(writers);
        let done = engine.scrub_step(writers).map_err(|error| error.to_string())?;
        self.teller.scrubbed(&done);
        self.told(&done);
        Ok(!done.finished)
    }

    /// Looks at all of it, wherever the scrub is, and repairs what is damaged.
    pub(crate) fn scrub_all(&self, writers: &dyn Writers) -> Result<(), String> {
        let Some(engine) = &self.engine else { return Ok(()) };
        let writers = (!self.contested).then_some(writers);
        let done = engine.scrub_while(writers, &|| true).map_err(|error| error.to_string())?;
        self.teller.looked(&done);
        self.told(&done);
        Ok(())
    }

    /// Where the system does not tell our own writes from others', they are announced ones, too.
    fn told(&self, done: &Scrubbed) {
        if done.repaired > 0 {
            self.announce();
        }
    }

    fn announce(&self) {
        if self.watch(|watch| watch.hears()) == Hears::Nobody {
            let turn = self.ledger.turn(self.number);
            self.ledger.begin(self.number, turn);
            self.ledger.end(self.number, turn);
        }
    }

    /// Who tells others about it. None of them may be asked any more when it is to be finished.
    pub(crate) fn teller(&self) -> &Arc<Teller> {
        &self.teller
    }

    /// Whether a pass over it is under way.
    pub(crate) fn is_passed(&self) -> bool {
        self.engine.as_ref().is_some_and(|engine| Arc::strong_count(engine) > 1)
    }

    /// How it is told apart from all others.
    pub(crate) fn key(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// Its name, or the last that was known.
    pub(crate) fn path(&self) -> &std::path::Path {
        &self.report.path
    }

    pub(crate) fn report(&mut self) -> &mut FileReport {
        &mut self.report
    }

    pub(crate) fn side(&self) -> Option<&Named> {
        self.side.as_ref()
    }

    /// Its name, as far as that is known, and that of its side file.
    pub(crate) fn names(&mut self) -> (&mut PathBuf, &mut Option<Named>) {
        (&mut self.report.path, &mut self.side)
    }

    /// The file, for programs that map a page of it anew.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Whether damage may be done to it on purpose.
    pub(crate) fn may_be_drilled(&self) -> bool {
        let well = !self.contested && self.report.errors.is_empty();
        well && self.engine.is_some() && Instant::now() >= self.rested
    }

    /// Damages pages and has them repaired; what it came to, and what went wrong. Everybody who may
    /// store has to stand until it is over.
    pub(crate) fn drill(&self, drill: Drill, writers: &dyn Writers) -> (Drilled, Vec<String>) {
        let Some(engine) = self.engine.as_ref().filter(|_| self.may_be_drilled()) else {
            return Default::default();
        };
        let announce = || self.announce();
        let (file, path, durable) = (&*self.file, &*self.report.path, self.durable);
        let ground = Ground { file, path, durable, announce: &announce };
        let seed = drill.seed ^ self.inode;
        let round = self.report.drilled.rounds;
        drill::run(engine, &ground, (Drill { seed, ..drill }, round), Some(writers))
    }

    /// Notes what a drill came to; `None` if the program could not be stopped for it. A program
    /// that was stopped runs for several times as long before it is stopped again.
    pub(crate) fn drilled(&mut self, done: Option<(Drilled, Vec<String>)>, took: Duration) {
        self.rested = Instant::now() + took * REST;
        let put_off = Drilled { put_off: 1, ..Drilled::default() };
        let (done, wrong) = done.unwrap_or((put_off, Vec::new()));
        self.report.drilled.add(done);
        wrong.iter().for_each(|error| self.fail(error));
    }

    pub(crate) fn note_error(&mut self, error: &str) {
        self.fail(error);
    }

    /// Nobody stores any more: a last pass, a last look, and the side file is closed clean.
    pub(crate) fn finish(mut self, known: &Known, scrub: bool) -> FileReport {
        self.know(known);
        self.last_look(scrub, &|| true, &|| ());
        self.close(Close::AtRest)
    }

    /// The same while programs live that do not have it, but may come to: unless it is wanted. Who
    /// is known may change meanwhile.
    pub(crate) fn let_go(mut self, scrub: bool, call: &Call) -> Ended {
        let _ = self.eyes.let_go(true);
        let data = self.data.clone();
        let go_on = || !call.wanted();
        // Asked before, since a look takes long.
        let seen = lease(&data).is_ok();
        let whole = seen && self.last_look(scrub, &go_on, &|| call.cover());
        let how = if whole { self.settle_down(call) } else { Close::AsKept };
        // From here on nobody opens it until it is closed, where the system grants that.
        let lease = lease(&data);
        let used = self.eyes.is_used();
        if whole && go_on() && lease.is_ok() && !used {
            return Ended::Closed(Box::new(self.close(how)));
        }
        if go_on() {
            // It is not looked for again at once.
            self.idle = None;
        }
        if let Some(process) = self.eyes.let_go(false) {
            self.contest(format!("process {process} used it while it was about to be closed"));
        }
        Ended::Back(Box::new(self))
    }

    /// A last pass, of which it is told when it is over, and a look at everything, for as long as
    /// it is to go on; whether it came to its end.
    fn last_look(&mut self, scrub: bool, go_on: &dyn Fn() -> bool, passed: &dyn Fn()) -> bool {
        self.look_on();
        if let Some(why) = self.eyes.stranger() {
            self.contest(why);
        }
        if self.pass() {
            passed();
        }
        if go_on() && self.watch(Watch::settle_now) {
            self.settle();
        }
        if let (Some(engine), true) = (&self.engine, scrub) {
            // Nobody guarded has it; strangers may come at any time.
            let writers = Rest { file: &*self, lease: RefCell::default() };
            let writers: &dyn Writers = &writers;
            match engine.scrub_while((!self.contested).then_some(writers), go_on) {
                Ok(done) => {
                    self.report.good = done.report.good + done.repaired;
                    self.report.lost = done.lost;
                    self.report.mended = done.repaired;
                    self.report.damaged = done.report.corrupt.len() as u64;
                    self.report.doubtful = done.report.undecided;
                    self.report.verified_ns = done.verified_ns;
                }
                Err(error) => self.fail(&error.to_string()),
            }
        }
        go_on()
    }

    fn close(mut self, how: Close) -> FileReport {
        if let Some(engine) = self.engine.take() {
            self.report.pages = engine.pages();
            self.report.counts = engine.counts();
            // No pass is under way any more, so nobody shares it.
            let close = match how {
                Close::AtRest => Engine::close_at_rest,
                Close::AsKept => Engine::close,
            };
            match Arc::into_inner(engine).map(close) {
                Some(Ok(())) => self.report.closed = true,
                Some(Err(error)) => self.fail(&error.to_string()),
                None => self.fail("a pass over it did not come to its end"),
            }
        }
        self.report.seen = self.source.seen();
        self.report
    }
}

impl core::fmt::Debug for Guarded {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Guarded").field("path", &self.report.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod drills {
    use super::*;
    use crate::clock::WallClock;
    use crate::side_of;
    use holdfast_mapped::AtRest;
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    const PAGES: u64 = 64;
    const DRILL: Drill = Drill { pages: 5, seed: 3 };

    fn content() -> Vec<u8> {
        (0..PAGES * PAGE - 1000).map(|at| (at / PAGE * 3 + at % 251) as u8).collect()
    }

    fn guarded(folder: &Path) -> Guarded {
        let path = folder.join("a.db");
        std::fs::write(&path, content()).unwrap();
        let old = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let file = File::options().read(true).write(true).open(&path).unwrap();
        file.set_modified(old).unwrap();
        let side = Choice::Protect(side_of(&path));
        let ledger = Arc::new(Ledger::create().unwrap());
        let clock: Arc<dyn Clock> = Arc::new(WallClock::new());
        let protect = ProtectOptions::default();
        let how = (Hears::Everybody, Beside::Own);
        Guarded::begin(0, (file, path), &side, &protect, (&ledger, &clock), how).unwrap()
    }

    fn copies(folder: &Path) -> Vec<PathBuf> {
        let all = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        all.filter(|path| path.to_str().unwrap().contains(".drill-")).collect()
    }

    /// Without a repair, or with one that somebody comes in between.
    fn without(
        file: &Guarded,
        pages: u32,
        writers: Option<&dyn Writers>,
    ) -> (Drilled, Vec<String>) {
        let announce = || file.announce();
        let (open, path) = (&*file.file, &*file.report.path);
        let ground = Ground { file: open, path, durable: true, announce: &announce };
        drill::run(
            &**file.engine.as_ref().unwrap(),
            &ground,
            (Drill { pages, ..DRILL }, 0),
            writers,
        )
    }

    /// Cannot be stopped.
    struct Restless;

    impl Writers for Restless {
        fn freeze(&self) -> bool {
            false
        }

        fn thaw(&self) {}
    }

    /// Somebody nobody knows of, who writes to a damaged page when all others stand.
    struct Stranger(PathBuf);

    impl Writers for Stranger {
        fn freeze(&self) -> bool {
            let now = std::fs::read(&self.0).unwrap();
            let then = content();
            let pages = now.chunks(4096).zip(then.chunks(4096));
            let bad = pages.enumerate().find(|(_, (now, then))| now != then).unwrap().0;
            let file = File::options().write(true).open(&self.0).unwrap();
            file.write_all_at(b"a stranger", bad as u64 * PAGE + 5).unwrap();
            true
        }

        fn thaw(&self) {}
    }

    #[test]
    fn pages_come_back_and_nothing_tells_of_the_drill() {
        let _alone = crate::alone();
        let folder = tempfile::tempdir().unwrap();
        let mut file = guarded(folder.path());
        let time = || std::fs::metadata(folder.path().join("a.db")).unwrap().modified().unwrap();
        let before = time();
        for round in 1..30 {
            let (done, wrong) = file.drill(DRILL, &AtRest);
            assert_eq!((done.rounds, done.pages, done.given_back), (1, 5, 5), "{wrong:?}");
            assert_eq!(wrong, [""; 0]);
            file.drilled(Some((done, wrong)), Duration::ZERO);
            let counts = file.engine.as_ref().unwrap().counts();
            assert_eq!((counts.corrupt, counts.repaired), (5 * round, 5 * round));
            assert!(std::fs::read(folder.path().join("a.db")).unwrap() == content());
        }
        assert_eq!((time(), copies(folder.path())), (before, Vec::new()));
        assert!(!file.report.is_damaged() && file.report.repaired() == 0);
        file.drilled(None, Duration::from_secs(60));
        assert!(file.report.drilled.put_off == 1 && !file.may_be_drilled(), "it has to rest");
        file.rested = Instant::now();
        assert!(file.may_be_drilled());
        file.contest("somebody".to_owned());
        assert_eq!(file.drill(DRILL, &AtRest).0, Drilled::default(), "contested: nothing is done");
    }

    #[test]
    fn what_is_not_given_back_is_told_put_back_and_kept() {
        let _alone = crate::alone();
        let folder = tempfile::tempdir().unwrap();
        let mut file = guarded(folder.path());
        let (done, wrong) = without(&file, 5, None);
        assert_eq!((done.pages, done.given_back, done.kept.len()), (5, 0, 5));
        assert_eq!(wrong.len(), 5);
        assert!(wrong.iter().all(|why| why.contains("put back from memory")), "{wrong:?}");
        assert!(std::fs::read(folder.path().join("a.db")).unwrap() == content());
        for copy in &done.kept {
            let page: usize = copy.to_str().unwrap().rsplit_once('-').unwrap().1.parse().unwrap();
            let expected = content().chunks(4096).nth(page).unwrap().to_vec();
            assert_eq!(std::fs::read(copy).unwrap(), expected);
            assert_eq!(std::fs::metadata(copy).unwrap().mode() & 0o777, 0o600, "for all to read");
        }
        // The same choice once more: those that were kept are left alone.
        let (again, _) = without(&file, 5, Some(&AtRest));
        assert_eq!((again.pages, again.given_back), (5, 5));
        assert_eq!(copies(folder.path()).len(), 5);
        file.drilled(Some((done, wrong)), Duration::ZERO);
        assert!(file.report.is_damaged() && !file.report.is_guarded());
        assert!(!file.may_be_drilled(), "once is enough");
    }

    #[test]
    fn nobody_who_comes_in_between_loses_anything() {
        let _alone = crate::alone();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let file = guarded(folder.path());
        let (done, wrong) = without(&file, 5, Some(&Restless));
        assert_eq!((done.pages, done.called_off, wrong.len()), (0, 5, 0));
        assert!(std::fs::read(&path).unwrap() == content() && copies(folder.path()).is_empty());
        let (done, wrong) = without(&file, 1, Some(&Stranger(path.clone())));
        assert!(done.has_failed() && wrong[0].contains("other bytes"), "{done:?} {wrong:?}");
        let now = std::fs::read(&path).unwrap();
        assert!(now.windows(10).any(|bytes| bytes == b"a stranger"), "it was taken back");
        assert_eq!(copies(folder.path()), done.kept);
    }

    /// The end of the supervisor, with damage in the file.
    struct Deadly;

    impl Writers for Deadly {
        fn freeze(&self) -> bool {
            panic!("killed in the middle of a drill")
        }

        fn thaw(&self) {}
    }

    #[test]
    fn after_a_death_in_the_middle_repair_brings_the_pages_back() {
        let _alone = crate::alone();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let file = guarded(folder.path());
        let die = std::panic::AssertUnwindSafe(|| without(&file, 5, Some(&Deadly)));
        std::panic::catch_unwind(die).unwrap_err();
        drop(file);
        assert!(std::fs::read(&path).unwrap() != content());
        assert_eq!(copies(folder.path()).len(), 5);
        let open = File::options().read(true).write(true).open(&path).unwrap();
        let (ledger, clock) = (Ledger::create().unwrap(), WallClock::new());
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let (side, protect) = (Choice::Open(side_of(&path)), ProtectOptions::default());
        let with = (&Arc::new(ledger), &clock);
        let how = (Hears::Everybody, Beside::Own);
        let begun = Guarded::begin(0, (open, path.clone()), &side, &protect, with, how);
        let file = begun.unwrap();
        let engine = file.engine.as_ref().unwrap();
        let found = engine.verify_all().unwrap();
        assert_eq!((found.corrupt.len(), found.undecided.len()), (0, 5), "{found:?}");
        for (page, _) in found.undecided {
            let done = engine.repair(page, &AtRest, holdfast_mapped::Force::Undecided).unwrap();
            assert_eq!(done, holdfast_mapped::Mended::Repaired, "{page}");
        }
        assert!(std::fs::read(&path).unwrap() == content());
    }
}
