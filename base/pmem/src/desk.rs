//! Whoever keeps a file tells others about it: a local socket whose name is made of the file's
//! device and inode.
//!
//! The name is the kernel's, so nothing is left behind in any folder. Names of that kind have no
//! permissions: both ends look who the other is, and speak to the same user only. To connect is to
//! ask. Nothing that a client sends is read, it is never waited for, and questions that follow each
//! other quickly get the same answer, so no client disturbs whoever keeps the file: an answer is
//! made on a thread of the desk, for a twentieth of the time at the most.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::call::{self, start_thread};

/// An answer is good for so long at the least.
const GOOD_FOR: Duration = Duration::from_millis(50);
/// And for so many times as long as it took to make it.
const TIMES: u32 = 20;
/// Clients served before the desk looks at who else is there, and how long it rests then.
const ROUND: usize = 8;
const REST: Duration = Duration::from_millis(2);
/// How often a name that is taken is tried before.
const TRIES: u32 = 5;

/// Who can tell about a file.
pub trait Tells: Send + Sync {
    /// What there is to tell, without the end of a line; `None` if nothing can be said now.
    fn tell(&self) -> Option<String>;
}

/// How a file is told apart from all others: device and inode.
pub type Key = (u64, u64);

/// The key of the file `path`.
///
/// # Errors
/// What the system says.
pub fn key_of(path: &Path) -> io::Result<Key> {
    use std::os::unix::fs::MetadataExt;
    let found = std::fs::metadata(path)?;
    Ok((found.dev(), found.ino()))
}

fn name_of((device, inode): Key) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("holdfast-kept-{device:x}-{inode:x}"))
}

/// One file that is told about.
struct Place {
    key: Key,
    listener: UnixListener,
    /// Nobody once the file is not told about any more.
    tells: Mutex<Option<Arc<dyn Tells>>>,
    /// The last answer, since when, and until when it is good.
    last: Mutex<Option<(Instant, Option<Arc<str>>)>>,
}

/// What the thread works with, too.
struct Shared {
    places: Mutex<Vec<Arc<Place>>>,
    stop: AtomicBool,
    /// Written to when the places are others, or it is to stop.
    wake: OwnedFd,
}

/// Tells others about files, on a thread of its own, for as long as this value lives.
pub struct Desk {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    process: u32,
}

impl Desk {
    /// A desk with no files.
    ///
    /// # Errors
    /// What the system says: no thread, no descriptor.
    pub fn open() -> io::Result<Self> {
        call::ask("eventfd2", Errno::MFILE)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (places, stop) = (Mutex::default(), AtomicBool::new(false));
        let shared = Arc::new(Shared { places, stop, wake });
        let ours = Arc::clone(&shared);
        let thread = Some(start_thread("holdfast-desk", move || ours.serve())?);
        Ok(Self { shared, thread, process: std::process::id() })
    }

    /// Tells about one more file.
    ///
    /// # Errors
    /// What the system says; the name may be taken: somebody else tells about it, or took it.
    pub fn add(&self, key: Key, tells: Arc<dyn Tells>) -> io::Result<()> {
        let listener = bind(&name_of(key)?)?;
        listener.set_nonblocking(true)?;
        let (tells, last) = (Mutex::new(Some(tells)), Mutex::default());
        lock(&self.shared.places).push(Arc::new(Place { key, listener, tells, last }));
        self.shared.wake();
        Ok(())
    }

    /// Tells nothing about a file any more; waits for an answer that is being made.
    pub fn remove(&self, key: Key) {
        let mut places = lock(&self.shared.places);
        let gone = places.iter().position(|place| place.key == key);
        let gone = gone.map(|at| places.swap_remove(at));
        drop(places);
        if let Some(place) = gone {
            place.leave();
            self.shared.wake();
        }
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if std::process::id() != self.process {
            // In a forked child: the thread is the parent's.
            core::mem::forget(thread);
            return;
        }
        self.shared.stop.store(true, Ordering::Release);
        for place in core::mem::take(&mut *lock(&self.shared.places)) {
            place.leave();
        }
        self.shared.wake();
        let _ = thread.join();
    }
}

impl core::fmt::Debug for Desk {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Desk").field("files", &lock(&self.shared.places).len()).finish()
    }
}

/// Binds a name that this thread may have given up just now.
fn bind(name: &SocketAddr) -> io::Result<UnixListener> {
    call::ask("bind", Errno::MFILE)?;
    for _ in 0..TRIES {
        match UnixListener::bind_addr(name) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => thread::sleep(REST),
            done => return done,
        }
    }
    UnixListener::bind_addr(name)
}

/// Nothing here is left half done by a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn wake(&self) {
        // It is written to already if that does not succeed.
        let _ = rustix::io::write(&self.wake, &1_u64.to_le_bytes());
    }

    fn serve(&self) {
        while !self.stop.load(Ordering::Acquire) {
            let places = lock(&self.places).clone();
            let ready: Vec<bool> = {
                let mut all = vec![PollFd::new(&self.wake, PollFlags::IN)];
                all.extend(places.iter().map(|p| PollFd::new(&p.listener, PollFlags::IN)));
                // An interrupted wait is one that ended early.
                let _ = poll(&mut all, None);
                all.iter().map(|fd| !fd.revents().is_empty()).collect()
            };
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
            let mut served = false;
            for (place, _) in places.iter().zip(&ready[1..]).filter(|(_, ready)| **ready) {
                served = true;
                place.serve();
            }
            drop(places);
            if served {
                thread::sleep(REST);
            }
        }
    }
}

impl Place {
    fn serve(&self) {
        for _ in 0..ROUND {
            let Ok((stream, _)) = self.listener.accept() else { return };
            if !is_same_user(&stream) {
                continue;
            }
            let Some(answer) = self.answer() else { continue };
            // It fits into the queue of a new connection; one that does not is not waited for.
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let _ = send(&stream, answer.as_bytes(), flags);
        }
    }

    fn answer(&self) -> Option<Arc<str>> {
        let mut last = lock(&self.last);
        if let Some((_, answer)) = last.as_ref().filter(|(until, _)| Instant::now() < *until) {
            return answer.clone();
        }
        let began = Instant::now();
        // Held, so that whoever takes it away waits.
        let tells = lock(&self.tells);
        let answer = tells.as_ref()?.tell().map(|mut text| {
            text.push('\n');
            Arc::<str>::from(text)
        });
        drop(tells);
        let ended = Instant::now();
        let good_for = GOOD_FOR.max(ended.saturating_duration_since(began).saturating_mul(TIMES));
        *last = Some((ended + good_for, answer.clone()));
        answer
    }

    fn leave(&self) {
        *lock(&self.tells) = None;
        // A forked child may have the listener, too: nobody is to wait there.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

fn is_same_user(stream: &UnixStream) -> bool {
    let peer = socket_peercred(stream);
    peer.is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

/// Asks whoever keeps the file of this key: the number of its process, and a line of at most `most`
/// bytes without its end. `None` if nobody of the same user answers within `patience`.
#[must_use]
pub fn ask(key: Key, most: usize, patience: Duration) -> Option<(u32, String)> {
    let until = Instant::now() + patience;
    let stream = connect(key, patience)?;
    let peer = socket_peercred(&stream).ok()?;
    // Anybody could have taken the name.
    if peer.uid != rustix::process::geteuid() {
        return None;
    }
    let process = u32::try_from(peer.pid.as_raw_nonzero().get()).ok()?;
    let mut line: Vec<u8> = Vec::new();
    let mut part = [0; 4096];
    loop {
        let left = Timespec::try_from(until.saturating_duration_since(Instant::now())).ok()?;
        match poll(&mut [PollFd::new(&stream, PollFlags::IN)], Some(&left)) {
            Ok(0) => return None,
            Err(Errno::INTR) if Instant::now() < until => continue,
            Err(_) => return None,
            Ok(_) => {}
        }
        let room = part.len().min((most + 1).saturating_sub(line.len()));
        let got = match recv(stream.as_fd(), &mut part[..room], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return None,
            Ok((_, got)) => got.min(room),
            Err(Errno::INTR | Errno::AGAIN) if Instant::now() < until => continue,
            Err(_) => return None,
        };
        line.extend_from_slice(&part[..got]);
        if line.last() == Some(&b'\n') {
            line.pop();
            return Some((process, String::from_utf8(line).ok()?));
        }
        if line.len() > most || Instant::now() >= until {
            return None;
        }
    }
}

/// A desk whose queue is full is waited for, too, but no longer than that.
fn connect(key: Key, patience: Duration) -> Option<UnixStream> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).ok()?;
    set_socket_timeout(&socket, Timeout::Send, Some(patience)).ok()?;
    let address = name_of(key).ok()?;
    let address = SocketAddrUnix::new_abstract_name(address.as_abstract_name()?).ok()?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) => Some(UnixStream::from(socket)),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    const SOON: Duration = Duration::from_secs(5);

    /// Keys that no file has; each test has its own.
    fn key(number: u64) -> Key {
        (u64::from(std::process::id()) << 8 | number, u64::MAX)
    }

    #[derive(Default)]
    struct Counts(AtomicUsize, Duration);

    impl Tells for Counts {
        fn tell(&self) -> Option<String> {
            thread::sleep(self.1);
            Some(format!("{} times", self.0.fetch_add(1, Ordering::SeqCst) + 1))
        }
    }

    #[test]
    fn who_asks_is_told_until_it_is_over() {
        let desk = Desk::open().unwrap();
        let (one, other) = (Arc::new(Counts::default()), Arc::new(Counts::default()));
        desk.add(key(1), Arc::clone(&one) as Arc<dyn Tells>).unwrap();
        desk.add(key(2), other).unwrap();
        assert!(desk.add(key(2), Arc::new(Counts::default())).is_err(), "the name is taken");
        let told = |key| ask(key, 100, SOON);
        let me = std::process::id();
        assert_eq!(told(key(1)), Some((me, "1 times".to_owned())));
        assert_eq!(told(key(2)), Some((me, "1 times".to_owned())));
        assert_eq!(ask(key(1), 3, SOON), None, "it is longer than was asked for");
        desk.remove(key(1));
        assert_eq!(told(key(1)), None);
        assert_eq!(Arc::strong_count(&one), 1, "nobody has it any more");
        drop(desk);
        assert_eq!(told(key(2)), None);
    }

    /// Has nothing to say.
    struct Silent;

    impl Tells for Silent {
        fn tell(&self) -> Option<String> {
            None
        }
    }

    #[test]
    fn who_has_nothing_to_say_keeps_nobody() {
        let desk = Desk::open().unwrap();
        desk.remove(key(5));
        desk.add(key(5), Arc::new(Silent)).unwrap();
        let began = Instant::now();
        assert_eq!(ask(key(5), 100, SOON), None);
        assert!(began.elapsed() < SOON, "the end of the connection is an answer");
        desk.remove(key(5));
        assert_eq!(ask(key(5), 100, SOON), None);
    }

    #[test]
    fn many_questions_are_one_and_nobody_is_waited_for() {
        let desk = Desk::open().unwrap();
        let counts = Arc::new(Counts(AtomicUsize::new(0), Duration::from_millis(20)));
        desk.add(key(3), Arc::clone(&counts) as Arc<dyn Tells>).unwrap();
        // They say nothing, and read nothing.
        let silent: Vec<_> = (0..20).filter_map(|_| connect(key(3), SOON)).collect();
        assert_eq!(silent.len(), 20);
        let began = Instant::now();
        let mut asked = 0;
        while began.elapsed() < Duration::from_millis(1000) {
            assert!(ask(key(3), 100, SOON).is_some());
            asked += 1;
        }
        let made = counts.0.load(Ordering::SeqCst);
        // Each is good for 400 ms, and the last may be asked for late.
        let most = began.elapsed().as_millis() as usize / 400 + 2;
        assert!(made <= most && asked > made, "{made} answers made for {asked} questions");
        desk.remove(key(3));
    }

    #[test]
    fn whoever_does_not_answer_is_not_waited_for_long() {
        let (short, began) = (Duration::from_millis(50), Instant::now());
        assert_eq!(ask(key(4), 100, short), None, "nobody is there");
        let silent = UnixListener::bind_addr(&name_of(key(4)).unwrap()).unwrap();
        assert_eq!(ask(key(4), 100, short), None);
        // One that never comes to the end of its line.
        let babble = thread::spawn(move || {
            let (_first, _) = silent.accept().unwrap();
            let (second, _) = silent.accept().unwrap();
            while send(&second, b"1 ", SendFlags::NOSIGNAL).is_ok() {
                thread::sleep(Duration::from_millis(1));
            }
        });
        assert_eq!(ask(key(4), 1 << 20, Duration::from_millis(100)), None);
        assert!(began.elapsed() < Duration::from_secs(20));
        babble.join().unwrap();
    }
}
