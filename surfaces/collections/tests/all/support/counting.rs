//! A transaction that counts what goes through it to another.

use std::cell::{Cell, RefCell};

use holdfast_collections::structure_of;
use holdfast_layout::{Persist, Ptr, RawPtr, TypeNumber};
use holdfast_txn::{Result, Transaction};

/// Counts what goes through it.
pub(crate) struct Counting<'t, T> {
    inner: &'t T,
    /// Reads, of all of an object or a part of it.
    pub(crate) reads: Cell<u64>,
    /// Times objects were opened or written, and bytes in them that were opened or written.
    pub(crate) changes: Cell<(u64, u64)>,
    /// Objects allocated, and their bytes.
    pub(crate) fresh: Cell<(u64, u64)>,
    /// Objects freed.
    pub(crate) freed: Cell<u64>,
    /// What was done to objects of which type, reads aside: signs and names.
    shape: RefCell<Vec<(char, &'static str)>>,
}

impl<'t, T> Counting<'t, T> {
    pub(crate) fn new(inner: &'t T) -> Self {
        let zero = || Cell::new((0, 0));
        Self {
            inner,
            reads: Cell::new(0),
            changes: zero(),
            fresh: zero(),
            freed: Cell::new(0),
            shape: RefCell::default(),
        }
    }

    /// What was allocated (`+`), opened for change (`~`), written in part (`.`) and freed (`-`),
    /// in no order: operations that change the same parts of a structure have the same.
    pub(crate) fn shape(&self) -> Vec<(char, &'static str)> {
        let mut shape = self.shape.borrow().clone();
        shape.sort_unstable();
        shape
    }

    fn read(&self) {
        self.reads.set(self.reads.get() + 1);
    }

    fn note(&self, sign: char, of: Option<TypeNumber>) {
        self.shape.borrow_mut().push((sign, of.and_then(structure_of).unwrap_or("")));
    }
}

fn add(to: &Cell<(u64, u64)>, bytes: u64) {
    let (count, sum) = to.get();
    to.set((count + 1, sum + bytes));
}

impl<I: Transaction> Transaction for Counting<'_, I> {
    type Mut<'s, T: Persist>
        = I::Mut<'s, T>
    where
        Self: 's;

    fn read<T: Persist>(&self, of: Ptr<T>) -> Result<T> {
        self.read();
        self.inner.read(of)
    }
    fn read_bytes(&self, of: RawPtr, from: u64, into: &mut [u8]) -> Result<()> {
        self.read();
        self.inner.read_bytes(of, from, into)
    }
    fn read_into<T: Persist>(&self, of: Ptr<T>, into: &mut T) -> Result<()> {
        self.read();
        self.inner.read_into(of, into)
    }
    fn read_start(&self, of: RawPtr, into: &mut [u8]) -> Result<u64> {
        self.read();
        self.inner.read_start(of, into)
    }
    fn len_of(&self, of: RawPtr) -> Result<u64> {
        self.inner.len_of(of)
    }
    fn open_mut<T: Persist>(&self, of: Ptr<T>) -> Result<Self::Mut<'_, T>> {
        add(&self.changes, size_of::<T>() as u64);
        self.note('~', Some(T::TYPE));
        self.inner.open_mut(of)
    }
    fn write_bytes(&self, of: RawPtr, from: u64, bytes: &[u8]) -> Result<()> {
        add(&self.changes, bytes.len() as u64);
        self.note('.', None);
        self.inner.write_bytes(of, from, bytes)
    }
    fn alloc<T: Persist>(&self, value: T) -> Result<Ptr<T>> {
        add(&self.fresh, size_of::<T>() as u64);
        self.note('+', Some(T::TYPE));
        self.inner.alloc(value)
    }
    fn alloc_bytes(&self, of: TypeNumber, len: u64) -> Result<RawPtr> {
        add(&self.fresh, len);
        self.note('+', Some(of));
        self.inner.alloc_bytes(of, len)
    }
    fn free(&self, object: RawPtr) -> Result<()> {
        self.freed.set(self.freed.get() + 1);
        self.note('-', None);
        self.inner.free(object)
    }
    fn whole<R>(&self, part: impl FnOnce() -> Result<R>) -> Result<R> {
        self.inner.whole(part)
    }
}
