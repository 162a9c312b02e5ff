//! What all structures have in common: the functions of a map, over the few steps in which the
//! structures differ.

use core::ops::Bound;

use holdfast_layout::{Ptr, RawPtr};
use holdfast_txn::{Result, Transaction, TxError};

use crate::bucket::{Full, Hit, find_at_home, write_item};
use crate::entry::EntryBuf;
use crate::format::{BUCKET_ITEMS, Bucket, Item};
use crate::item::{Sought, check_len};
use crate::report::CheckReport;

/// After a removal that leaves as many items, a bucket is offered to its neighbours. Few numbers,
/// so that a neighbour that is too full is not read again at each removal.
const THIN: [usize; 3] = [BUCKET_ITEMS / 4, BUCKET_ITEMS / 8, 0];
/// Buckets that have no more items together become one.
pub(crate) const MERGED_MAX: usize = BUCKET_ITEMS * 3 / 4;
/// Most steps to make room for a key: each uses up a bit of it, or splits a bucket.
const ROOM_STEPS: usize = 1 << 8;

/// Where a key is, or would be.
pub(crate) struct Spot {
    pub(crate) at: Ptr<Bucket>,
    pub(crate) bucket: Bucket,
    /// The first position of keys that the nodes above have not looked at.
    pub(crate) level: u32,
}

impl Spot {
    pub(crate) fn new() -> Self {
        Self { at: Ptr::null(), bucket: Bucket::EMPTY, level: 0 }
    }

    /// Goes to a bucket.
    #[inline]
    pub(crate) fn go<T: Transaction>(&mut self, tx: &T, at: Ptr<Bucket>) -> Result<()> {
        self.at = at;
        tx.read_into(at, &mut self.bucket)
    }
}

/// The steps in which structures differ.
pub(crate) trait Core: Copy {
    /// The header.
    fn anchor(&self) -> RawPtr;

    /// The key as the structure looks for it.
    fn sought<'k>(&self, key: &'k [u8]) -> Sought<'k>;

    /// The bucket a key is in if it is there at all, or the first one of a chain; `None` if there
    /// is no bucket. Tells `level` the first position of keys that nobody has looked at.
    fn place<T: Transaction>(
        &self,
        tx: &T,
        sought: &Sought<'_>,
        level: &mut u32,
    ) -> Result<Option<Ptr<Bucket>>>;

    /// Goes along a chain to the bucket with a key, or one that has room for it.
    fn along<T: Transaction>(&self, _: &T, _: &Sought<'_>, _: &mut Spot) -> Result<()> {
        Err(TxError::Inconsistent("a bucket of an ordered structure is chained to another"))
    }

    /// Goes to the bucket a key is in if it is there at all; `false` if there is no bucket.
    #[inline]
    fn look<T: Transaction>(&self, tx: &T, sought: &Sought<'_>, spot: &mut Spot) -> Result<bool> {
        let Some(at) = self.place(tx, sought, &mut spot.level)? else { return Ok(false) };
        self.look_in(tx, at, sought, spot).map(|()| true)
    }

    /// Goes to the bucket at `at`, and along the chain it may be the first of.
    #[inline]
    fn look_in<T: Transaction>(
        &self,
        tx: &T,
        at: Ptr<Bucket>,
        sought: &Sought<'_>,
        spot: &mut Spot,
    ) -> Result<()> {
        spot.go(tx, at)?;
        if spot.bucket.next.is_null() { Ok(()) } else { self.along(tx, sought, spot) }
    }

    /// Whether a key that is not there may be put into the bucket it was looked for in.
    fn takes<T: Transaction>(&self, _: &T, _: &Sought<'_>, _: &Spot) -> Result<bool> {
        Ok(true)
    }

    /// Makes room for a key: called if there is no bucket, if it is full, or does not take it.
    fn make_room<T: Transaction>(&self, tx: &T, sought: &Sought<'_>) -> Result<()>;

    /// Joins the bucket of a key that was removed with a neighbour, if both are thin, or takes it
    /// away if it is empty.
    fn tidy<T: Transaction>(&self, tx: &T, sought: &Sought<'_>) -> Result<()>;

    /// Calls `visit` with every bucket; ends early if that returns `false`.
    fn each_bucket<T: Transaction>(
        &self,
        tx: &T,
        visit: impl FnMut(&Bucket) -> Result<bool>,
    ) -> Result<()>;

    /// Frees everything but the header, and makes the header that of an empty structure.
    fn empty_out<T: Transaction>(&self, tx: &T) -> Result<()>;

    /// Frees everything.
    fn demolish<T: Transaction>(&self, tx: &T) -> Result<()> {
        self.empty_out(tx)?;
        tx.free(self.anchor())
    }

    /// Checks everything.
    fn check_all<T: Transaction>(&self, tx: &T) -> Result<CheckReport>;

    /// Looks for a key; whether it is there.
    #[inline]
    fn find<T: Transaction>(&self, tx: &T, key: &[u8], hit: &mut Hit) -> Result<bool> {
        let sought = self.sought(key);
        let Some(at) = self.place(tx, &sought, &mut 0)? else { return Ok(false) };
        Ok(find_at_home(tx, at, &sought, hit)? || self.find_anywhere(tx, at, &sought, hit)?)
    }

    /// Looks for a key that is not in its home lines.
    #[inline(never)]
    fn find_anywhere<T: Transaction>(
        &self,
        tx: &T,
        at: Ptr<Bucket>,
        sought: &Sought<'_>,
        hit: &mut Hit,
    ) -> Result<bool> {
        let mut spot = Spot::new();
        self.look_in(tx, at, sought, &mut spot)?;
        hit.find(tx, sought, &spot.bucket.items, 0)
    }

    /// Gives a key a value; returns whether it had one, which `old` gets.
    fn put_and_keep<T: Transaction>(
        &self,
        tx: &T,
        key: &[u8],
        value: &[u8],
        old: Option<&mut Vec<u8>>,
    ) -> Result<bool> {
        check_len(key)?;
        // Whoever goes on after an error, such as that of a full pool, must not commit a half.
        tx.whole(|| self.put_sought(tx, &self.sought(key), value, old))
    }

    /// As `put_and_keep`, for a key that was prepared.
    fn put_sought<T: Transaction>(
        &self,
        tx: &T,
        sought: &Sought<'_>,
        value: &[u8],
        old: Option<&mut Vec<u8>>,
    ) -> Result<bool> {
        let (mut spot, mut hit) = (Spot::new(), Hit::new());
        let mut there = self.look(tx, sought, &mut spot)?;
        if there && hit.find(tx, sought, &spot.bucket.items, 0)? {
            if let Some(old) = old {
                hit.copy_to(tx, old)?;
            }
            return change(tx, &spot, &hit, sought, value).map(|()| true);
        }
        // First of all, as a value that no object can hold is refused with nothing changed then.
        let item = Item::create(tx, sought, value)?;
        for _ in 0..ROOM_STEPS + sought.key.len() {
            if there
                && let Some(slot) = spot.bucket.free_slot(sought.number())
                && self.takes(tx, sought, &spot)?
            {
                return write_item(tx, spot.at, slot, item).map(|()| false);
            }
            self.make_room(tx, sought)?;
            there = self.look(tx, sought, &mut spot)?;
        }
        Err(TxError::Inconsistent("a map makes no room for a key"))
    }

    /// Removes a key; returns whether it was there, and its value in `old`.
    fn remove_and_keep<T: Transaction>(
        &self,
        tx: &T,
        key: &[u8],
        old: Option<&mut Vec<u8>>,
    ) -> Result<bool> {
        tx.whole(|| self.remove_sought(tx, &self.sought(key), old))
    }

    /// As `remove_and_keep`, for a key that was prepared.
    fn remove_sought<T: Transaction>(
        &self,
        tx: &T,
        sought: &Sought<'_>,
        old: Option<&mut Vec<u8>>,
    ) -> Result<bool> {
        let (mut spot, mut hit) = (Spot::new(), Hit::new());
        let there = self.look(tx, sought, &mut spot)?;
        if !there || !hit.find(tx, sought, &spot.bucket.items, 0)? {
            return Ok(false);
        }
        if let Some(old) = old {
            hit.copy_to(tx, old)?;
        }
        write_item(tx, spot.at, hit.slot, Item::default())?;
        if let Some(entry) = &hit.entry {
            tx.free(entry.pointer())?;
        }
        if THIN.contains(&(spot.bucket.len() - 1)) {
            self.tidy(tx, sought)?;
        }
        Ok(true)
    }

    /// Number of entries.
    fn count<T: Transaction>(&self, tx: &T) -> Result<u64> {
        let mut count = 0;
        self.each_bucket(tx, |bucket| {
            count += bucket.len() as u64;
            Ok(true)
        })?;
        Ok(count)
    }

    /// Whether there is no entry.
    fn has_none<T: Transaction>(&self, tx: &T) -> Result<bool> {
        let mut none = true;
        self.each_bucket(tx, |bucket| {
            none = bucket.len() == 0;
            Ok(none)
        })?;
        Ok(none)
    }
}

/// Gives a key another value: in its place if it has the same length.
fn change<T: Transaction>(
    tx: &T,
    spot: &Spot,
    hit: &Hit,
    sought: &Sought<'_>,
    value: &[u8],
) -> Result<()> {
    if let Some(entry) = &hit.entry
        && entry.overwrite(tx, value)?
    {
        return Ok(());
    }
    let item = Item::create(tx, sought, value)?;
    write_item(tx, spot.at, hit.slot, item)?;
    hit.entry.as_ref().map_or(Ok(()), |entry| tx.free(entry.pointer()))
}

/// Items that a walk visits before it looks at the structure again.
pub(crate) struct Stretch {
    /// Where they were found: a bucket, the first one if it is one of a chain, as it was then.
    at: Ptr<Bucket>,
    bucket: Bucket,
    items: Vec<Full>,
}

impl Stretch {
    pub(crate) fn new(at: Ptr<Bucket>, bucket: Bucket, items: Vec<Full>) -> Self {
        Self { at, bucket, items }
    }

    /// The items of a bucket.
    pub(crate) fn read<T: Transaction>(tx: &T, at: Ptr<Bucket>) -> Result<Self> {
        let bucket: Bucket = tx.read(at)?;
        let items = bucket.sorted(tx)?;
        Ok(Self::new(at, bucket, items))
    }
}

/// Finds out visitors that change what they are shown: parts of it may have been passed by.
fn unchanged<T: Transaction>(tx: &T, at: Ptr<Bucket>, before: &Bucket) -> Result<()> {
    let same = match tx.read(at) {
        Ok(now) => now == *before,
        Err(error) if error.is_transient() => return Err(error),
        Err(_) => false,
    };
    if same {
        return Ok(());
    }
    Err(TxError::cancel(
        "the map was changed while its entries were visited: go through it with a cursor",
    ))
}

/// Going through a structure: in order of keys, or of hashes and then keys.
pub(crate) trait Walk: Core {
    /// What comes before the key itself in the order.
    fn rank(&self, key: &[u8]) -> u64;

    /// The items, in order, of a bucket such that everything in buckets before it is less than
    /// `key`, and everything in buckets behind it greater; without a key, of the first one, or the
    /// last one if `back`. If `further`, of the next one in that direction. `None` if there is
    /// none.
    fn items_at<T: Transaction>(
        &self,
        tx: &T,
        key: Option<&[u8]>,
        back: bool,
        further: bool,
    ) -> Result<Option<Stretch>>;

    /// Calls `visit` with items in order, or from the end if `back`, until it returns `false`.
    fn walk<T: Transaction>(
        &self,
        tx: &T,
        from: Bound<&[u8]>,
        back: bool,
        mut visit: impl FnMut(&Full) -> Result<bool>,
    ) -> Result<()> {
        let mut from = from.map(<[u8]>::to_vec);
        let mut further = false;
        loop {
            let start = match &from {
                Bound::Included(key) | Bound::Excluded(key) => Some(&key[..]),
                Bound::Unbounded => None,
            };
            let Some(stretch) = self.items_at(tx, start, back, further)? else { return Ok(()) };
            let Stretch { at, bucket, mut items } = stretch;
            if back {
                items.reverse();
            }
            items.retain(|full| self.is_from(&from, back, full.key.bytes()));
            match items.last() {
                Some(last) => from = Bound::Excluded(last.key.bytes().to_vec()),
                None if further => return Err(TxError::Inconsistent("buckets are out of order")),
                None if start.is_none() => return Ok(()),
                None => {}
            }
            further = true;
            let mut visited = 0;
            let enough = loop {
                let Some(full) = items.get(visited) else { break false };
                visited += 1;
                match visit(full) {
                    Ok(true) => {}
                    Ok(false) => break true,
                    // Its entry may be one that an earlier visit removed.
                    Err(error @ TxError::Dangling { .. }) => {
                        return unchanged(tx, at, &bucket).and(Err(error));
                    }
                    Err(error) => return Err(error),
                }
            };
            // What is next was found in what the bucket was before the first visit.
            if !(enough && visited == 1) {
                unchanged(tx, at, &bucket)?;
            }
            if enough {
                return Ok(());
            }
        }
    }

    /// Whether a walk that starts at `from` comes to `key`.
    fn is_from(&self, from: &Bound<Vec<u8>>, back: bool, key: &[u8]) -> bool {
        let (start, also) = match from {
            Bound::Unbounded => return true,
            Bound::Included(start) => (start, true),
            Bound::Excluded(start) => (start, false),
        };
        let order = (self.rank(key), key).cmp(&(self.rank(start), start));
        if order.is_eq() { also } else { order.is_lt() == back }
    }
}

/// Structures that are found by their header alone.
pub(crate) trait OpenHeader<H>: Core {
    /// Creates an empty one.
    fn create_header<T: Transaction>(tx: &T) -> Result<Self>;

    /// The one whose header is at `header`.
    fn open_header<T: Transaction>(tx: &T, header: Ptr<H>) -> Result<Self>;
}

/// How far to go, and in which direction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way {
    pub(crate) limit: usize,
    pub(crate) back: bool,
}

impl Way {
    /// Everything, from the start.
    pub(crate) const ALL: Self = Self { limit: usize::MAX, back: false };
}

/// Calls `visit` with the entries between two bounds; returns how many there were.
pub(crate) fn walk<C: Walk, T: Transaction>(
    core: &C,
    tx: &T,
    (from, to): (Bound<&[u8]>, Bound<&[u8]>),
    way: Way,
    mut visit: impl FnMut(&[u8], &[u8]) -> Result<()>,
) -> Result<usize> {
    if way.limit == 0 {
        return Ok(0);
    }
    let mut count = 0;
    let mut value = Vec::new();
    core.walk(tx, from, way.back, |full| {
        let key = full.key.bytes();
        let within = match to {
            Bound::Unbounded => true,
            Bound::Included(end) => key == end || (key < end) != way.back,
            Bound::Excluded(end) => key != end && (key < end) != way.back,
        };
        if !within {
            return Ok(false);
        }
        match full.item.entry() {
            None => full.item.with_value(|value| visit(key, value))?,
            Some(entry) => {
                EntryBuf::read(tx, entry)?.value_into(tx, &mut value)?;
                visit(key, &value)?;
            }
        }
        count += 1;
        Ok(count < way.limit)
    })?;
    Ok(count)
}

/// Up to `limit` keys of a walk. No value is read, nor an entry whose item tells its key: so keys
/// of up to eight bytes are told whatever became of their values.
pub(crate) fn keys<C: Walk, T: Transaction>(
    core: &C,
    tx: &T,
    from: Bound<&[u8]>,
    limit: usize,
) -> Result<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    if limit > 0 {
        core.walk(tx, from, false, |full| {
            found.push(full.key.bytes().to_vec());
            Ok(found.len() < limit)
        })?;
    }
    Ok(found)
}

/// The first entry of a walk.
pub(crate) fn one<C: Walk, T: Transaction>(
    core: &C,
    tx: &T,
    from: Bound<&[u8]>,
    back: bool,
) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    let mut found = None;
    walk(core, tx, (from, Bound::Unbounded), Way { limit: 1, back }, |key, value| {
        found = Some((key.to_vec(), value.to_vec()));
        Ok(())
    })?;
    Ok(found)
}

/// Puts entries whose keys rise.
pub(crate) fn load<C: Core, T: Transaction, K: AsRef<[u8]>, V: AsRef<[u8]>>(
    core: &C,
    tx: &T,
    entries: impl IntoIterator<Item = (K, V)>,
) -> Result<u64> {
    let mut before: Option<K> = None;
    let mut count = 0;
    for (key, value) in entries {
        if before.as_ref().is_some_and(|before| before.as_ref() >= key.as_ref()) {
            return Err(TxError::cancel("entries to load have to come in rising order of keys"));
        }
        core.put_and_keep(tx, key.as_ref(), value.as_ref(), None)?;
        before = Some(key);
        count += 1;
    }
    Ok(count)
}
