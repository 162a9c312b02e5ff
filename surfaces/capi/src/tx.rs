//! Transactions: begun, done, committed or aborted; or run with a function that may be called
//! again.
//!
//! A transaction stays on its thread, in a table of that thread: another one cannot even reach it.
//! Its handle holds the number of the thread, so that a mix-up is told apart from a handle that was
//! given back.

use core::cell::{Cell, RefCell};
use core::ffi::{c_int, c_void};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast::pmem::Mapped;
use holdfast::{Begun, Error, Pool, RawPtr, Tx, TxError, TxResult};

use crate::border::{Done, Fail, Place, border, holdfast_code, holdfast_code as Code};
use crate::handle::Sort;
use crate::pool::{holdfast_pool, outside};

/// A transaction under way. `{0}` is none. Only the thread that began it may use it; when that
/// ends, it is aborted.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct holdfast_tx {
    /// Not for the program.
    pub id: u64,
}

/// A function that does the work of a transaction, and may be called again for the same. It
/// returns 0 to commit; anything else aborts, or repeats if a call answered `HOLDFAST_AGAIN`. It
/// must not end the transaction itself, throw an exception or jump out.
pub type holdfast_work =
    Option<unsafe extern "C" fn(tx: holdfast_tx, argument: *mut c_void) -> c_int>;

/// Bits of the number of a transaction on its thread; the thread's number above.
const NUMBER_BITS: u32 = 28;
const NUMBER_MASK: u64 = (1 << NUMBER_BITS) - 1;

/// One transaction of this thread.
#[derive(Debug)]
pub(crate) struct Entry {
    number: u64,
    pub(crate) pool: Arc<Pool>,
    begun: RefCell<Option<Begun<Mapped>>>,
    /// Objects whose private copies the program has: address and length.
    pub(crate) opened: RefCell<BTreeMap<RawPtr, (*mut u8, u64)>>,
    /// A function of the program is called in the middle of this: how deep.
    visits: Cell<u32>,
    /// `holdfast_run` ends it.
    is_run: bool,
}

thread_local! {
    static THREAD: Cell<u64> = const { Cell::new(0) };
    static NUMBER: Cell<u64> = const { Cell::new(0) };
    /// Registered after the engine's own state of the thread, by the first `begin`; the engine
    /// copes with either order of their ends.
    static MINE: RefCell<Vec<Rc<Entry>>> = const { RefCell::new(Vec::new()) };
}

/// Number of this thread. After 2^28 threads they come again, which costs a clear error and no
/// more: a thread finds its own transactions only.
fn thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    if THREAD.get() == 0 {
        THREAD.set(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    THREAD.get() & NUMBER_MASK
}

fn no_thread_locals() -> Fail {
    Fail::busy("this thread is ending: it has no transactions any more")
}

fn handle_of(number: u64) -> holdfast_tx {
    holdfast_tx { id: Sort::Tx.tag(thread() << NUMBER_BITS | number) }
}

/// The transaction of a handle.
pub(crate) fn entry(tx: holdfast_tx) -> Done<Rc<Entry>> {
    let rest = Sort::Tx.expect(tx.id)?;
    if rest >> NUMBER_BITS != thread() {
        let text = "the transaction belongs to another thread, or to none";
        return Err(Fail::new(Code::HoldfastThread, text));
    }
    let number = rest & NUMBER_MASK;
    MINE.try_with(|mine| mine.borrow().iter().find(|entry| entry.number == number).cloned())
        .map_err(|_| no_thread_locals())?
        .ok_or_else(|| Sort::Tx.gone())
}

/// Refuses if this thread has a transaction of the pool under way.
pub(crate) fn refuse_inside(pool: &Arc<Pool>) -> Done {
    let inside = MINE
        .try_with(|mine| mine.borrow().iter().any(|entry| Arc::ptr_eq(&entry.pool, pool)))
        .map_err(|_| no_thread_locals())?;
    if inside {
        let text = "this thread has a transaction of the pool under way; use that, or end it first";
        return Err(Fail::busy(text));
    }
    Ok(())
}

fn begin(pool: holdfast_pool, is_run: bool) -> Done<(holdfast_tx, Rc<Entry>)> {
    let pool = outside(pool)?;
    let number = (NUMBER.get() + 1) & NUMBER_MASK;
    let begun = pool.begin()?;
    NUMBER.set(number);
    let entry = Rc::new(Entry {
        number,
        pool,
        begun: RefCell::new(Some(begun)),
        opened: RefCell::default(),
        visits: Cell::new(0),
        is_run,
    });
    MINE.try_with(|mine| mine.borrow_mut().push(Rc::clone(&entry)))
        .map_err(|_| no_thread_locals())?;
    Ok((handle_of(number), entry))
}

impl Entry {
    /// Does one step of the transaction; see [`Begun::step`] and [`Begun::look`].
    pub(crate) fn part<R>(
        &self,
        changes: bool,
        part: impl FnOnce(&Tx<'_>) -> TxResult<R>,
    ) -> Done<R> {
        if changes {
            self.refuse_visit("changed")?;
        }
        let begun = self.begun.try_borrow().map_err(|_| ending())?;
        let begun = begun.as_ref().ok_or_else(|| Sort::Tx.gone())?;
        let done = if changes { begun.step(part) } else { begun.look(part) };
        done.map_err(|error| self.fail(error))
    }

    /// Marks that a function of the program is called in the middle of a step.
    pub(crate) fn visiting<R>(&self, visit: impl FnOnce() -> R) -> R {
        self.visits.set(self.visits.get() + 1);
        let answer = visit();
        self.visits.set(self.visits.get() - 1);
        answer
    }

    fn refuse_visit(&self, what: &str) -> Done {
        if self.visits.get() > 0 {
            let text =
                format!("a transaction cannot be {what} by a function called for its entries");
            return Err(Fail::busy(text));
        }
        Ok(())
    }

    fn fail(&self, error: TxError) -> Fail {
        if error.is_transient() { again() } else { self.located(error.into()) }
    }

    /// An error, said of the pool's file.
    fn located(&self, error: Error) -> Fail {
        Fail::from(match self.pool.path() {
            Some(path) => error.at(path),
            None => error,
        })
    }

    /// Why the transaction cannot be committed, if something says so.
    fn failed(&self) -> Option<TxError> {
        self.begun.borrow().as_ref().and_then(|begun| begun.look(|_| Ok(())).err())
    }

    /// Commits; `false` if it starts over.
    fn commit(&self) -> Done<bool> {
        self.opened.borrow_mut().clear();
        let begun = self.begun.borrow_mut().take().ok_or_else(|| Sort::Tx.gone())?;
        match begun.commit() {
            Ok(None) => Ok(true),
            Ok(again) => {
                *self.begun.borrow_mut() = again;
                Ok(false)
            }
            Err(error) => Err(self.located(error.into())),
        }
    }

    /// Forgets the transaction; what was not committed is undone.
    fn end(&self) {
        let begun = self.begun.try_borrow_mut().ok().and_then(|mut begun| begun.take());
        drop(begun);
        self.opened.borrow_mut().clear();
        let _ = MINE.try_with(|mine| mine.borrow_mut().retain(|e| e.number != self.number));
    }
}

fn ending() -> Fail {
    Fail::busy("the transaction is being ended")
}

/// A handle by which the program may end the transaction.
fn to_end(tx: holdfast_tx) -> Done<Rc<Entry>> {
    let entry = entry(tx)?;
    entry.refuse_visit("ended")?;
    if entry.is_run {
        return Err(Fail::busy("holdfast_run ends this transaction: return from the function"));
    }
    Ok(entry)
}

/// Begins a transaction. A thread can have one at a time in a pool. End it by
/// `holdfast_tx_commit` or `holdfast_tx_abort`.
///
/// # Safety
/// `tx` is null or points to a `holdfast_tx`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_tx_begin(
    pool: holdfast_pool,
    tx: *mut holdfast_tx,
) -> holdfast_code {
    border(|| {
        // SAFETY: as the caller vouches.
        let tx = unsafe { Place::new(tx, "the place for the transaction")? };
        tx.set(holdfast_tx { id: 0 });
        tx.set(begin(pool, false)?.0);
        Ok(())
    })
}

/// Makes all changes of a transaction durable and ends it. `HOLDFAST_AGAIN`: another transaction
/// came between, or damage was found and repaired; nothing was committed, and the transaction has
/// started over under the same handle. Addresses it lent are void: do its work again and commit
/// again, or abort. After any other error it has ended, and nothing happened.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_tx_commit(tx: holdfast_tx) -> holdfast_code {
    border(|| {
        let entry = to_end(tx)?;
        let ended = scopeguard(&entry);
        if entry.commit()? {
            return Ok(());
        }
        core::mem::forget(ended);
        Err(again())
    })
}

/// Ends a transaction; nothing it did happened.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_tx_abort(tx: holdfast_tx) -> holdfast_code {
    border(|| {
        to_end(tx)?.end();
        Ok(())
    })
}

fn again() -> Fail {
    let text = "another transaction came between, or damage was found, which the commit repairs: \
                nothing is committed; commit, and do the work again";
    Fail::new(Code::HoldfastAgain, text)
}

/// Runs `work` as one transaction and returns once it is durable. `work` is called again after a
/// conflict or a repair. If it does not return 0, nothing happens, and the answer is the error of
/// the change that failed, else `HOLDFAST_CANCELLED`.
///
/// # Safety
/// `work` is null or can be called with `argument`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_run(
    pool: holdfast_pool,
    work: holdfast_work,
    argument: *mut c_void,
) -> holdfast_code {
    border(|| {
        let work = work.ok_or_else(|| Fail::invalid("the function is null"))?;
        let (handle, entry) = begin(pool, true)?;
        let ended = scopeguard(&entry);
        loop {
            // SAFETY: as the caller vouches.
            let returned = unsafe { work(handle, argument) };
            let failed = entry.failed();
            let transient = failed.as_ref().is_some_and(TxError::is_transient);
            if returned == 0 || transient {
                if entry.commit()? {
                    drop(ended);
                    return Ok(());
                }
                continue;
            }
            return Err(match failed {
                Some(error) => entry.fail(error),
                None => Fail::new(
                    Code::HoldfastCancelled,
                    format!("the function returned {returned}: nothing was committed"),
                ),
            });
        }
    })
}

/// Ends the transaction when dropped, also when something panics.
fn scopeguard(entry: &Entry) -> impl Drop + '_ {
    struct Ends<'e>(&'e Entry);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.end();
        }
    }
    Ends(entry)
}
