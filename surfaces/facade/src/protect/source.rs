//! Who stored to the mapped file: by its mapping, as the kernel or a handler tells, and by writes
//! of ours to what is not mapped, which are announced.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use holdfast_pmem::track::{
    AsyncProtect, Bar, Board, DirtySource, FirstStore, Notified, Observed, Open, Record,
    SourceKind, TrackError, WriteWay,
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
    /// The same, and the handler puts a record of the page into the side file before it lets the
    /// store through: whatever the process dies of, pages that were stored to since the last pass
    /// are known to have been, and covered by the next opening instead of undecided. Where power
    /// cuts are to be survived, each first store to a page after a pass is a durable write of the
    /// device. A store that cannot be recorded (the side file cannot be written any more) ends the
    /// process as one to memory that is write-protected. Never chosen by [`Auto`](Self::Auto), and
    /// refused where the redundancy is in a pool.
    Recorded,
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
    /// Held by those who store, and alone by who makes the mapping longer: what is written around
    /// the mapping does not become part of it in the middle, where nobody would have recorded it.
    still: RwLock<()>,
}

#[derive(Debug)]
struct Live {
    stores: Stores,
    mapping: Option<Arc<Mapping>>,
    /// Bytes of the mapping whose stores are tracked, or would be if they were armed: what a file
    /// has just grown by is not, until the page it grew from is.
    mapped: AtomicU64,
    written: Notified,
    record: Beside,
}

/// Where pages that are not mapped are recorded, and by whom at a time: a write that is announced
/// and recorded, or whoever forgets what was announced.
#[derive(Default)]
struct Beside(Mutex<Option<Arc<dyn Record>>>);

impl core::fmt::Debug for Beside {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Beside")
    }
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
    /// A source over a mapping, for a file that may come to `most` bytes, that puts first stores on
    /// `record` if there is one; and why it is not the best one, if it is not.
    pub(crate) fn over(
        mapping: Option<Arc<Mapping>>,
        most: u64,
        tracking: Tracking,
        record: Option<Arc<dyn Record>>,
    ) -> Result<(Self, Vec<String>), TrackError> {
        let mut passed_over = Vec::new();
        let stores = match &mapping {
            Some(mapping) => choose(mapping, tracking, record.clone(), &mut passed_over)?,
            None => Stores::Announced,
        };
        let mapped = AtomicU64::new(mapping.as_ref().map_or(0, |mapping| mapping.len()));
        let board = Arc::new(Board::create(most.next_multiple_of(PAGE).max(PAGE), SLOTS)?);
        let ways = [WriteWay::Pwrite, WriteWay::Truncate];
        let announced: &[WriteWay] = match stores {
            Stores::Announced => &[WriteWay::Store, WriteWay::Pwrite, WriteWay::Truncate],
            _ => &ways,
        };
        let written = Notified::new(board, announced);
        let record = Beside(Mutex::new(record));
        let live = Some(Live { stores, mapping, mapped, written, record });
        Ok((Self { live, still: RwLock::default() }, passed_over))
    }

    /// As [`announce`](Self::announce), of a store of the program, which is recorded if first
    /// stores are.
    pub(crate) fn announce_store<T>(&self, at: u64, len: u64, write: impl FnOnce() -> T) -> T {
        let open = self.live.as_ref().map(|live| live.announce(at, len));
        let done = write();
        drop(open);
        done
    }

    /// Stores, while the mapping has as many bytes as `store` is told.
    pub(crate) fn storing<T>(&self, store: impl FnOnce(u64) -> T) -> T {
        let _still = self.still.read().unwrap_or_else(PoisonError::into_inner);
        let mapping = self.live.as_ref().and_then(|live| live.mapping.as_ref());
        store(mapping.map_or(0, |mapping| mapping.len()))
    }

    /// Makes the mapping longer, by `grow`, beside a file of `old` bytes; regions have `region`
    /// bytes. From then on its new pages are tracked as the others are.
    pub(crate) fn growing<E>(
        &self,
        (old, region): (u64, u64),
        grow: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let _still = self.still.write().unwrap_or_else(PoisonError::into_inner);
        grow()?;
        self.grown(old, region);
        Ok(())
    }

    fn grown(&self, old: u64, region: u64) {
        let Some(live) = &self.live else { return };
        let Some(mapping) = &live.mapping else { return };
        let from = live.mapped.load(Ordering::Acquire);
        // Those of the last region: it is one piece to the engine, and with pages in it that are
        // not armed, nothing of it would be believed. Other regions are new to it.
        let end = old.next_multiple_of(region).min(mapping.len());
        let _one = live.record.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(source), true) = (live.source(), from < end) {
            // If that fails, so it is.
            let _ = source.arm(from, end - from);
        }
        live.mapped.store(mapping.len(), Ordering::Release);
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

    /// Holds up the stores of the program to the page at `at` of the file.
    pub(crate) fn bar(&self, at: u64) -> Option<Bar> {
        let live = self.live.as_ref().filter(|live| at < live.mapped.load(Ordering::Acquire))?;
        match &live.stores {
            Stores::Async(source) => source.bar(at).ok(),
            Stores::First(source) => source.bar(at).ok(),
            Stores::Announced => None,
        }
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
    record: Option<Arc<dyn Record>>,
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
    if auto || matches!(tracking, Tracking::FirstStore | Tracking::Recorded) {
        match FirstStore::of(Arc::clone(mapping), record.unwrap_or_else(|| Arc::new(Forgets))) {
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
        let source = self.source()?;
        let mapped = self.mapped.load(Ordering::Acquire).saturating_sub(at).min(len);
        (mapped > 0).then_some((source, mapped))
    }

    /// The source of stores, and the mapped parts of ranges.
    fn stored(&self, ranges: &[(u64, u64)]) -> (Option<&dyn DirtySource>, Vec<(u64, u64)>) {
        let mapped = |(at, len): &(u64, u64)| self.stores(*at, *len).map(|(_, len)| (*at, len));
        (self.source(), ranges.iter().filter_map(mapped).collect())
    }

    fn source(&self) -> Option<&dyn DirtySource> {
        match &self.stores {
            Stores::Async(source) => Some(source),
            Stores::First(source) => Some(source),
            Stores::Announced => None,
        }
    }

    /// Where the pages begin of which the source of stores knows nothing.
    fn beside(&self, at: u64) -> u64 {
        let mapped = self.source().map_or(0, |_| self.mapped.load(Ordering::Acquire));
        at.max(mapped)
    }

    fn announce(&self, at: u64, len: u64) -> Open<'_> {
        let record = self.record.0.lock().unwrap_or_else(PoisonError::into_inner);
        let open = self.written.board().open(at, len);
        if let Some(record) = &*record {
            let end = at.saturating_add(len).div_ceil(PAGE);
            for page in self.beside(at) / PAGE..end {
                // One that fails leaves the page unknown after a crash.
                record.set(page * PAGE);
            }
        }
        open
    }

    /// Clears the records of pages that are not mapped and not being written again.
    fn forget_beside(&self, at: u64, len: u64) {
        let record = self.record.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (from, end) = (self.beside(at), at.saturating_add(len));
        let Some(record) = record.as_ref().filter(|_| from < end) else { return };
        let mut told = Vec::new();
        let mut rest = from;
        let each = &mut |at: u64, len: u64| told.push((at, at.saturating_add(len)));
        if self.written.peek(from, end - from, each).is_err() {
            return;
        }
        for (at, after) in told.into_iter().chain([(end, end)]) {
            if rest < at {
                record.clear(rest, at - rest);
            }
            rest = after;
        }
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

    fn skim(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<(), TrackError> {
        self.both((at, len), each, |source, at, len, each| source.skim(at, len, each))
    }

    fn forget(&self, at: u64, len: u64) {
        let Some(live) = &self.live else { return };
        if let Some((source, mapped)) = live.stores(at, len) {
            source.forget(at, mapped);
        }
        live.forget_beside(at, len);
    }

    fn intact(&self, at: u64, len: u64) -> bool {
        let Some(live) = &self.live else { return false };
        let stores = live.stores(at, len).is_none_or(|(source, len)| source.intact(at, len));
        stores && live.written.intact(at, len)
    }

    fn all_intact(&self, ranges: &[(u64, u64)]) -> bool {
        let Some(live) = &self.live else { return false };
        let (source, mapped) = live.stored(ranges);
        source.is_none_or(|source| source.all_intact(&mapped)) && live.written.all_intact(ranges)
    }

    fn peek_all(
        &self,
        ranges: &[(u64, u64)],
        each: &mut dyn FnMut(u64, u64),
    ) -> Result<bool, TrackError> {
        let Some(live) = &self.live else { return Ok(false) };
        let (source, mapped) = live.stored(ranges);
        let stores = source.map_or(Ok(true), |source| source.peek_all(&mapped, each))?;
        Ok(live.written.peek_all(ranges, each)? && stores)
    }

    fn coverage(&self, way: WriteWay) -> Observed {
        let Some(live) = &self.live else { return Observed::Undecided };
        let forgets = || live.record.0.lock().is_ok_and(|record| record.is_none());
        let stores = match (&live.stores, way) {
            (Stores::Async(source), _) => source.coverage(way),
            (Stores::First(_), WriteWay::Exec | WriteWay::Kill) if forgets() => Observed::Undecided,
            (Stores::First(source), _) => source.coverage(way),
            (Stores::Announced, _) => Observed::Undecided,
        };
        match (stores, way) {
            (Observed::Undecided, WriteWay::Store) => live.written.coverage(way),
            // Ours are announced; those of others are noticed at the most.
            (told, _) => told,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_pmem::{Access, Durability, Options, Protect};
    use std::collections::BTreeSet;
    use std::sync::mpsc;
    use std::time::Duration;

    #[derive(Debug, Default)]
    struct Pages(Mutex<BTreeSet<u64>>);

    impl Record for Pages {
        fn set(&self, at: u64) -> bool {
            self.0.lock().unwrap().insert(at / PAGE);
            true
        }

        fn clear(&self, at: u64, len: u64) {
            self.0.lock().unwrap().retain(|page| !(at..at + len).contains(&(page * PAGE)));
        }

        fn is_set(&self, at: u64) -> bool {
            self.0.lock().unwrap().contains(&(at / PAGE))
        }
    }

    /// What is not mapped when a write is split is written around the mapping, and on record; the
    /// file grows in the middle of that.
    #[test]
    fn a_write_beside_a_growth_is_on_record() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let old = 4 * PAGE + 100;
        file.as_file().set_len(old).unwrap();
        let how = Options {
            durability: Durability::Process,
            protection: Protect::None,
            foreign: true,
            ..Options::default()
        };
        let mapping = Arc::new(Mapping::open(file.path(), Access::Write, &how).unwrap());
        let record = Arc::new(Pages::default());
        let kept = Some(Arc::clone(&record) as Arc<dyn Record>);
        let source = Source::over(Some(Arc::clone(&mapping)), 1 << 30, Tracking::Recorded, kept);
        let (source, _) = source.unwrap();
        source.arm(0, 5 * PAGE).unwrap();
        let taken = || {
            let mut some = false;
            let each = &mut |at: u64, len: u64| some |= (at..at + len).contains(&(4 * PAGE));
            source.take(0, 8 * PAGE, each).unwrap();
            source.forget(0, 8 * PAGE);
            some
        };
        taken();
        let (tell, told) = mpsc::channel();
        std::thread::scope(|scope| {
            source.storing(|mapped| {
                assert_eq!(mapped, 4 * PAGE);
                let (source, mapping) = (&source, &mapping);
                let (begin, begun) = mpsc::channel();
                scope.spawn(move || {
                    begin.send(()).unwrap();
                    let grown = source.growing((old, 256 * PAGE), || mapping.grow(8 * PAGE));
                    tell.send(grown.is_ok()).unwrap();
                });
                begun.recv().unwrap();
                // Time enough to do it, if it did not wait.
                let early = told.recv_timeout(Duration::from_millis(300));
                source.announce_store(4 * PAGE + 9, 20, || assert!(record.is_set(4 * PAGE)));
                assert!(early.is_err());
            });
            assert!(told.recv().unwrap());
        });
        assert_eq!(source.storing(|mapped| mapped), 8 * PAGE);
        assert!(record.is_set(4 * PAGE) && !record.is_set(5 * PAGE));
        // Mapped by now, it is off the record once it was told.
        assert!(taken() && !record.is_set(4 * PAGE));
    }
}
