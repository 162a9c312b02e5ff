//! A second implementor: one map in memory, one transaction at a time.
//!
//! It keeps the traits honest (nothing in them may presume an engine) and gives collections a
//! store to be tested on that cannot be wrong about durability, because it has none.
//!
//! A `run` inside a `run` on the same store joins the outer transaction; if it fails, so does the
//! outer one, unless nothing had been changed yet.

use core::cell::{Cell, RefCell};
use core::ops::{Deref, DerefMut};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};

use holdfast_layout::{Persist, Ptr, RawPtr, TypeNumber, bytemuck};

use crate::error::{Result, TxError};
use crate::store::{Isolation, Store, Transaction};

#[derive(Debug, Clone, PartialEq, Eq)]
struct Object {
    of: TypeNumber,
    generation: u16,
    bytes: Vec<u8>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Heap {
    objects: BTreeMap<u64, Object>,
    next: u64,
}

/// An in-memory store that runs one transaction at a time.
#[derive(Debug, Default)]
pub struct ToyStore {
    heap: Mutex<Heap>,
}

/// A transaction of a [`ToyStore`]: works on a copy of the whole heap.
#[derive(Debug)]
pub struct ToyTx {
    heap: RefCell<Heap>,
    open: RefCell<Vec<u64>>,
    /// How often something was changed, or opened to be.
    changes: Cell<u64>,
    /// Why a part that had to be whole failed.
    doomed: RefCell<Option<TxError>>,
}

/// Guard over a private copy; written back when dropped.
#[derive(Debug)]
pub struct ToyMut<'t, T: Persist> {
    tx: &'t ToyTx,
    at: u64,
    value: T,
    changed: Cell<bool>,
}

impl ToyStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Offsets of all live objects, ascending.
    #[must_use]
    pub fn live(&self) -> Vec<u64> {
        let heap = self.heap.lock().unwrap_or_else(PoisonError::into_inner);
        heap.objects.keys().copied().collect()
    }
}

impl Store for ToyStore {
    type Tx<'s> = ToyTx;
    type Error = TxError;

    fn run<R>(&self, _: Isolation, mut body: impl FnMut(&ToyTx) -> Result<R>) -> Result<R> {
        if let Some(outer) = Running::on(self) {
            return outer.whole(|| body(&outer));
        }
        let mut heap = self.heap.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let tx = Rc::new(ToyTx {
                heap: RefCell::new(heap.clone()),
                open: RefCell::new(Vec::new()),
                changes: Cell::new(0),
                doomed: RefCell::new(None),
            });
            let running = Running::enter(self, &tx);
            let result = body(&tx);
            drop(running);
            // An error of the closure's own is the answer; else it went on after one.
            let result = result.and_then(|value| tx.doomed.take().map_or(Ok(value), Err));
            match result {
                Ok(value) => {
                    *heap = tx.heap.take();
                    return Ok(value);
                }
                Err(TxError::Conflict) => {}
                Err(other) => return Err(other),
            }
        }
    }
}

thread_local! {
    /// Transactions this thread is in, by the address of their store.
    static RUNNING: RefCell<Vec<(usize, Rc<ToyTx>)>> = const { RefCell::new(Vec::new()) };
}

/// While it lives, an inner `run` finds the transaction to join; a panic in the closure ends it
/// too.
struct Running;

impl Running {
    fn enter(store: &ToyStore, tx: &Rc<ToyTx>) -> Self {
        RUNNING.with_borrow_mut(|list| list.push((address(store), Rc::clone(tx))));
        Self
    }

    fn on(store: &ToyStore) -> Option<Rc<ToyTx>> {
        RUNNING.with_borrow(|list| {
            list.iter().rev().find(|(at, _)| *at == address(store)).map(|(_, tx)| Rc::clone(tx))
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.with_borrow_mut(|list| list.pop());
    }
}

fn address(store: &ToyStore) -> usize {
    core::ptr::from_ref(store).addr()
}

impl ToyTx {
    fn with<R>(&self, of: RawPtr, use_it: impl FnOnce(&mut Object) -> Result<R>) -> Result<R> {
        let mut heap = self.heap.borrow_mut();
        match heap.objects.get_mut(&of.offset()) {
            Some(o) if o.generation == of.generation() => use_it(o),
            _ => Err(TxError::Dangling { pointer: of }),
        }
    }

    fn closed(&self, of: RawPtr) -> Result<()> {
        if self.open.borrow().contains(&of.offset()) {
            Err(TxError::AlreadyOpen { object: of })
        } else {
            Ok(())
        }
    }

    fn note_change(&self) {
        self.changes.set(self.changes.get() + 1);
    }

    fn insert(&self, of: TypeNumber, bytes: Vec<u8>) -> RawPtr {
        self.note_change();
        let mut heap = self.heap.borrow_mut();
        heap.next += 1;
        let at = heap.next * 64;
        let generation = (heap.next % 65_535) as u16 + 1;
        heap.objects.insert(at, Object { of, generation, bytes });
        RawPtr::new(at, generation)
    }
}

fn range(of: RawPtr, len: usize, from: u64, count: usize) -> Result<core::ops::Range<usize>> {
    let end = from.saturating_add(count as u64);
    if end > len as u64 {
        return Err(TxError::OutOfBounds { object: of, end, len: len as u64 });
    }
    Ok(from as usize..end as usize)
}

fn typed<T: Persist>(of: RawPtr, o: &Object) -> Result<T> {
    if o.of != T::TYPE || o.bytes.len() != size_of::<T>() {
        return Err(TxError::WrongType { object: of, wanted: T::TYPE, found: o.of });
    }
    Ok(bytemuck::pod_read_unaligned(&o.bytes))
}

impl Transaction for ToyTx {
    type Mut<'t, T: Persist> = ToyMut<'t, T>;

    fn read<T: Persist>(&self, of: Ptr<T>) -> Result<T> {
        self.with(of.raw(), |o| typed(of.raw(), o))
    }

    fn read_bytes(&self, of: RawPtr, from: u64, into: &mut [u8]) -> Result<()> {
        self.with(of, |o| {
            let range = range(of, o.bytes.len(), from, into.len())?;
            into.copy_from_slice(&o.bytes[range]);
            Ok(())
        })
    }

    fn len_of(&self, of: RawPtr) -> Result<u64> {
        self.with(of, |o| Ok(o.bytes.len() as u64))
    }

    fn open_mut<T: Persist>(&self, of: Ptr<T>) -> Result<ToyMut<'_, T>> {
        self.closed(of.raw())?;
        let value = self.read(of)?;
        self.open.borrow_mut().push(of.raw().offset());
        self.note_change();
        Ok(ToyMut { tx: self, at: of.raw().offset(), value, changed: Cell::new(false) })
    }

    fn write_bytes(&self, of: RawPtr, from: u64, bytes: &[u8]) -> Result<()> {
        self.closed(of)?;
        self.with(of, |o| {
            let range = range(of, o.bytes.len(), from, bytes.len())?;
            o.bytes[range].copy_from_slice(bytes);
            self.note_change();
            Ok(())
        })
    }

    fn alloc<T: Persist>(&self, value: T) -> Result<Ptr<T>> {
        Ok(self.insert(T::TYPE, bytemuck::bytes_of(&value).to_vec()).typed())
    }

    fn alloc_bytes(&self, of: TypeNumber, len: u64) -> Result<RawPtr> {
        let limit = 1 << 32;
        if len >= limit {
            return Err(TxError::TooLarge { wanted: len, limit });
        }
        Ok(self.insert(of, vec![0; len as usize]))
    }

    fn free(&self, object: RawPtr) -> Result<()> {
        self.closed(object)?;
        self.with(object, |_| Ok(()))?;
        self.heap.borrow_mut().objects.remove(&object.offset());
        self.note_change();
        Ok(())
    }

    fn whole<R>(&self, part: impl FnOnce() -> Result<R>) -> Result<R> {
        let watch = Watch(self, self.changes.get());
        let done = part().inspect_err(|error| watch.doom(error));
        core::mem::forget(watch);
        done
    }
}

/// Looks whether a part that failed had changed something since there were so many changes. Dropped
/// only if it panicked.
struct Watch<'t>(&'t ToyTx, u64);

impl Watch<'_> {
    fn doom(&self, error: &TxError) {
        if self.0.changes.get() > self.1 {
            self.0.doomed.borrow_mut().get_or_insert_with(|| error.clone());
        }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.doom(&TxError::cancel("a part of the transaction panicked"));
    }
}

impl<T: Persist> Deref for ToyMut<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Persist> DerefMut for ToyMut<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.changed.set(true);
        &mut self.value
    }
}

impl<T: Persist> Drop for ToyMut<'_, T> {
    fn drop(&mut self) {
        self.tx.open.borrow_mut().retain(|at| *at != self.at);
        if self.changed.get()
            && let Some(o) = self.tx.heap.borrow_mut().objects.get_mut(&self.at)
        {
            o.bytes.copy_from_slice(bytemuck::bytes_of(&self.value));
        }
    }
}
