//! The traits.

use core::ops::DerefMut;

use holdfast_layout::{Persist, Ptr, RawPtr, TypeNumber};

use crate::error::Result;

/// Which anomalies a run may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Isolation {
    /// Reads from one consistent past state; write skew is possible.
    Snapshot,
    /// As if transactions ran one after another.
    #[default]
    Serializable,
    /// Serializable, in an order that agrees with real time.
    Linearizable,
}

/// A transaction in progress. Methods take `&self`, so that several guards can be open at once.
pub trait Transaction {
    /// Guard that lends the private copy of a `T`.
    type Mut<'t, T: Persist>: DerefMut<Target = T>
    where
        Self: 't;

    /// Reads the object `of` points to: the transaction's own copy if it has one.
    ///
    /// # Errors
    /// Any [`TxError`](crate::TxError); pass it on with `?`.
    fn read<T: Persist>(&self, of: Ptr<T>) -> Result<T>;

    /// Copies `into.len()` bytes of an object, from byte `from` on. Works on any type of object.
    ///
    /// # Errors
    /// As [`read`](Self::read), and `OutOfBounds`.
    fn read_bytes(&self, of: RawPtr, from: u64, into: &mut [u8]) -> Result<()>;

    /// Reads the object `of` points to over `into`, so that a large one is not copied twice. After
    /// an error `into` may hold anything.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn read_into<T: Persist>(&self, of: Ptr<T>, into: &mut T) -> Result<()> {
        *into = self.read(of)?;
        Ok(())
    }

    /// Copies the start of an object, as many bytes as it has and `into` has room for, and returns
    /// its length: for objects that say themselves what they hold.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn read_start(&self, of: RawPtr, into: &mut [u8]) -> Result<u64> {
        let len = self.len_of(of)?;
        let held = len.min(into.len() as u64) as usize;
        self.read_bytes(of, 0, &mut into[..held])?;
        Ok(len)
    }

    /// Length of an object in bytes.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn len_of(&self, of: RawPtr) -> Result<u64>;

    /// Opens an object for change: a verified private copy, with what this transaction has written
    /// to the object.
    ///
    /// # Errors
    /// As [`read`](Self::read), and `AlreadyOpen` while a guard for it lives.
    fn open_mut<T: Persist>(&self, of: Ptr<T>) -> Result<Self::Mut<'_, T>>;

    /// Changes a range of an object without copying the rest of it.
    ///
    /// # Errors
    /// As [`read_bytes`](Self::read_bytes), and `AlreadyOpen` while a guard for it lives.
    fn write_bytes(&self, of: RawPtr, from: u64, bytes: &[u8]) -> Result<()>;

    /// Allocates an object and gives it `value`.
    ///
    /// # Errors
    /// `NoSpace`, `TooLarge`, `ReadOnly`.
    fn alloc<T: Persist>(&self, value: T) -> Result<Ptr<T>>;

    /// Allocates `len` zero bytes under the type number `of`.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    fn alloc_bytes(&self, of: TypeNumber, len: u64) -> Result<RawPtr>;

    /// Allocates an object that holds `bytes` under the type number `of`: cheaper than zero bytes
    /// that are written after.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    fn alloc_from(&self, of: TypeNumber, bytes: &[u8]) -> Result<RawPtr> {
        let object = self.alloc_bytes(of, bytes.len() as u64)?;
        self.write_bytes(object, 0, bytes)?;
        Ok(object)
    }

    /// Frees an object; its pointer dangles once the transaction commits.
    ///
    /// # Errors
    /// As [`read`](Self::read), and `AlreadyOpen` while a guard for it lives.
    fn free(&self, object: RawPtr) -> Result<()>;

    /// Does a part of the transaction that is worth nothing by half: if it fails after it changed
    /// something, the transaction fails with the same error, whatever its closure makes of it. For
    /// functions that keep several objects in agreement, and whose callers may go on after errors.
    ///
    /// # Errors
    /// What `part` returned.
    fn whole<R>(&self, part: impl FnOnce() -> Result<R>) -> Result<R>;

    /// Changes an object in place: opens it, applies `change`, closes it.
    ///
    /// # Errors
    /// As [`open_mut`](Self::open_mut).
    fn update<T: Persist, R>(&self, of: Ptr<T>, change: impl FnOnce(&mut T) -> R) -> Result<R> {
        Ok(change(&mut *self.open_mut(of)?))
    }
}

/// Something that runs transactions.
pub trait Store {
    /// The handle closures receive.
    type Tx<'s>: Transaction
    where
        Self: 's;
    /// What can go wrong outside the closure's own errors.
    type Error: From<crate::TxError> + std::error::Error + 'static;

    /// Runs `body` as one transaction and returns once it is durable. Executes it again after a
    /// conflict or a repair. A `run` inside a `run` on the same store joins the outer one: what it
    /// did becomes durable with that, and if it fails after it changed something, the outer one
    /// fails with the same error, whatever its closure makes of it.
    ///
    /// # Errors
    /// What `body` returned, or the store's own error; nothing happened then.
    fn run<R>(
        &self,
        isolation: Isolation,
        body: impl FnMut(&Self::Tx<'_>) -> Result<R>,
    ) -> core::result::Result<R, Self::Error>;
}
