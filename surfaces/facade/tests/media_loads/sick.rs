//! A file system of one file, whose pages cannot be read when a test says so, until they are
//! written again: what a device does that has lost a sector. The kernel then signals a load of the
//! page as it does on any device.
//!
//! Served by a process of its own, which has the only handle and dies with the test: a process that
//! waits for itself could not even be killed.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;

const PAGE: u64 = 4096;
const ROOT: u64 = 1;
const FILE: u64 = 2;
const NAME: &str = "data.bin";

struct State {
    bytes: Vec<u8>,
    lost: BTreeSet<u64>,
    changed: u64,
}

pub(crate) struct Sick {
    folder: tempfile::TempDir,
    server: i32,
    says: UnixStream,
}

impl Sick {
    /// Mounts it where nobody else sees it; `None` if this system does not let us.
    pub(crate) fn mount(bytes: Vec<u8>) -> Option<Self> {
        let last = std::io::Error::last_os_error;
        let skip = |what: &str| eprintln!("skipped: {what}: {}", last());
        let Ok(kernel) = OpenOptions::new().read(true).write(true).open("/dev/fuse") else {
            skip("no file system can be served by a program here");
            return None;
        };
        // SAFETY: this thread, and those it starts, see mounts of their own from here on.
        if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
            skip("nobody may have mounts for himself here");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let (says, hears) = UnixStream::pair().unwrap();
        // SAFETY: the child begins with one thread, which calls nothing that threads of the parent
        // could keep from it but the allocator, which is made for that; it ends by `_exit`.
        let server = unsafe { libc::fork() };
        assert!(server >= 0);
        if server == 0 {
            drop(says);
            let state = State { bytes, lost: BTreeSet::new(), changed: 1 };
            // SAFETY: asks to be ended with the thread that began it; and ends.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                serve(state, kernel, hears);
                libc::_exit(0)
            }
        }
        let mounted = mount(&kernel, &folder);
        let this = Self { folder, server, says };
        if !mounted {
            skip("nothing can be mounted here");
            return None;
        }
        // Before it is mounted there is nothing to be asked.
        (&this.says).write_all(b"go").unwrap();
        Some(this)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join(NAME)
    }

    fn say(&self, what: u64, page: u64) -> u64 {
        (&self.says).write_all(&words(&[what, page])).unwrap();
        let mut answer = [0; 8];
        (&self.says).read_exact(&mut answer).unwrap();
        u64::from_le_bytes(answer)
    }

    /// From now on the page cannot be read, and what it was is gone. What is stored to it has to
    /// be synced before.
    pub(crate) fn lose(&self, page: u64) {
        assert_eq!(self.say(1, page), 1);
    }

    /// Whether the page cannot be read.
    pub(crate) fn is_lost(&self, page: u64) -> bool {
        self.say(0, page) == 1
    }
}

impl Drop for Sick {
    fn drop(&mut self) {
        let here = CString::new(self.folder.path().to_str().unwrap()).unwrap();
        // SAFETY: a string that lives across the call; a child of ours that nobody waited for yet.
        unsafe {
            libc::umount2(here.as_ptr(), libc::MNT_DETACH);
            libc::kill(self.server, libc::SIGKILL);
            libc::waitpid(self.server, std::ptr::null_mut(), 0);
        }
    }
}

fn mount(kernel: &File, folder: &tempfile::TempDir) -> bool {
    let here = CString::new(folder.path().to_str().unwrap()).unwrap();
    let how = format!("fd={},rootmode=40000,user_id=0,group_id=0", kernel.as_raw_fd());
    let how = CString::new(how).unwrap();
    let (apart, flags) = (libc::MS_REC | libc::MS_PRIVATE, libc::MS_NOSUID | libc::MS_NODEV);
    let (name, kind, null) = (c"sick".as_ptr(), c"fuse".as_ptr(), std::ptr::null());
    // SAFETY: strings that live across the calls.
    unsafe {
        libc::mount(null, c"/".as_ptr(), null, apart, null.cast()) == 0
            && libc::mount(name, here.as_ptr(), kind, flags, how.as_ptr().cast()) == 0
    }
}

/// What the kernel asks.
struct Asked<'a> {
    what: u32,
    node: u64,
    rest: &'a [u8],
}

impl Asked<'_> {
    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.rest[at..at + 4].try_into().unwrap())
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.rest[at..at + 8].try_into().unwrap())
    }
}

fn serve(state: State, mut kernel: File, mut test: UnixStream) {
    if test.read_exact(&mut [0; 2]).is_err() {
        return;
    }
    let state = Arc::new(Mutex::new(state));
    let (same, mut tell) = (Arc::clone(&state), kernel.try_clone().unwrap());
    // On a thread of its own: the kernel may have to ask before it has forgotten a page.
    thread::spawn(move || while obey(&same, &mut tell, &mut test) {});
    let mut room = vec![0; 1 << 18];
    loop {
        let len = match kernel.read(&mut room) {
            Ok(len) => len,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => continue,
            Err(_) => return,
        };
        let head = |at: usize| u64::from_le_bytes(room[at..at + 8].try_into().unwrap());
        let what = (head(0) >> 32) as u32;
        let asked = Asked { what, node: head(16), rest: &room[40..len] };
        // Forgotten, forgotten together, interrupted: nobody waits.
        if matches!(what, 2 | 42 | 36) {
            continue;
        }
        let (error, body) = match answer(&mut state.lock().unwrap(), &asked) {
            Ok(body) => (0, body),
            Err(error) => (-error, Vec::new()),
        };
        let mut out = Vec::new();
        out.extend((16 + body.len() as u32).to_le_bytes());
        out.extend(error.to_le_bytes());
        out.extend(head(8).to_le_bytes());
        out.extend(body);
        // One that was taken back meanwhile needs no answer.
        let _ = kernel.write(&out);
    }
}

/// Does what the test wants; whether there is one.
fn obey(state: &Mutex<State>, kernel: &mut File, test: &mut UnixStream) -> bool {
    let mut asked = [0; 16];
    if test.read_exact(&mut asked).is_err() {
        return false;
    }
    let page = u64::from_le_bytes(asked[8..].try_into().unwrap());
    let lose = asked[0] == 1;
    let lost = {
        let mut state = state.lock().unwrap();
        if lose {
            state.lost.insert(page);
            state.bytes[(page * PAGE) as usize..][..PAGE as usize].fill(0xdb);
        }
        state.lost.contains(&page)
    };
    if lose {
        // The kernel is told that what it has of the page is not true any more.
        let mut told = Vec::new();
        for number in [40, 2_u32] {
            told.extend(number.to_le_bytes());
        }
        told.extend(words(&[0, FILE, page * PAGE, PAGE]));
        let _ = kernel.write(&told);
    }
    test.write_all(&u64::from(lost).to_le_bytes()).is_ok()
}

fn answer(state: &mut State, asked: &Asked<'_>) -> Result<Vec<u8>, i32> {
    Ok(match asked.what {
        1 if asked.rest.strip_suffix(b"\0") == Some(NAME.as_bytes()) => {
            let mut entry = words(&[FILE, 1, 0, 0, 0]);
            entry.extend(attributes(state, FILE));
            entry
        }
        1 => return Err(libc::ENOENT),
        3 => about(state, asked.node),
        4 => {
            if asked.u32(0) & 8 != 0 {
                state.bytes.resize(asked.u64(16) as usize, 0);
            }
            about(state, asked.node)
        }
        // Opened: what the kernel has of it stays.
        14 | 27 => words(&[0, 2]),
        15 => {
            let from = (asked.u64(8) as usize).min(state.bytes.len());
            let end = (from + asked.u32(16) as usize).min(state.bytes.len());
            let pages = from as u64 / PAGE..(end as u64).div_ceil(PAGE);
            if state.lost.range(pages).next().is_some() {
                return Err(libc::EIO);
            }
            state.bytes[from..end].to_vec()
        }
        16 => {
            let (at, len) = (asked.u64(8) as usize, asked.u32(16) as usize);
            let end = at + len;
            let grown = state.bytes.len().max(end);
            state.bytes.resize(grown, 0);
            state.bytes[at..end].copy_from_slice(&asked.rest[40..40 + len]);
            let whole = |page: &u64| page * PAGE < at as u64 || (page + 1) * PAGE > end as u64;
            state.lost.retain(whole);
            state.changed += 1;
            words(&[len as u64])
        }
        17 => {
            let mut room = words(&[1 << 20, 1 << 19, 1 << 19, 9, 9]);
            room.extend(words(&[PAGE | 255 << 32, PAGE, 0, 0, 0]));
            room
        }
        // Closed, synced.
        18 | 20 | 25 | 29 => Vec::new(),
        26 => {
            let mut begun = Vec::new();
            // The version; nothing read ahead; up to 128 KiB written at once.
            for number in [7_u32, 31, 0, 1 << 5, 0, 1 << 17, 1] {
                begun.extend(number.to_le_bytes());
            }
            begun.resize(64, 0);
            begun
        }
        _ => return Err(libc::ENOSYS),
    })
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn about(state: &State, node: u64) -> Vec<u8> {
    let mut about = words(&[0, 0]);
    about.extend(attributes(state, node));
    about
}

fn attributes(state: &State, node: u64) -> Vec<u8> {
    let len = state.bytes.len() as u64;
    let (len, mode) = if node == ROOT { (0, 0o40_755) } else { (len, 0o100_644_u32) };
    let changed = state.changed;
    let mut found = words(&[node, len, len.div_ceil(512), changed, changed, changed]);
    for number in [0, 0, 0, mode, 1, 0, 0, 0, PAGE as u32, 0] {
        found.extend(number.to_le_bytes());
    }
    found
}
