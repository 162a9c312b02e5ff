//! Handles: numbers that name an entry of a table, its generation and its sort. A number that was
//! given back, made up or mixed up is found out.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::border::{Done, Fail, holdfast_code as Code};

/// Bits of an index; a generation above, a sort on top.
const INDEX_BITS: u32 = 32;
const GENERATION_BITS: u32 = 24;
const GENERATION_MAX: u64 = (1 << GENERATION_BITS) - 1;

/// What a handle is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Sort {
    Pool = 0x51,
    Map = 0x52,
    View = 0x53,
    Tx = 0x54,
    Cursor = 0x55,
}

impl Sort {
    const ALL: [Self; 5] = [Self::Pool, Self::Map, Self::View, Self::Tx, Self::Cursor];

    const fn name(self) -> &'static str {
        match self {
            Self::Pool => "pool",
            Self::Map => "map",
            Self::View => "view",
            Self::Tx => "transaction",
            Self::Cursor => "cursor",
        }
    }

    /// A handle: this sort over 56 bits.
    pub(crate) const fn tag(self, rest: u64) -> u64 {
        (self as u64) << (INDEX_BITS + GENERATION_BITS) | rest
    }

    /// What a handle of this sort holds below the sort.
    pub(crate) fn expect(self, id: u64) -> Done<u64> {
        let found = id >> (INDEX_BITS + GENERATION_BITS);
        if found == self as u64 {
            return Ok(self.tag(0) ^ id);
        }
        let what = match Self::ALL.into_iter().find(|sort| *sort as u64 == found) {
            _ if id == 0 => "null",
            Some(other) => other.name(),
            None => "no handle",
        };
        let text = format!("a handle of a {} is needed; this one is: {what}", self.name());
        Err(Fail::new(Code::HoldfastHandle, text))
    }

    pub(crate) fn gone(self) -> Fail {
        let text = format!("this {} was given back already, or never was", self.name());
        Fail::new(Code::HoldfastHandle, text)
    }
}

#[derive(Debug)]
struct Slot<T> {
    generation: u64,
    value: Option<Arc<T>>,
}

/// Everything of one sort that the program has. Whoever uses an entry has it by an `Arc`, so that
/// it lives as long as the call.
#[derive(Debug)]
pub(crate) struct Table<T> {
    sort: Sort,
    slots: Mutex<Vec<Slot<T>>>,
}

impl<T> Table<T> {
    pub(crate) const fn new(sort: Sort) -> Self {
        Self { sort, slots: Mutex::new(Vec::new()) }
    }

    fn slots(&self) -> MutexGuard<'_, Vec<Slot<T>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an entry.
    pub(crate) fn add(&self, value: T) -> u64 {
        let mut slots = self.slots();
        // A slot whose generations are used up is left alone: its old handles would come alive.
        let usable = |slot: &Slot<T>| slot.value.is_none() && slot.generation < GENERATION_MAX;
        let index = slots.iter().position(usable).unwrap_or_else(|| {
            slots.push(Slot { generation: 0, value: None });
            slots.len() - 1
        });
        let slot = &mut slots[index];
        slot.generation += 1;
        slot.value = Some(Arc::new(value));
        self.sort.tag(slot.generation << INDEX_BITS | index as u64)
    }

    fn find<'s>(&self, slots: &'s mut [Slot<T>], id: u64) -> Done<&'s mut Slot<T>> {
        let rest = self.sort.expect(id)?;
        let index = usize::try_from(rest & u64::from(u32::MAX)).map_err(|_| self.sort.gone())?;
        slots
            .get_mut(index)
            .filter(|slot| slot.generation == rest >> INDEX_BITS && slot.value.is_some())
            .ok_or_else(|| self.sort.gone())
    }

    /// The entry of a handle.
    pub(crate) fn get(&self, id: u64) -> Done<Arc<T>> {
        let mut slots = self.slots();
        self.find(&mut slots, id)?.value.clone().ok_or_else(|| self.sort.gone())
    }

    /// Takes an entry out, if nobody uses it; `in_use` is the answer otherwise.
    pub(crate) fn remove(&self, id: u64, in_use: impl FnOnce() -> Fail) -> Done<T> {
        let mut slots = self.slots();
        let slot = self.find(&mut slots, id)?;
        let value = slot.value.take().ok_or_else(|| self.sort.gone())?;
        Arc::try_unwrap(value).map_err(|value| {
            slot.value = Some(value);
            in_use()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy() -> Fail {
        Fail::busy("in use")
    }

    #[test]
    fn a_handle_names_its_entry_until_it_is_given_back() {
        let table = Table::new(Sort::Map);
        let (a, b) = (table.add('a'), table.add('b'));
        assert_eq!((*table.get(a).unwrap(), *table.get(b).unwrap()), ('a', 'b'));
        assert_eq!(table.remove(a, busy).unwrap(), 'a');
        let c = table.add('c');
        assert_ne!(a, c);
        assert_eq!(table.get(a).unwrap_err().code, Code::HoldfastHandle);
        assert_eq!(*table.get(c).unwrap(), 'c');
    }

    #[test]
    fn what_is_in_use_stays() {
        let table = Table::new(Sort::Pool);
        let a = table.add('a');
        let held = table.get(a).unwrap();
        assert_eq!(table.remove(a, busy).unwrap_err().code, Code::HoldfastBusy);
        drop(held);
        table.remove(a, busy).unwrap();
    }

    #[test]
    fn any_other_number_is_refused() {
        let (maps, pools) = (Table::new(Sort::Map), Table::new(Sort::Pool));
        let map = maps.add(());
        let pool = pools.add(());
        for id in [0, 1, u64::MAX, map, pool + 1, pool ^ 1 << 40] {
            assert_eq!(pools.get(id).unwrap_err().code, Code::HoldfastHandle, "{id:#x}");
        }
    }

    #[test]
    fn a_slot_that_was_used_up_is_not_used_again() {
        let table = Table::new(Sort::View);
        let first = table.add(0);
        table.slots()[0].generation = GENERATION_MAX;
        table.slots()[0].value = None;
        assert_ne!(table.add(1) as u32, first as u32);
    }
}
