//! What whoever keeps a file tells of it: which pages were stored to since the last pass is known
//! to that process only.

use core::time::Duration;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use holdfast_mapped::live::{Live, TEXT_MAX};
use holdfast_pmem::Mapped as Mapping;
use holdfast_pmem::desk::{self, Desk, Tells};

use crate::protect::live::Shared;
use crate::protect::options::ProtectOptions;
use crate::protect::pointer::Pointer;

/// What the process that keeps a file says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Its number.
    pub process: u32,
    /// What it says.
    pub live: Live,
    /// The pool that has the redundancy, if it is in one.
    pub pool: Option<PathBuf>,
}

impl Told {
    /// Asks whoever keeps the file `path`: a guard, or a program that has it as a
    /// [`ProtectedMap`](crate::protect::ProtectedMap). Neither file is opened for more than to see
    /// who has the side file. `None` if nobody of the same user answers within `patience`.
    #[must_use]
    pub fn ask(
        path: impl AsRef<Path>,
        options: &ProtectOptions,
        patience: Duration,
    ) -> Option<Self> {
        let path = path.as_ref();
        let (process, text) = desk::ask(desk::key_of(path).ok()?, TEXT_MAX, patience)?;
        let live = Live::parse(&text)?;
        // Anybody of this user could have taken the name, but only whoever keeps the file has its
        // side file. One that points to a pool nobody has: the pool has its own lock.
        let side = options.side_of(path);
        let pool = Pointer::load(&side).ok().map(|there| there.pool);
        let keeps = match Mapping::writer_of(&side).ok()? {
            Some(holder) => holder.is_none_or(|holder| holder == process),
            None => pool.is_some(),
        };
        keeps.then_some(Self { process, live, pool })
    }
}

/// Tells about a mapped file. Does not keep it open.
struct Teller(Weak<Shared>);

impl Tells for Teller {
    fn tell(&self) -> Option<String> {
        self.0.upgrade()?.live().ok().map(|live| live.words())
    }
}

/// Begins to tell about a mapped file. Without it only its status from outside is less than it
/// could be.
pub(crate) fn begin(path: &Path, shared: &Arc<Shared>) -> Option<Desk> {
    let desk = Desk::open().ok()?;
    let teller = Arc::new(Teller(Arc::downgrade(shared)));
    desk.add(desk::key_of(path).ok()?, teller).ok()?;
    Some(desk)
}
