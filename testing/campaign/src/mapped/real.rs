//! A real file in shared memory, mapped, tracked by the kernel, and stored to by real threads.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use holdfast_mapped::{
    Facts, Identity, Mapped, OpenOptions as Open, ProtectOptions, record_places,
};
use holdfast_pmem::track::{
    AsyncProtect, DirtySource, FirstStore, MediumRecord, SourceKind, TrackError,
};
use holdfast_pmem::{Clock, Durability, Medium, Options, PAGE, Protect, Site, SystemClock};

use super::judge::refused;
use crate::tally::Judged;

/// Pages of the file.
pub const PAGES: u64 = 1024;
/// Bytes the side file begins with.
const SIDE: u64 = 128 << 10;

/// The engine on real files.
pub type Engine = Mapped<Shared, Shared, Arc<dyn DirtySource>>;

/// A mapped file that several own.
pub type Shared = Arc<holdfast_pmem::Mapped>;

/// A file that keeps its length, and whose time of change nobody asks for.
#[derive(Debug)]
struct Fixed;

impl Facts for Fixed {
    fn identity(&self) -> std::io::Result<Identity> {
        Ok(Identity { inode: 1, size: PAGES * PAGE, mtime_ns: 1 })
    }

    fn sync_identity(&self, _: holdfast_pmem::Site) -> std::io::Result<()> {
        Ok(())
    }
}

/// A real file under protection, and another way in, which nobody sees.
#[derive(Debug)]
pub struct Real {
    /// The file as its program has it mapped.
    pub data: Shared,
    /// Its engine.
    pub engine: Engine,
    behind: File,
}

/// Makes files in `folder`, tracked by a source of this kind. The error says what is missing here.
///
/// # Errors
/// The engine's, or the system's.
pub fn begin(
    folder: &Path,
    kind: SourceKind,
    parity: u32,
    content: &[u8],
) -> Judged<Result<Real, TrackError>> {
    let mapping = Options {
        durability: Durability::Process,
        protection: Protect::None,
        ..Options::default()
    };
    let make = |name: &str, len: u64, room: u64| {
        let options = Options { reserve: Some(room), ..mapping };
        let made = holdfast_pmem::Mapped::create(&folder.join(name), len, &options);
        made.map(Arc::new).map_err(|error| refused(name, &error))
    };
    let data = make("data", PAGES * PAGE, PAGES * PAGE)?;
    let side = make("side", SIDE, 64 << 20)?;
    let put = data.put(Site::new("campaign.fill"), 0, content);
    put.map_err(|error| refused("filling the file", &error))?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let facts: Arc<dyn Facts> = Arc::new(Fixed);
    let (f, s) = (Arc::clone(&data), Arc::clone(&side));
    let open = Open { boot: [1; 16], ..Open::default() };
    let mut options = ProtectOptions { uuid: *b"campaign of maps", open, ..Default::default() };
    options.keep.parity = parity;
    let first: Arc<dyn DirtySource> = match AsyncProtect::of(&data) {
        Ok(source) => Arc::new(source),
        Err(error) => return Ok(Err(error)),
    };
    let engine = Engine::protect(
        f.clone(),
        s.clone(),
        first,
        Arc::clone(&facts),
        Arc::clone(&clock),
        &options,
    );
    let mut engine = engine.map_err(|error| refused("protect", &error))?;
    if kind == SourceKind::FirstStore {
        // Its record lies in the side file, which has to be there first.
        engine.close().map_err(|error| refused("close", &error))?;
        let places = record_places(&*side).map_err(|error| refused("records", &error))?;
        let record = MediumRecord::new(Arc::clone(&side), places, 0, PAGES * PAGE);
        let source = record.and_then(|record| FirstStore::of(Arc::clone(&data), Arc::new(record)));
        let source: Arc<dyn DirtySource> = match source {
            Ok(source) => Arc::new(source),
            Err(error) => return Ok(Err(error)),
        };
        let opened = Engine::open(f.clone(), s, source, facts, clock, open);
        engine = opened.map_err(|error| refused("open", &error))?.0;
    }
    let behind = OpenOptions::new().read(true).write(true).open(folder.join("data"));
    let behind = behind.map_err(|error| refused("data", &error))?;
    Ok(Ok(Real { data: f, engine, behind }))
}

impl Real {
    /// Changes bytes behind everybody's back.
    ///
    /// # Errors
    /// The system's.
    pub fn damage(&self, at: u64, bytes: &[u8]) -> Judged<()> {
        self.behind.write_all_at(bytes, at).map_err(|error| refused("damage", &error))
    }

    /// What a page holds.
    ///
    /// # Errors
    /// The medium's.
    pub fn page(&self, page: u64) -> Judged<Vec<u8>> {
        let mut bytes = vec![0; PAGE as usize];
        let read = self.data.read(page * PAGE, &mut bytes);
        read.map_err(|error| refused("reading", &error))?;
        Ok(bytes)
    }
}
