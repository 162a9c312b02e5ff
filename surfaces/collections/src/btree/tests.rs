//! What only a look inside shows: how nodes fill, and that pointers which lead astray are found.

use holdfast_txn::toy::ToyStore;
use holdfast_txn::{Isolation, Store};

use super::*;
use crate::format::LEAF_ITEMS;

type Tx = <ToyStore as Store>::Tx<'static>;

fn run<R>(body: impl FnMut(&Tx) -> Result<R>) -> R {
    ToyStore::new().run(Isolation::Serializable, body).expect("committed")
}

fn filled(tx: &Tx, count: u32) -> Result<BTree> {
    let tree = BTree::create(tx)?;
    for n in 0..count {
        assert!(!tree.put(tx, format!("user:{n:08}").as_bytes(), b"value")?);
    }
    Ok(tree)
}

#[test]
fn keys_in_order_fill_the_leaves() {
    run(|tx| {
        let tree = filled(tx, 3000)?;
        let objects = tree.check(tx)?.objects.len();
        // 3000 entries and the header; the rest are nodes.
        let nodes = objects - 3001;
        assert!(nodes < 3000 / (LEAF_ITEMS * 4 / 5), "{nodes} nodes");
        assert_eq!(tree.read_header(tx)?.height, 3);
        Ok(())
    });
}

#[test]
fn long_common_starts_do_not_blur_a_node() {
    run(|tx| {
        let tree = filled(tx, 200)?;
        let root = read_inner(tx, tree.read_header(tx)?.root, 1)?;
        for child in root.children() {
            let leaf = read_leaf(tx, *child)?;
            assert!(leaf.head.skip >= 8, "{} bytes left out", leaf.head.skip);
            assert!(leaf.items().windows(2).all(|w| w[0].prefix < w[1].prefix));
        }
        Ok(())
    });
}

/// All leaves below a node.
fn leaves(tx: &Tx, node: RawPtr, level: u32, into: &mut Vec<BTreeLeaf>) -> Result<()> {
    if level == 0 {
        into.push(read_leaf(tx, node)?);
        return Ok(());
    }
    let inner = read_inner(tx, node, level)?;
    inner.children().iter().try_for_each(|child| leaves(tx, *child, level - 1, into))
}

#[test]
fn leaves_that_split_learn_what_their_keys_have_in_common() {
    run(|tx| {
        let tree = BTree::create(tx)?;
        // In no order: the first leaf has keys from everywhere, those split from it have not.
        for n in 0..3000_u32 {
            let n = n * 1009 % 3001;
            let key = format!("{}:in one group:{:06}", n / 300, n % 300);
            tree.put(tx, key.as_bytes(), b"value")?;
        }
        let header = tree.read_header(tx)?;
        let mut all = Vec::new();
        leaves(tx, header.root, header.height - 1, &mut all)?;
        let blurred = |leaf: &&BTreeLeaf| {
            leaf.items().windows(2).any(|pair| pair[0].prefix == pair[1].prefix)
        };
        let count = all.iter().filter(blurred).count();
        assert!(count * 4 < all.len(), "{count} of {} leaves are blurred", all.len());
        Ok(())
    });
}

#[test]
fn nodes_that_lead_back_or_astray_are_found_out() {
    run(|tx| {
        let tree = filled(tx, 3000)?;
        let header = tree.read_header(tx)?;
        let mut top = read_inner(tx, header.root, 2)?;
        let good = top;
        // The same child twice: reads end with an error, walks end.
        top.children[1] = top.children[0];
        *tx.open_mut(header.root.typed())? = top;
        assert!(!tree.check(tx)?.is_sound());
        assert!(matches!(tree.len(tx), Err(TxError::Inconsistent(_))));
        assert!(matches!(tree.for_each(tx, |_, _| Ok(())), Err(TxError::Inconsistent(_))));
        // The root below itself.
        top.children[1] = header.root;
        *tx.open_mut(header.root.typed())? = top;
        assert!(!tree.check(tx)?.is_sound());
        assert!(matches!(tree.len(tx), Err(TxError::Inconsistent(_))));
        // Items that lie about their keys, and out of order.
        top = good;
        top.items.swap(0, 1);
        *tx.open_mut(header.root.typed())? = top;
        assert!(!tree.check(tx)?.is_sound());
        // Impossible counts and heights.
        for (count, level) in [(0, 2), (41, 2), (u16::MAX, 2), (3, 1), (3, 3)] {
            top = good;
            (top.head.count, top.head.level) = (count, level);
            *tx.open_mut(header.root.typed())? = top;
            assert!(matches!(tree.get(tx, b"x"), Err(TxError::Inconsistent(_))));
            assert!(!tree.check(tx)?.is_sound());
        }
        for height in [0, 1, 2, 4, 33, u32::MAX] {
            tree.write_header(tx, BTreeHeader { height, ..header })?;
            assert!(tree.get(tx, b"x").is_err());
            assert!(!tree.check(tx)?.is_sound());
        }
        Ok(())
    });
}
