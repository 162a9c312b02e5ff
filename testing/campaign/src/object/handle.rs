//! A medium that outlives the pool on it: pools own their medium and close it when they go, but a
//! campaign wants to look at what is left, and to let a pool die instead of closing it.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use holdfast_faultmem::{FailMode, Fallen, FaultMedium, Passed};
use holdfast_object::Pool;
use holdfast_pmem::{MediaError, Medium, MediumKind, Site, SyncError};

/// The sites passed on any of several media, and what happened there.
#[derive(Debug, Clone, Default)]
pub struct Visited(Arc<Mutex<BTreeSet<Passed>>>);

impl Visited {
    /// Their names, in order.
    #[must_use]
    pub fn names(&self) -> BTreeSet<&'static str> {
        self.passed().into_iter().map(|(site, ..)| site.name()).collect()
    }

    /// Everything that was passed.
    #[must_use]
    pub fn passed(&self) -> BTreeSet<Passed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether a place was passed, given by its name or by its name and a kind.
    #[must_use]
    pub fn has(&self, place: &str) -> bool {
        let passed = self.passed();
        passed.iter().any(|(site, kind, _)| site.name() == place || kind.at(*site) == place)
    }
}

/// Where a spare frame is filled.
const COPIES: [&str; 2] = ["redundancy.remap.copy", "redundancy.remap.heal-copy"];

/// A store of the program.
#[derive(Debug, Clone, Copy)]
struct Stored {
    /// The name of its place.
    site: &'static str,
    /// First byte, bytes.
    at: u64,
    len: u64,
    /// Stores of the medium made by then.
    made: u64,
    /// What was there before is gone: a change on top of it leaves what was wrong wrong.
    over: bool,
}

impl Stored {
    const fn touches(&self, at: u64, len: u64) -> bool {
        self.at < at + len && at < self.at + self.len
    }

    /// Whether it fills the spare frame that another one is moved to.
    fn is_copy(&self) -> bool {
        COPIES.contains(&self.site)
    }

    /// Whether it is one of the program, and not of a repair, a cure of who recovers, or a scrub.
    fn is_own(&self) -> bool {
        let mends = ["object.repair.", "object.redo.cure", "object.bring_back."];
        let in_name = ["scrub", "heal"];
        !mends.iter().any(|mends| self.site.starts_with(mends))
            && !in_name.iter().any(|word| self.site.contains(word))
    }
}

/// Bytes that lie elsewhere from some store of the medium on.
#[derive(Debug, Clone, Copy)]
struct Moved {
    /// First byte as the program sees it, and where it lies now.
    at: u64,
    physical: u64,
    len: u64,
    /// Stores of the medium made by then.
    made: u64,
}

/// What was stored, and what was moved.
#[derive(Debug, Default)]
struct Taken {
    stores: Vec<Stored>,
    moves: Vec<Moved>,
}

impl Taken {
    /// Whether nobody sees any of these bytes any more as they were after as many stores: the
    /// program stored over them, or they were left where they lay when their frame was moved,
    /// having been copied before. What repairs and scrubs store does not count.
    fn are_gone(&self, bytes: &[Fallen]) -> bool {
        let all = bytes.iter().map(|byte| byte.at);
        let (Some(first), Some(last)) = (all.clone().min(), all.max()) else { return true };
        let near = |it: &&Stored| it.over && it.is_own() && it.touches(first, last - first + 1);
        let near: Vec<&Stored> = self.stores.iter().filter(near).collect();
        let over =
            |byte: &Fallen| near.iter().any(|it| it.made > byte.stores && it.touches(byte.at, 1));
        bytes.iter().all(|byte| over(byte) || self.is_left_behind(byte))
    }

    /// Whether a byte went wrong where it lay, between being copied and being moved.
    fn is_left_behind(&self, byte: &Fallen) -> bool {
        let over = |it: &&Moved| byte.at >= it.at && byte.at - it.at < it.len;
        self.moves.iter().filter(over).any(|moved| {
            let to = moved.physical + (byte.at - moved.at);
            let copied = |it: &&Stored| it.is_copy() && it.touches(to, 1) && it.made <= moved.made;
            let copy = self.stores.iter().filter(copied).map(|it| it.made).max();
            // A page is read before its copy is stored. What came at one count of stores has no
            // order: it counts as between the two.
            moved.made >= byte.stores && copy.is_some_and(|made| made <= byte.stores + 1)
        })
    }
}

/// A medium, and who wants to know where it was passed once it goes.
#[derive(Debug)]
struct Noted {
    medium: FaultMedium,
    visited: Option<Visited>,
    /// What was stored since somebody asked for it.
    stores: Mutex<Option<Taken>>,
}

impl Drop for Noted {
    fn drop(&mut self) {
        if let Some(visited) = &self.visited {
            let passed = self.medium.passed();
            visited.0.lock().unwrap_or_else(PoisonError::into_inner).extend(passed);
        }
    }
}

/// A shared faulty medium.
#[derive(Debug, Clone)]
pub struct Handle(Arc<Noted>);

impl Handle {
    /// Shares a medium; when the last handle goes, `visited` learns which sites it has seen.
    #[must_use]
    pub fn new(medium: FaultMedium, visited: Option<Visited>) -> Self {
        Self(Arc::new(Noted { medium, visited, stores: Mutex::default() }))
    }

    /// Takes down each store from now on.
    pub fn note_stores(&self) {
        *self.stores() = Some(Taken::default());
    }

    /// Whether anybody has stored over all these bytes.
    #[must_use]
    pub fn any_stored(&self, bytes: impl Iterator<Item = u64>) -> bool {
        let taken = self.stores();
        let stores = taken.as_ref().map_or(&[][..], |taken| &taken.stores);
        let over = |byte: u64| stores.iter().any(|it| it.over && it.touches(byte, 1));
        bytes.into_iter().all(over)
    }

    /// Whether the program has stored to any byte of a range, or changed one.
    #[must_use]
    pub fn worked_on(&self, at: u64, len: u64) -> bool {
        let taken = self.stores();
        let stores = taken.as_ref().map_or(&[][..], |taken| &taken.stores);
        stores.iter().any(|it| it.is_own() && it.touches(at, len))
    }

    /// Whether nobody sees any of these bytes any more as they were after as many stores of the
    /// medium: the program has stored over them, or they were left behind when a frame was moved.
    #[must_use]
    pub fn stored_over(&self, bytes: &[Fallen]) -> bool {
        let taken = self.stores();
        taken.as_ref().map_or(bytes.is_empty(), |taken| taken.are_gone(bytes))
    }

    fn stores(&self) -> std::sync::MutexGuard<'_, Option<Taken>> {
        self.0.stores.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes down a store that was made after so many others. What failed is not over what was.
    fn note(taken: &mut Option<Taken>, site: Site, (at, len): (u64, u64), how: (u64, bool)) {
        if let Some(taken) = taken.as_mut() {
            let (before, over) = how;
            taken.stores.push(Stored { site: site.name(), at, len, made: before + 1, over });
        }
    }

    /// Lets a pool on this medium go without a clean close, as a killed process would: from now
    /// on nothing reaches the medium any more, so look at it first.
    pub fn abandon(&self, pool: Pool<Self>) {
        self.clear_on_barrier();
        self.clear_on_step();
        self.fail_nth(self.calls() + 1, FailMode::Forever);
        drop(pool);
    }
}

impl Deref for Handle {
    type Target = FaultMedium;

    fn deref(&self) -> &FaultMedium {
        &self.0.medium
    }
}

/// Makes a store and takes it down. No closure: the medium asks for the line of who called.
macro_rules! noted {
    ($self:ident, $over:expr, $name:ident($site:ident, $at:ident, $len:expr; $($arg:expr),*)) => {{
        // Whoever stores meanwhile waits, so that the count of stores is that of this one.
        let mut stores = $self.stores();
        let before = $self.0.medium.stores();
        let done = $self.0.medium.$name($site, $at, $($arg),*);
        Self::note(&mut stores, $site, ($at, $len), (before, $over && done.is_ok()));
        done
    }};
}

/// The same of one that ends in a barrier, at which somebody may look on.
macro_rules! noted_behind {
    ($self:ident, $name:ident($site:ident, $at:ident, $bytes:ident)) => {{
        let before = $self.0.medium.stores();
        let done = $self.0.medium.$name($site, $at, $bytes);
        let len = $bytes.len() as u64;
        Self::note(&mut $self.stores(), $site, ($at, len), (before, done.is_ok()));
        done
    }};
}

impl Medium for Handle {
    fn len(&self) -> u64 {
        self.0.medium.len()
    }

    fn kind(&self) -> MediumKind {
        self.0.medium.kind()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.0.medium.read(at, into)
    }

    #[track_caller]
    fn put(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        noted!(self, true, put(site, at, bytes.len() as u64; bytes))
    }

    fn put_is_cached(&self, len: u64) -> bool {
        self.0.medium.put_is_cached(len)
    }

    #[track_caller]
    fn xor(&self, site: Site, at: u64, delta: &[u8]) -> Result<(), MediaError> {
        noted!(self, false, xor(site, at, delta.len() as u64; delta))
    }

    #[track_caller]
    fn zero(&self, site: Site, at: u64, len: u64) -> Result<(), MediaError> {
        noted!(self, true, zero(site, at, len; len))
    }

    #[track_caller]
    fn drain(&self, site: Site) {
        self.0.medium.drain(site);
    }

    #[track_caller]
    fn enabled(&self, site: Site) -> bool {
        self.0.medium.enabled(site)
    }

    fn locked(&self) {
        self.0.medium.locked();
    }

    #[track_caller]
    fn step(&self, site: Site) {
        self.0.medium.step(site);
    }

    #[track_caller]
    fn append(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), SyncError> {
        noted_behind!(self, append(site, at, bytes))
    }

    #[track_caller]
    fn sync(&self, site: Site) -> Result<(), SyncError> {
        self.0.medium.sync(site)
    }

    fn view(&self, at: u64, len: u64) -> Option<*const u8> {
        self.0.medium.view(at, len)
    }

    fn grow(&self, len: u64) -> Result<(), SyncError> {
        self.0.medium.grow(len)
    }

    #[track_caller]
    fn heal(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        noted_behind!(self, heal(site, at, bytes))
    }

    fn remap(&self, at: u64, physical: u64, len: u64) -> Result<(), MediaError> {
        let mut taken = self.stores();
        let made = self.0.medium.stores();
        let done = self.0.medium.remap(at, physical, len);
        if let Some(taken) = taken.as_mut().filter(|_| done.is_ok()) {
            taken.moves.push(Moved { at, physical, len, made });
        }
        done
    }

    fn stand_in(&self, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.0.medium.stand_in(at, bytes)
    }

    fn bad_ranges(&self) -> Vec<(u64, u64)> {
        self.0.medium.bad_ranges()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page at 8192 that is copied to 40960 by store number 5, and moved after store 9.
    fn moved(site: &'static str) -> Taken {
        let stores = vec![Stored { site, at: 40960, len: 4096, made: 5, over: true }];
        Taken { stores, moves: vec![Moved { at: 8192, physical: 40960, len: 4096, made: 9 }] }
    }

    #[test]
    fn what_goes_wrong_between_the_copy_and_the_move_is_left_behind() {
        let fell = |at, stores| [Fallen { at, stores }];
        for (stores, gone) in [(0, false), (3, false), (4, true), (7, true), (9, true), (10, false)]
        {
            for copy in COPIES {
                assert_eq!(moved(copy).are_gone(&fell(8200, stores)), gone, "after {stores}");
            }
            assert!(!moved("object.commit.data").are_gone(&fell(8200, stores)), "no copy");
            assert!(!moved(COPIES[0]).are_gone(&fell(12288, stores)), "not of that page");
        }
        // All of them have to be.
        let both = [Fallen { at: 8200, stores: 7 }, Fallen { at: 8201, stores: 3 }];
        assert!(!moved(COPIES[0]).are_gone(&both));
        assert!(moved(COPIES[0]).are_gone(&[]));
    }

    #[test]
    fn what_the_program_stores_over_is_gone() {
        let over = |site, made, over| {
            let stores = vec![Stored { site, at: 8192, len: 64, made, over }];
            Taken { stores, moves: Vec::new() }
        };
        let fell = [Fallen { at: 8200, stores: 3 }];
        assert!(over("object.commit.data", 4, true).are_gone(&fell));
        assert!(!over("object.commit.data", 3, true).are_gone(&fell), "before it went wrong");
        assert!(!over("object.commit.parity", 4, false).are_gone(&fell), "a change on top of it");
        assert!(!over("object.repair.store", 4, true).are_gone(&fell), "a repair has to tell");
    }
}
