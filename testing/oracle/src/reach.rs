//! Reachability, for the leak check: after any crash the allocated set must be the reachable set.
//!
//! The walk shares nothing with any allocator or collection: the caller says how to read the
//! edges of a node from the medium. A medium is hostile, so cycles end, the number of nodes is
//! bounded, and a node that cannot be read is an error of the walk and not a node without edges.

use std::collections::BTreeSet;
use std::fmt;

/// Why a walk was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReachError<E> {
    /// More nodes than the caller allows: the medium is damaged, or the bound is wrong.
    TooMany {
        /// The bound.
        most: usize,
    },
    /// The edges of a node could not be read.
    Edges(E),
}

/// All nodes reachable from the roots, at most `most` of them. Roots count as reachable.
///
/// # Errors
///
/// `TooMany` if the bound is passed, `Edges` with the caller's error if a node is unreadable.
pub fn reachable<N, I, E>(
    roots: impl IntoIterator<Item = N>,
    most: usize,
    mut edges: impl FnMut(&N) -> Result<I, E>,
) -> Result<BTreeSet<N>, ReachError<E>>
where
    N: Ord + Clone,
    I: IntoIterator<Item = N>,
{
    let mut seen = BTreeSet::new();
    let mut open: Vec<N> = Vec::new();
    let mut visit = |node: N, open: &mut Vec<N>| {
        if seen.insert(node.clone()) {
            open.push(node);
        }
        if seen.len() > most { Err(ReachError::TooMany { most }) } else { Ok(()) }
    };
    for root in roots {
        visit(root, &mut open)?;
    }
    while let Some(node) = open.pop() {
        for next in edges(&node).map_err(ReachError::Edges)? {
            visit(next, &mut open)?;
        }
    }
    Ok(seen)
}

/// How an allocated set differs from a reachable one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaks<N> {
    /// Allocated, but nothing leads there: space lost for good.
    pub leaked: Vec<N>,
    /// Reachable, but not allocated: it will be handed out again while in use.
    pub dangling: Vec<N>,
}

impl<N> Leaks<N> {
    /// Whether both sets are equal.
    #[must_use]
    pub fn none(&self) -> bool {
        self.leaked.is_empty() && self.dangling.is_empty()
    }
}

/// Compares what is allocated with what is reachable.
#[must_use]
pub fn leaks<N: Ord + Clone>(allocated: &BTreeSet<N>, reachable: &BTreeSet<N>) -> Leaks<N> {
    Leaks {
        leaked: allocated.difference(reachable).cloned().collect(),
        dangling: reachable.difference(allocated).cloned().collect(),
    }
}

impl<E: fmt::Display> fmt::Display for ReachError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany { most } => write!(f, "more than {most} nodes are reachable"),
            Self::Edges(error) => write!(f, "a reachable node cannot be read: {error}"),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for ReachError<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    /// 0 -> 1 -> 2 -> 0, 3 -> 1, 4 unreadable.
    fn edges(node: &u32) -> Result<Vec<u32>, String> {
        match node {
            0 => Ok(vec![1]),
            1 => Ok(vec![2, 2]),
            2 => Ok(vec![0]),
            3 => Ok(vec![1]),
            _ => Err(format!("node {node}")),
        }
    }

    #[test]
    fn walks_end_in_cycles() {
        let set = reachable([0, 0], 10, edges).expect("all of it is readable");
        assert_eq!(set.into_iter().collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(reachable([], 0, edges), Ok(BTreeSet::new()));
    }

    #[test]
    fn bounds_and_unreadable_nodes_end_a_walk() {
        assert_eq!(reachable([3], 3, edges), Err(ReachError::TooMany { most: 3 }));
        assert!(reachable([3], 4, edges).is_ok());
        assert_eq!(reachable([0, 4], 10, edges), Err(ReachError::Edges("node 4".to_owned())));
        assert_eq!(reachable([0, 1], 1, edges), Err(ReachError::TooMany { most: 1 }));
    }

    #[test]
    fn leaks_and_dangling_are_told_apart() {
        let found = leaks(&BTreeSet::from([1, 2, 3]), &BTreeSet::from([2, 3, 4]));
        assert_eq!(found, Leaks { leaked: vec![1], dangling: vec![4] });
        assert!(!found.none());
        assert!(leaks(&BTreeSet::from([1]), &BTreeSet::from([1])).none());
    }
}
