//! What is measured: one operation after the other on a plain mapping, by a program that knows
//! nothing of redundancy, unless it has to tell of its stores.

use std::sync::Arc;

use holdfast_workloads::keys::{KeyChooser, ScrambledZipfian};
use holdfast_workloads::rng::Rng;

use super::area::Area;

/// What a program does around each of its stores, if it has to.
pub(crate) trait Hook {
    /// Before bytes are stored.
    fn before(&mut self, at: u64, len: u64);
    /// After.
    fn after(&mut self, at: u64, len: u64);
}

/// Operations without end.
pub(crate) trait Load {
    /// One operation. What it read is answered, so that it is read.
    fn step<H: Hook>(&mut self, hook: &mut H) -> u64;

    /// Chooses what the next operation would be, and does not do it.
    fn draw(&mut self) -> u64;
}

/// Which keys, or lines, come next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    Uniform,
    Zipf,
    Sequential,
}

impl Choice {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipf => "zipf",
            Self::Sequential => "sequential",
        }
    }
}

/// Draws of a skewed choice are made beforehand: a draw costs more than a store.
const DRAWS: u64 = 1 << 24;

/// Chooses, fast.
#[derive(Debug, Clone)]
pub(crate) struct Chooser {
    choice: Choice,
    of: u64,
    next: usize,
    drawn: Arc<Vec<u32>>,
    rng: Rng,
}

impl Chooser {
    /// Of `of` things, at most 2^32.
    pub(crate) fn new(choice: Choice, of: u64, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let drawn = match choice {
            Choice::Zipf => {
                let mut zipf = ScrambledZipfian::new();
                (0..DRAWS.min(16 * of)).map(|_| zipf.next_key(&mut rng, of) as u32).collect()
            }
            _ => Vec::new(),
        };
        Self { choice, of, next: 0, drawn: Arc::new(drawn), rng }
    }

    #[inline(always)]
    fn next(&mut self) -> u64 {
        match self.choice {
            // The high half of a product: as even as anybody can measure, and without a division.
            Choice::Uniform => {
                ((u128::from(self.rng.next_u64()) * u128::from(self.of)) >> 64) as u64
            }
            Choice::Sequential => {
                self.next = if self.next as u64 + 1 < self.of { self.next + 1 } else { 0 };
                self.next as u64
            }
            Choice::Zipf => {
                self.next = if self.next + 1 < self.drawn.len() { self.next + 1 } else { 0 };
                u64::from(self.drawn[self.next])
            }
        }
    }
}

/// Lines of 64 bytes, stored one at a time.
#[derive(Debug)]
pub(crate) struct Lines {
    area: Arc<Area>,
    chooser: Chooser,
    value: u64,
}

/// Bytes of a line.
pub(crate) const LINE: u64 = 64;

impl Lines {
    pub(crate) fn new(area: Arc<Area>, choice: Choice) -> Self {
        let chooser = Chooser::new(choice, area.len() / LINE, 3);
        Self { area, chooser, value: 0 }
    }
}

impl Load for Lines {
    #[inline(always)]
    fn step<H: Hook>(&mut self, hook: &mut H) -> u64 {
        let at = self.chooser.next() * LINE;
        self.value += 1;
        hook.before(at, LINE);
        self.area.store(at, [self.value; 8]);
        hook.after(at, LINE);
        0
    }

    #[inline(always)]
    fn draw(&mut self) -> u64 {
        self.value += 1;
        self.chooser.next()
    }
}

/// A value of the key-value workload.
pub(crate) type Value = [u8; 100];

/// A structure with keys of 8 bytes and values of 100, on a plain mapping.
pub(crate) trait Pairs: Sized {
    /// Bytes of the file for `count` pairs.
    fn room(count: u64) -> u64;
    /// Formats the area.
    fn new(area: Arc<Area>, count: u64) -> Self;
    /// Adds a pair, whose key is not there yet.
    fn insert(&mut self, key: u64, value: &Value);
    /// Where the value of a key lies.
    fn find(&self, key: u64) -> Option<u64>;
    fn area(&self) -> &Area;
    fn name() -> &'static str;
}

/// Updates and reads of pairs that are there.
#[derive(Debug)]
pub(crate) struct KeyValue<P> {
    pairs: P,
    chooser: Chooser,
    rng: Rng,
    /// Of 2^16 operations, how many are updates.
    updates: u64,
    value: Value,
}

/// Pairs of the workload.
pub(crate) const PAIRS: u64 = 1 << 20;

/// The key with a number: spread over all there are.
#[inline(always)]
const fn key_of(number: u64) -> u64 {
    let z = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB)
}

/// Fills a structure with `count` pairs, in random order.
pub(crate) fn fill<P: Pairs>(area: Arc<Area>, count: u64) -> P {
    let mut order: Vec<u32> = (0..count as u32).collect();
    Rng::new(5).shuffle(&mut order);
    let mut pairs = P::new(area, count);
    for number in order {
        pairs.insert(key_of(u64::from(number)), &[number as u8; 100]);
    }
    pairs
}

impl<P: Pairs> KeyValue<P> {
    /// `percent` of the operations overwrite a value, the others read one.
    pub(crate) fn new(pairs: P, count: u64, choice: Choice, percent: u64) -> Self {
        let chooser = Chooser::new(choice, count, 7);
        let (rng, value) = (Rng::new(9), [0; 100]);
        Self { pairs, chooser, rng, updates: (percent << 16) / 100, value }
    }

    /// From now on the same pairs are used otherwise.
    pub(crate) fn again(&mut self, count: u64, choice: Choice, percent: u64) {
        self.chooser = Chooser::new(choice, count, 7);
        self.updates = (percent << 16) / 100;
    }

    #[inline(always)]
    fn updates_next(&mut self) -> bool {
        match self.updates {
            0 => false,
            0x1_0000 => true,
            share => self.rng.next_u64() >> 48 < share,
        }
    }
}

impl<P: Pairs> Load for KeyValue<P> {
    #[inline(always)]
    fn step<H: Hook>(&mut self, hook: &mut H) -> u64 {
        let number = self.chooser.next();
        let updates = self.updates_next();
        // All pairs are there; one that is not would be a fault of the structure.
        let Some(at) = self.pairs.find(key_of(number)) else { missing(number) };
        if updates {
            self.value[0] = self.value[0].wrapping_add(1);
            hook.before(at, 100);
            self.pairs.area().store(at, self.value);
            hook.after(at, 100);
            return 0;
        }
        let value: Value = self.pairs.area().load(at);
        value.iter().map(|byte| u64::from(*byte)).sum()
    }

    #[inline(always)]
    fn draw(&mut self) -> u64 {
        key_of(self.chooser.next()).wrapping_add(u64::from(self.updates_next()))
    }
}

#[cold]
fn missing(number: u64) -> ! {
    panic!("pair {number} was inserted and is not found");
}
