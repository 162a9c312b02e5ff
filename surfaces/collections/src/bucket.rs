//! Buckets: what every structure keeps its items in.
//!
//! Items are in no order, so that to insert or remove one changes sixteen bytes. A key is found
//! by comparing numbers; only an entry whose number agrees is read. Whoever needs an order sorts
//! the items of one bucket in memory.

use holdfast_layout::{Ptr, RawPtr, bytemuck};
use holdfast_txn::{Result, Transaction, TxError};

use crate::common::Spot;
use crate::entry::EntryBuf;
use crate::format::{BUCKET_ITEMS, Bucket, Item, bucket_item};
use crate::item::{KeyBuf, Separator, Sought, word_of};

/// An item of a bucket with its key.
#[derive(Debug, Clone)]
pub(crate) struct Full {
    pub(crate) key: KeyBuf,
    pub(crate) item: Item,
    /// Where it is in its bucket.
    pub(crate) slot: usize,
}

/// A value that was found.
#[expect(clippy::large_enum_variant, reason = "lives on the stack, for one operation")]
#[derive(Debug)]
pub(crate) enum Found {
    /// In its item.
    Here(Item),
    /// In an entry.
    Entry(EntryBuf),
}

impl Found {
    /// Lends the value.
    pub(crate) fn lend<T: Transaction, R>(
        &self,
        tx: &T,
        use_it: impl FnOnce(&[u8]) -> R,
    ) -> Result<R> {
        match self {
            Self::Here(item) => Ok(item.with_value(use_it)),
            Self::Entry(entry) => entry.value(tx, use_it),
        }
    }

    /// Puts the value into `into`, in place of what was there.
    pub(crate) fn copy_to<T: Transaction>(&self, tx: &T, into: &mut Vec<u8>) -> Result<()> {
        match self {
            Self::Here(item) => {
                into.clear();
                item.with_value(|value| into.extend_from_slice(value));
                Ok(())
            }
            Self::Entry(entry) => entry.value_into(tx, into),
        }
    }
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

    /// A place that is not in use.
    #[inline]
    pub(crate) fn free_slot(&self) -> Option<usize> {
        self.items.iter().position(|item| item.word == 0)
    }

    /// Where a key is, and its value.
    #[inline]
    pub(crate) fn find<T: Transaction>(
        &self,
        tx: &T,
        sought: &Sought<'_>,
    ) -> Result<Option<(usize, Found)>> {
        let mut from = 0;
        while let Some(slot) = sought.among(&self.items, from) {
            let item = self.items[slot];
            let Some(entry) = item.entry() else { return Ok(Some((slot, Found::Here(item)))) };
            let entry = EntryBuf::read(tx, entry)?;
            if entry.is(tx, sought.key)? {
                return Ok(Some((slot, Found::Entry(entry))));
            }
            from = slot + 1;
        }
        Ok(None)
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
    for (place, slot) in leaves.into_iter().enumerate() {
        fresh.items[place] = core::mem::take(&mut bucket.items[slot]);
    }
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
    let mut more = from.used();
    for place in into.items.iter_mut().filter(|item| item.word == 0) {
        let Some((_, item)) = more.next() else { break };
        *place = *item;
    }
    if more.next().is_some() {
        return Err(TxError::Inconsistent("a bucket has more items than it had"));
    }
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
