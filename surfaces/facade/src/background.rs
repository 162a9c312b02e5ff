//! The threads that serve an open pool: one heals loads that met a media error, one listens for
//! operators' commands, one starts scrubs when they are due. None keeps the pool open.

use core::time::Duration;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};

use holdfast_object::ScrubOptions;
use holdfast_pmem::call::start_thread;
use holdfast_pmem::{Clock, Mapped, Verdict};
use holdfast_redundancy::{Schedule, Scheduler};

use crate::clock::WallClock;
use crate::pool::{Inner, Pool};
use crate::serve;

/// How long the healer waits before it looks whether the pool is still there.
const LOOK: Duration = Duration::from_millis(50);
/// Commands served at the same time; more are turned away.
const SERVED_MAX: usize = 8;

/// The threads of one pool.
#[derive(Debug)]
pub(crate) struct Background {
    stop: Arc<AtomicBool>,
    listener: Option<(SocketAddr, JoinHandle<()>)>,
}

impl Background {
    /// Starts the threads asked for. A thread or socket that cannot be had is done without: the
    /// pool works, and the command that finds nobody says so.
    pub(crate) fn start(
        pool: &Pool,
        heal_loads: bool,
        commands: bool,
        (schedule, rate): (Schedule, Option<u64>),
    ) {
        let stop = Arc::new(AtomicBool::new(false));
        if heal_loads {
            let (mailbox, weak) = (pool.medium().faults(), Arc::downgrade(pool.inner()));
            let stop = Arc::clone(&stop);
            let _ = start_thread("holdfast-heal", move || {
                while !stop.load(Ordering::Acquire) {
                    let Some(fault) = mailbox.wait(LOOK) else { continue };
                    let healed = upgrade(&weak)
                        .is_some_and(|pool| pool.engine().heal_load(fault.at, fault.len));
                    mailbox.answer(fault, if healed { Verdict::Healed } else { Verdict::Lost });
                }
            });
        }
        if schedule != Schedule::default() {
            let (weak, stop) = (Arc::downgrade(pool.inner()), Arc::clone(&stop));
            let _ = start_thread("holdfast-schedule", move || {
                keep_schedule(&weak, &stop, schedule, rate);
            });
        }
        let listener = pool
            .path()
            .filter(|_| commands)
            .and_then(address_of)
            .and_then(|address| listen(address, &stop, Arc::downgrade(pool.inner())));
        let _ = pool.inner().background.set(Self { stop, listener });
    }

    /// In a forked child: the threads are the parent's. Here are only handles of them, which can
    /// neither be joined nor given back.
    pub(crate) fn leave_to_parent(self) {
        core::mem::forget(self);
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let Some((address, thread)) = self.listener.take() else { return };
        // Wakes the listener, whose name has to be free once the pool is closed.
        let _ = UnixStream::connect_addr(&address);
        if thread.thread().id() != thread::current().id() {
            let _ = thread.join();
        }
    }
}

/// Starts a pass whenever one is due, until the pool is closed.
fn keep_schedule(
    weak: &Weak<Inner<Mapped>>,
    stop: &AtomicBool,
    schedule: Schedule,
    rate: Option<u64>,
) {
    let clock = WallClock::new();
    let mut scheduler = Scheduler::new(schedule, clock.now(), 0);
    while !stop.load(Ordering::Acquire) {
        thread::sleep(LOOK);
        let Some(pool) = upgrade(weak) else { return };
        let commits = pool.stats().commits;
        if scheduler.due(clock.now(), commits).is_some() {
            scheduler.started(clock.now(), commits);
            scrub_watched(weak, pool, rate);
        }
    }
}

/// Runs a pass, and pauses it once it is all that keeps the pool open.
fn scrub_watched(weak: &Weak<Inner<Mapped>>, pool: Pool, rate: Option<u64>) {
    let pass = move || {
        let options = ScrubOptions { rate, resume: true };
        // One that somebody asked for may be running; a pass that fails has left its events.
        let _ = pool.scrub(options, |_, _| {});
    };
    let Ok(pass) = start_thread("holdfast-scrub", pass) else { return };
    while !pass.is_finished() {
        thread::sleep(LOOK);
        if weak.strong_count() == 1
            && let Some(pool) = upgrade(weak)
        {
            pool.scrub_control().pause();
        }
    }
}

/// Where the owner of the pool in the file `path` listens: a name of the kernel's, not of the file
/// system, so that nothing is left behind.
pub(crate) fn address_of(path: &Path) -> Option<SocketAddr> {
    let found = std::fs::metadata(path).ok()?;
    SocketAddr::from_abstract_name(format!("holdfast-{:x}-{:x}", found.dev(), found.ino())).ok()
}

fn upgrade(weak: &Weak<Inner<Mapped>>) -> Option<Pool> {
    weak.upgrade().map(Pool::from_inner)
}

fn listen(
    address: SocketAddr,
    stop: &Arc<AtomicBool>,
    weak: Weak<Inner<Mapped>>,
) -> Option<(SocketAddr, JoinHandle<()>)> {
    let listener = UnixListener::bind_addr(&address).ok()?;
    let stop = Arc::clone(stop);
    let accept = move || {
        let served = Arc::new(());
        for stream in listener.incoming() {
            if stop.load(Ordering::Acquire) {
                break;
            }
            let Ok(stream) = stream else { continue };
            if Arc::strong_count(&served) > SERVED_MAX || !is_ours(&stream) {
                continue;
            }
            let (weak, count) = (weak.clone(), Arc::clone(&served));
            let _ = start_thread("holdfast-command", move || {
                serve::serve(&stream, || upgrade(&weak));
                drop(count);
            });
        }
    };
    Some((address, start_thread("holdfast-owner", accept).ok()?))
}

/// Whether the other end belongs to the same user. Names of the kernel's have no permissions.
pub(crate) fn is_ours(stream: &UnixStream) -> bool {
    rustix::net::sockopt::socket_peercred(stream)
        .is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}
