//! One history: threads, eras, crashes, and what is asked at the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use holdfast_faultmem::Image;
use holdfast_object::{Error, Pool, VerifyReads};
use holdfast_oracle::linear::{Call, Explained, History, Ticker, Verdict, judge};
use holdfast_txn::TxError;
use holdfast_workloads::Rng;

use super::fuse::{Fuse, Lot};
use super::harm::{self, Beside};
use super::shake;
use super::subject::{Answer, Caller, Op, Subject};
use super::wrong::Wrong;
use crate::object::handle::Handle;
use crate::object::scenes::refused;
use crate::object::world::World;
use crate::tally::{Fault, Judged, Tally, Violation};

/// Threads of a history.
pub const THREADS: u32 = 4;
/// States the checker looks at for each part of a history at most.
const MOST: u64 = 4_000_000;
/// Barriers of an era among which one is drawn for the crash.
const BARRIERS: u64 = 24;

/// What a history is like.
#[derive(Debug, Clone, Copy)]
pub struct Plan<'a, S> {
    /// Where it is played.
    pub world: &'a World,
    /// A pool with the subject in it.
    pub image: &'a Image,
    /// What is called.
    pub subject: &'a S,
    /// Crashes.
    pub crashes: u32,
    /// What is done beside the threads in the last era.
    pub beside: Beside,
    /// What is wrong, if it has to be convicted.
    pub wrong: Option<Wrong>,
}

type Made<S> = Call<Op<S>, Answer<S>>;
type Calls<S> = Vec<Made<S>>;

/// What is wrong with a history.
#[derive(Debug)]
pub enum Wronged {
    /// No order explains its answers.
    Unordered(Explained),
    /// Something else: an error, damage that was not repaired, a map that is not sound.
    Else(Violation),
}

impl From<Wronged> for Violation {
    fn from(wronged: Wronged) -> Self {
        match wronged {
            Wronged::Unordered(why) => Self::new(Fault::Wrong, why.to_string()),
            Wronged::Else(violation) => violation,
        }
    }
}

/// Plays a history and judges it.
///
/// # Errors
/// No order explains it, or the engine answered what it should not.
pub fn history<S: Subject>(plan: &Plan<'_, S>, rng: Rng, tally: &mut Tally) -> Result<(), Wronged> {
    let (history, rest) = record(plan, rng, tally);
    tally.add("calls", history.calls.len() as u64);
    tally.add("calls without answer", without_answer(&history));
    match judge::<S::Spec>(&plan.subject.start(), &history, MOST) {
        // What was recorded tells more than what ended it.
        Verdict::Violated(why) => Err(Wronged::Unordered(why)),
        Verdict::Linearizable { looked } => {
            tally.add("states looked at", looked);
            rest.map_err(Wronged::Else)
        }
        Verdict::Undecided { looked } => {
            rest.map_err(Wronged::Else)?;
            let story = format!("undecided after {looked} states: the checker is too slow");
            Err(Wronged::Else(Violation::new(Fault::Hung, story)))
        }
    }
}

fn without_answer<O, A>(history: &History<O, A>) -> u64 {
    let late = |call: &&Call<O, A>| {
        let crash = history.crashes.get(call.era as usize);
        let answered = call.answered.as_ref();
        crash.is_some_and(|crash| {
            call.began < crash.after && answered.is_none_or(|(at, _)| *at > crash.before)
        })
    };
    history.calls.iter().filter(late).count() as u64
}

/// What all eras of a history share.
struct Play<'a, S: Subject> {
    plan: Plan<'a, S>,
    ticker: Arc<Ticker>,
    unique: AtomicU64,
    views: bool,
    verify: VerifyReads,
    history: History<Op<S>, Answer<S>>,
}

/// Plays a history: what was recorded, and what ended it.
fn record<S: Subject>(
    plan: &Plan<'_, S>,
    mut rng: Rng,
    tally: &mut Tally,
) -> (History<Op<S>, Answer<S>>, Judged<()>) {
    let verify = match rng.below(3) {
        0 if plan.beside != Beside::Harm => VerifyReads::FirstTouch,
        _ => VerifyReads::Always,
    };
    let mut play = Play {
        plan: Plan { ..*plan },
        ticker: Arc::default(),
        unique: AtomicU64::new(1),
        views: plan.beside != Beside::Harm || rng.below(2) == 0,
        verify,
        history: History::default(),
    };
    let mut image = plan.image.clone();
    let mut done = Ok(());
    for era in 0..=plan.crashes {
        match play.era(era, image, &mut rng, tally) {
            Ok(Some(left)) => image = left,
            Ok(None) => break,
            Err(violation) => {
                done = Err(violation.during(format_args!("era {era}")));
                break;
            }
        }
    }
    (play.history, done)
}

impl<S: Subject> Play<'_, S> {
    /// One life of the machine: opened, worked on, and crashed unless it is the last. What the
    /// crash left.
    fn era(
        &mut self,
        era: u32,
        image: Image,
        rng: &mut Rng,
        tally: &mut Tally,
    ) -> Judged<Option<Image>> {
        let Plan { world, crashes, wrong, .. } = self.plan;
        let world = World { open: world.open, ..world.clone() };
        let medium = world.after(image);
        let lot = Lot {
            barrier: 1 + rng.below(BARRIERS),
            seed: rng.next_u64(),
            earlier: wrong == Some(Wrong::LastGone),
        };
        let crashes = era < crashes;
        // Now and then it is the recovery that crashes.
        let early = era > 0 && rng.below(4) == 0;
        let light = || crashes.then(|| Fuse::light(&medium, lot, &self.ticker));
        let mut fuse = if early { light() } else { None };
        let (pool, _) = world.open(&medium).map_err(|error| refused("open", &error))?;
        pool.set_verify_reads(self.verify);
        if fuse.is_none() {
            fuse = light();
        }
        let mut rng = Rng::part(rng.next_u64(), era.into());
        let mut done = Ok(());
        if era > 0 && !blown(fuse.as_ref()) {
            if wrong == Some(Wrong::Twice) {
                self.again(&pool, era);
            }
            done = self.audit(&pool, era, false, &mut rng);
        }
        if done.is_ok() {
            medium.on_step(Box::new(|_| shake::here()));
            done = self.work(&medium, &pool, era, fuse.as_ref(), &mut rng, tally);
        }
        let Some(fuse) = fuse else {
            done?;
            self.audit(&pool, era, true, &mut rng)?;
            return self.plan.subject.sound(&pool).map(|()| None);
        };
        fuse.blow(&medium, None);
        let left = fuse.take();
        medium.abandon(pool);
        done?;
        let Some((crash, image)) = left else {
            return Err(Violation::new(Fault::Hung, "a crash that left nothing"));
        };
        self.history.crashes.push(crash);
        tally.add("crashes", 1);
        Ok(Some(image))
    }

    fn caller(&self, rng: Rng) -> Caller {
        let (views, wrong) = (self.views, self.plan.wrong);
        Caller { rng, wrong, views, seen: BTreeMap::new() }
    }

    /// All threads at once, until each has made its calls or the machine is no more.
    fn work(
        &mut self,
        medium: &Handle,
        pool: &Pool<Handle>,
        era: u32,
        fuse: Option<&Arc<Fuse>>,
        rng: &mut Rng,
        tally: &mut Tally,
    ) -> Judged<()> {
        if blown(fuse) {
            return Ok(());
        }
        let eras = u64::from(self.plan.crashes) + 1;
        let calls = S::CALLS / eras;
        let waiting = AtomicU32::new(THREADS);
        let over = AtomicBool::new(false);
        let seeds: Vec<u64> = (0..=THREADS).map(|_| rng.next_u64()).collect();
        let beside = if fuse.is_none() { self.plan.beside } else { Beside::Nothing };
        let this = &*self;
        let (made, harmed) = std::thread::scope(|scope| {
            let (waiting, over) = (&waiting, &over);
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let seed = seeds[thread as usize];
                    scope.spawn(move || {
                        shake::begin(Rng::part(seed, 1));
                        waiting.fetch_sub(1, Ordering::AcqRel);
                        while waiting.load(Ordering::Acquire) > 0 {
                            std::thread::yield_now();
                        }
                        let caller = this.caller(Rng::part(seed, 2));
                        this.thread(pool, (thread, era), calls, caller, fuse)
                    })
                })
                .collect();
            let harmer = (beside != Beside::Nothing).then(|| {
                let rng = Rng::new(seeds[THREADS as usize]);
                scope.spawn(move || harm::play(medium, pool, rng, (beside, this.views), over))
            });
            let made: Vec<_> = threads.into_iter().map(|thread| ended(thread.join())).collect();
            over.store(true, Ordering::Release);
            (made, harmer.map(|harmer| ended(harmer.join())))
        });
        let mut done = Ok(());
        for part in made {
            let (calls, ended) = part?;
            self.history.calls.extend(calls);
            done = done.and(ended);
        }
        if let Some(harmed) = harmed {
            tally.merge(harmed??);
            harm::scrub(pool, beside, tally)?;
        }
        done
    }

    /// The calls of one thread, and what ended them.
    fn thread(
        &self,
        pool: &Pool<Handle>,
        (thread, era): (u32, u32),
        calls: u64,
        mut caller: Caller,
        fuse: Option<&Arc<Fuse>>,
    ) -> (Calls<S>, Judged<()>) {
        let mut made = Vec::new();
        for _ in 0..calls {
            if blown(fuse) {
                break;
            }
            let op =
                self.plan.subject.next(&mut caller, self.unique.fetch_add(1, Ordering::Relaxed));
            match self.call(pool, (thread, era), op, &mut caller) {
                Ok(call) => made.extend(call),
                Err(violation) => return (made, Err(violation)),
            }
            shake::here();
        }
        (made, Ok(()))
    }

    /// One call, with its times; `None` if it was refused for want of space.
    fn call(
        &self,
        pool: &Pool<Handle>,
        (thread, era): (u32, u32),
        op: Op<S>,
        caller: &mut Caller,
    ) -> Judged<Option<Made<S>>> {
        let began = self.ticker.tick();
        let foreseen = S::foreseen(&op).filter(|_| caller.is(Wrong::EarlyAnswer));
        let foreseen = foreseen.map(|answer| (self.ticker.tick(), answer));
        if foreseen.is_some() {
            // Whoever was answered goes on; what was asked for is done some time.
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
        match self.plan.subject.call(pool, &op, caller) {
            Ok(answer) => {
                let ended = foreseen.unwrap_or_else(|| (self.ticker.tick(), answer));
                Ok(Some(Call { thread, era, op, began, answered: Some(ended) }))
            }
            Err(Error::Tx(TxError::NoSpace { .. })) => Ok(None),
            Err(error) => Err(refused(&format!("{op:?}"), &error)),
        }
    }

    /// Asks for everything, and takes the answers down as calls.
    fn audit(&mut self, pool: &Pool<Handle>, era: u32, last: bool, rng: &mut Rng) -> Judged<()> {
        let mut caller = Caller { wrong: None, ..self.caller(Rng::new(rng.next_u64())) };
        let mut made = Vec::new();
        let subject = self.plan.subject;
        let asked = subject.audit(last, &mut |op| {
            let call = self.call(pool, (THREADS, era), op, &mut caller)?;
            let answer = call.as_ref().and_then(|call| call.answered.clone());
            made.extend(call);
            let none = || Violation::new(Fault::Refused, "no space for a look");
            answer.map(|(_, answer)| answer).ok_or_else(none)
        });
        self.history.calls.extend(made);
        asked
    }

    /// Does again what each thread was answered last before the crash, and tells nobody.
    fn again(&self, pool: &Pool<Handle>, era: u32) {
        let mut last: BTreeMap<u32, &Made<S>> = BTreeMap::new();
        let calls = self.history.calls.iter().filter(|call| call.era + 1 == era);
        for call in calls.filter(|call| call.thread < THREADS) {
            last.insert(call.thread, call);
        }
        for call in last.values() {
            // What becomes of it shows in what is read.
            let _ = self.plan.subject.call(pool, &call.op, &mut self.caller(Rng::new(1)));
        }
    }
}

fn blown(fuse: Option<&Arc<Fuse>>) -> bool {
    fuse.is_some_and(|fuse| fuse.is_blown())
}

/// What a thread came to.
fn ended<T>(joined: std::thread::Result<T>) -> Judged<T> {
    joined.map_err(|panic| Violation::new(Fault::Panicked, crate::runner::panic_text(&*panic)))
}
