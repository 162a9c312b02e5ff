//! Faults that nobody heals end the process by the signal they are, and the pool is unharmed.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use holdfast_pmem::inject::{Poison, poison};
use holdfast_pmem::{Access, FaultMailbox, Mapped, Medium, PAGE, Protect, Verdict};

use crate::common::{folders, protected};
use crate::{DONE, Role, Story, closed_file, dies_of, ends_with, run};

pub(crate) const STORIES: &[Story] = &[
    ("a_stray_store_dies_before_it_damages", a_stray_store_dies_before_it_damages),
    ("a_media_error_nobody_repairs_is_fatal", a_media_error_nobody_repairs_is_fatal),
    ("a_stack_overflow_is_still_named", a_stack_overflow_is_still_named),
];

pub(crate) const ROLES: &[Role] = &[
    ("stray-auto", |file| stray(file, Protect::Auto)),
    ("stray-alias", |file| stray(file, Protect::Alias)),
    ("stray-mprotect", |file| stray(file, Protect::Mprotect)),
    ("stray-none", |file| stray(file, Protect::None)),
    ("stray-late", |file| {
        stray(file, Protect::None);
        // SAFETY: ends this process, as its store should have; nobody else handles the signal then.
        unsafe {
            libc::signal(libc::SIGSEGV, libc::SIG_DFL);
            libc::raise(libc::SIGSEGV)
        }
    }),
    ("stray-code", |_| 128 + libc::SIGSEGV),
    ("stray-forgotten", |file| {
        open(file, Protect::Auto);
        DONE
    }),
    ("load-unattended", load_unattended),
    ("load-detached", load_detached),
    ("load-lost", |file| load_answered(file, Verdict::Lost)),
    ("load-in-vain", |file| load_answered(file, Verdict::Healed)),
    ("load-by-repairer", load_by_repairer),
    ("overflow", overflow),
];

fn a_stray_store_dies_before_it_damages() {
    for folder in folders() {
        let path = closed_file(&folder);
        let before = std::fs::read(&path).unwrap();
        for role in ["stray-auto", "stray-alias", "stray-mprotect"] {
            assert_eq!(strayed(role, &path, &before), None, "{role}");
        }
        // Without protection the same store goes through: the test can tell the difference.
        ends_with("stray-none", &path, DONE);
        assert_ne!(std::fs::read(&path).unwrap(), before);
        for (name, role) in WRONG {
            std::fs::write(&path, &before).unwrap();
            let found = strayed(role, &path, &before);
            let why = found.unwrap_or_else(|| panic!("nothing is wrong with {name}"));
            println!("convicted {name}: {why}");
        }
    }
    println!("{} wrong variants convicted", WRONG.len());
}

/// What is not the death of a stray store, and the role that does it.
const WRONG: [(&str, &str); 5] = [
    ("no protection", "stray-none"),
    ("a death after the damage", "stray-late"),
    ("a death of something else", "load-unattended"),
    ("an exit code that looks like it", "stray-code"),
    ("no store at all", "stray-forgotten"),
];

/// What is wrong with a role that was to die of its store before it did any damage.
fn strayed(role: &str, path: &Path, before: &[u8]) -> Option<String> {
    let status = run(role, path);
    if status.signal() != Some(libc::SIGSEGV) {
        return Some(format!("it ended: {status}"));
    }
    (std::fs::read(path).unwrap() != before).then(|| "the file has changed".to_owned())
}

fn a_media_error_nobody_repairs_is_fatal() {
    for folder in folders() {
        let roles =
            ["load-unattended", "load-detached", "load-lost", "load-in-vain", "load-by-repairer"];
        for role in roles {
            let path = closed_file(&folder);
            dies_of(role, &path, libc::SIGBUS);
            std::fs::remove_file(path).unwrap();
        }
    }
}

fn a_stack_overflow_is_still_named() {
    let [disk, _] = folders().try_into().unwrap();
    // The runtime's own handler reports it and aborts.
    dies_of("overflow", &closed_file(&disk), libc::SIGABRT);
}

fn overflow(file: &Path) -> i32 {
    fn deeper(depth: u64) -> u64 {
        let here = std::hint::black_box([depth; 64]);
        if depth == u64::MAX { here[0] } else { deeper(depth + 1) ^ here[1] }
    }
    let _medium = open(file, Protect::Auto);
    thread::spawn(|| deeper(0)).join().map_or(DONE, |sum| sum as i32)
}

fn open(file: &Path, protection: Protect) -> Mapped {
    Mapped::open(file, Access::Write, &protected(protection)).unwrap()
}

/// Writes through the program's view, after the library has stored where it may.
fn stray(file: &Path, protection: Protect) -> i32 {
    let medium = open(file, protection);
    medium.begin_write();
    let mut page = [0; 8];
    medium.read(2 * PAGE, &mut page).unwrap();
    medium.put(crate::common::HERE, 2 * PAGE, &page).unwrap();
    medium.end_write();
    let address = medium.view(2 * PAGE + 64, 1).unwrap().cast_mut();
    // SAFETY: deliberately none: this is the stray store, and the process is made to die of it.
    unsafe { address.write_volatile(0xff) };
    DONE
}

/// Loads through the program's view from a page that was poisoned.
fn load(medium: &Mapped) -> i32 {
    poison(medium, 3 * PAGE, PAGE, Poison::Unclearable).unwrap();
    let address = medium.view(3 * PAGE + 5, 1).unwrap();
    // SAFETY: the address lies in the mapping.
    i32::from(unsafe { address.read_volatile() }) + 100
}

fn load_unattended(file: &Path) -> i32 {
    load(&open(file, Protect::Auto))
}

/// The repair thread takes the fault and goes away without an answer.
fn load_detached(file: &Path) -> i32 {
    let medium = open(file, Protect::Auto);
    let mailbox = medium.faults();
    thread::spawn(move || {
        mailbox.wait(Duration::from_secs(10)).unwrap();
    });
    load(&medium)
}

/// Every fault gets the same answer, with nothing done.
fn load_answered(file: &Path, verdict: Verdict) -> i32 {
    let medium = open(file, Protect::Auto);
    let mailbox: FaultMailbox = medium.faults();
    thread::spawn(move || {
        while let Some(fault) = mailbox.wait(Duration::from_secs(10)) {
            mailbox.answer(fault, verdict);
        }
    });
    load(&medium)
}

fn load_by_repairer(file: &Path) -> i32 {
    let medium = open(file, Protect::Auto);
    let mailbox = medium.faults();
    assert!(mailbox.wait(Duration::ZERO).is_none());
    load(&medium)
}
