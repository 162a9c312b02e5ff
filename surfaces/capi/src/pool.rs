//! Pools: made, opened, looked at, closed.

use core::ffi::c_char;
use std::path::Path;
use std::sync::Arc;

use holdfast::pmem::{Medium, MediumKind};
use holdfast::{Options, Parity, Pool, VerifyReads};

use crate::border::{Done, Fail, Place, border, get_sized, holdfast_code, path_of, put_sized};
use crate::handle::{Sort, Table};
use crate::{mapped, tx};

/// An open pool. `{0}` is none. Any thread may use it.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct holdfast_pool {
    /// Not for the program.
    pub id: u64,
}

pub(crate) static POOLS: Table<Pool> = Table::new(Sort::Pool);

/// What protects the objects of a pool.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub enum holdfast_parity {
    /// Nothing: damage is found, not repaired.
    HoldfastParityNone = 0,
    /// Any one lost page of a column is rebuilt.
    HoldfastParityP = 1,
    /// Any two are.
    HoldfastParityPq = 2,
}

/// When reads verify. Opening an object for change always does.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub enum holdfast_verify {
    /// Never: the scrub finds damage.
    HoldfastVerifyNever = 0,
    /// Once after the pool was opened.
    HoldfastVerifyFirstTouch = 1,
    /// Each time.
    HoldfastVerifyAlways = 2,
}

/// How a pool is made and opened. Set all with `holdfast_options_init` first, then change some.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct holdfast_options {
    /// Bytes of this struct as the program knows it; set by `holdfast_options_init`.
    pub struct_size: u64,
    /// Bytes of a new pool, all its parts included.
    pub size: u64,
    /// Parity of a new pool, a `holdfast_parity`.
    pub parity: u32,
    /// When reads verify, a `holdfast_verify`.
    pub verify: u32,
    /// 1 if changes outside of added ranges are to be refused: for finding errors in programs.
    pub check_ranges: u32,
    /// 1 if faults may be injected into a new pool on purpose.
    pub allow_inject: u32,
    /// Bytes of a frame of a new pool, the largest contiguous loss it survives; 0 is 2 MiB.
    pub frame: u64,
    /// Bytes of a heap chunk of a new pool; 0 chooses by size.
    pub chunk: u64,
    /// Transactions that can run at once in a new pool; 0 chooses.
    pub lanes: u32,
    /// 0.
    pub reserved: u32,
}

impl holdfast_options {
    const DEFAULT: Self = Self {
        struct_size: size_of::<Self>() as u64,
        size: 64 << 20,
        parity: holdfast_parity::HoldfastParityP as u32,
        verify: holdfast_verify::HoldfastVerifyFirstTouch as u32,
        check_ranges: 0,
        allow_inject: 0,
        frame: 0,
        chunk: 0,
        lanes: 0,
        reserved: 0,
    };

    fn options(&self) -> Done<Options> {
        let flag = |value: u32, what: &str| match value {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Fail::invalid(format!("{what} is {other}; 0 and 1 make sense"))),
        };
        let parity = match self.parity {
            0 => Parity::None,
            1 => Parity::P,
            2 => Parity::PQ,
            other => return Err(Fail::invalid(format!("{other} is no holdfast_parity"))),
        };
        let verify = match self.verify {
            0 => VerifyReads::Never,
            1 => VerifyReads::FirstTouch,
            2 => VerifyReads::Always,
            other => return Err(Fail::invalid(format!("{other} is no holdfast_verify"))),
        };
        if self.reserved != 0 {
            return Err(Fail::invalid("a reserved field of the options is not 0"));
        }
        let options = Pool::options()
            .size(self.size)
            .parity(parity)
            .verify_reads(verify)
            .debug_ranges(flag(self.check_ranges, "check_ranges")?)
            .allow_inject(flag(self.allow_inject, "allow_inject")?)
            .chunk(self.chunk)
            .lanes(self.lanes);
        Ok(if self.frame == 0 { options } else { options.frame(self.frame) })
    }
}

/// Sets all options to what is usual. 64 MiB, parity P, reads verified on first touch.
///
/// # Safety
/// `options` is null or points to a `holdfast_options`; `size` is its `sizeof`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_options_init(
    options: *mut holdfast_options,
    size: usize,
) -> holdfast_code {
    border(|| {
        let default = holdfast_options { struct_size: size as u64, ..holdfast_options::DEFAULT };
        // SAFETY: as the caller vouches.
        unsafe { put_sized(options, size, &default) }
    })
}

/// The options handed over, those of `DEFAULT` if none were.
///
/// # Safety
/// As the functions below.
unsafe fn options_of(from: *const holdfast_options) -> Done<Options> {
    const WHAT: &str = "the options";
    if from.is_null() {
        return holdfast_options::DEFAULT.options();
    }
    // SAFETY: not null; an options struct of any version has its size in front.
    let size = unsafe { get_sized(from.cast::<u64>(), size_of::<u64>(), 0, WHAT)? };
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    // SAFETY: the struct has the size it says; it consists of integers.
    unsafe { get_sized(from, size, holdfast_options::DEFAULT, WHAT) }?.options()
}

/// Where a pool is mapped: its first address, and all bytes it may come to have there.
fn addresses(pool: &Pool) -> (usize, usize) {
    let reserved = pool.status().reserved.max(pool.superblock().size);
    let start = pool.medium().view(0, 1).map_or(0, |start| start.addr());
    (start, usize::try_from(reserved).unwrap_or(usize::MAX))
}

/// What the three ways to open a pool have in common.
///
/// # Safety
/// As the functions below.
unsafe fn open_by(
    path: *const c_char,
    options: *const holdfast_options,
    pool: *mut holdfast_pool,
    open: impl FnOnce(&Options, &Path) -> holdfast::Result<Pool>,
) -> holdfast_code {
    border(|| {
        // SAFETY: as the caller vouches.
        let pool = unsafe { Place::new(pool, "the place for the pool")? };
        pool.set(holdfast_pool { id: 0 });
        // SAFETY: as the caller vouches.
        let (path, options) = unsafe { (path_of(path, "the path")?, options_of(options)?) };
        let opened = open(&options, path)?;
        let (at, len) = addresses(&opened);
        let id = POOLS.add(opened);
        mapped::add(id, at, len);
        pool.set(holdfast_pool { id });
        Ok(())
    })
}

/// Creates the file `path` with a new, empty pool and opens it. A path is bytes up to a zero, in
/// whatever encoding the system's paths are. `options` may be null.
///
/// # Safety
/// `path` is null or a text with a zero at its end, `options` is null or was set by
/// `holdfast_options_init`, `pool` is null or points to a `holdfast_pool`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_pool_create(
    path: *const c_char,
    options: *const holdfast_options,
    pool: *mut holdfast_pool,
) -> holdfast_code {
    // SAFETY: as the caller vouches.
    unsafe { open_by(path, options, pool, |options, path| options.create(path)) }
}

/// Opens the pool in the file `path` for reading and writing; recovers it first if it was not
/// closed. One process at a time. `options` may be null.
///
/// # Safety
/// As `holdfast_pool_create`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_pool_open(
    path: *const c_char,
    options: *const holdfast_options,
    pool: *mut holdfast_pool,
) -> holdfast_code {
    // SAFETY: as the caller vouches.
    unsafe { open_by(path, options, pool, |options, path| options.open(path)) }
}

/// Opens the pool in the file `path` for reading: the file is never changed, and nobody can open
/// it for writing meanwhile. `options` may be null.
///
/// # Safety
/// As `holdfast_pool_create`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_pool_open_read_only(
    path: *const c_char,
    options: *const holdfast_options,
    pool: *mut holdfast_pool,
) -> holdfast_code {
    // SAFETY: as the caller vouches.
    unsafe { open_by(path, options, pool, |options, path| options.open_read_only(path)) }
}

/// Closes a pool. Its maps are closed with it. `HOLDFAST_BUSY` while a transaction, a view or
/// another call uses it, on any thread, `HOLDFAST_INVALID` in a process that was forked after it
/// was opened: nothing happened then.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_pool_close(pool: holdfast_pool) -> holdfast_code {
    border(|| {
        let busy = || Fail::busy("a transaction, a view or another call still uses the pool");
        // Its threads are its parent's, and would be waited for here.
        refuse_inherited(&*POOLS.get(pool.id)?)?;
        let owned = POOLS.remove(pool.id, busy)?;
        mapped::remove(pool.id);
        owned.close();
        Ok(())
    })
}

/// What a pool is and how it is doing. Newer builds may add fields at the end.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct holdfast_info {
    /// Bytes of the pool.
    pub size: u64,
    /// Bytes that hold objects.
    pub used: u64,
    /// Bytes of objects as asked for.
    pub object_bytes: u64,
    /// Live objects.
    pub objects: u64,
    /// Bytes of the largest object that fits now.
    pub largest: u64,
    /// Transactions that changed something since the pool was opened.
    pub commits: u64,
    /// Times a transaction was done again because of another.
    pub conflicts: u64,
    /// Damages found since the pool was opened.
    pub detected: u64,
    /// Damages repaired.
    pub repaired: u64,
    /// Damages beyond the redundancy.
    pub lost: u64,
    /// Parity, a `holdfast_parity`.
    pub parity: u32,
    /// What lies behind: 1 direct access, 2 an ordinary file, 3 shared memory.
    pub medium: u32,
    /// 1 if commits survive a power cut, 0 if they survive a crash of the process only.
    pub survives_power_cut: u32,
    /// 1 if changes are refused.
    pub read_only: u32,
    /// 1 if the pool had been closed when it was opened, 0 if it was recovered.
    pub was_clean: u32,
    /// 0.
    pub reserved: u32,
    /// Transactions that were given up since the pool was opened.
    pub aborts: u64,
    /// Granules of up to 1024 bytes that reads verified since the pool was opened.
    pub granules_verified: u64,
    /// Times the log was reclaimed since the pool was opened.
    pub log_reclaims: u64,
}

fn info_of(pool: &Pool) -> holdfast_info {
    let (superblock, space, stats) = (pool.superblock(), pool.space(), pool.stats());
    let (medium, survives) = match pool.status().kind {
        MediumKind::Dax => (1, true),
        MediumKind::File => (2, true),
        _ => (3, false),
    };
    holdfast_info {
        size: superblock.size,
        used: space.used,
        object_bytes: space.object_bytes,
        objects: space.objects,
        largest: space.largest,
        commits: stats.commits,
        conflicts: stats.conflicts,
        detected: stats.detected,
        repaired: stats.repaired,
        lost: stats.lost,
        parity: superblock.parity,
        medium,
        survives_power_cut: survives.into(),
        read_only: pool.is_read_only().into(),
        was_clean: pool.opened().clean.into(),
        reserved: 0,
        aborts: stats.aborts,
        granules_verified: stats.verified,
        log_reclaims: stats.reclaims,
    }
}

/// Tells what a pool is and how it is doing. Reads the state of every object.
///
/// # Safety
/// `info` is null or points to a `holdfast_info`; `size` is its `sizeof`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_pool_info(
    pool: holdfast_pool,
    info: *mut holdfast_info,
    size: usize,
) -> holdfast_code {
    border(|| {
        let pool = POOLS.get(pool.id)?;
        // SAFETY: as the caller vouches.
        unsafe { put_sized(info, size, &info_of(&pool)) }
    })
}

/// Grows a pool to `size` bytes. Transactions go on meanwhile and no address changes.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_pool_grow(pool: holdfast_pool, size: u64) -> holdfast_code {
    border(|| Ok(outside(pool)?.grow(size)?))
}

/// Refuses a pool of the parent: its locks and threads are there, and what is under way there is
/// not seen here.
fn refuse_inherited(pool: &Pool) -> Done {
    if pool.medium().inherited() {
        let text = "the pool was opened before this process was forked; only the process that \
                    opened it uses and closes it";
        return Err(Fail::invalid(text));
    }
    Ok(())
}

/// The pool for a call that brings its own transaction, or waits for others: not while this thread
/// has one under way, which it would become a part of, or wait for.
pub(crate) fn outside(pool: holdfast_pool) -> Done<Arc<Pool>> {
    let entry = POOLS.get(pool.id)?;
    refuse_inherited(&entry)?;
    tx::refuse_inside(&entry)?;
    Ok(entry)
}
