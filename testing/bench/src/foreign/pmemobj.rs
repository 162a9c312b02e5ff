//! libpmemobj, behind the shim in `foreign/pmemobj.c`.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use anyhow::{Context, bail, ensure};
use libloading::Library;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::{function, load};

/// Tables the shim has.
const TABLES: u64 = 8;

type Create = unsafe extern "C" fn(*const c_char, u64) -> *mut c_void;
type Slot = unsafe extern "C" fn(*mut c_void, u64, u64) -> c_int;
type Fill = unsafe extern "C" fn(*mut c_void, u64, u64, u64) -> c_int;
type LineUp = unsafe extern "C" fn(*mut c_void, u64, *const u64, u64) -> c_int;
type Store = unsafe extern "C" fn(*mut c_void, u64, u64, *const c_void, u64) -> c_int;
type Insert = unsafe extern "C" fn(*mut c_void, u64, *const c_void, u64) -> c_int;
type Read = unsafe extern "C" fn(*mut c_void, u64, u64, *mut c_void, u64) -> c_int;
type Survey =
    unsafe extern "C" fn(*mut c_void, *const c_char, u64, u64, u64, *mut u8, *mut u8) -> c_int;
type Get = unsafe extern "C" fn(*mut c_void, u64, *mut c_void, u64) -> c_int;

/// The functions of the shim.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shim {
    create: Create,
    error: unsafe extern "C" fn() -> *const c_char,
    close: unsafe extern "C" fn(*mut c_void),
    rest: unsafe extern "C" fn(*mut c_void),
    open: unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int,
    table: Slot,
    fill: Fill,
    alloc: Store,
    line_up: LineUp,
    overwrite: Store,
    read: Read,
    offset: unsafe extern "C" fn(*mut c_void, u64, u64) -> u64,
    free: Slot,
    survey: Survey,
    map: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
    insert: Insert,
    get: Get,
    remove: Slot,
}

impl Shim {
    /// Fetches, builds and loads it.
    ///
    /// # Errors
    /// There is no network, no Debian, no gcc; or other threads are running already.
    pub(crate) fn load() -> anyhow::Result<Self> {
        ensure!(threads()? == 1, "libpmemobj has to be loaded before any thread is started");
        let path = super::fetch::pmemobj()?;
        // SAFETY: no other thread runs that could read the environment meanwhile: checked above.
        // libpmem reads it once, when it is loaded.
        unsafe { std::env::set_var("PMEM_IS_PMEM_FORCE", "1") };
        let library = load(&path)?;
        Self::look_up(library)
    }

    fn look_up(library: &'static Library) -> anyhow::Result<Self> {
        // SAFETY: the library was built from the shim in this crate; each type above is the C
        // prototype of the function named here, argument for argument.
        unsafe {
            Ok(Self {
                create: function(library, "peer_create")?,
                error: function(library, "peer_error")?,
                close: function(library, "peer_close")?,
                rest: function(library, "peer_rest")?,
                open: function(library, "peer_open")?,
                table: function(library, "peer_table")?,
                fill: function(library, "peer_fill")?,
                alloc: function(library, "peer_alloc")?,
                line_up: function(library, "peer_line_up")?,
                overwrite: function(library, "peer_overwrite")?,
                read: function(library, "peer_read")?,
                offset: function(library, "peer_offset")?,
                free: function(library, "peer_free")?,
                survey: function(library, "peer_survey")?,
                map: function(library, "peer_map")?,
                insert: function(library, "peer_insert")?,
                get: function(library, "peer_get")?,
                remove: function(library, "peer_remove")?,
            })
        }
    }

    /// What went wrong last in this thread.
    fn message(&self) -> String {
        // SAFETY: takes nothing; answers null or a string that stays until the next call of the
        // library in this thread, and it is copied before that.
        unsafe {
            let text = (self.error)();
            if text.is_null() {
                return String::from("no reason given");
            }
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    }
}

/// Threads of this process.
fn threads() -> anyhow::Result<usize> {
    Ok(std::fs::read_dir("/proc/self/task")?.count())
}

/// One of the six maps, as the shim numbers them.
pub(crate) const MAPS: [&str; 6] = ["ctree", "rbtree", "btree", "skiplist", "rtree", "hashmap"];

/// A pool of libpmemobj, with or without a replica; its files are removed when dropped.
#[derive(Debug)]
pub(crate) struct Peer {
    shim: Shim,
    pool: NonNull<c_void>,
    /// Slots and bytes per object of each table, so that nothing beyond them is touched.
    tables: Vec<(u64, u64)>,
    has_map: bool,
    files: Vec<PathBuf>,
    /// What the pool is opened by: its file, or its set.
    name: CString,
}

/// A pool that is closed, and opened for a while at a time; its files are removed when dropped.
#[derive(Debug)]
pub(crate) struct Resting(Peer);

/// One table of a pool, for one thread at a time.
#[derive(Debug)]
pub(crate) struct Table<'p> {
    peer: &'p Peer,
    number: u64,
    slots: u64,
    longest: u64,
    /// Handles in the shim's line that are good: none after anything was freed.
    lined: u64,
}

// SAFETY: libpmemobj's pools may be used by any thread, and its transactions belong to the thread
// that runs them. The shim's own state is per table, and a `Table` is handed out once and used by
// `&mut`; everything else takes `&mut Peer`.
unsafe impl Send for Peer {}
// SAFETY: as above.
unsafe impl Sync for Peer {}

impl Peer {
    /// Makes a pool of `size` bytes in `dir`.
    pub(crate) fn create(shim: Shim, dir: &Path, size: u64, replica: bool) -> anyhow::Result<Self> {
        let stem = dir.join(format!("foreign-{}-{}", std::process::id(), u8::from(replica)));
        let mut files = vec![stem.with_extension("pool")];
        let (path, given) = if replica {
            files.push(stem.with_extension("twin"));
            let set = stem.with_extension("set");
            let part = |file: &Path| format!("{}M {}\n", size >> 20, file.display());
            let text = format!("PMEMPOOLSET\n{}REPLICA\n{}", part(&files[0]), part(&files[1]));
            remove(&files);
            std::fs::write(&set, text)?;
            files.push(set.clone());
            (set, 0)
        } else {
            remove(&files);
            (files[0].clone(), size)
        };
        let name = CString::new(path.as_os_str().as_encoded_bytes())?;
        // SAFETY: `name` is a string that ends in a zero and outlives the call.
        let pool = unsafe { (shim.create)(name.as_ptr(), given) };
        let Some(pool) = NonNull::new(pool) else {
            let message = shim.message();
            remove(&files);
            bail!("libpmemobj made no pool at {}: {message}", path.display());
        };
        let tables = vec![(0, 0); TABLES as usize];
        Ok(Self { shim, pool, tables, has_map: false, files, name })
    }

    /// Its files: the pool; then, if it has a replica, that and the set.
    pub(crate) fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Closes the pool. Its tables are kept, a map is forgotten.
    pub(crate) fn close(mut self) -> Resting {
        self.rest();
        Resting(self)
    }

    fn rest(&mut self) {
        self.has_map = false;
        // SAFETY: `&mut` keeps everybody else out; until it is open again the pool is only
        // reached by `Resting`, which opens it first, and by `drop`, which takes a closed one.
        unsafe { (self.shim.rest)(self.pool.as_ptr()) };
    }

    /// Makes a table of `count` slots for objects of `len` bytes.
    pub(crate) fn table(&mut self, number: u64, count: u64, len: u64) -> anyhow::Result<()> {
        ensure!(number < TABLES, "the shim has {TABLES} tables");
        // SAFETY: the pool is open as long as `self` lives; the number was checked.
        let failed = unsafe { (self.shim.table)(self.pool.as_ptr(), number, count) };
        self.done(failed, "make a table")?;
        self.tables[number as usize] = (count, len);
        Ok(())
    }

    /// Fills a whole table with objects.
    pub(crate) fn fill(&mut self, number: u64) -> anyhow::Result<()> {
        let (count, len) = self.tables[number as usize];
        // SAFETY: the table has exactly that many slots.
        let failed = unsafe { (self.shim.fill)(self.pool.as_ptr(), number, count, len) };
        self.done(failed, "fill a table")
    }

    /// Every table made so far, each once, so that each can go to a thread of its own.
    pub(crate) fn tables(&mut self) -> Vec<Table<'_>> {
        let peer = &*self;
        let table = |(number, (slots, longest)): (u64, &(u64, u64))| Table {
            peer,
            number,
            slots: *slots,
            longest: *longest,
            lined: 0,
        };
        (0..).zip(&peer.tables).filter(|(_, (slots, _))| *slots > 0).map(table).collect()
    }

    /// Makes the map of this name; see [`MAPS`].
    pub(crate) fn map(&mut self, name: &str) -> anyhow::Result<()> {
        let Some(kind) = MAPS.iter().position(|map| *map == name) else {
            bail!("libpmemobj's examples have no {name}");
        };
        ensure!(!self.has_map, "a pool holds one map");
        // SAFETY: the pool is open; the kind is one the shim knows.
        let failed = unsafe { (self.shim.map)(self.pool.as_ptr(), kind as c_int) };
        self.done(failed, "make a map")?;
        self.has_map = true;
        Ok(())
    }

    /// Inserts a key that is not there yet.
    pub(crate) fn insert(&mut self, key: u64, value: &[u8]) -> anyhow::Result<()> {
        self.must_have_map()?;
        let (bytes, len) = (value.as_ptr().cast(), value.len() as u64);
        // SAFETY: there is a map: checked above; `&mut` keeps other threads out; `value` holds
        // `len` bytes.
        let failed = unsafe { (self.shim.insert)(self.pool.as_ptr(), key, bytes, len) };
        self.done(failed, "insert")
    }

    /// Whether the key is there; its value goes into `into`, which must be as long as it was when
    /// it was inserted.
    pub(crate) fn get(&mut self, key: u64, into: &mut [u8]) -> anyhow::Result<bool> {
        self.must_have_map()?;
        let (bytes, len) = (into.as_mut_ptr().cast(), into.len() as u64);
        // SAFETY: as for `insert`; `into` has room for the `len` bytes that are copied. A value
        // shorter than that is read beyond its end, but within the mapped pool.
        Ok(unsafe { (self.shim.get)(self.pool.as_ptr(), key, bytes, len) } != 0)
    }

    /// Removes a key that is there, with its value of `len` bytes.
    pub(crate) fn remove(&mut self, key: u64, len: u64) -> anyhow::Result<()> {
        self.must_have_map()?;
        // SAFETY: as for `insert`; `len` only tells whether there is a value to free.
        let failed = unsafe { (self.shim.remove)(self.pool.as_ptr(), key, len) };
        self.done(failed, "remove")
    }

    fn must_have_map(&self) -> anyhow::Result<()> {
        ensure!(self.has_map, "the pool has no map");
        Ok(())
    }

    fn done(&self, failed: c_int, what: &str) -> anyhow::Result<()> {
        if failed != 0 {
            bail!("libpmemobj did not {what}: {}", self.shim.message());
        }
        Ok(())
    }
}

impl Table<'_> {
    /// Allocates, initialises and links.
    pub(crate) fn alloc(&mut self, slot: u64, bytes: &[u8]) -> anyhow::Result<()> {
        self.within(slot, bytes.len())?;
        let (pool, from) = (self.peer.pool.as_ptr(), bytes.as_ptr().cast());
        // SAFETY: the slot exists: checked above; `bytes` is as long as said; no other thread has
        // this table.
        let failed =
            unsafe { (self.peer.shim.alloc)(pool, self.number, slot, from, bytes.len() as u64) };
        self.peer.done(failed, "allocate")
    }

    /// Puts the handles of some objects in a line, to be overwritten by their place in it; an
    /// empty slot is an error.
    pub(crate) fn line_up(&mut self, slots: &[u64]) -> anyhow::Result<()> {
        for slot in slots {
            self.within(*slot, 0)?;
        }
        let (pool, count) = (self.peer.pool.as_ptr(), slots.len() as u64);
        self.lined = 0;
        // SAFETY: every slot exists: checked above; `slots` holds `count` numbers; no other thread
        // has this table.
        let failed = unsafe { (self.peer.shim.line_up)(pool, self.number, slots.as_ptr(), count) };
        self.peer.done(failed, "line up objects")?;
        self.lined = count;
        Ok(())
    }

    /// Overwrites the start of the object at this place of the line.
    pub(crate) fn overwrite(&mut self, place: usize, bytes: &[u8]) -> anyhow::Result<()> {
        let place = place as u64;
        ensure!(
            place < self.lined && bytes.len() as u64 <= self.longest,
            "place {place}, {} bytes: {} objects for {} bytes are lined up",
            bytes.len(),
            self.lined,
            self.longest
        );
        let (pool, from) = (self.peer.pool.as_ptr(), bytes.as_ptr().cast());
        // SAFETY: the line has that place, its object has not been freed since and is no shorter
        // than `bytes`: checked above; no other thread has this table.
        let failed = unsafe {
            (self.peer.shim.overwrite)(pool, self.number, place, from, bytes.len() as u64)
        };
        self.peer.done(failed, "overwrite")
    }

    /// Reads the start of an object, found by the pool's own pointer; an empty slot is an error.
    pub(crate) fn read(&self, slot: u64, into: &mut [u8]) -> anyhow::Result<()> {
        self.within(slot, into.len())?;
        let (pool, bytes) = (self.peer.pool.as_ptr(), into.as_mut_ptr().cast());
        // SAFETY: the slot exists: checked above; `into` has room for as many bytes as are copied,
        // and the shim refuses an object that is shorter; no other thread has this table.
        let failed =
            unsafe { (self.peer.shim.read)(pool, self.number, slot, bytes, into.len() as u64) };
        self.peer.done(failed, "read")
    }

    /// Where in the pool, and in each of its copies, an object lies; an empty slot is an error.
    pub(crate) fn offset(&self, slot: u64) -> anyhow::Result<u64> {
        self.within(slot, 0)?;
        // SAFETY: the slot exists: checked above; no other thread has this table.
        let at = unsafe { (self.peer.shim.offset)(self.peer.pool.as_ptr(), self.number, slot) };
        ensure!(at != 0, "slot {slot} is empty");
        Ok(at)
    }

    /// Frees and unlinks; an empty slot is an error.
    pub(crate) fn free(&mut self, slot: u64) -> anyhow::Result<()> {
        self.within(slot, 0)?;
        self.lined = 0;
        // SAFETY: the slot exists: checked above; the shim refuses an empty one; no other thread
        // has this table.
        let failed = unsafe { (self.peer.shim.free)(self.peer.pool.as_ptr(), self.number, slot) };
        self.peer.done(failed, "free")
    }

    /// Refuses slots and bytes that are not there.
    fn within(&self, slot: u64, len: usize) -> anyhow::Result<()> {
        ensure!(
            slot < self.slots && len as u64 <= self.longest,
            "slot {slot}, {len} bytes: table {} has {} slots for {} bytes",
            self.number,
            self.slots,
            self.longest
        );
        Ok(())
    }
}

/// How the process of a survey ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It came to the last object.
    Whole,
    /// The library says that the pool is not sound, or does not open it.
    Refused,
    /// A signal ended it, or the library did.
    Died,
    /// It was still busy after 20 seconds.
    Hung,
}

impl Resting {
    /// Reads all objects of a table, in a process of its own: their bytes, and with how many it
    /// got as far as saying something (1 read, 2 refused, 0 neither).
    ///
    /// # Errors
    /// There is no room, or no process.
    pub(crate) fn survey(&mut self, number: u64) -> anyhow::Result<(Ending, Vec<u8>, Vec<u8>)> {
        let peer = &mut self.0;
        let Some(&(count, len)) = peer.tables.get(number as usize) else {
            bail!("the shim has {TABLES} tables");
        };
        let shared = Shared::new((count * (len + 1)) as usize)?;
        let told = count * len;
        // SAFETY: the pool is closed, which the shim checks; its name ends in a zero; the table has
        // `count` slots for `len` bytes, and the memory is `count` times `len` bytes for them, and
        // `count` for what is said of each.
        let ended = unsafe {
            let into = shared.start.as_ptr();
            let name = peer.name.as_ptr();
            let told = into.add(told as usize);
            (peer.shim.survey)(peer.pool.as_ptr(), name, number, count, len, into, told)
        };
        let ending = match ended {
            0 => Ending::Whole,
            1 => Ending::Refused,
            2 => Ending::Died,
            3 => Ending::Hung,
            _ => bail!("no process could be started to read the pool"),
        };
        // SAFETY: the mapping is that long, and the process that wrote to it has ended.
        let all = unsafe { std::slice::from_raw_parts(shared.start.as_ptr(), shared.len) };
        let (bytes, told) = all.split_at(told as usize);
        Ok((ending, bytes.to_vec(), told.to_vec()))
    }
    /// Opens the pool, does `work` and closes it again.
    ///
    /// # Errors
    /// It cannot be opened; or those of `work`.
    pub(crate) fn opened<R>(
        &mut self,
        work: impl FnOnce(&mut Peer) -> anyhow::Result<R>,
    ) -> anyhow::Result<R> {
        let peer = &mut self.0;
        // SAFETY: the name ends in a zero and outlives the call; the shim refuses a pool that is
        // still open.
        let failed = unsafe { (peer.shim.open)(peer.pool.as_ptr(), peer.name.as_ptr()) };
        peer.done(failed, "open the pool")?;
        let done = work(peer);
        peer.rest();
        done
    }
}

/// Memory that a child process writes to, all zeros at first.
struct Shared {
    start: NonNull<u8>,
    len: usize,
}

impl Shared {
    fn new(len: usize) -> anyhow::Result<Self> {
        let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address that the system chooses touches nobody's memory.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, kind)? };
        let start = NonNull::new(start.cast()).context("mapped at address 0")?;
        Ok(Self { start, len })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `new` with this length, and nothing points into it: what it
        // held was copied. If it cannot be unmapped it stays, which harms nobody.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // SAFETY: the pool is open or was closed by `rest`, and nobody uses it any more.
        unsafe { (self.shim.close)(self.pool.as_ptr()) };
        remove(&self.files);
    }
}

fn remove(files: &[PathBuf]) {
    for file in files {
        let _ = std::fs::remove_file(file);
    }
}
