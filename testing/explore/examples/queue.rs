//! A queue in persistent memory, once with a fence left out: what the explorer makes of it.
//!
//!     cargo run -p holdfast-explore --example queue

use std::collections::VecDeque;

use holdfast_explore::{Explorer, Mapping, MediumKind, Shared, Verdict};

/// Counts of items ever pushed and ever popped, each in a line of its own; then the ring.
const PUSHED: u64 = 0;
const POPPED: u64 = 64;
const RING: u64 = 128;
/// Places in the ring, of two words each: an item and its complement.
const PLACES: u64 = 8;
const PLACE: u64 = 16;

/// The queue, as a program uses it.
#[derive(Debug)]
pub(crate) struct Queue {
    bytes: Mapping,
    fenced: bool,
}

impl Queue {
    /// Opens what is there: the counts are the truth, nothing needs mending.
    fn open(medium: Shared, fenced: bool) -> Self {
        Self { bytes: Mapping::new(medium), fenced }
    }

    /// Appends an item; it survives once this has returned.
    fn push(&self, item: u64) -> Verdict {
        let pushed = self.bytes.load_u64(PUSHED)?;
        if pushed - self.bytes.load_u64(POPPED)? == PLACES {
            return Err("the queue is full".into());
        }
        let at = RING + pushed % PLACES * PLACE;
        self.bytes.store_u64(at, item)?;
        self.bytes.store_u64(at + 8, !item)?;
        self.bytes.flush(at, PLACE)?;
        if self.fenced {
            self.bytes.fence();
        }
        self.bytes.store_u64(PUSHED, pushed + 1)?; // the item must be there before
        self.bytes.flush(PUSHED, 8)?;
        self.bytes.fence();
        Ok(())
    }

    /// Takes the first item.
    fn pop(&self) -> Verdict<Option<u64>> {
        let popped = self.bytes.load_u64(POPPED)?;
        if popped == self.bytes.load_u64(PUSHED)? {
            return Ok(None);
        }
        let item = self.item(popped)?;
        self.bytes.store_u64(POPPED, popped + 1)?;
        self.bytes.flush(POPPED, 8)?;
        self.bytes.fence();
        Ok(Some(item))
    }

    fn item(&self, number: u64) -> Verdict<u64> {
        let at = RING + number % PLACES * PLACE;
        let (item, check) = (self.bytes.load_u64(at)?, self.bytes.load_u64(at + 8)?);
        if check == !item { Ok(item) } else { Err(format!("item {number} is torn").into()) }
    }

    /// All items, first to last.
    fn items(&self) -> Verdict<VecDeque<u64>> {
        let numbers = self.bytes.load_u64(POPPED)?..self.bytes.load_u64(PUSHED)?;
        numbers.map(|number| self.item(number)).collect()
    }
}

/// The queue under exploration, with the fence after the item or without. Each of the two has a
/// name of its own, for a replay line is obeyed by who has its name.
pub(crate) fn explorer(fenced: bool) -> Explorer<Queue, VecDeque<u64>> {
    Explorer::new(
        if fenced { "queue" } else { "hasty-queue" },
        4096,
        MediumKind::Dax,
        move |medium| Ok(Queue::open(medium, fenced)),
        |queue, seen| seen.agree(&queue.items()?),
    )
    .op("push 7", |queue| queue.push(7), |items: &mut VecDeque<u64>| items.push_back(7))
    .op("push 9", |queue| queue.push(9), |items| items.push_back(9))
    .op(
        "pop",
        |queue| queue.pop().map(drop),
        |items| {
            items.pop_front();
        },
    )
    .samples(20, 1)
}

/// Explores the queue with its fence, then without.
#[allow(dead_code, reason = "the test that takes this file in as a module runs the parts itself")]
fn main() {
    println!("with its fence, each place switched off in turn:\n{}", explorer(true).elisions());
    println!("without:\n{}", explorer(false).run());
}
