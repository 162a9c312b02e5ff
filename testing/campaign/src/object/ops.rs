//! Operations on a pool, each one transaction, and what each changes in the model.

use std::sync::Arc;

use holdfast_layout::{Persist, Ptr, RawPtr, TypeNumber};
use holdfast_object::{Anchor, Tx};
use holdfast_pmem::Medium;
use holdfast_txn::{Result, Transaction, TxError};
use holdfast_workloads::Rng;

use super::linked::{self, Link};
use super::model::{Change, Object, Objects};

/// A typed object: a link and some words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Persist)]
#[repr(C)]
#[persist(name = "campaign.node", version = 1)]
pub struct Node {
    /// Another object, or null.
    pub next: RawPtr,
    /// Anything.
    pub words: [u64; 14],
    /// Counts changes.
    pub changes: u64,
}

/// One thing a transaction does. Objects are named by the words of their pointers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Allocates raw bytes.
    Alloc {
        /// How many.
        len: u64,
    },
    /// Allocates a [`Node`].
    AllocNode,
    /// Overwrites a range.
    Write {
        /// The object.
        of: u64,
        /// First byte.
        from: u64,
        /// Bytes.
        len: u64,
    },
    /// Writes the bytes it has once more.
    Again {
        /// The object.
        of: u64,
    },
    /// Changes a [`Node`] in place through a guard.
    Update {
        /// The node.
        of: u64,
    },
    /// Frees.
    Free {
        /// The object.
        of: u64,
    },
    /// Makes an object the root; 0 for none.
    Root {
        /// The object.
        to: u64,
    },
    /// Changes a tree in which everything hangs on the root.
    Link(Link),
}

/// Operations of one transaction, and the seed of what they write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// In order.
    pub ops: Vec<Op>,
    /// Of the bytes written.
    pub seed: u64,
}

impl Job {
    /// A transaction of these operations, its contents drawn from `rng`.
    pub fn new(rng: &mut Rng, ops: impl IntoIterator<Item = Op>) -> Self {
        Self { ops: ops.into_iter().collect(), seed: rng.next_u64() }
    }

    /// Whether it may be refused for want of space.
    #[must_use]
    pub fn takes_space(&self) -> bool {
        self.ops.iter().any(|op| {
            use Op::{Again, Alloc, AllocNode, Link, Write};
            matches!(op, Alloc { .. } | AllocNode | Write { .. } | Again { .. } | Link(_))
        })
    }

    /// Executes the operations in `tx` on a pool that holds `now`; answers what will have changed
    /// once the transaction commits.
    ///
    /// # Errors
    /// What the engine answers.
    pub fn execute<M: Medium>(&self, tx: &Tx<'_, M>, now: &Objects, anchor: u64) -> Result<Change> {
        let mut rng = Rng::new(self.seed);
        let mut change = Change::new();
        for op in &self.ops {
            step(tx, op, now, anchor, &mut rng, &mut change)?;
        }
        Ok(change)
    }
}

/// Contents of an object as this transaction sees it.
pub(super) fn current(now: &Objects, change: &Change, of: u64) -> Result<Object> {
    let changed = change.iter().rev().find(|(word, _)| *word == of);
    let found = changed.map_or_else(|| now.get(of).cloned(), |(_, object)| object.clone());
    found.ok_or(TxError::Inconsistent("the campaign names an object its model does not have"))
}

fn step<M: Medium>(
    tx: &Tx<'_, M>,
    op: &Op,
    now: &Objects,
    anchor: u64,
    rng: &mut Rng,
    change: &mut Change,
) -> Result<()> {
    match *op {
        Op::Alloc { len } => {
            let object = tx.alloc_bytes(TypeNumber::BYTES, len)?;
            let mut bytes = vec![0; len as usize];
            rng.fill(&mut bytes);
            tx.write_bytes(object, 0, &bytes)?;
            let kind = TypeNumber::BYTES.0;
            change.push((object.word(), Some(Object { kind, bytes: Arc::from(bytes) })));
        }
        Op::AllocNode => {
            let words = std::array::from_fn(|_| rng.next_u64());
            let node = Node { next: RawPtr::NULL, words, changes: 0 };
            let object = tx.alloc(node)?;
            let bytes = Arc::from(holdfast_layout::bytemuck::bytes_of(&node));
            change.push((object.raw().word(), Some(Object { kind: Node::TYPE.0, bytes })));
        }
        Op::Write { of, from, len } => {
            let mut object = current(now, change, of)?;
            let mut bytes = vec![0; len as usize];
            rng.fill(&mut bytes);
            tx.write_bytes(RawPtr::from_word(of), from, &bytes)?;
            let mut whole = object.bytes.to_vec();
            whole[from as usize..(from + len) as usize].copy_from_slice(&bytes);
            object.bytes = Arc::from(whole);
            change.push((of, Some(object)));
        }
        Op::Again { of } => {
            let object = current(now, change, of)?;
            tx.write_bytes(RawPtr::from_word(of), 0, &object.bytes)?;
            change.push((of, Some(object)));
        }
        Op::Update { of } => update(tx, of, rng, change)?,
        Op::Free { of } => {
            tx.free(RawPtr::from_word(of))?;
            change.push((of, None));
        }
        Op::Root { to } => {
            let mut object = current(now, change, anchor)?;
            tx.set_root(RawPtr::from_word(to).typed::<Node>())?;
            let mut whole = object.bytes.to_vec();
            whole[..8].copy_from_slice(&to.to_le_bytes());
            object.bytes = Arc::from(whole);
            change.push((anchor, Some(object)));
        }
        Op::Link(link) => linked::step(tx, link, now, anchor, rng, change)?,
    }
    Ok(())
}

fn update<M: Medium>(tx: &Tx<'_, M>, of: u64, rng: &mut Rng, change: &mut Change) -> Result<()> {
    let node: Ptr<Node> = RawPtr::from_word(of).typed();
    let mut guard = tx.open_mut(node)?;
    let word = rng.below(14) as usize;
    guard.words[word] = rng.next_u64();
    guard.changes += 1;
    let bytes = Arc::from(holdfast_layout::bytemuck::bytes_of(&*guard));
    change.push((of, Some(Object { kind: Node::TYPE.0, bytes })));
    Ok(())
}

/// Type number of the anchor.
#[must_use]
pub const fn anchor_type() -> u32 {
    Anchor::TYPE.0
}

/// Objects of a model by what can be done to them, the anchor left out.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// Raw bytes up to a granule.
    pub small: Vec<(u64, u64)>,
    /// Raw bytes of several granules.
    pub large: Vec<(u64, u64)>,
    /// Nodes.
    pub nodes: Vec<u64>,
}

impl Choice {
    /// Sorts the objects of a model.
    #[must_use]
    pub fn of(objects: &Objects) -> Self {
        let mut choice = Self::default();
        for (word, object) in objects.iter() {
            let len = object.bytes.len() as u64;
            if object.kind == Node::TYPE.0 {
                choice.nodes.push(word);
            } else if object.kind == TypeNumber::BYTES.0 && len <= 1024 {
                choice.small.push((word, len));
            } else if object.kind == TypeNumber::BYTES.0 {
                choice.large.push((word, len));
            }
        }
        choice
    }
}

/// A job of any kind that the objects there are allow: what pools do after a recovery.
pub fn any_job(rng: &mut Rng, objects: &Objects) -> Job {
    let choice = Choice::of(objects);
    let small = rng.pick(&choice.small).copied();
    let large = rng.pick(&choice.large).copied();
    let node = rng.pick(&choice.nodes).copied();
    let op = match (rng.below(8), small, large, node) {
        (0, ..) => Op::AllocNode,
        (1, ..) => Op::Alloc { len: 1 + rng.below(900) },
        (2, Some((of, _)), ..) => Op::Free { of },
        (3, _, Some((of, len)), _) => {
            let from = rng.below(len);
            Op::Write { of, from, len: 1 + rng.below((len - from).min(2500)) }
        }
        (4, _, Some((of, _)), _) if rng.below(4) == 0 => Op::Free { of },
        (5, _, _, Some(to)) => Op::Root { to },
        (6, _, _, Some(of)) => Op::Update { of },
        (_, Some((of, len)), ..) => {
            let from = rng.below(len);
            Op::Write { of, from, len: 1 + rng.below(len - from) }
        }
        _ => Op::Alloc { len: 40 },
    };
    Job::new(rng, [op])
}
