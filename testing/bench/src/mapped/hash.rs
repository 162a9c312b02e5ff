//! A hash table on a plain mapping: buckets of chains, entries in the order of their insertion.

use std::sync::Arc;

use super::area::Area;
use super::loads::{Pairs, Value};

/// Bytes of an entry: key, number of the next entry plus one, value.
const ENTRY: u64 = 8 + 4 + 100;

/// The table.
#[derive(Debug)]
pub(crate) struct Hash {
    area: Arc<Area>,
    buckets: u64,
    count: u64,
}

impl Hash {
    const fn buckets(count: u64) -> u64 {
        (count * 2).next_power_of_two()
    }

    #[inline(always)]
    fn bucket(&self, key: u64) -> u64 {
        (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20 & (self.buckets - 1)) * 4
    }

    #[inline(always)]
    fn entry(&self, number: u32) -> u64 {
        self.buckets * 4 + (u64::from(number) - 1) * ENTRY
    }
}

impl Pairs for Hash {
    fn room(count: u64) -> u64 {
        (Self::buckets(count) * 4 + count * ENTRY).next_multiple_of(4096)
    }

    fn new(area: Arc<Area>, count: u64) -> Self {
        Self { area, buckets: Self::buckets(count), count: 0 }
    }

    fn insert(&mut self, key: u64, value: &Value) {
        self.count += 1;
        let (bucket, entry) = (self.bucket(key), self.entry(self.count as u32));
        let first: u32 = self.area.load(bucket);
        self.area.store(entry, key);
        self.area.store(entry + 8, first);
        self.area.store(entry + 12, *value);
        self.area.store(bucket, self.count as u32);
    }

    #[inline(always)]
    fn find(&self, key: u64) -> Option<u64> {
        let mut number: u32 = self.area.load(self.bucket(key));
        while number != 0 {
            let entry = self.entry(number);
            if self.area.load::<u64>(entry) == key {
                return Some(entry + 12);
            }
            number = self.area.load(entry + 8);
        }
        None
    }

    fn area(&self) -> &Area {
        &self.area
    }

    fn name() -> &'static str {
        "hash"
    }
}
