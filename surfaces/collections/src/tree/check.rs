//! Read-only check of a whole tree: every pointer, the order of all keys, and that each is found
//! where a lookup looks for it.

use holdfast_layout::RawPtr;
use holdfast_txn::{Result, Transaction};

use super::{Inner, Shape, Tree, is_inner, place};
use crate::report::{CheckReport, Checker};

/// A node still to be visited.
struct Open<N> {
    word: u64,
    level: u32,
    weight: u32,
    /// The node above it.
    above: Option<std::rc::Rc<N>>,
}

/// Checks the tree.
pub(super) fn check<S: Shape, T: Transaction>(tx: &T, tree: &Tree<S>) -> Result<CheckReport> {
    let mut checker = Checker::default();
    checker.meet(tree.header.raw(), "header");
    let read = tree.root(tx);
    let Some(root) = checker.readable(tree.header.raw(), read)? else {
        return Ok(checker.finish());
    };
    let mut before = None;
    let mut usual = None;
    let mut open = vec![Open { word: root, level: 0, weight: 0, above: None }];
    while let Some(next) = open.pop().filter(|next| next.word != 0 || next.level > 0) {
        if is_inner(next.word) {
            inner::<S, T>(tx, &mut checker, &next, &mut open)?;
            continue;
        }
        let at = RawPtr::from_word(next.word);
        if !checker.meet(at, "bucket") {
            continue;
        }
        checker.expect(*usual.get_or_insert(next.weight) == next.weight, || {
            format!("bucket {at} is not as deep as others")
        });
        checker.ordered(tx, tree, at.typed(), &mut before)?;
    }
    Ok(checker.finish())
}

/// Checks an inner node, and adds its children to those to visit.
fn inner<S: Shape, T: Transaction>(
    tx: &T,
    checker: &mut Checker,
    this: &Open<S::Node>,
    open: &mut Vec<Open<S::Node>>,
) -> Result<()> {
    let at = place(this.word);
    if !checker.meet(at, "node") {
        return Ok(());
    }
    let mut level = this.level;
    let read = S::node(tx, this.word, &mut level);
    let Some(node) = checker.readable(at, read)? else { return Ok(()) };
    checker.expect(node.may_be_below(this.above.as_deref()), || {
        format!("node {at} is red, and so is the one above it, or it is the root")
    });
    for separator in node.separators() {
        checker.separator(tx, &separator)?;
    }
    let weight = this.weight + node.weight();
    let node = std::rc::Rc::new(node);
    open.extend(node.children().iter().rev().map(|word| Open {
        word: *word,
        level,
        weight,
        above: Some(node.clone()),
    }));
    Ok(())
}
