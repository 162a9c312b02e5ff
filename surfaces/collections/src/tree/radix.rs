//! Keys as bytes, for radix trees: nodes are of four sizes, by how many children they have.

use holdfast_layout::{RawPtr, bytemuck};
use holdfast_txn::{Result, Transaction, TxError};

use super::place;
use super::trie::{Alphabet, Trie, TrieNode, check_node, code_of, node_word};
use crate::format::{Radix4, Radix16, Radix48, Radix256};
use crate::item::{Sought, common_len};

/// Radix trees.
pub(crate) type Radix = Trie<Bytes>;

/// One symbol a byte: one more than its number, as 0 is for keys that are over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Bytes;

/// Most children of a node, by the code in words that lead to it.
const CAPACITY: [usize; 4] = [4, 16, 48, 257];

/// Nodes with bounds, which differ in their size only.
macro_rules! bounded {
    ($($node:ident)*) => {$(
        impl $node {
            #[inline]
            fn choose(&self, symbol: u16) -> Result<u64> {
                let count = self.count as usize;
                check_node((2..=self.children.len()).contains(&count))?;
                // The first bound is that of the second child.
                let after = self.bounds[1..count].iter().filter(|b| u16::from(**b) < symbol);
                Ok(self.children[after.count()])
            }

            fn load(&self) -> Result<TrieNode> {
                let count = self.count as usize;
                check_node((2..=self.children.len()).contains(&count))?;
                let mut bounds: Vec<_> =
                    self.bounds[..count].iter().map(|b| u16::from(*b) + 1).collect();
                bounds[0] = 0;
                Ok(TrieNode { at: self.at, bounds, children: self.children[..count].to_vec() })
            }

            fn of(node: &TrieNode) -> Self {
                let mut this: Self = bytemuck::Zeroable::zeroed();
                (this.at, this.count) = (node.at, node.children.len() as u32);
                for (place, bound) in this.bounds.iter_mut().zip(&node.bounds).skip(1) {
                    *place = (*bound - 1) as u8;
                }
                this.children[..node.children.len()].copy_from_slice(&node.children);
                this
            }
        }
    )*};
}
bounded!(Radix4 Radix16 Radix48);

impl Radix256 {
    fn load(&self) -> TrieNode {
        let (mut bounds, mut children) = (Vec::new(), Vec::new());
        for (symbol, child) in self.children.iter().enumerate() {
            if children.last() != Some(child) {
                bounds.push(symbol as u16);
                children.push(*child);
            }
        }
        TrieNode { at: self.at, bounds, children }
    }

    fn of(node: &TrieNode) -> Self {
        let count = node.children.len() as u32;
        let mut this = Self { at: node.at, count, children: [0; 257] };
        for (symbol, place) in this.children.iter_mut().enumerate() {
            *place = node.children[node.index_of(symbol as u16)];
        }
        this
    }
}

/// Reads a number of four bytes or a word of eight.
fn word_at<T: Transaction>(tx: &T, node: RawPtr, at: u64) -> Result<u64> {
    let mut word = [0; 8];
    tx.read_bytes(node, at, &mut word)?;
    Ok(u64::from_le_bytes(word))
}

impl Alphabet for Bytes {
    const KIND: u32 = 6;

    fn difference(a: &[u8], b: &[u8]) -> Option<u32> {
        let same = common_len(a, b);
        (same < a.len().max(b.len())).then_some(same as u32)
    }

    #[inline]
    fn symbol(key: &[u8], at: u32) -> u16 {
        key.get(at as usize).map_or(0, |byte| u16::from(*byte) + 1)
    }

    #[inline]
    fn child<T: Transaction>(tx: &T, node: u64, sought: &Sought<'_>) -> Result<(u64, u32)> {
        let (code, node) = (code_of(node), place(node));
        let symbol = |at| Self::symbol(sought.key, at);
        match code {
            0 => {
                let node: Radix4 = tx.read(node.typed())?;
                Ok((node.choose(symbol(node.at))?, node.at))
            }
            1 => {
                let node: Radix16 = tx.read(node.typed())?;
                Ok((node.choose(symbol(node.at))?, node.at))
            }
            2 => {
                let node: Radix48 = tx.read(node.typed())?;
                Ok((node.choose(symbol(node.at))?, node.at))
            }
            _ => {
                // Two words of a node of 2 KiB.
                let at = word_at(tx, node, 0)? as u32;
                let first = core::mem::offset_of!(Radix256, children) as u64;
                Ok((word_at(tx, node, first + 8 * u64::from(symbol(at)))?, at))
            }
        }
    }

    fn read<T: Transaction>(tx: &T, word: u64) -> Result<TrieNode> {
        let node = place(word);
        match code_of(word) {
            0 => tx.read(node.typed::<Radix4>())?.load(),
            1 => tx.read(node.typed::<Radix16>())?.load(),
            2 => tx.read(node.typed::<Radix48>())?.load(),
            _ => Ok(tx.read(node.typed::<Radix256>())?.load()),
        }
    }

    fn store<T: Transaction>(tx: &T, word: Option<u64>, node: &TrieNode) -> Result<u64> {
        let len = node.children.len();
        check_node((2..=CAPACITY[3]).contains(&len))?;
        let Some(word) = word else { return create(tx, node) };
        let code = code_of(word) as usize;
        let fits = len <= CAPACITY.get(code).copied().unwrap_or(0);
        // Not smaller again at once: one that loses and gains a child would move each time.
        let roomy = code > 0 && len < CAPACITY.get(code - 1).copied().unwrap_or(0) * 3 / 4;
        if !fits || roomy {
            match create(tx, node) {
                // One that has become too large will do where nothing else fits: a full pool can
                // be emptied.
                Err(TxError::NoSpace { .. }) if fits => {}
                fresh => return fresh.and_then(|fresh| tx.free(place(word)).map(|()| fresh)),
            }
        }
        write(tx, word, node).map(|()| word)
    }

    fn set_child<T: Transaction>(tx: &T, word: u64, index: usize, child: u64) -> Result<()> {
        let mut node = Self::read(tx, word)?;
        let Some(place) = node.children.get_mut(index) else { return check_node(false) };
        *place = child;
        write(tx, word, &node)
    }
}

/// Stores a node in a place of its own, of the size it needs.
fn create<T: Transaction>(tx: &T, node: &TrieNode) -> Result<u64> {
    let code = CAPACITY.partition_point(|capacity| *capacity < node.children.len());
    let fresh = match code {
        0 => tx.alloc(Radix4::of(node))?.raw(),
        1 => tx.alloc(Radix16::of(node))?.raw(),
        2 => tx.alloc(Radix48::of(node))?.raw(),
        _ => tx.alloc(Radix256::of(node))?.raw(),
    };
    node_word(fresh, code as u64)
}

/// Stores a node where it is.
fn write<T: Transaction>(tx: &T, word: u64, node: &TrieNode) -> Result<()> {
    let at = place(word);
    match code_of(word) {
        0 => *tx.open_mut(at.typed())? = Radix4::of(node),
        1 => *tx.open_mut(at.typed())? = Radix16::of(node),
        2 => *tx.open_mut(at.typed())? = Radix48::of(node),
        _ => *tx.open_mut(at.typed())? = Radix256::of(node),
    }
    Ok(())
}
