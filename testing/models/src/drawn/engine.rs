//! The engine whole: transactions, a scrub, repairs, growth, views, on the faulty medium, judged by
//! a model when all are through and, at one instant before that, after a crash.

pub(super) mod damage;
pub(super) mod growth;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use holdfast_faultmem::{Config, CrashPoint, FaultMedium};
use holdfast_layout::{RawPtr, TypeNumber};
use holdfast_object::{
    CreateOptions, OpenOptions, Pool, ScrubControl, ScrubOptions, Scrubbed, VerifyReads,
};
use holdfast_pmem::{Clock, Medium as _, MediumKind};
use holdfast_txn::Transaction;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use super::stepped::Stepped;
use super::{LAW, Wrong, left_at};

/// Bytes of a pool, and what it grows to.
const SIZE: u64 = 512 << 10;
const GROWN: u64 = 768 << 10;
/// Accounts, and what is in each at first.
const ACCOUNTS: usize = 3;
const AT_FIRST: u64 = 100;
/// Threads that commit; each has a count of its commits.
const WRITERS: usize = 2;
/// Barriers within which the crash comes.
const INSTANTS: i64 = 24;

type Medium = Arc<Stepped>;
type TestPool = Pool<Medium>;

/// Time that passes by being looked at.
#[derive(Debug, Default)]
struct Looks(AtomicU64);

impl Clock for Looks {
    fn now(&self) -> u64 {
        self.0.fetch_add(1_000, Ordering::Relaxed)
    }
}

/// A pool with the objects in it, closed.
pub(super) struct Base {
    bytes: Vec<u8>,
    objects: Objects,
}

/// Where things are.
#[derive(Debug, Clone, Copy)]
struct Objects {
    accounts: [RawPtr; ACCOUNTS],
    counts: [RawPtr; WRITERS],
    flags: [RawPtr; 2],
    /// What no writer touches, in columns that they do not touch either.
    bystander: RawPtr,
}

/// How much of the pool a schedule starts from is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    Left,
    /// No chunk is free.
    None,
}

/// What is known of commits at an instant: begun and acknowledged, of each writer.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    begun: [u64; WRITERS],
    acked: [u64; WRITERS],
}

/// What the threads share besides the pool.
struct World {
    pool: TestPool,
    objects: Objects,
    known: Arc<Mutex<Known>>,
    growth: growth::Growth,
}

/// What the third thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Scrub,
    Repair,
    Grow,
    View,
    Churn,
    Relocate,
    Aside,
}

const ROLES: [Role; 7] =
    [Role::Scrub, Role::Repair, Role::Grow, Role::View, Role::Churn, Role::Relocate, Role::Aside];

fn options() -> OpenOptions {
    OpenOptions { verify: VerifyReads::Always, version_bits: 8, ..OpenOptions::default() }
}

/// Time that passes by being looked at.
pub(super) fn clock() -> Arc<dyn Clock> {
    Arc::new(Looks::default())
}

fn config() -> Config {
    Config { reserve: GROWN, ..Config::default() }
}

/// Makes the pools that schedules start from, before any is drawn: a schedule that made one would
/// not be the same again.
pub(super) fn make_bases() {
    for kind in [MediumKind::Dax, MediumKind::File] {
        base(kind, Room::Left);
        base(kind, Room::None);
    }
}

fn base(kind: MediumKind, room: Room) -> &'static Base {
    static BASES: [OnceLock<Base>; 4] = [const { OnceLock::new() }; 4];
    let cell = &BASES[usize::from(kind == MediumKind::File) * 2 + usize::from(room == Room::None)];
    if let Some(base) = cell.get() {
        return base;
    }
    let m: Medium = Arc::new(Stepped::new(FaultMedium::new(SIZE, kind, &config()), ""));
    let create = CreateOptions { allow_inject: true, ..CreateOptions::tiny(SIZE) };
    let pool = Pool::create(Arc::clone(&m), &create, options(), clock()).expect("a pool is made");
    let make = |bytes: [u8; 64]| {
        pool.run(|tx| tx.alloc_from(TypeNumber::BYTES, &bytes)).expect("there is room for it")
    };
    let accounts = [(); ACCOUNTS].map(|()| make(filled(AT_FIRST)));
    let counts = [(); WRITERS].map(|()| make(filled(0)));
    let flags = [(); 2].map(|()| make(filled(0)));
    let others = [&accounts[..], &counts, &flags].concat();
    let bystander = damage::bystander(&pool, &others);
    let objects = Objects { accounts, counts, flags, bystander };
    if room == Room::None {
        growth::fill(&pool);
    }
    drop(pool);
    let bytes = m.inner.crash_point().persisted().into_bytes();
    cell.get_or_init(|| Base { bytes, objects })
}

/// An object that says the same number in each of its words: torn ones are seen.
fn filled(number: u64) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&number.to_le_bytes()));
    bytes
}

type Tx<'t> = holdfast_object::Tx<'t, Medium>;

fn get(tx: &Tx<'_>, of: RawPtr) -> holdfast_txn::Result<u64> {
    let mut bytes = [0; 64];
    tx.read_bytes(of, 0, &mut bytes)?;
    let number = u64::from_le_bytes(bytes[..8].try_into().unwrap_or_default());
    assert_eq!(bytes, filled(number), "{LAW}: a read sees one committed state of an object");
    Ok(number)
}

fn set(tx: &Tx<'_>, of: RawPtr, number: u64) -> holdfast_txn::Result<()> {
    tx.write_bytes(of, 0, &filled(number))
}

impl World {
    fn know(&self, change: impl FnOnce(&mut Known)) {
        change(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// One transaction of a writer that counts itself.
    fn commit(&self, me: usize, body: impl Fn(&Tx<'_>) -> holdfast_txn::Result<()>) {
        self.know(|known| known.begun[me] += 1);
        let done = self.pool.run(|tx| {
            body(tx)?;
            let count = get(tx, self.objects.counts[me])?;
            set(tx, self.objects.counts[me], count + 1)
        });
        if let Err(error) = done {
            panic!("{LAW}: a transaction goes through: {error}");
        }
        self.know(|known| known.acked[me] += 1);
    }

    /// Moves something from an account to the next.
    fn transfer(&self, me: usize, from: usize) {
        let Objects { accounts, .. } = self.objects;
        let to = accounts[(from + 1) % ACCOUNTS];
        self.commit(me, |tx| {
            let (a, b) = (get(tx, accounts[from])?, get(tx, to)?);
            set(tx, accounts[from], a - 1)?;
            set(tx, to, b + 1)
        });
    }

    /// Sets a flag unless the other one is set.
    fn flag(&self, me: usize) {
        let [mine, other] = [self.objects.flags[me], self.objects.flags[1 - me]];
        self.commit(me, |tx| if get(tx, other)? == 0 { set(tx, mine, 1) } else { Ok(()) });
    }

    fn play(&self, role: Role) {
        match role {
            Role::Scrub => {
                let Scrubbed { report, repaired, .. } = self.scrub();
                let untouched = report.found == 0 && repaired == 0;
                assert!(untouched, "{LAW}: nothing damaged is called so: {report:?}, {repaired}");
            }
            Role::Repair => {
                let at = self.objects.accounts[thread_rng().gen_range(0..ACCOUNTS)].offset();
                // With damage and a crash at once, both in one column, the promise is another one.
                self.pool.medium().forget_crash();
                let bit = thread_rng().gen_range(0..8_u8);
                let _ = self.pool.medium().inner.flip_bit(at + 9, bit);
                self.look();
            }
            Role::Grow => self.grow(),
            Role::View => self.view(),
            Role::Churn => self.churn(),
            Role::Relocate => self.relocate(),
            Role::Aside => self.repair_aside(),
        }
    }

    /// A scrub to its end. What it found is for who knows whether anything is damaged.
    fn scrub(&self) -> Scrubbed {
        let done = self.pool.scrub(ScrubOptions::default(), &ScrubControl::default(), |_, _| {});
        let done = done.unwrap_or_else(|error| panic!("{LAW}: a scrub comes to its end: {error}"));
        let none = done.lost == 0 && done.undecided == 0;
        assert!(none, "{LAW}: a scrub loses nothing: {done:?}");
        done
    }

    /// Places that are taken, given back and taken again.
    fn churn(&self) {
        for round in 0..2_u64 {
            let made = self.pool.run(|tx| tx.alloc_from(TypeNumber::BYTES, &filled(round)));
            let freed = made.and_then(|of| {
                self.pool.run(|tx| {
                    let found = get(tx, of)?;
                    assert_eq!(found, round, "{LAW}: an object is what was made");
                    tx.free(of)
                })
            });
            assert!(freed.is_ok(), "{LAW}: what was made can be freed: {freed:?}");
        }
    }

    /// All accounts at once.
    fn look(&self) {
        let sum = self.pool.run(|tx| {
            let mut sum = 0;
            for of in self.objects.accounts {
                sum += get(tx, of)?;
            }
            Ok(sum)
        });
        let all = AT_FIRST * ACCOUNTS as u64;
        assert_eq!(sum.ok(), Some(all), "{LAW}: what leaves one account is in another");
    }

    /// Borrows an account in place and looks at it twice.
    fn view(&self) {
        let view = match self.pool.view_raw(self.objects.accounts[1]) {
            Ok(view) => view,
            Err(error) => panic!("{LAW}: an object that is there can be viewed: {error}"),
        };
        let at = self.objects.accounts[1].offset();
        let [first, second] = [(); 2].map(|()| {
            let mut bytes = [0; 64];
            let read = self.pool.medium().read(at, &mut bytes);
            read.map(|()| bytes)
        });
        assert!(first.is_ok() && first == second, "{LAW}: nothing is stored under a view");
        drop(view);
    }
}

/// What must hold of a pool whose commits are known to be between these.
fn judge(pool: &TestPool, objects: &Objects, least: &[u64; WRITERS], most: &[u64; WRITERS]) {
    let seen = pool.run(|tx| {
        let accounts = objects.accounts.map(|of| get(tx, of));
        let flags = objects.flags.map(|of| get(tx, of));
        let counts = objects.counts.map(|of| get(tx, of));
        Ok((accounts, flags, counts))
    });
    let Ok((accounts, flags, counts)) = seen else { panic!("{LAW}: a pool can be read") };
    let sum: u64 = accounts.iter().filter_map(|found| found.as_ref().ok()).sum();
    assert_eq!(sum, AT_FIRST * ACCOUNTS as u64, "{LAW}: what leaves one account is in another");
    let both = flags.iter().all(|flag| matches!(flag, Ok(1)));
    assert!(!both, "{LAW}: two transactions went through as if they were alone");
    for (me, count) in counts.into_iter().enumerate() {
        let count = count.unwrap_or(u64::MAX);
        let (least, most) = (least[me], most[me]);
        assert!(least <= count && count <= most, "{LAW}: {count} commits, {least} to {most} known");
    }
    damage::bystander_is_whole(pool, objects);
    let stand_ins = pool.stand_ins().len() as u64;
    match pool.check(|_, _| {}) {
        Ok(report) => {
            // A page that memory stands in for is named by each check.
            let sound = report.is_clean() || report.found == stand_ins;
            assert!(sound, "{LAW}: all agrees with its sums: {report:?}");
        }
        Err(error) => panic!("{LAW}: a pool can be checked: {error}"),
    }
}

/// On memory.
pub(super) fn memory(wrong: Wrong) {
    run(wrong, MediumKind::Dax);
}

/// On a file.
pub(super) fn file(wrong: Wrong) {
    run(wrong, MediumKind::File);
}

fn run(wrong: Wrong, kind: MediumKind) {
    let role = ROLES[thread_rng().gen_range(0..ROLES.len())];
    let base = base(kind, if role == Role::Grow { Room::None } else { Room::Left });
    let inner = FaultMedium::from_image(base.bytes.clone(), kind, &config());
    inner.elide_name(wrong.off());
    let m: Medium = Arc::new(Stepped::new(inner, wrong.late()));
    let opened = Pool::open(Arc::clone(&m), options(), clock());
    let pool = opened.expect("a pool that was closed is opened").0;
    let known = Arc::new(Mutex::new(Known::default()));
    let crash: Arc<Mutex<Option<(CrashPoint, Known)>>> = Arc::default();
    let (at_crash, kept) = (Arc::clone(&known), Arc::clone(&crash));
    let instant = thread_rng().gen_range(0..INSTANTS);
    let note = move |point: CrashPoint| {
        let known = *at_crash.lock().unwrap_or_else(PoisonError::into_inner);
        *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some((point, known));
    };
    m.crash_before(instant, Box::new(note));
    let growth = growth::Growth::default();
    let world = Arc::new(World { pool, objects: base.objects, known, growth });
    let writers = (0..WRITERS).map(|me| {
        let world = Arc::clone(&world);
        thread::spawn(move || {
            world.transfer(me, me);
            world.flag(me);
            world.transfer(me, 1);
        })
    });
    let player = Arc::clone(&world);
    let mut threads: Vec<_> = writers.chain([thread::spawn(move || player.play(role))]).collect();
    if role == Role::Grow {
        let settler = Arc::clone(&world);
        threads.push(thread::spawn(move || settler.settle()));
    }
    for thread in threads {
        thread.join().expect("a broken law ends the whole run");
    }
    if role == Role::Repair {
        world.scrub();
    }
    m.crash_now();
    let known = *world.known.lock().unwrap_or_else(PoisonError::into_inner);
    judge(&world.pool, &world.objects, &known.acked, &known.begun);
    drop(world);
    if matches!(role, Role::View | Role::Churn) {
        let again = Pool::open(m, options(), clock());
        let (pool, opened) = again.expect("a pool that was closed is opened");
        assert!(opened.clean, "{LAW}: a pool that was closed is clean: {opened:?}");
        judge(&pool, &base.objects, &known.acked, &known.begun);
    }
    let crashed = crash.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((point, known)) = crashed {
        recover(&point, &known, kind, &base.objects);
    }
}

/// A power cut at that instant: what was acknowledged is there, and what was begun is whole.
fn recover(point: &CrashPoint, known: &Known, kind: MediumKind, objects: &Objects) {
    let inner = FaultMedium::from_crash(left_at(point), kind, &config());
    let m: Medium = Arc::new(Stepped::new(inner, ""));
    match Pool::open(m, options(), clock()) {
        Ok((pool, _)) => judge(&pool, objects, &known.acked, &known.begun),
        Err(error) => panic!("{LAW}: what a crash left can be opened: {error}"),
    }
}
