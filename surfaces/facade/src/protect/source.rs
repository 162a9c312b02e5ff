//! Who stored to the mapped file: by its mapping, as the kernel or a handler tells, and by writes
//! of ours to what is not mapped, which are announced.

use std::sync::Arc;

use holdfast_pmem::track::{
    AsyncProtect, Board, DirtySource, FirstStore, Notified, Observed, Record, SourceKind,
    TrackError, WriteWay,
};
use holdfast_pmem::{Mapped as Mapping, Medium, PAGE};

/// How stores of the program are to be noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tracking {
    /// The first of the following that the system permits.
    #[default]
    Auto,
    /// By write protection that the kernel lifts; Linux 6.7. A first store costs about 1 us.
    AsyncProtect,
    /// By write protection and a fault handler in this process. A first store costs about 6 us.
    FirstStore,
    /// Not at all: the program changes the file through this library only, and gets no address to
    /// store to.
    Notified,
}

/// Where runs of pages are told.
type Told<'a> = &'a mut dyn FnMut(u64, u64);

/// What tells of stores through the mapping.
#[derive(Debug)]
enum Stores {
    Async(AsyncProtect),
    First(FirstStore),
    /// All of them are announced.
    Announced,
}

/// The source of one file. That of a file at rest knows of nothing, and vouches for nothing.
#[derive(Debug, Default)]
pub(crate) struct Source {
    live: Option<Live>,
}

#[derive(Debug)]
struct Live {
    stores: Stores,
    mapping: Option<Arc<Mapping>>,
    written: Notified,
}

/// The first stores of a process that dies are forgotten with it: what differs then is undecided.
#[derive(Debug)]
struct Forgets;

impl Record for Forgets {
    fn set(&self, _at: u64) -> bool {
        true
    }

    fn clear(&self, _at: u64, _len: u64) {}

    fn is_set(&self, _at: u64) -> bool {
        true
    }
}

/// Writes at a time that are told apart; more are treated as one that writes everywhere.
const SLOTS: u32 = 64;

impl Source {
    /// A source over a mapping, for a file that may come to `most` bytes; and why it is not the
    /// best one, if it is not.
    pub(crate) fn over(
        mapping: Option<Arc<Mapping>>,
        most: u64,
        tracking: Tracking,
    ) -> Result<(Self, Vec<String>), TrackError> {
        let mut passed_over = Vec::new();
        let stores = match &mapping {
            Some(mapping) => choose(mapping, tracking, &mut passed_over)?,
            None => Stores::Announced,
        };
        let board = Arc::new(Board::create(most.next_multiple_of(PAGE).max(PAGE), SLOTS)?);
        let ways = [WriteWay::Pwrite, WriteWay::Truncate];
        let announced: &[WriteWay] = match stores {
            Stores::Announced => &[WriteWay::Store, WriteWay::Pwrite, WriteWay::Truncate],
            _ => &ways,
        };
        let written = Notified::new(board, announced);
        Ok((Self { live: Some(Live { stores, mapping, written }) }, passed_over))
    }

    /// Announces a write for as long as it takes, and does it.
    pub(crate) fn announce<T>(&self, at: u64, len: u64, write: impl FnOnce() -> T) -> T {
        let open = self.live.as_ref().map(|live| live.written.board().open(at, len));
        let done = write();
        drop(open);
        done
    }

    /// Whether stores have to be announced.
    pub(crate) fn wants_stores(&self) -> bool {
        self.live.as_ref().is_none_or(|live| matches!(live.stores, Stores::Announced))
    }

    fn both(
        &self,
        (at, len): (u64, u64),
        each: &mut dyn FnMut(u64, u64),
        ask: impl Fn(&dyn DirtySource, u64, u64, Told<'_>) -> Result<(), TrackError>,
    ) -> Result<(), TrackError> {
        let Some(live) = &self.live else { return Ok(()) };
        if let Some((source, mapped)) = live.stores(at, len) {
            ask(source, at, mapped, each)?;
        }
        ask(&live.written, at, len, each)
    }
}

fn choose(
    mapping: &Arc<Mapping>,
    tracking: Tracking,
    passed_over: &mut Vec<String>,
) -> Result<Stores, TrackError> {
    let auto = tracking == Tracking::Auto;
    if auto || tracking == Tracking::AsyncProtect {
        match AsyncProtect::of(mapping) {
            Ok(source) => return Ok(Stores::Async(source)),
            Err(error) if auto => passed_over.push(format!("async protect: {error}")),
            Err(error) => return Err(error),
        }
    }
    if auto || tracking == Tracking::FirstStore {
        match FirstStore::of(Arc::clone(mapping), Arc::new(Forgets)) {
            Ok(source) => return Ok(Stores::First(source)),
            Err(error) if auto => passed_over.push(format!("first store: {error}")),
            Err(error) => return Err(error),
        }
    }
    Ok(Stores::Announced)
}

impl Live {
    /// The source of stores to the mapped part of a range, and how long that is.
    fn stores(&self, at: u64, len: u64) -> Option<(&dyn DirtySource, u64)> {
        let mapped = self.mapping.as_ref()?.len().saturating_sub(at).min(len);
        let source: &dyn DirtySource = match &self.stores {
            Stores::Async(source) => source,
            Stores::First(source) => source,
            Stores::Announced => return None,
        };
        (mapped > 0).then_some((source, mapped))
    }
}

impl DirtySource for Source {
    fn kind(&self) -> SourceKind {
        match self.live.as_ref().map(|live| &live.stores) {
            Some(Stores::Async(_)) => SourceKind::AsyncProtect,
            Some(Stores::First(_)) => SourceKind::FirstStore,
            Some(Stores::Announced) | None => SourceKind::Notified,
        }
    }

    fn arm(&self, at: u64, len: u64) -> Result<(), TrackError> {
        let Some(live) = &self.live else { return Ok(()) };
        if let Some((source, mapped)) = live.stores(at, len) {
            source.arm(at, mapped)?;
        }
        live.written.arm(at, len)
    }

    fn disarm(&self, at: u64, len: u64) -> Result<(), TrackError> {
        let Some(live) = &self.live else { return Ok(()) };
        if let Some((source, mapped)) = live.stores(at, len) {
            source.disarm(at, mapped)?;
        }
        live.written.disarm(at, len)
    }

    fn take(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<(), TrackError> {
        self.both((at, len), each, |source, at, len, each| source.take(at, len, each))
    }

    fn peek(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<(), TrackError> {
        self.both((at, len), each, |source, at, len, each| source.peek(at, len, each))
    }

    fn intact(&self, at: u64, len: u64) -> bool {
        let Some(live) = &self.live else { return false };
        let stores = live.stores(at, len).is_none_or(|(source, len)| source.intact(at, len));
        stores && live.written.intact(at, len)
    }

    fn all_intact(&self, ranges: &[(u64, u64)]) -> bool {
        let Some(live) = &self.live else { return false };
        let mapped: Vec<(u64, u64)> = ranges
            .iter()
            .filter_map(|(at, len)| live.stores(*at, *len).map(|(_, len)| (*at, len)))
            .collect();
        let stores = live.stores(0, u64::MAX).is_none_or(|(source, _)| source.all_intact(&mapped));
        stores && live.written.all_intact(ranges)
    }

    fn coverage(&self, way: WriteWay) -> Observed {
        let Some(live) = &self.live else { return Observed::Undecided };
        let stores = match &live.stores {
            Stores::Async(source) => source.coverage(way),
            Stores::First(source) => source.coverage(way),
            Stores::Announced => Observed::Undecided,
        };
        match (stores, way) {
            (Observed::Undecided, WriteWay::Store) => live.written.coverage(way),
            // Ours are announced; those of others are noticed at the most.
            (told, _) => told,
        }
    }
}
