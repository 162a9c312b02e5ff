//! A medium that lets one thread run at a time, and passes the turn on at every call, as a seed
//! says. What the threads do is repeatable, and still each has flushes and drains of its own.

use std::cell::Cell;
use std::sync::{Arc, Condvar, Mutex};

use holdfast_faultmem::FaultMedium;
use holdfast_pmem::{MediaError, Medium, MediumKind, Site, SyncError};

use super::{Rng, lock};

thread_local! {
    static LANE: Cell<Option<usize>> = const { Cell::new(None) };
}

#[derive(Debug)]
struct State {
    running: Option<usize>,
    alive: Vec<bool>,
    /// How often each thread gets its turn, against the others.
    weights: Vec<u64>,
    /// Turns left before every thread is to come to its end.
    left: u64,
    rng: Rng,
}

/// Whose turn it is.
#[derive(Debug)]
pub(crate) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

impl Turns {
    pub(crate) fn new(weights: &[u64], turns: u64, seed: u64) -> Arc<Self> {
        let alive = vec![true; weights.len()];
        let rng = Rng::new(seed);
        let weights = weights.to_vec();
        let state = State { running: None, alive, weights, left: turns, rng };
        Arc::new(Self { state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Makes the calling thread number `lane`, and waits for its first turn. The last thread to
    /// come starts the play.
    pub(crate) fn join(&self, lane: usize, ready: &std::sync::Barrier) {
        LANE.set(Some(lane));
        if ready.wait().is_leader() {
            self.pass_on();
        }
        self.wait(lane);
    }

    /// Takes the calling thread out.
    pub(crate) fn leave(&self, lane: usize) {
        lock(&self.state).alive[lane] = false;
        LANE.set(None);
        self.pass_on();
    }

    /// Whether threads should go on.
    pub(crate) fn going(&self) -> bool {
        lock(&self.state).left > 0
    }

    /// Lets another thread run, or the same.
    pub(crate) fn pass(&self) {
        if let Some(lane) = LANE.get() {
            self.pass_on();
            self.wait(lane);
        }
    }

    /// A decision of the running thread.
    pub(crate) fn below(&self, n: u64) -> u64 {
        lock(&self.state).rng.below(n)
    }

    fn pass_on(&self) {
        let mut state = lock(&self.state);
        state.left = state.left.saturating_sub(1);
        let weight = |state: &State, lane: usize| {
            if state.alive[lane] { state.weights[lane] } else { 0 }
        };
        let total: u64 = (0..state.alive.len()).map(|lane| weight(&state, lane)).sum();
        state.running = None;
        if total > 0 {
            let mut draw = state.rng.below(total);
            for lane in 0..state.alive.len() {
                let weight = weight(&state, lane);
                if draw < weight {
                    state.running = Some(lane);
                    break;
                }
                draw -= weight;
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    fn wait(&self, lane: usize) {
        let mut state = lock(&self.state);
        while state.running != Some(lane) {
            state = self.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}

/// A faulty medium whose calls take turns.
#[derive(Debug)]
pub(crate) struct Lockstep {
    pub(crate) inner: Arc<FaultMedium>,
    pub(crate) turns: Arc<Turns>,
}

impl Medium for Lockstep {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn kind(&self) -> MediumKind {
        self.inner.kind()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.inner.read(at, into)
    }

    fn put(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.turns.pass();
        self.inner.put(site, at, bytes)
    }

    fn put_is_cached(&self, len: u64) -> bool {
        self.inner.put_is_cached(len)
    }

    fn xor(&self, site: Site, at: u64, delta: &[u8]) -> Result<(), MediaError> {
        self.turns.pass();
        self.inner.xor(site, at, delta)
    }

    fn zero(&self, site: Site, at: u64, len: u64) -> Result<(), MediaError> {
        self.turns.pass();
        self.inner.zero(site, at, len)
    }

    fn drain(&self, site: Site) {
        self.turns.pass();
        self.inner.drain(site);
    }

    fn enabled(&self, site: Site) -> bool {
        self.inner.enabled(site)
    }

    fn locked(&self) {
        self.turns.pass();
        self.inner.locked();
    }

    fn step(&self, site: Site) {
        self.turns.pass();
        self.inner.step(site);
    }

    fn append(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), SyncError> {
        self.turns.pass();
        self.inner.append(site, at, bytes)
    }

    fn sync(&self, site: Site) -> Result<(), SyncError> {
        self.turns.pass();
        self.inner.sync(site)
    }

    fn view(&self, at: u64, len: u64) -> Option<*const u8> {
        self.inner.view(at, len)
    }

    fn grow(&self, len: u64) -> Result<(), SyncError> {
        self.inner.grow(len)
    }

    fn heal(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.turns.pass();
        self.inner.heal(site, at, bytes)
    }

    fn remap(&self, at: u64, physical: u64, len: u64) -> Result<(), MediaError> {
        self.inner.remap(at, physical, len)
    }

    fn bad_ranges(&self) -> Vec<(u64, u64)> {
        self.inner.bad_ranges()
    }
}
