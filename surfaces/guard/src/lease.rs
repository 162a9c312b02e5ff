//! Who has a file and is in no list: a handle on its way through a socket, or kept by a ring and
//! nowhere else. The kernel counts it, and refuses a lease of the file for it.
//!
//! | the kernel | and the lists of handles and mappings | so |
//! |---|---|---|
//! | grants a lease | - | nobody has it, nor gets it while the lease lives |
//! | refuses one | show somebody, who may only read | that is for others to judge |
//! | refuses one, again and again | show nobody | somebody has it who cannot be seen |
//! | knows no leases here, or not for us | - | the lists are all there is |
//!
//! A lease lives for moments only: who opens the file waits meanwhile, and is refused
//! (`EWOULDBLOCK`) if it would not wait.

use std::os::fd::AsFd;
use std::time::Duration;

use holdfast_pmem::track::holders::{self, FileId};
use holdfast_pmem::{Alone, ForeignFile, Lease};

/// How often a refusal has to be met for which nobody is seen: who was just about to go is gone.
const TRIES: u32 = 10;
const NAP: Duration = Duration::from_millis(2);

/// Somebody has the file who is in no list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unseen;

/// A lease of a file, if the system grants one.
pub(crate) fn lease(data: &ForeignFile) -> Result<Option<Lease>, Unseen> {
    for _ in 0..TRIES {
        match data.alone() {
            Alone::Yes(lease) => return Ok(Some(lease)),
            Alone::Unknown => return Ok(None),
            Alone::No => {}
        }
        // What cannot be found out about it may be anything.
        let id = FileId::of(data.file().as_fd()).map_err(|_| Unseen)?;
        if holders::is_held(data.file(), &id) {
            return Ok(None);
        }
        std::thread::sleep(NAP);
    }
    Err(Unseen)
}
