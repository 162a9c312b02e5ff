//! What only a look inside shows: how trees fill and balance, and that nodes which lead astray are
//! found.

use holdfast_txn::toy::ToyStore;
use holdfast_txn::{Isolation, Store};

use super::btree::Branching;
use super::crit::{Bits, CritBit};
use super::radix::{Bytes, Radix};
use super::rbtree::RedBlack;
use super::trie::Alphabet;
use super::*;
use crate::format::{BUCKET_ITEMS, RbNode};

type Tx = <ToyStore as Store>::Tx<'static>;

fn run<R>(body: impl FnMut(&Tx) -> Result<R>) -> R {
    ToyStore::new().run(Isolation::Serializable, body).expect("committed")
}

#[expect(clippy::big_endian_bytes, reason = "keys in the order of numbers")]
fn ascending<S: Shape>(tx: &Tx, count: u64) -> Result<Tree<S>> {
    let tree = Tree::<S>::create_header(tx)?;
    for n in 0..count {
        assert!(!tree.put_and_keep(tx, &n.to_be_bytes(), b"value", None)?);
    }
    Ok(tree)
}

/// Steps to the bucket that is furthest down.
fn depth<S: Shape>(tx: &Tx, tree: &Tree<S>) -> Result<usize> {
    let mut most = 0;
    let mut trail = tree.edge(tx, false)?;
    loop {
        most = most.max(trail.steps.len());
        if !trail.further::<S, _>(tx, false)? {
            return Ok(most);
        }
    }
}

#[test]
fn keys_in_order_fill_the_buckets_of_ranges_and_leave_trees_balanced() {
    run(|tx| {
        let count = 20_000;
        let buckets = count as usize / BUCKET_ITEMS + 1;
        let tree = ascending::<Branching>(tx, count)?;
        let objects = tree.check_all(tx)?.objects.len();
        assert!((buckets..buckets * 21 / 20 + 5).contains(&objects), "{objects} of {buckets}");
        assert_eq!(depth(tx, &tree)?, 2);
        let tree = ascending::<RedBlack>(tx, count)?;
        assert!(depth(tx, &tree)? <= 2 * (buckets.ilog2() as usize + 1));
        // Tries split where symbols do.
        assert!(depth(tx, &ascending::<CritBit>(tx, count)?)? <= 16);
        assert!(depth(tx, &ascending::<Radix>(tx, count)?)? <= 3);
        Ok(())
    });
}

#[test]
fn colours_that_break_the_rules_are_found_out() {
    run(|tx| {
        let tree = ascending::<RedBlack>(tx, 5000)?;
        let mut words = Vec::new();
        let keep = |word, _: &RbNode| {
            words.push(word);
            Ok(())
        };
        tree.each(tx, keep, |_, _| Ok(true))?;
        assert!(words.len() > 70);
        for word in words {
            let at = place(word).typed::<RbNode>();
            for red in [1, 2] {
                let good = tx.read(at)?;
                tx.update(at, |node| node.red ^= red)?;
                assert!(!tree.check_all(tx)?.is_sound(), "{at:?}");
                tx.update(at, |node| *node = good)?;
            }
        }
        assert!(tree.check_all(tx)?.is_sound());
        Ok(())
    });
}

/// A tree with a child in place of its parent, or of its sibling.
fn astray<S: Shape>(
    tree: impl Fn(&Tx) -> Result<Tree<S>>,
    set: impl Fn(&Tx, u64, u64) -> Result<()>,
) {
    run(|tx| {
        let tree = tree(tx)?;
        let root = tree.root(tx)?;
        let children = S::node(tx, root, &mut 0)?.children().to_vec();
        for wrong in [root, children[1]] {
            set(tx, root, wrong)?;
            assert!(!tree.check_all(tx)?.is_sound());
            assert!(tree.count(tx).is_err());
            // A walk may miss what nothing leads to, but comes to an end.
            let mut seen = 0;
            let _ = tree.walk(tx, core::ops::Bound::Unbounded, false, |_| {
                seen += 1;
                Ok(true)
            });
            assert!(seen <= 9000, "{seen}");
            set(tx, root, children[0])?;
        }
        assert!(tree.check_all(tx)?.is_sound());
        Ok(())
    });
}

#[test]
fn nodes_that_lead_back_or_astray_are_found_out() {
    let word = |tx: &Tx, root, at, word: u64| tx.write_bytes(place(root), at, &word.to_le_bytes());
    let first = crate::format::btree_child(0);
    astray::<Branching>(|tx| ascending(tx, 9000), |tx, root, to| word(tx, root, first, to));
    astray::<RedBlack>(|tx| ascending(tx, 9000), |tx, root, to| word(tx, root, 16, to));
    astray::<CritBit>(|tx| ascending(tx, 9000), |tx, root, to| Bits::set_child(tx, root, 0, to));
    astray::<Radix>(|tx| ascending(tx, 9000), |tx, root, to| Bytes::set_child(tx, root, 0, to));
}

#[test]
fn symbols_order_as_keys_do() {
    let keys: [&[u8]; 9] =
        [b"", b"\0", b"\0\0", b"\0a", b"a", b"a\0", b"a\0\x01", b"ab", b"\xff\xff"];
    for (i, a) in keys.iter().enumerate() {
        for (j, b) in keys.iter().enumerate() {
            for (difference, symbol) in [
                (Bits::difference(a, b), Bits::symbol as fn(&[u8], u32) -> u16),
                (Bytes::difference(a, b), Bytes::symbol),
            ] {
                let Some(at) = difference else {
                    assert_eq!(i, j);
                    continue;
                };
                assert_eq!(symbol(a, at).cmp(&symbol(b, at)), i.cmp(&j), "{a:?} {b:?}");
                assert!((0..at).all(|before| symbol(a, before) == symbol(b, before)));
            }
        }
    }
}
