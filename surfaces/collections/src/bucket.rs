//! Buckets: what every structure keeps its items in.
//!
//! Items are in no order, so that to insert or remove one changes sixteen bytes. A key is found
//! by comparing numbers; only an entry whose number agrees is read. Whoever needs an order sorts
//! the items of one bucket in memory.
//!
//! Each number has a home, one of the sixteen lines of 64 bytes, and a second one, the line beside
//! it: an item is put there if there is room. So a lookup reads a line, rarely another, and only if
//! the key is in neither the whole bucket.

use core::ops::Range;

use holdfast_layout::{Ptr, RawPtr, bytemuck};
use holdfast_txn::{Result, Transaction, TxError};

use crate::common::Spot;
use crate::entry::EntryBuf;
use crate::format::{BUCKET_ITEMS, Bucket, Item, bucket_item};
use crate::item::{KeyBuf, Sought, word_of};
use crate::separator::Separator;

/// An item of a bucket with its key.
#[derive(Debug, Clone)]
pub(crate) struct Full {
    pub(crate) key: KeyBuf,
    pub(crate) item: Item,
    /// Where it is in its bucket.
    pub(crate) slot: usize,
}

/// A key that was found, and its value.
#[derive(Debug)]
pub(crate) struct Hit {
    pub(crate) item: Item,
    /// Where it is in its bucket.
    pub(crate) slot: usize,
    /// What it points to, if it points to something.
    pub(crate) entry: Option<EntryBuf>,
}

impl Hit {
    /// Nothing yet.
    #[inline]
    pub(crate) fn new() -> Self {
        Self { item: Item::default(), slot: 0, entry: None }
    }

    /// Looks for a key among `items`, the first of which is at `first` in its bucket.
    #[inline]
    pub(crate) fn find<T: Transaction>(
        &mut self,
        tx: &T,
        sought: &Sought<'_>,
        items: &[Item],
        first: usize,
    ) -> Result<bool> {
        let mut from = 0;
        while let Some(slot) = sought.among(items, from) {
            (self.item, self.slot) = (items[slot], first + slot);
            let Some(entry) = self.item.entry() else { return Ok(true) };
            let buf = self.entry.get_or_insert_with(EntryBuf::new);
            buf.load(tx, entry)?;
            if sought.is_short() && buf.has_key_of(sought.key.len()) || buf.is(tx, sought.key)? {
                return Ok(true);
            }
            self.entry = None;
            from = slot + 1;
        }
        Ok(false)
    }

    /// Lends the value.
    #[inline]
    pub(crate) fn lend<T: Transaction, R>(
        &self,
        tx: &T,
        use_it: impl FnOnce(&[u8]) -> R,
    ) -> Result<R> {
        match &self.entry {
            None => Ok(self.item.with_value(use_it)),
            Some(entry) => entry.value(tx, use_it),
        }
    }

    /// Puts the value into `into`, in place of what was there.
    pub(crate) fn copy_to<T: Transaction>(&self, tx: &T, into: &mut Vec<u8>) -> Result<()> {
        match &self.entry {
            None => {
                into.clear();
                self.item.with_value(|value| into.extend_from_slice(value));
                Ok(())
            }
            Some(entry) => entry.value_into(tx, into),
        }
    }
}

/// Items in a line of the cache.
const PER_LINE: usize = 64 / size_of::<Item>();
/// Lines of a bucket. The head is in place of an item of the first one.
const LINES: usize = (BUCKET_ITEMS + 1) / PER_LINE;

/// Which lines of a bucket an item with this number is in, if they had room when it came: the first
/// if that had.
#[inline]
fn homes_of(number: u64) -> [usize; 2] {
    let home = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - LINES.ilog2())) as usize;
    [home, home ^ 1]
}

/// The places in a line.
#[inline]
fn line(home: usize) -> Range<usize> {
    (home * PER_LINE).saturating_sub(1)..(home + 1) * PER_LINE - 1
}

/// Looks for a key in its home lines, and nowhere else. What is read may be anything, so whoever
/// wants to change it has to look at the whole bucket.
#[inline]
pub(crate) fn find_at_home<T: Transaction>(
    tx: &T,
    at: Ptr<Bucket>,
    sought: &Sought<'_>,
    hit: &mut Hit,
) -> Result<bool> {
    for home in homes_of(sought.number()) {
        let slots = line(home);
        let mut items = [Item::default(); PER_LINE];
        let items = &mut items[..slots.len()];
        tx.read_bytes(at.raw(), bucket_item(slots.start), bytemuck::cast_slice_mut(items))?;
        if hit.find(tx, sought, items, slots.start)? {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Bucket {
    /// One without items.
    pub(crate) const EMPTY: Self = Self {
        depth: 0,
        reserved: 0,
        next: Ptr::null(),
        items: [Item { key: 0, word: 0 }; BUCKET_ITEMS],
    };

    /// Items in use.
    pub(crate) fn used(&self) -> impl Iterator<Item = (usize, &Item)> {
        self.items.iter().enumerate().filter(|(_, item)| item.word != 0)
    }

    /// How many items are in use.
    pub(crate) fn len(&self) -> usize {
        self.used().count()
    }

    /// A place that is not in use: in a home line of a number if there is one.
    #[inline]
    pub(crate) fn free_slot(&self, number: u64) -> Option<usize> {
        let [first, second] = homes_of(number);
        let anywhere = || self.free_among(0..BUCKET_ITEMS);
        self.free_among(line(first)).or_else(|| self.free_among(line(second))).or_else(anywhere)
    }

    #[inline]
    fn free_among(&self, slots: Range<usize>) -> Option<usize> {
        let start = slots.start;
        self.items[slots].iter().position(|item| item.word == 0).map(|at| start + at)
    }

    /// Adds an item, if there is room: anywhere, or only in the first `homes` of its home lines.
    fn add(&mut self, item: Item, homes: Option<usize>) -> bool {
        let slot = match homes {
            None => self.free_slot(item.key),
            Some(count) => {
                let homes = &homes_of(item.key)[..count];
                homes.iter().find_map(|home| self.free_among(line(*home)))
            }
        };
        slot.is_some_and(|slot| {
            self.items[slot] = item;
            true
        })
    }

    /// Adds items: first those that find room in their first home lines, then in their second.
    fn add_all(&mut self, items: impl Iterator<Item = Item>) -> Result<()> {
        let mut left: Vec<Item> = items.collect();
        for homes in [Some(1), Some(2), None] {
            left.retain(|item| !self.add(*item, homes));
        }
        if left.is_empty() {
            Ok(())
        } else {
            Err(TxError::Inconsistent("a bucket has more items than it had"))
        }
    }

    /// Brings items to their home lines that have room now.
    fn bring_home(&mut self) {
        for homes in 1..=2 {
            for slot in 0..self.items.len() {
                let item = self.items[slot];
                let at_home = |home: &usize| line(*home).contains(&slot);
                let away = item.word != 0 && !homes_of(item.key)[..homes].iter().any(at_home);
                if away && self.add(item, Some(homes)) {
                    self.items[slot] = Item::default();
                }
            }
        }
    }

    /// All items with their keys, in order.
    pub(crate) fn sorted<T: Transaction>(&self, tx: &T) -> Result<Vec<Full>> {
        let mut all = Vec::with_capacity(BUCKET_ITEMS);
        for (slot, item) in self.used() {
            all.push(Full { key: KeyBuf::read(tx, item)?, item: *item, slot });
        }
        all.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        if all.windows(2).any(|pair| pair[0].key == pair[1].key) {
            return Err(TxError::Inconsistent("a key is in a bucket twice"));
        }
        Ok(all)
    }

    /// Frees all entries.
    pub(crate) fn free_entries<T: Transaction>(&self, tx: &T) -> Result<()> {
        self.used().filter_map(|(_, item)| item.entry()).try_for_each(|entry| tx.free(entry))
    }
}

/// Stores one item; nothing else of the bucket changes.
#[inline]
pub(crate) fn write_item<T: Transaction>(
    tx: &T,
    at: Ptr<Bucket>,
    slot: usize,
    item: Item,
) -> Result<()> {
    tx.write_bytes(at.raw(), bucket_item(slot), bytemuck::bytes_of(&item))
}

/// Moves what `leaves` says out of a bucket into a new one, which is returned.
pub(crate) fn move_out<T: Transaction>(
    tx: &T,
    at: Ptr<Bucket>,
    bucket: &mut Bucket,
    fresh: Bucket,
    leaves: impl IntoIterator<Item = usize>,
) -> Result<RawPtr> {
    let mut fresh = fresh;
    fresh.add_all(leaves.into_iter().map(|slot| core::mem::take(&mut bucket.items[slot])))?;
    bucket.bring_home();
    *tx.open_mut(at)? = *bucket;
    tx.alloc(fresh).map(Ptr::raw)
}

/// Adds the items of one bucket to another, which has the room.
pub(crate) fn join<T: Transaction>(
    tx: &T,
    at: Ptr<Bucket>,
    mut into: Bucket,
    from: &Bucket,
) -> Result<()> {
    into.add_all(from.used().map(|(_, item)| *item))?;
    *tx.open_mut(at)? = into;
    Ok(())
}

/// Splits a full bucket; returns the separator and the new bucket behind it. If `sought` comes
/// after all its keys, it stays as it is and the new one is empty: keys that come in order leave
/// full buckets behind.
pub(crate) fn split<T: Transaction>(
    tx: &T,
    spot: &mut Spot,
    sought: &Sought<'_>,
) -> Result<(Separator, RawPtr)> {
    let sorted = spot.bucket.sorted(tx)?;
    if let Some(last) = sorted.last()
        && last.key.bytes() < sought.key
    {
        let separator = Separator::between(tx, last.key.bytes(), sought.key)?;
        let fresh = tx.alloc(Bucket::EMPTY)?.raw();
        word_of(fresh)?;
        return Ok((separator, fresh));
    }
    let cut = sorted.len() / 2;
    let (left, right) = (&sorted[..cut], &sorted[cut..]);
    let left = left.last().map_or(&[][..], |full| full.key.bytes());
    let first = right.first().map_or(&[][..], |full| full.key.bytes());
    let separator = Separator::between(tx, left, first)?;
    let leaving = right.iter().map(|full| full.slot);
    let fresh = move_out(tx, spot.at, &mut spot.bucket, Bucket::EMPTY, leaving)?;
    word_of(fresh)?;
    Ok((separator, fresh))
}
