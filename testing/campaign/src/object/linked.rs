//! Pools in which everything hangs on the root, as in a program that keeps no pointer elsewhere.
//!
//! The root is the first of a chain of cells; each cell is a [`Node`] whose first words point to
//! payloads of raw bytes. Every transaction hangs up what it allocates and takes down what it
//! frees, so whatever a crash leaves must be a tree of exactly the objects that are allocated.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_layout::{Persist, Ptr, RawPtr, TypeNumber, bytemuck};
use holdfast_object::Tx;
use holdfast_pmem::Medium;
use holdfast_txn::{Result, Transaction};
use holdfast_workloads::Rng;

use super::model::{Change, Object, Objects};
use super::ops::{Job, Node, Op, anchor_type, current};

/// Words of a cell that point to payloads, from the first on; zero where there is none.
pub const SLOTS: usize = 4;

/// A change of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// A new cell, before all others.
    Cell,
    /// A payload of `len` bytes in a slot; what was there is freed.
    Hang {
        /// The cell.
        cell: u64,
        /// Which word of it.
        slot: usize,
        /// Bytes of the payload.
        len: u64,
    },
    /// Frees the payload of a slot.
    Take {
        /// The cell.
        cell: u64,
        /// Which word of it.
        slot: usize,
    },
    /// Frees the first cell and all that hangs on it.
    Cut,
}

/// What an object points to, the way its contents say it.
#[must_use]
pub fn pointers(object: &Object) -> Vec<u64> {
    // The anchor begins with the root and the catalogue of maps, a cell with the next one.
    let count = match object.kind {
        kind if kind == anchor_type() => 2,
        kind if kind == Node::TYPE.0 => 1 + SLOTS,
        _ => 0,
    };
    (0..count).map(|index| word(object, index)).filter(|word| *word != 0).collect()
}

/// A cell and what hangs on it: payload and length by slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// Its pointer.
    pub at: u64,
    /// Its payloads.
    pub payloads: BTreeMap<usize, (u64, u64)>,
}

/// The cells of a pool, first to last. A chain that is not sound ends where it breaks.
#[must_use]
pub fn cells(objects: &Objects, anchor: u64) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    let mut next = objects.get(anchor).map_or(0, |anchor| word(anchor, 0));
    while let Some(object) = objects.get(next).filter(|_| cells.len() < objects.len()) {
        let payload = |slot: usize| {
            let of = word(object, 1 + slot);
            objects.get(of).map(|payload| (slot, (of, payload.bytes.len() as u64)))
        };
        cells.push(Cell { at: next, payloads: (0..SLOTS).filter_map(payload).collect() });
        next = word(object, 0);
    }
    cells
}

/// Word `index` of an object; zero behind its end.
fn word(object: &Object, index: usize) -> u64 {
    let bytes = object.bytes.get(8 * index..8 * index + 8).unwrap_or(&[]);
    bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Executes one change in `tx`.
///
/// # Errors
/// What the engine answers.
pub fn step<M: Medium>(
    tx: &Tx<'_, M>,
    link: Link,
    now: &Objects,
    anchor: u64,
    rng: &mut Rng,
    change: &mut Change,
) -> Result<()> {
    match link {
        Link::Cell => {
            let mut words = std::array::from_fn(|_| rng.next_u64());
            words[..SLOTS].fill(0);
            let first = word(&current(now, change, anchor)?, 0);
            let node = Node { next: RawPtr::from_word(first), words, changes: 0 };
            let cell = tx.alloc(node)?.raw();
            let bytes = Arc::from(bytemuck::bytes_of(&node));
            change.push((cell.word(), Some(Object { kind: Node::TYPE.0, bytes })));
            set_root(tx, cell.word(), now, anchor, change)
        }
        Link::Hang { cell, slot, len } => {
            let object = tx.alloc_bytes(TypeNumber::BYTES, len)?;
            let mut bytes = vec![0; len as usize];
            rng.fill(&mut bytes);
            tx.write_bytes(object, 0, &bytes)?;
            let (kind, bytes) = (TypeNumber::BYTES.0, Arc::from(bytes));
            change.push((object.word(), Some(Object { kind, bytes })));
            let before = point(tx, cell, slot, object.word(), change)?;
            free(tx, before, change)
        }
        Link::Take { cell, slot } => {
            let before = point(tx, cell, slot, 0, change)?;
            free(tx, before, change)
        }
        Link::Cut => {
            let first = word(&current(now, change, anchor)?, 0);
            let cell = current(now, change, first)?;
            for slot in 0..SLOTS {
                free(tx, word(&cell, 1 + slot), change)?;
            }
            free(tx, first, change)?;
            set_root(tx, word(&cell, 0), now, anchor, change)
        }
    }
}

/// Has a slot point elsewhere; answers what it pointed to.
fn point<M: Medium>(
    tx: &Tx<'_, M>,
    cell: u64,
    slot: usize,
    to: u64,
    change: &mut Change,
) -> Result<u64> {
    let at: Ptr<Node> = RawPtr::from_word(cell).typed();
    let mut guard = tx.open_mut(at)?;
    let before = std::mem::replace(&mut guard.words[slot], to);
    guard.changes += 1;
    let bytes = Arc::from(bytemuck::bytes_of(&*guard));
    change.push((cell, Some(Object { kind: Node::TYPE.0, bytes })));
    Ok(before)
}

fn free<M: Medium>(tx: &Tx<'_, M>, word: u64, change: &mut Change) -> Result<()> {
    if word != 0 {
        tx.free(RawPtr::from_word(word))?;
        change.push((word, None));
    }
    Ok(())
}

fn set_root<M: Medium>(
    tx: &Tx<'_, M>,
    to: u64,
    now: &Objects,
    anchor: u64,
    change: &mut Change,
) -> Result<()> {
    let mut object = current(now, change, anchor)?;
    tx.set_root(RawPtr::from_word(to).typed::<Node>())?;
    let mut bytes = object.bytes.to_vec();
    bytes[..8].copy_from_slice(&to.to_le_bytes());
    object.bytes = Arc::from(bytes);
    change.push((anchor, Some(object)));
    Ok(())
}

/// A job of any kind that leaves everything hanging on the root and keeps off the objects in
/// `hands`. Unless it may `wait` for commits before it, it asks for no chunk of its own.
pub fn any_job(rng: &mut Rng, objects: &Objects, anchor: u64, hands: &[u64], wait: bool) -> Job {
    let all = cells(objects, anchor);
    let held = |cell: &Cell| {
        let mut payloads = cell.payloads.values();
        hands.contains(&cell.at) || payloads.any(|(word, _)| hands.contains(word))
    };
    let lens: &[u64] = if wait { &[20, 64, 190, 500, 900, 1_500, 5_000] } else { &[20, 64, 190] };
    let len = lens[rng.below(lens.len() as u64) as usize];
    let free: Vec<&Cell> = all.iter().filter(|cell| !held(cell)).collect();
    let Some(cell) = rng.pick(&free).copied() else { return job(rng, Link::Cell) };
    let slot = rng.below(SLOTS as u64) as usize;
    let first_is_free = all.first().is_some_and(|first| !held(first));
    match (rng.below(8), cell.payloads.get(&slot)) {
        (0, _) if all.len() < 8 => job(rng, Link::Cell),
        (1, _) if all.len() > 5 && first_is_free => job(rng, Link::Cut),
        (2 | 3, Some(_)) => job(rng, Link::Take { cell: cell.at, slot }),
        (4.., Some((of, len))) => {
            let from = rng.below(*len);
            let op = Op::Write { of: *of, from, len: 1 + rng.below((len - from).min(300)) };
            Job::new(rng, [op])
        }
        _ => job(rng, Link::Hang { cell: cell.at, slot, len }),
    }
}

fn job(rng: &mut Rng, link: Link) -> Job {
    Job::new(rng, [Op::Link(link)])
}
