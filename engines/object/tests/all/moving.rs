//! Pages that cannot be cured, while other threads commit: a page of objects is relocated under a
//! commit in its column, and a lane's log turns bad under those who write to it.
//!
//! Threads are parked at named steps, so every order is played on purpose; where two of them run
//! freely, nothing depends on who comes first.

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::scope;
use std::time::Duration;

use crate::common::{TestPool, crash, create_with, get, pattern, put};
use holdfast_faultmem::Clear;
use holdfast_layout::{RawPtr, Region, RegionKind};
use holdfast_logs::format::ADJACENT_MARK_PAGES;
use holdfast_object::{CreateOptions, Error, Parity, ScrubControl, ScrubOptions, VerifyReads};
use holdfast_pmem::{Medium, MediumKind, PAGE, Site};
use holdfast_redundancy::Journal;
use holdfast_redundancy::events::Outcome;
use holdfast_txn::{Transaction, TxError};

/// The spare frame holds the contents, the table does not say so yet.
const COPIED: &str = "redundancy.remap.copied";
const DURABLE: &str = "object.commit.step-durable";
const COLUMNS: &str = "object.commit.step-columns";
const APPLIED: &str = "object.commit.step-applied";
/// Longest wait for something that has to happen.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time given to something that must not happen.
const WHILE: Duration = Duration::from_millis(30);

/// Counts the steps that are passed, and parks the first thread that comes to one of them.
#[derive(Default)]
struct Steps {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Where the next thread is to be parked.
    stop: Option<&'static str>,
    parked: bool,
    passed: BTreeMap<&'static str, u32>,
}

impl Steps {
    fn watch(pool: &TestPool, stop: &'static str) -> Arc<Self> {
        let steps = Arc::new(Self::default());
        steps.lock().stop = Some(stop);
        let hook = Arc::clone(&steps);
        pool.medium().on_step(Box::new(move |site| hook.pass(site)));
        steps
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn pass(&self, site: Site) {
        let mut state = self.lock();
        *state.passed.entry(site.name()).or_default() += 1;
        state.parked |= state.stop == Some(site.name());
        let mine = state.stop.take_if(|stop| *stop == site.name()).is_some();
        self.changed.notify_all();
        while mine && state.parked {
            state = self.changed.wait(state).unwrap();
        }
    }

    /// Waits until a thread is parked.
    fn parked(&self) {
        let wait = self.changed.wait_timeout_while(self.lock(), PATIENCE, |s| !s.parked).unwrap();
        assert!(!wait.1.timed_out(), "nobody came to be parked: {:?}", wait.0.passed);
    }

    /// Gives others the time to pass a step, which they must not.
    fn nobody_passes(&self, step: &'static str) {
        let before = self.count(step);
        std::thread::sleep(WHILE);
        assert_eq!(self.count(step), before, "{step} was passed");
    }

    fn count(&self, step: &'static str) -> u32 {
        self.lock().passed.get(step).copied().unwrap_or(0)
    }

    fn release(&self) {
        self.lock().parked = false;
        self.changed.notify_all();
    }
}

/// Lets a parked thread go on, also if the test fails: else it would wait for it for ever.
struct Release<'a>(&'a Steps);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        // The lock may be poisoned by then.
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.stop, state.parked) = (None, false);
        self.0.changed.notify_all();
    }
}

struct Filled {
    pool: TestPool,
    objects: Vec<(RawPtr, Vec<u8>)>,
    zone: Region,
}

fn filled(kind: MediumKind, parity: Parity) -> Filled {
    filled_with(kind, CreateOptions { parity, ..CreateOptions::tiny(1 << 20) })
}

fn filled_with(kind: MediumKind, options: CreateOptions) -> Filled {
    let pool = create_with(kind, &options);
    pool.set_verify_reads(VerifyReads::Always);
    let objects = (0..300_u64).map(|i| pattern(i, 900)).map(|b| (put(&pool, &b), b)).collect();
    let zone = *pool.regions().iter().find(|r| r.kind == RegionKind::Zone).unwrap();
    Filled { pool, objects, zone }
}

impl Filled {
    fn page_of(&self, object: usize) -> u64 {
        self.objects[object].0.offset() / PAGE * PAGE
    }

    fn column(&self, page: u64) -> u64 {
        (page - self.zone.start) % self.zone.row_len
    }

    /// An object on another page of the same column, one far from it, and the first of all.
    fn cast(&self) -> (usize, usize, usize) {
        let inside = |i: usize| self.objects[i].0.offset() % PAGE <= PAGE - 64;
        for sick in 0..self.objects.len() {
            let column = self.column(self.page_of(sick));
            let other = (0..self.objects.len()).find(|i| {
                *i != sick
                    && inside(*i)
                    && self.column(self.page_of(*i)) == column
                    && self.page_of(*i) != self.page_of(sick)
            });
            let apart = (0..self.objects.len())
                .find(|i| self.column(self.page_of(*i)).abs_diff(column) > 8 * PAGE);
            if let (Some(other), Some(apart)) = (other, apart) {
                return (sick, other, apart);
            }
        }
        panic!("no two objects share a column");
    }

    /// Writes the first bytes of an object. They lie on one page, the one `page_of` names.
    fn write(&self, object: usize, seed: u64) -> Vec<u8> {
        let (of, old) = &self.objects[object];
        let new = pattern(seed, 40);
        self.pool.run(|tx| tx.write_bytes(*of, 0, &new)).unwrap();
        [&new, &old[40..]].concat()
    }

    fn outcomes(&self, page: u64) -> Vec<Outcome> {
        let journal = Journal::open(self.pool.medium(), &self.pool.superblock());
        let all = journal.read_all(self.pool.medium());
        all.iter().filter(|event| event.at == page).map(|event| event.outcome).collect()
    }

    /// Everything is there and whole, now and after a crash.
    fn all_right(self, what: &str) {
        for (i, (p, bytes)) in self.objects.iter().enumerate() {
            assert!(&get(&self.pool, *p).unwrap() == bytes, "{what}: object {i} at {p}");
        }
        assert_eq!(self.pool.stats().lost, 0, "{what}");
        let report = self.pool.check(|_, _| {}).unwrap();
        assert!(report.is_clean(), "{what}: {:?}", report.findings);
        let (pool, _) = crash(self.pool);
        for (i, (p, bytes)) in self.objects.iter().enumerate() {
            assert!(&get(&pool, *p).unwrap() == bytes, "{what}, crashed: object {i} at {p}");
        }
        let control = ScrubControl::default();
        let done = pool.scrub(ScrubOptions::default(), &control, |_, _| {}).unwrap();
        assert_eq!((done.lost, pool.stats().lost), (0, 0), "{what}");
    }
}

#[test]
fn a_commit_in_the_column_waits_for_a_relocation_and_others_do_not() {
    for parity in [Parity::P, Parity::PQ] {
        // On the page itself, and on another row of its column.
        for same in [true, false] {
            let what = format!("{parity:?}, same page {same}");
            let mut f = filled(MediumKind::Shm, parity);
            let (sick, other, apart) = f.cast();
            let (page, written) = (f.page_of(sick), if same { sick } else { other });
            f.pool.medium().poison(page, PAGE, Clear::Unable).unwrap();
            let steps = Steps::watch(&f.pool, COPIED);
            let (new, far) = scope(|s| {
                let _release = Release(&steps);
                // A scrub meets the page: a transaction would have to be run again.
                let relocates = s.spawn(|| f.pool.heal_load(page, PAGE));
                steps.parked();
                // Others commit as if nothing was.
                let before = f.pool.stats().commits;
                let far = (0..20).fold(Vec::new(), |_, i| f.write(apart, 500 + i));
                assert_eq!(f.pool.stats().commits, before + 20, "{what}");
                let columns = steps.count(COLUMNS);
                let commits = s.spawn(|| f.write(written, 900));
                // It waits for the column before it writes its record; or cannot even make its
                // private copy.
                steps.nobody_passes(DURABLE);
                assert_eq!(steps.count(COLUMNS), columns, "{what}");
                steps.release();
                assert!(relocates.join().unwrap(), "{what}");
                (commits.join().unwrap(), far)
            });
            f.pool.medium().clear_on_step();
            assert_eq!(f.outcomes(page), [Outcome::Relocated], "{what}");
            (f.objects[written].1, f.objects[apart].1) = (new, far);
            f.all_right(&what);
        }
    }
}

#[test]
fn a_frame_that_moves_takes_along_what_else_is_bad_in_it_and_tells_of_it() {
    const FRAME: u64 = 4 * PAGE;
    for parity in [Parity::P, Parity::PQ] {
        for clear in [Clear::Able, Clear::Unable] {
            let what = format!("{parity:?}, beside it {clear:?}");
            let options = CreateOptions { parity, frame: FRAME, ..CreateOptions::tiny(32 << 20) };
            let f = filled_with(MediumKind::Shm, options);
            let page = f.page_of(100);
            let frame = page / FRAME * FRAME;
            let beside = if page == frame { page + PAGE } else { frame };
            f.pool.medium().poison(page, PAGE, Clear::Unable).unwrap();
            f.pool.medium().poison(beside, PAGE, clear).unwrap();
            assert!(f.pool.heal_load(page, PAGE), "{what}");
            for page in [page, beside] {
                assert_eq!(f.outcomes(page), [Outcome::Relocated], "{what}, {page:#x}");
            }
            f.all_right(&what);
        }
    }
}

/// The medium says each time that it is cured. Each unit over it would have it healed anew, and be
/// lost.
#[test]
fn a_page_that_is_bad_again_after_each_heal_counts_as_one_that_stays_bad() {
    const INSTALLED: &str = "object.repair.step-installed";
    for parity in [Parity::P, Parity::PQ] {
        let f = filled(MediumKind::Shm, parity);
        let page = f.page_of(100);
        f.pool.medium().poison(page, PAGE, Clear::Able).unwrap();
        let heals = Arc::new(Mutex::new(0));
        let (again, count) = (f.pool.clone(), Arc::clone(&heals));
        f.pool.medium().on_step(Box::new(move |site| {
            if site.name() == INSTALLED {
                *count.lock().unwrap() += 1;
                again.medium().poison(page, PAGE, Clear::Able).unwrap();
            }
        }));
        assert!(f.pool.heal_load(page, PAGE), "{parity:?}");
        f.pool.medium().clear_on_step();
        let heals = *heals.lock().unwrap();
        assert!((2..=4).contains(&heals), "{parity:?}: healed {heals} times");
        let mut outcomes = f.outcomes(page);
        assert_eq!(outcomes.pop(), Some(Outcome::Relocated), "{parity:?}");
        assert!(outcomes.iter().all(|o| *o == Outcome::Repaired), "{parity:?}: {outcomes:?}");
        f.all_right(&format!("{parity:?}"));
    }
}

#[test]
fn a_relocation_waits_for_a_commit_in_the_column() {
    for parity in [Parity::P, Parity::PQ] {
        for (step, same) in [(COLUMNS, true), (COLUMNS, false), (APPLIED, true), (APPLIED, false)] {
            let what = format!("{parity:?}, {step}, same page {same}");
            let mut f = filled(MediumKind::Shm, parity);
            let (sick, other, _) = f.cast();
            let (page, written) = (f.page_of(sick), if same { sick } else { other });
            let steps = Steps::watch(&f.pool, step);
            let new = scope(|s| {
                let _release = Release(&steps);
                // Its record is durable, and it holds the column; then the page goes bad.
                let commits = s.spawn(|| f.write(written, 901));
                steps.parked();
                f.pool.medium().poison(page, PAGE, Clear::Unable).unwrap();
                let relocates = s.spawn(|| f.pool.heal_load(page, PAGE));
                steps.nobody_passes(COPIED);
                steps.release();
                relocates.join().unwrap();
                commits.join().unwrap()
            });
            f.pool.medium().clear_on_step();
            f.objects[written].1 = new;
            // Whoever came first has moved it.
            assert_eq!(get(&f.pool, f.objects[sick].0).unwrap(), f.objects[sick].1, "{what}");
            assert!(f.outcomes(page).contains(&Outcome::Relocated), "{what}");
            f.all_right(&what);
        }
    }
}

/// Commits many times, several laps of a lane's ring or of the log, until it is refused. Half way
/// `meet` is called. Answers what the object must hold now, and why no more was written.
fn commit_on(f: &Filled, object: usize, meet: impl Fn()) -> (Vec<u8>, Option<Error>) {
    let (of, mut bytes) = f.objects[object].clone();
    for i in 0..300 {
        if i == 100 {
            meet();
        }
        let new = pattern(1_000 * object as u64 + i, 40);
        match f.pool.run(|tx| tx.write_bytes(of, 0, &new)) {
            Ok(()) => bytes[..40].copy_from_slice(&new),
            Err(error) => return (bytes, Some(error)),
        }
    }
    (bytes, None)
}

/// Two threads commit; half way `page` goes bad. Answers why the first that was refused was.
fn two_commit_over(f: &mut Filled, page: u64, clear: Clear) -> Option<Error> {
    let turn = Barrier::new(2);
    let meet = || {
        if turn.wait().is_leader() {
            f.pool.medium().poison(page, PAGE, clear).unwrap();
        }
        // Neither goes on before it is bad: the other one may be who has that lane.
        turn.wait();
    };
    let ((a, first), (b, second)) = scope(|s| {
        let a = s.spawn(|| commit_on(f, 0, meet));
        let b = s.spawn(|| commit_on(f, 200, meet));
        (a.join().unwrap(), b.join().unwrap())
    });
    (f.objects[0].1, f.objects[200].1) = (a, b);
    first.or(second)
}

#[test]
fn a_lane_whose_page_goes_bad_goes_on_beside_another() {
    for clear in [Clear::Able, Clear::Unable] {
        for side in 0..2 {
            let mut f = filled(MediumKind::Shm, Parity::P);
            let superblock = f.pool.superblock();
            // Lane 0 is the engine's own, and the thread that filled the pool keeps the first
            // user's. A free lane is looked for from there on, so one of two threads has the next.
            let page = superblock.log_start + 2 * superblock.ring_len + side * superblock.side_len;
            let what = format!("{clear:?}, log page {page:#x}");
            assert!(two_commit_over(&mut f, page, clear).is_none(), "{what}");
            let wanted = match clear {
                Clear::Able => Outcome::Repaired,
                Clear::Unable => Outcome::Relocated,
            };
            assert_eq!(f.outcomes(page), [wanted], "{what}");
            assert!(f.pool.medium().bad_ranges().is_empty(), "{what}");
            f.all_right(&what);
        }
    }
}

/// On a file all lanes share the log, and a write that fails ends all writing.
#[test]
fn a_log_of_a_file_whose_page_goes_bad_keeps_what_was_acknowledged() {
    for clear in [Clear::Able, Clear::Unable] {
        for number in 0..4 {
            let mut f = filled(MediumKind::File, Parity::P);
            // Behind the watermarks: batches and their replicas.
            let page = f.pool.superblock().log_start + (ADJACENT_MARK_PAGES + number) * PAGE;
            let what = format!("{clear:?}, log page {page:#x}");
            let refused = two_commit_over(&mut f, page, clear);
            assert!(matches!(refused, Some(Error::Tx(TxError::ReadOnly))), "{what}: {refused:?}");
            assert!(f.pool.is_read_only(), "{what}");
            for (p, bytes) in &f.objects {
                assert_eq!(&get(&f.pool, *p).unwrap(), bytes, "{what}");
            }
            let (pool, _) = crash(f.pool);
            // What was refused may have happened: nobody knows what a failed write left.
            for (p, bytes) in &f.objects {
                let found = get(&pool, *p).unwrap();
                assert_eq!(found[40..], bytes[40..], "{what}");
                let refused = [0, 200].map(|i| f.objects[i].0).contains(p);
                assert!(found == *bytes || refused, "{what}, crashed: {p}");
            }
            assert_eq!(pool.stats().lost, 0, "{what}");
        }
    }
}

/// Pages of the log, on either side, that `work` changes.
fn log_changes(pool: &TestPool, work: impl FnOnce()) -> Vec<u64> {
    let superblock = pool.superblock();
    let (from, to) = (superblock.log_start, 2 * superblock.side_len);
    let read = |page: u64| {
        let mut bytes = vec![0; PAGE as usize];
        pool.medium().read(page, &mut bytes).unwrap();
        bytes
    };
    let pages: Vec<u64> = (from..to).step_by(PAGE as usize).collect();
    let before: Vec<Vec<u8>> = pages.iter().map(|page| read(*page)).collect();
    work();
    pages.into_iter().zip(before).filter(|(p, b)| read(*p) != *b).map(|(p, _)| p).collect()
}

/// The frame of a bad log page holds pages of other commits too: what is committed while it is
/// copied must not stay behind in the frame that is given up.
#[test]
fn what_is_committed_while_a_log_frame_moves_is_not_lost_with_it() {
    let frame = 4 * PAGE;
    for kind in [MediumKind::Shm, MediumKind::File] {
        let mut f = filled_with(kind, CreateOptions { frame, ..CreateOptions::tiny(16 << 20) });
        // On a file, the last commit wrote to the first page of a frame: the next one goes to that
        // frame too. Elsewhere the rings of two lanes share a frame.
        let mut page = None;
        for i in 0..2000 {
            let mut last = Vec::new();
            let written = log_changes(&f.pool, || last = f.write(0, i));
            f.objects[0].1 = last;
            page = written.into_iter().find(|page| kind == MediumKind::Shm || page % frame == 0);
            if page.is_some() {
                break;
            }
        }
        let page = page.unwrap();
        let what = format!("{kind}, log page {page:#x}");
        f.pool.medium().poison(page, PAGE, Clear::Unable).unwrap();
        let steps = Steps::watch(&f.pool, COPIED);
        let new = scope(|s| {
            let _release = Release(&steps);
            let relocates = s.spawn(|| f.pool.heal_load(page, PAGE));
            steps.parked();
            let commits = s.spawn(|| f.write(150, 7));
            steps.nobody_passes(DURABLE);
            steps.release();
            assert!(relocates.join().unwrap(), "{what}");
            commits.join().unwrap()
        });
        f.objects[150].1 = new;
        f.pool.medium().clear_on_step();
        assert_eq!(f.outcomes(page), [Outcome::Relocated], "{what}");
        f.all_right(&what);
    }
}
