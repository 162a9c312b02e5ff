//! Keys as bits, for crit-bit trees: every node has two children.

use holdfast_txn::{Result, Transaction};

use super::trie::{Alphabet, Trie, TrieNode, check_node};
use super::{inner_word, place};
use crate::format::CritNode;
use crate::item::{Sought, common_len};

/// Crit-bit trees.
pub(crate) type CritBit = Trie<Bits>;

/// Nine bits a byte: a set one that says the byte is there, then its own from the highest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Bits;

const PER_BYTE: u32 = 9;

impl TrieNode {
    fn as_crit(&self) -> Result<CritNode> {
        check_node(self.bounds == [0, 1] && self.children.len() == 2)?;
        Ok(CritNode { at: self.at, reserved: 0, children: [self.children[0], self.children[1]] })
    }
}

impl Alphabet for Bits {
    const KIND: u32 = 4;

    fn difference(a: &[u8], b: &[u8]) -> Option<u32> {
        let same = common_len(a, b);
        let start = same as u32 * PER_BYTE;
        match (a.get(same), b.get(same)) {
            (None, None) => None,
            (Some(a), Some(b)) => Some(start + 1 + (a ^ b).leading_zeros()),
            _ => Some(start),
        }
    }

    #[inline]
    fn symbol(key: &[u8], at: u32) -> u16 {
        let Some(byte) = key.get((at / PER_BYTE) as usize) else { return 0 };
        match at % PER_BYTE {
            0 => 1,
            bit => u16::from(byte >> (PER_BYTE - 1 - bit) & 1),
        }
    }

    #[inline]
    fn child<T: Transaction>(tx: &T, node: u64, sought: &Sought<'_>) -> Result<(u64, u32)> {
        let node: CritNode = tx.read(place(node).typed())?;
        Ok((node.children[usize::from(Self::symbol(sought.key, node.at) & 1)], node.at))
    }

    fn read<T: Transaction>(tx: &T, node: u64) -> Result<TrieNode> {
        let node: CritNode = tx.read(place(node).typed())?;
        Ok(TrieNode { at: node.at, bounds: vec![0, 1], children: node.children.to_vec() })
    }

    fn store<T: Transaction>(tx: &T, word: Option<u64>, node: &TrieNode) -> Result<u64> {
        let node = node.as_crit()?;
        let Some(word) = word else { return inner_word(tx.alloc(node)?.raw()) };
        *tx.open_mut(place(word).typed())? = node;
        Ok(word)
    }

    fn set_child<T: Transaction>(tx: &T, word: u64, index: usize, child: u64) -> Result<()> {
        tx.update(place(word).typed::<CritNode>(), |node| node.children[index & 1] = child)
    }
}
