//! Who may write: one process at a time, and never one that merely inherited the mapping.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Command;
use std::thread::JoinHandle;
use std::time::Duration;

use holdfast_pmem::{Access, Mapped, MediaCause, Medium, OpenError, Options, PAGE};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::common::{HERE, filled, folders, numbered, protected};
use crate::{DONE, Role, Story, closed_file, ends_with, start};

pub(crate) const STORIES: &[Story] = &[
    ("one_writer_at_a_time", one_writer_at_a_time),
    ("a_forked_child_has_no_mapping", a_forked_child_has_no_mapping),
    ("a_forked_child_keeps_the_lock", a_forked_child_keeps_the_lock),
    ("a_lock_that_is_about_to_go_is_waited_for", a_lock_that_is_about_to_go_is_waited_for),
];

pub(crate) const ROLES: &[Role] =
    &[("hold", hold), ("fork-use", fork_use), ("fork-and-leave", fork_and_leave)];

fn open(file: &Path, access: Access) -> Result<Mapped, OpenError> {
    Mapped::open(file, access, &Options::default())
}

fn holder(file: &Path) -> u32 {
    match open(file, Access::Write).unwrap_err() {
        OpenError::Locked { holder: Some(holder), .. } => holder,
        other => panic!("{other}"),
    }
}

fn one_writer_at_a_time() {
    for folder in folders() {
        let path = closed_file(&folder);
        let mut child = start("hold", &path);
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "held\n");
        assert_eq!(holder(&path), child.id());
        // Observers and dry runs are let in.
        open(&path, Access::ReadOnly).unwrap();
        open(&path, Access::PrivateCopy).unwrap();
        assert!(matches!(
            Mapped::create(&path, PAGE, &Options::default()),
            Err(OpenError::Exists { .. })
        ));
        // A killed holder holds nothing.
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        let medium = open(&path, Access::Write).unwrap();
        assert_eq!(holder(&path), std::process::id());
        let text = open(&path, Access::Write).unwrap_err().to_string();
        assert!(text.contains("by this process"), "{text}");
        drop(medium);
        open(&path, Access::Write).unwrap();
    }
}

/// Takes the lock of a file as a writer does.
fn locked(path: &Path) -> File {
    let file = File::options().read(true).write(true).open(path).unwrap();
    // SAFETY: zeros are a lock of the whole file, which is asked for as one of a writer.
    unsafe {
        let mut lock: libc::flock = core::mem::zeroed();
        lock.l_type = libc::F_WRLCK as libc::c_short;
        assert_eq!(libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock), 0);
    }
    file
}

/// One whose open file is kept for a moment beyond its use: by a child that is about to run another
/// program, and by nobody who can be seen. One that is kept for longer is not.
fn a_lock_that_is_about_to_go_is_waited_for() {
    for folder in folders() {
        let path = closed_file(&folder);
        waited_for(&path, kept_by_a_child);
        waited_for(&path, on_its_way);
        let (one, other) = UnixStream::pair().unwrap();
        send(&one, locked(&path));
        let refused = open(&path, Access::Write).unwrap_err();
        assert!(matches!(refused, OpenError::Locked { holder: None, .. }), "{refused}");
        drop((one, other));
    }
}

/// Opens a file whose lock somebody has for a moment still. One that is slower than that, because
/// the machine has other things to do, is refused rightly, and another tries.
fn waited_for(path: &Path, somebody: fn(File) -> JoinHandle<()>) {
    for _ in 0..20 {
        let thread = somebody(locked(path));
        let kept = Mapped::writer_of(path).unwrap().is_some();
        let opened = open(path, Access::Write);
        thread.join().unwrap();
        match opened {
            Ok(_) if kept => return,
            Ok(_) | Err(OpenError::Locked { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("it was never waited for");
}

/// A child has it, which is about to run another program.
fn kept_by_a_child(file: File) -> JoinHandle<()> {
    let mut child = Command::new("sh");
    let (mut forked, mut tell) = std::io::pipe().unwrap();
    // SAFETY: writes and sleeps, between the fork and the other program.
    unsafe {
        child.pre_exec(move || {
            tell.write_all(b"x")?;
            libc::usleep(20_000);
            Ok(())
        });
    }
    // Whoever spawns it waits until it runs the program.
    let spawn = std::thread::spawn(move || {
        assert!(child.args(["-c", "exit"]).status().unwrap().success());
    });
    forked.read_exact(&mut [0]).unwrap();
    drop(file);
    spawn
}

/// It is on its way through a socket, where nobody can be seen to have it.
fn on_its_way(file: File) -> JoinHandle<()> {
    let (one, other) = UnixStream::pair().unwrap();
    send(&one, file);
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        drop((one, other));
    })
}

/// Sends a descriptor, and closes it here.
fn send(socket: &UnixStream, file: File) {
    let handles = [file.as_fd()];
    let mut space = [core::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&handles)));
    let bytes = [std::io::IoSlice::new(b"x")];
    sendmsg(socket, &bytes, &mut control, SendFlags::empty()).unwrap();
}

/// Opens, says so, and waits to be killed.
fn hold(file: &Path) -> i32 {
    let _medium = open(file, Access::Write).unwrap();
    println!("held");
    std::io::stdout().flush().unwrap();
    let mut line = String::new();
    let _ = std::io::stdin().read_line(&mut line);
    1
}

fn a_forked_child_has_no_mapping() {
    for folder in folders() {
        let path = closed_file(&folder);
        let before = std::fs::read(&path).unwrap();
        ends_with("fork-use", &path, DONE);
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}

/// Forks; returns what the child's function answered, by way of its exit code.
fn in_fork(run: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the process has one thread, so the child may do anything.
    match unsafe { libc::fork() } {
        0 => std::process::exit(run()),
        child => {
            let mut status = 0;
            // SAFETY: waits for the child made above.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert!(libc::WIFEXITED(status), "the child died: {status:#x}");
            libc::WEXITSTATUS(status)
        }
    }
}

fn fork_use(file: &Path) -> i32 {
    let medium = open(file, Access::Write).unwrap();
    // Replaced pages must not be inherited either.
    medium.remap(PAGE, 7 * PAGE, PAGE).unwrap();
    medium.grow(16 * PAGE).unwrap();
    assert!(!medium.forked());
    let code = in_fork(|| {
        assert!(medium.forked());
        // The holes are filled before an allocator can get them.
        let memory: Vec<Vec<u8>> = (0..64).map(|_| vec![0x5a; 1 << 20]).collect();
        for at in [0, PAGE, 15 * PAGE] {
            let gone = Some(MediaCause::OutOfRange);
            let cause =
                |result: Result<(), holdfast_pmem::MediaError>| result.err().map(|e| e.cause);
            assert_eq!(cause(medium.read(at, &mut [0; 100])), gone);
            assert_eq!(cause(medium.put(HERE, at, &[1; 100])), gone);
            assert_eq!(cause(medium.xor(HERE, at, &[1; 100])), gone);
            assert_eq!(cause(medium.zero(HERE, at, 100)), gone);
            assert_eq!(cause(medium.heal(HERE, at, &filled(0))), gone);
            assert_eq!(cause(medium.remap(at, 0, PAGE)), gone);
            assert!(medium.append(HERE, at, b"mine").is_err());
        }
        assert!(medium.grow(32 * PAGE).is_err());
        assert!(medium.bad_ranges().is_empty());
        assert_eq!(medium.status().relocated, 0);
        assert!(memory.iter().flatten().all(|byte| *byte == 0x5a));
        drop(medium);
        // A pool of its own is its own, and its forks know that in turn.
        let folder = tempfile::tempdir().unwrap();
        let (_, own) = numbered(&folder, 4, &protected(holdfast_pmem::Protect::Alias));
        assert!(!own.forked());
        own.put(HERE, 0, &filled(9)).unwrap();
        let inner = in_fork(|| i32::from(!own.forked()));
        assert!(!own.forked());
        inner
    });
    // The file as it was, for the comparison outside.
    std::fs::OpenOptions::new().write(true).open(file).unwrap().set_len(8 * PAGE).unwrap();
    code
}

fn a_forked_child_keeps_the_lock() {
    let [disk, _] = folders().try_into().unwrap();
    let path = closed_file(&disk);
    let mut child = start("fork-and-leave", &path);
    // Waiting would close it, and with it end the orphan.
    let stdin = child.stdin.take();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let orphan: u32 = line.trim().parse().unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(holder(&path), orphan, "the parent died, its child still holds the lock");
    drop(stdin);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while open(&path, Access::Write).is_err() {
        assert!(std::time::Instant::now() < end, "the lock outlives its last holder");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

/// Dies without closing, and leaves a child behind that ends when its standard input does.
fn fork_and_leave(file: &Path) -> i32 {
    let medium = open(file, Access::Write).unwrap();
    // SAFETY: the process has one thread, so the child may do anything.
    match unsafe { libc::fork() } {
        0 => {
            let mut line = String::new();
            let _ = std::io::stdin().read_line(&mut line);
        }
        child => {
            println!("{child}");
            std::io::stdout().flush().unwrap();
        }
    }
    core::mem::forget(medium);
    DONE
}
