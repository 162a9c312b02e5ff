//! Signals. Ctrl-C: the first one asks the command to stop where it can, the second one ends it.
//! A limit on the length of files is an error of the write that meets it, not the end.
//!
//! While a command has the terminal in a state of its own, other signals that would end it ask it
//! to stop as well, and what ends it puts the terminal back first.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::{flag, low_level};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::out::Out;

/// How long a command that was asked to stop may take until it gives the terminal back,
const STOP_WAIT: Duration = Duration::from_secs(3);
/// and how long that is waited for: a terminal that takes no output takes no farewell either.
const RESTORE_WAIT: Duration = Duration::from_millis(300);

static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();
/// What ends the command at the second Ctrl-C.
static SECOND: Mutex<Option<SigId>> = Mutex::new(None);

/// Listens from now on.
pub(crate) fn listen() {
    // In this order: the second signal finds the flag that the first one set.
    if end_at_second() {
        // Without it, Ctrl-C ends the command at once: nothing is lost, a pool recovers.
        let _ = flag::register(SIGINT, flag_asked());
    }
    // Whoever handles it, if only by a flag nobody reads, gets the error from the system call.
    let _ = flag::register(SIGXFSZ, Arc::default());
}

fn flag_asked() -> Arc<AtomicBool> {
    Arc::clone(ASKED.get_or_init(Arc::default))
}

/// Makes the second Ctrl-C end the command.
fn end_at_second() -> bool {
    let code = i32::from(Exit::CANCELLED.code());
    let registered = flag::register_conditional_shutdown(SIGINT, code, flag_asked()).ok();
    let mut second = SECOND.lock().unwrap_or_else(PoisonError::into_inner);
    *second = registered;
    registered.is_some()
}

/// Ends a command that changes nothing, from wherever it is, if somebody asked it to stop.
pub(crate) fn end_if_asked(out: Out, command: &str) {
    if asked() {
        let failure = Failure::interrupted("nothing was changed; run it again");
        out.failure(command, &failure);
        std::process::exit(failure.exit().code().into());
    }
}

/// Whether somebody asked the command to stop.
pub(crate) fn asked() -> bool {
    ASKED.get().is_some_and(|asked| asked.load(Ordering::Acquire))
}

/// While it lives, Ctrl-C, a hang-up and a request to terminate ask the command to stop. The
/// second of them, or none but no end either, ends it, and the terminal is put back.
#[derive(Debug)]
pub(crate) struct Guard {
    registered: Vec<SigId>,
}

impl Guard {
    /// `restore` puts the terminal back; it is called from a thread of its own, if at all.
    ///
    /// # Errors
    /// The system has no thread, no pipe or no handler left.
    pub(crate) fn new(restore: fn()) -> io::Result<Self> {
        let (told, tell) = UnixStream::pair()?;
        thread::Builder::new().name("signals".to_owned()).spawn(move || watch(told, restore))?;
        let mut this = Self { registered: Vec::new() };
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            this.registered.push(flag::register(signal, flag_asked())?);
            this.registered.push(low_level::pipe::register(signal, tell.try_clone()?)?);
        }
        // This one would leave the terminal as it is.
        if let Some(second) = SECOND.lock().unwrap_or_else(PoisonError::into_inner).take() {
            low_level::unregister(second);
        }
        Ok(this)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The pipes go with their handlers, and with them the thread that listens.
        for registered in self.registered.drain(..) {
            low_level::unregister(registered);
        }
        let _ = end_at_second();
    }
}

/// Waits for two signals, or for one that nothing comes of.
fn watch(mut told: UnixStream, restore: fn()) {
    if !matches!(told.read(&mut [0]), Ok(1)) {
        return;
    }
    let _ = told.set_read_timeout(Some(STOP_WAIT));
    if matches!(told.read(&mut [0]), Ok(0)) {
        return;
    }
    let (done, wait) = mpsc::channel();
    thread::spawn(move || {
        restore();
        let _ = done.send(());
    });
    let _ = wait.recv_timeout(RESTORE_WAIT);
    std::process::exit(Exit::CANCELLED.code().into());
}
