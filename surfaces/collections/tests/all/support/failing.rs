//! A transaction that refuses one change, as a full pool or a lost object does.

use std::cell::Cell;

use holdfast_layout::{Persist, Ptr, RawPtr, TypeNumber};
use holdfast_txn::{Result, Transaction, TxError};

/// Hands everything on to another transaction but one change.
pub(crate) struct Failing<'t, T> {
    inner: &'t T,
    /// Changes that come through before the one that does not.
    left: Cell<Option<u64>>,
}

impl<'t, T> Failing<'t, T> {
    pub(crate) fn new(inner: &'t T, after: u64) -> Self {
        Self { inner, left: Cell::new(Some(after)) }
    }

    /// Whether a change was refused.
    pub(crate) fn has_failed(&self) -> bool {
        self.left.get().is_none()
    }

    fn change(&self) -> Result<()> {
        let Some(left) = self.left.get() else { return Ok(()) };
        self.left.set(left.checked_sub(1));
        if left > 0 { Ok(()) } else { Err(TxError::Lost { object: RawPtr::NULL }) }
    }
}

impl<I: Transaction> Transaction for Failing<'_, I> {
    type Mut<'s, T: Persist>
        = I::Mut<'s, T>
    where
        Self: 's;

    fn read<T: Persist>(&self, of: Ptr<T>) -> Result<T> {
        self.inner.read(of)
    }
    fn read_bytes(&self, of: RawPtr, from: u64, into: &mut [u8]) -> Result<()> {
        self.inner.read_bytes(of, from, into)
    }
    fn len_of(&self, of: RawPtr) -> Result<u64> {
        self.inner.len_of(of)
    }
    fn open_mut<T: Persist>(&self, of: Ptr<T>) -> Result<Self::Mut<'_, T>> {
        self.change()?;
        self.inner.open_mut(of)
    }
    fn write_bytes(&self, of: RawPtr, from: u64, bytes: &[u8]) -> Result<()> {
        self.change()?;
        self.inner.write_bytes(of, from, bytes)
    }
    fn alloc<T: Persist>(&self, value: T) -> Result<Ptr<T>> {
        self.change()?;
        self.inner.alloc(value)
    }
    fn alloc_bytes(&self, of: TypeNumber, len: u64) -> Result<RawPtr> {
        self.change()?;
        self.inner.alloc_bytes(of, len)
    }
    fn free(&self, object: RawPtr) -> Result<()> {
        self.change()?;
        self.inner.free(object)
    }
    fn whole<R>(&self, part: impl FnOnce() -> Result<R>) -> Result<R> {
        self.inner.whole(part)
    }
}
