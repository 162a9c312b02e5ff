//! A source that does not do as it should: it fails, dies, or lets something happen.

use holdfast_faultmem::Watched;
use holdfast_pmem::PAGE;
use holdfast_pmem::track::{DirtySource, Observed, SourceKind, TrackError, WriteWay};

/// What is asked of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Arm,
    Take,
    Peek,
}

/// In which way it does not.
pub(crate) trait Bend: Send + Sync {
    /// The source as it should be.
    fn inner(&self) -> &Watched;

    /// Before it does what is asked, of so many bytes.
    fn before(&self, _asked: Asked, _len: u64) -> Result<(), TrackError> {
        Ok(())
    }

    /// Whether a take tells of a page.
    fn tells(&self, _page: u64) -> bool {
        true
    }

    /// Once it has done it.
    fn after(&self, _asked: Asked, _len: u64) {}

    /// Whether nothing that it tells can be trusted any more.
    fn is_dead(&self) -> bool {
        false
    }
}

/// The source that is bent so.
#[derive(Debug, Clone)]
pub(crate) struct Bent<B>(pub(crate) B);

impl<B: Bend> DirtySource for Bent<B> {
    fn kind(&self) -> SourceKind {
        DirtySource::kind(self.0.inner())
    }

    fn arm(&self, at: u64, len: u64) -> Result<(), TrackError> {
        self.0.before(Asked::Arm, len)?;
        self.0.inner().arm(at, len)
    }

    fn disarm(&self, at: u64, len: u64) -> Result<(), TrackError> {
        self.0.inner().disarm(at, len)
    }

    fn take(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<(), TrackError> {
        self.0.before(Asked::Take, len)?;
        self.0.inner().take(at, len, &mut |from, len| {
            let pages = from / PAGE..(from + len) / PAGE;
            pages.filter(|page| self.0.tells(*page)).for_each(|page| each(page * PAGE, PAGE));
        })?;
        self.0.after(Asked::Take, len);
        Ok(())
    }

    fn peek(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<(), TrackError> {
        self.0.before(Asked::Peek, len)?;
        self.0.inner().peek(at, len, each)?;
        self.0.after(Asked::Peek, len);
        Ok(())
    }

    fn forget(&self, at: u64, len: u64) {
        self.0.inner().forget(at, len);
    }

    fn intact(&self, at: u64, len: u64) -> bool {
        !self.0.is_dead() && self.0.inner().intact(at, len)
    }

    fn coverage(&self, way: WriteWay) -> Observed {
        self.0.inner().coverage(way)
    }
}
