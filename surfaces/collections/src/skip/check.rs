//! Read-only check of a whole skip list: every link at every level, the order of all keys.

use holdfast_txn::{Result, Transaction};

use super::{List, Node, place};
use crate::format::SKIP_LEVELS;
use crate::report::{CheckReport, Checker};
use crate::separator::code_of;

/// Checks the list.
pub(super) fn check<T: Transaction>(tx: &T, list: &List) -> Result<CheckReport> {
    let mut checker = Checker::default();
    let (mut nodes, mut before) = (Vec::new(), None);
    let mut word = list.top();
    while word != 0 {
        let at = place(word);
        if !checker.meet(at, if nodes.is_empty() { "header" } else { "node" }) {
            break;
        }
        let read = list.node(tx, word);
        let Some(node) = checker.readable(at, read)? else { break };
        checker.separator(tx, &node.separator())?;
        checker.expect(code_of(word) == code_of(node.head.word), || {
            format!("the link to node {at} is for another separator")
        });
        let empty = node.head.bucket.is_null() && node.links[0].node == 0 && nodes.is_empty();
        if !empty && checker.meet(node.head.bucket, "bucket") {
            checker.ordered(tx, list, node.bucket(), &mut before)?;
        }
        nodes.push((word, node));
        word = node.links[0].node;
    }
    (0..SKIP_LEVELS).for_each(|level| links(&mut checker, &nodes, level));
    Ok(checker.finish())
}

/// Whether each node's link leads to the next one that is as high.
fn links(checker: &mut Checker, nodes: &[(u64, Node)], level: usize) {
    let mut high = nodes.iter().filter(|(_, node)| node.head.height as usize > level).peekable();
    while let Some((word, node)) = high.next() {
        let (next, number) = high.peek().map_or((0, 0), |(word, node)| (*word, node.head.number));
        let link = node.links[level];
        checker.expect(link.node == next && (next == 0 || link.number == number), || {
            format!("node {} does not lead to the next one at level {level}", place(*word))
        });
    }
}
