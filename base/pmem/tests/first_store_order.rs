//! The order of steps in `track/first_store.rs`, by trying every interleaving: one page, two
//! threads that store to it, one that takes and covers it, three passes. In every state in between,
//! a crash must find the page covered (checksum of what is there), on record, or in the taker's
//! note.
//!
//! With the lock, either order of protecting and clearing is right. Without it both lose a store: a
//! handler that is held up opens a page whose record was just cleared. Without the note, the page
//! must stay locked until it is covered.
//!
//! In use, the record is cleared later, under the lock once more, where the page is not open again:
//! then the note may come after taking, and says of the page that it was stored to, which one from
//! before taking cannot.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::BTreeSet;

/// Steps of the taker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Goes on if the page is on record, else the pass is over.
    Get,
    Note,
    Lock,
    Unlock,
    Clear,
    /// Clears the record of a page that is not open again.
    ClearClosed,
    Protect,
    /// Reads the page; stores its checksum.
    Read,
    Cover,
    Forget,
}
use Step::{Clear, ClearClosed, Cover, Forget, Get, Lock, Note, Protect, Read, Unlock};

/// Where a storing thread is: about to store; met the protection; has the lock, if there is one;
/// has recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum At {
    Store,
    Fault,
    Record,
    Open,
}

/// The page and everybody around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct World {
    content: u8,
    covered: u8,
    read: u8,
    record: bool,
    note: bool,
    open: bool,
    /// 0 is nobody, 3 the taker.
    holder: u8,
    threads: [(At, u8); 2],
    step: usize,
    passes: u8,
}

impl World {
    fn safe(&self) -> bool {
        self.covered == self.content || self.record || self.note
    }

    /// What one storing thread can do next.
    fn stored(mut self, me: usize, locks: bool) -> Option<Self> {
        let (at, left) = self.threads[me];
        let mine = me as u8 + 1;
        self.threads[me] = match at {
            At::Store if left == 0 => return None,
            At::Store if self.open => {
                self.content += 1;
                (At::Store, left - 1)
            }
            At::Store => (At::Fault, left),
            At::Fault if locks && self.holder != 0 => return None,
            At::Fault => {
                self.holder = if locks { mine } else { 0 };
                (At::Record, left)
            }
            At::Record => {
                self.record = true;
                (At::Open, left)
            }
            At::Open => {
                self.open = true;
                self.holder = 0;
                (At::Store, left)
            }
        };
        Some(self)
    }

    /// What the taker can do next.
    fn taken(mut self, steps: &[Step]) -> Option<Self> {
        let Some(step) = steps.get(self.step) else {
            self.passes = self.passes.checked_sub(1).filter(|left| *left > 0)?;
            self.step = 0;
            return Some(self);
        };
        self.step += 1;
        match step {
            Get if !self.record => self.step = steps.len(),
            Get => {}
            Note => self.note = true,
            Lock if self.holder != 0 => return None,
            Lock => self.holder = 3,
            Unlock => self.holder = 0,
            Clear => self.record = false,
            ClearClosed => self.record &= self.open,
            Protect => self.open = false,
            Read => self.read = self.content,
            Cover => self.covered = self.read,
            Forget => self.note = false,
        }
        Some(self)
    }
}

/// States that can be reached, and those of them in which a store would be lost.
fn explore(locks: bool, steps: &[Step]) -> (usize, usize) {
    let start = World {
        content: 0,
        covered: 0,
        read: 0,
        record: false,
        note: false,
        open: false,
        holder: 0,
        threads: [(At::Store, 2); 2],
        step: 0,
        passes: 3,
    };
    let (mut seen, mut open) = (BTreeSet::from([start]), vec![start]);
    while let Some(world) = open.pop() {
        let next = [world.stored(0, locks), world.stored(1, locks), world.taken(steps)];
        open.extend(next.into_iter().flatten().filter(|world| seen.insert(*world)));
    }
    (seen.len(), seen.iter().filter(|world| !world.safe()).count())
}

#[test]
fn the_order_in_use_loses_no_store() {
    let (states, lost) =
        explore(true, &[Get, Note, Lock, Protect, Clear, Unlock, Read, Cover, Forget]);
    println!("{states} states");
    assert_eq!(lost, 0);
    assert!(states > 1000, "the world is not empty: {states}");
    let (_, lost) = explore(true, &[Get, Note, Lock, Clear, Protect, Unlock, Read, Cover, Forget]);
    assert_eq!(lost, 0);
    for note in [NOTED_BEFORE, NOTED_AFTER] {
        let (states, lost) = explore(true, note);
        println!("{states} states, cleared later");
        assert_eq!(lost, 0, "{note:?}");
        assert!(states > 1000, "the world is not empty: {states}");
    }
}

/// The order in use, where the note is the coarse one from before taking, and where it is the one
/// of what was taken.
const NOTED_BEFORE: &[Step] =
    &[Get, Note, Lock, Protect, Unlock, Lock, ClearClosed, Unlock, Read, Cover, Forget];
const NOTED_AFTER: &[Step] =
    &[Get, Lock, Protect, Unlock, Note, Lock, ClearClosed, Unlock, Read, Cover, Forget];

#[test]
fn each_part_of_it_is_needed() {
    for (what, locks, steps) in [
        ("no lock", false, &[Get, Note, Protect, Clear, Read, Cover, Forget][..]),
        ("no lock, other order", false, &[Get, Note, Clear, Protect, Read, Cover, Forget]),
        ("no note", true, &[Get, Lock, Protect, Clear, Unlock, Read, Cover]),
        ("no note, cleared last", true, &[Get, Lock, Protect, Unlock, Read, Cover, Clear]),
        (
            "cleared later, open or not",
            true,
            &[Get, Lock, Protect, Unlock, Note, Lock, Clear, Unlock, Read, Cover, Forget],
        ),
        (
            "cleared later without a lock",
            false,
            &[Get, Protect, Note, ClearClosed, Read, Cover, Forget],
        ),
        (
            "cleared before it is noted",
            true,
            &[Get, Lock, Protect, Unlock, Lock, ClearClosed, Unlock, Note, Read, Cover, Forget],
        ),
        ("not protected", true, &[Get, Note, Lock, Clear, Unlock, Read, Cover, Forget]),
    ] {
        let (states, lost) = explore(locks, steps);
        println!("{what}: {lost} of {states} states");
        assert!(lost > 0, "{what} loses a store somewhere");
    }
    // Except that the writer may wait for the whole computation.
    let (_, lost) = explore(true, &[Get, Lock, Protect, Read, Cover, Clear, Unlock]);
    assert_eq!(lost, 0);
}
