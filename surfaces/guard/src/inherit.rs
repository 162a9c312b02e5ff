//! What a program has from its supervisor is what that was given: as if nobody stood between.
//!
//! | what | who changed it | what the program is given |
//! |---|---|---|
//! | the limit of descriptors | the supervisor, which takes one for each mapping | what it was |
//! | SIGPIPE | Rust: it is ignored here, and not in programs that are started | what it was |
//! | standard streams that are closed | Rust: `/dev/null` is opened there | closed ones |
//! | its first word | finding its file by its name | what it is called |
//!
//! Rust does so before `main`, so what there was is looked at before that.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What this process was started with: a bit for each standard stream that is closed, and one if it
/// ignores SIGPIPE.
static STARTED: AtomicU32 = AtomicU32::new(0);
const IGNORES: u32 = 1 << 3;

/// Called before `main`, and before what prepares that.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    let mut found = 0;
    // SAFETY: a structure of numbers and a pointer, of which zeros are some.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    // SAFETY: changes nothing, and writes into that structure.
    let asked = unsafe { libc::sigaction(libc::SIGPIPE, core::ptr::null(), &raw mut action) };
    if asked == 0 && action.sa_sigaction == libc::SIG_IGN {
        found |= IGNORES;
    }
    for stream in 0..3 {
        // SAFETY: asks about a descriptor, which need not be one.
        if unsafe { libc::fcntl(stream, libc::F_GETFD) } == -1 {
            found |= 1 << stream;
        }
    }
    STARTED.store(found, Ordering::Relaxed);
}

/// What a program is to be given.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inherited {
    limit: Rlimit,
    ignores: bool,
    closed: [bool; 3],
}

impl Inherited {
    /// As it is now, but for what was changed before.
    pub(crate) fn now() -> Self {
        let started = STARTED.load(Ordering::Relaxed);
        Self {
            limit: getrlimit(Resource::Nofile),
            ignores: started & IGNORES != 0,
            // What is there by now may have been put there on purpose.
            closed: [0, 1, 2].map(|stream| started >> stream & 1 == 1 && is_null(stream)),
        }
    }

    /// Gives it to the calling process.
    ///
    /// # Errors
    /// What the system says. Called between fork and exec: allocates nothing.
    pub(crate) fn give(&self) -> io::Result<()> {
        setrlimit(Resource::Nofile, self.limit)?;
        if self.ignores {
            // SAFETY: sets what is done about a signal: nothing.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        }
        for (stream, closed) in (0..).zip(self.closed) {
            if closed {
                // SAFETY: `now` saw that the null device is open there, which nobody uses: whoever
                // is about to become another program has no more to say.
                unsafe { libc::close(stream) };
            }
        }
        Ok(())
    }
}

/// Whether a descriptor is the null device.
fn is_null(stream: i32) -> bool {
    // SAFETY: a structure of numbers, of which zeros are some.
    let mut found: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: writes into that structure, or fails if it is no descriptor.
    let asked = unsafe { libc::fstat(stream, &raw mut found) };
    let device = found.st_mode & libc::S_IFMT == libc::S_IFCHR;
    asked == 0 && device && found.st_rdev == libc::makedev(1, 3)
}

/// Each mapping takes a descriptor.
pub(crate) fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    // Where it is refused, fewer mappings can be guarded; they say so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
