//! A skip list of buckets.
//!
//! ```text
//!  header ----------------------------> tall node -------------> end    level 2 and up
//!  header -----------> node ----------> tall node -------------> end    level 1
//!  header --> node --> node --> node -> tall node --> node ----> end    level 0
//!    |         |        |        |          |           |
//!    v         v        v        v          v           v
//!  bucket    bucket   bucket   bucket     bucket      bucket
//! ```
//!
//! Each node has the bucket of all keys from its separator up to the next node's. A link has the
//! bytes of the separator it leads to that decide, so a node is read only if the way goes through
//! it.
//! One node in four is higher than one level, one in sixteen higher than two, and so on, which
//! follows from where the node lies and not from chance.

mod check;
mod path;

use std::collections::BTreeSet;

use holdfast_layout::{Ptr, RawPtr, bytemuck};
use holdfast_txn::{Result, Transaction, TxError};

use self::path::Path;
use crate::bucket::{join, split};
use crate::common::{Core, MERGED_MAX, OpenHeader, Spot, Stretch, Walk};
use crate::format::{
    Bucket, SKIP_BUCKET, SKIP_LEVELS, SKIP_SHORT, SkipHead, SkipHeader, SkipLink, SkipShort,
    SkipTall,
};
use crate::item::{Sought, TAG_MASK, word_of};
use crate::report::CheckReport;
use crate::separator::{Known, Separator, code_of};
use crate::sip;

/// Most nodes on the way to a key. Chance would have to be against us a million times in a row.
const MOVES_MAX: usize = 1 << 20;

/// A skip list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct List {
    header: Ptr<SkipHeader>,
}

/// A node in memory.
#[derive(Debug, Clone, Copy)]
struct Node {
    head: SkipHead,
    links: [SkipLink; SKIP_LEVELS],
}

impl Node {
    fn separator(&self) -> Separator {
        Separator { number: self.head.number, word: self.head.word }
    }

    fn bucket(&self) -> Ptr<Bucket> {
        self.head.bucket.typed()
    }
}

/// The pointer in a word that leads to a node.
fn place(word: u64) -> RawPtr {
    RawPtr::from_word(word & !TAG_MASK)
}

impl List {
    /// The word of the header as a node.
    fn top(&self) -> u64 {
        self.header.raw().word() | 1
    }

    #[inline]
    fn node<T: Transaction>(&self, tx: &T, word: u64) -> Result<Node> {
        let at = place(word);
        let node = if at == self.header.raw() {
            let SkipHeader { head, links } = tx.read(self.header)?;
            Node { head, links }
        } else if word & 1 == 1 {
            let SkipTall { head, links } = tx.read(at.typed())?;
            Node { head, links }
        } else {
            let short: SkipShort = tx.read(at.typed())?;
            let mut links = [SkipLink::default(); SKIP_LEVELS];
            links[..SKIP_SHORT].copy_from_slice(&short.links);
            Node { head: short.head, links }
        };
        let levels = if word & 1 == 1 { 1..=SKIP_LEVELS } else { 1..=SKIP_SHORT };
        if levels.contains(&(node.head.height as usize)) {
            Ok(node)
        } else {
            Err(TxError::Inconsistent("a node of a skip list has an impossible height"))
        }
    }

    /// The last node whose keys start at the one sought or before it. Tells `note` of the node
    /// from which the way goes down, at each level. Stays before the node `end`.
    #[inline]
    fn descend<T: Transaction>(
        &self,
        tx: &T,
        sought: &Sought<'_>,
        end: u64,
        mut note: impl FnMut(usize, u64),
    ) -> Result<(u64, Node)> {
        let mut word = self.top();
        let mut node = self.node(tx, word)?;
        let mut level = SKIP_LEVELS - 1;
        // What the key is known to come before: no need to compare again one level down.
        let (mut known, mut behind) = (Known::default(), 0);
        for _ in 0..MOVES_MAX {
            let link = node.links[level];
            if link.node != behind && link.node != 0 && link.node != end {
                if self.reaches(tx, sought, &mut known, &link)? {
                    word = link.node;
                    node = self.node(tx, word)?;
                    continue;
                }
                behind = link.node;
            }
            note(level, word);
            match level.checked_sub(1) {
                Some(below) => level = below,
                None => return Ok((word, node)),
            }
        }
        Err(TxError::Inconsistent("the way through a skip list has no end"))
    }

    /// Whether a key is not before the node a link leads to.
    #[inline]
    fn reaches<T: Transaction>(
        &self,
        tx: &T,
        sought: &Sought<'_>,
        known: &mut Known,
        link: &SkipLink,
    ) -> Result<bool> {
        let word = || Ok(self.node(tx, link.node)?.head.word);
        Ok(known.compare(tx, sought, (link.number, code_of(link.node)), word)?.is_ge())
    }

    /// Calls `visit` with each node and its word, the header first.
    fn each<T: Transaction>(
        &self,
        tx: &T,
        mut visit: impl FnMut(u64, &Node) -> Result<bool>,
    ) -> Result<()> {
        let mut seen = BTreeSet::new();
        let mut word = self.top();
        while word != 0 {
            if !seen.insert(word) {
                return Err(TxError::Inconsistent("a node of a skip list is reached twice"));
            }
            let node = self.node(tx, word)?;
            if !visit(word, &node)? {
                return Ok(());
            }
            word = node.links[0].node;
        }
        Ok(())
    }

    fn set_bucket<T: Transaction>(&self, tx: &T, word: u64, bucket: RawPtr) -> Result<()> {
        tx.write_bytes(place(word), SKIP_BUCKET, bytemuck::bytes_of(&bucket))
    }

    /// Puts a node behind the last ones of a path.
    fn link_in<T: Transaction>(
        &self,
        tx: &T,
        path: &Path,
        separator: Separator,
        bucket: RawPtr,
    ) -> Result<()> {
        let height = height_of(bucket, separator.number);
        let Separator { number, word } = separator;
        let head = SkipHead { number, word, bucket, height: height as u32, reserved: 0 };
        let mut links = [SkipLink::default(); SKIP_LEVELS];
        for (level, link) in links.iter_mut().enumerate().take(height) {
            *link = path.link(tx, level)?;
        }
        let code = code_of(word) << 1;
        let node = if height <= SKIP_SHORT {
            let [a, b, ..] = links;
            word_of(tx.alloc(SkipShort { head, links: [a, b] })?.raw())? | code
        } else {
            word_of(tx.alloc(SkipTall { head, links })?.raw())? | code | 1
        };
        (0..height).try_for_each(|level| path.set_link(tx, level, SkipLink { number, node }))
    }

    /// Takes out the node behind the last ones of a path, and frees it. Its bucket stays.
    fn link_out<T: Transaction>(&self, tx: &T, path: &Path, word: u64) -> Result<()> {
        let node = self.node(tx, word)?;
        for level in 0..node.head.height as usize {
            if path.link(tx, level)?.node != word {
                return Err(TxError::Inconsistent("links of a skip list pass a node by"));
            }
            path.set_link(tx, level, node.links[level])?;
        }
        node.separator().free(tx)?;
        tx.free(place(word))
    }

    /// Joins the bucket of the node at the end of a path with the next one's, or gets that in
    /// place of an empty one; whether it did.
    fn join_next<T: Transaction>(
        &self,
        tx: &T,
        path: &Path,
        (word, node): (u64, &Node),
        bucket: &Bucket,
    ) -> Result<bool> {
        let next = node.links[0].node;
        if next == 0 {
            return Ok(false);
        }
        let behind = self.node(tx, next)?;
        let other: Bucket = tx.read(behind.bucket())?;
        if bucket.len() == 0 {
            self.set_bucket(tx, word, behind.head.bucket)?;
            tx.free(node.head.bucket)?;
        } else if bucket.len() + other.len() <= MERGED_MAX {
            join(tx, node.bucket(), *bucket, &other)?;
            tx.free(behind.head.bucket)?;
        } else {
            return Ok(false);
        }
        self.link_out(tx, path, next).map(|()| true)
    }
}

/// Levels of a node for a bucket: four times as seldom for each level more.
fn height_of(bucket: RawPtr, number: u64) -> usize {
    let hash = sip::hash([number, 0], &bucket.word().to_le_bytes());
    (1 + hash.trailing_zeros() as usize / 2).min(SKIP_LEVELS)
}

impl Core for List {
    fn anchor(&self) -> RawPtr {
        self.header.raw()
    }

    #[inline]
    fn sought<'k>(&self, key: &'k [u8]) -> Sought<'k> {
        Sought::ordered(key)
    }

    #[inline]
    fn place<T: Transaction>(
        &self,
        tx: &T,
        sought: &Sought<'_>,
        _: &mut u32,
    ) -> Result<Option<Ptr<Bucket>>> {
        let (_, node) = self.descend(tx, sought, 0, |_, _| {})?;
        Ok(Some(node.bucket()).filter(|bucket| !bucket.is_null()))
    }

    fn make_room<T: Transaction>(&self, tx: &T, sought: &Sought<'_>) -> Result<()> {
        let (path, word, node) = Path::to(tx, self, sought, 0)?;
        if node.head.bucket.is_null() {
            return self.set_bucket(tx, word, tx.alloc(Bucket::EMPTY)?.raw());
        }
        let mut spot = Spot::new();
        spot.go(tx, node.bucket())?;
        let (separator, right) = split(tx, &mut spot, sought)?;
        self.link_in(tx, &path, separator, right)
    }

    fn tidy<T: Transaction>(&self, tx: &T, sought: &Sought<'_>) -> Result<()> {
        let (path, word, node) = Path::to(tx, self, sought, 0)?;
        let bucket: Bucket = tx.read(node.bucket())?;
        if self.join_next(tx, &path, (word, &node), &bucket)? {
            return Ok(());
        }
        if word == self.top() {
            if bucket.len() > 0 {
                return Ok(());
            }
            tx.free(node.head.bucket)?;
            return self.set_bucket(tx, word, RawPtr::NULL);
        }
        let (path, _, before) = Path::to(tx, self, sought, word)?;
        let other: Bucket = tx.read(before.bucket())?;
        if bucket.len() + other.len() > MERGED_MAX && bucket.len() > 0 {
            return Ok(());
        }
        if bucket.len() > 0 {
            join(tx, before.bucket(), other, &bucket)?;
        }
        tx.free(node.head.bucket)?;
        self.link_out(tx, &path, word)
    }

    fn each_bucket<T: Transaction>(
        &self,
        tx: &T,
        mut visit: impl FnMut(&Bucket) -> Result<bool>,
    ) -> Result<()> {
        self.each(tx, |_, node| match node.head.bucket.is_null() {
            true => Ok(true),
            false => visit(&tx.read(node.bucket())?),
        })
    }

    fn empty_out<T: Transaction>(&self, tx: &T) -> Result<()> {
        self.each(tx, |word, node| {
            if !node.head.bucket.is_null() {
                let bucket: Bucket = tx.read(node.bucket())?;
                bucket.free_entries(tx)?;
                tx.free(node.head.bucket)?;
            }
            if word != self.top() {
                node.separator().free(tx)?;
                tx.free(place(word))?;
            }
            Ok(true)
        })?;
        *tx.open_mut(self.header)? = EMPTY;
        Ok(())
    }

    fn check_all<T: Transaction>(&self, tx: &T) -> Result<CheckReport> {
        check::check(tx, self)
    }
}

impl Walk for List {
    fn rank(&self, _: &[u8]) -> u64 {
        0
    }

    fn items_at<T: Transaction>(
        &self,
        tx: &T,
        key: Option<&[u8]>,
        back: bool,
        further: bool,
    ) -> Result<Option<Stretch>> {
        let (mut word, mut node) = match key {
            Some(key) => self.descend(tx, &Sought::ordered(key), 0, |_, _| {})?,
            None if back => self.last(tx)?,
            None => (self.top(), self.node(tx, self.top())?),
        };
        if further && back {
            if word == self.top() {
                return Ok(None);
            }
            let key = key.unwrap_or_default();
            (word, node) = self.descend(tx, &Sought::ordered(key), word, |_, _| {})?;
        } else if further {
            word = node.links[0].node;
            if word == 0 {
                return Ok(None);
            }
            node = self.node(tx, word)?;
        }
        if node.head.bucket.is_null() && word == self.top() {
            return Ok(None);
        }
        Stretch::read(tx, node.bucket()).map(Some)
    }
}

impl List {
    /// The last node.
    fn last<T: Transaction>(&self, tx: &T) -> Result<(u64, Node)> {
        let mut word = self.top();
        let mut node = self.node(tx, word)?;
        for _ in 0..MOVES_MAX {
            match node.links.iter().rev().find(|link| link.node != 0) {
                Some(link) => word = link.node,
                None => return Ok((word, node)),
            }
            node = self.node(tx, word)?;
        }
        Err(TxError::Inconsistent("the way through a skip list has no end"))
    }
}

const EMPTY: SkipHeader = SkipHeader {
    head: SkipHead {
        number: 0,
        word: 0,
        bucket: RawPtr::NULL,
        height: SKIP_LEVELS as u32,
        reserved: 0,
    },
    links: [SkipLink { number: 0, node: 0 }; SKIP_LEVELS],
};

impl OpenHeader<SkipHeader> for List {
    fn create_header<T: Transaction>(tx: &T) -> Result<Self> {
        Ok(Self { header: tx.alloc(EMPTY)? })
    }

    fn open_header<T: Transaction>(tx: &T, header: Ptr<SkipHeader>) -> Result<Self> {
        tx.read(header)?;
        Ok(Self { header })
    }
}
