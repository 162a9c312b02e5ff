//! Pages that the system cannot read: protecting a file with some tells which, and whoever could
//! still give them back is not replaced. A filter refuses reads of one byte of the file, as a bad
//! sector would, or writes, as a file system without room would that writes nothing in place;
//! another refuses ears, so that nobody can be kept out of the file, and one syncs.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::common::{Done, Here, finish, rot};

const PAGE: u64 = 4096;
const PAGES: u64 = 300;
/// The page that cannot be read. The side file is shorter than where it lies.
const BAD: u64 = 290;

pub(crate) const LOAD: u16 = 0x20;
pub(crate) const IS: u16 = 0x15;
const ABOVE: u16 = 0x25;
const KEEP: u16 = 0x07;
const ADD_KEPT: u16 = 0x0c;
pub(crate) const ANSWER: u16 = 0x06;
/// Where the number of the call, its third and its fourth operand lie.
pub(crate) const NUMBER: u32 = 0;
const COUNT: u32 = 32;
const OFFSET: u32 = 40;
pub(crate) const ALLOW: u32 = 0x7fff_0000;
const FAILED: u32 = 0x0005_0000 | libc::EIO as u32;
const NO_ROOM: u32 = 0x0005_0000 | libc::ENOSPC as u32;
const NO_MORE: u32 = 0x0005_0000 | libc::EMFILE as u32;

pub(crate) const fn step(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// A call for a range that has the first byte of the page.
const fn at_the_page(call: libc::c_long, answer: u32) -> [libc::sock_filter; 10] {
    [
        step(LOAD, 0, 0, NUMBER),
        step(IS, 0, 7, call as u32),
        step(LOAD, 0, 0, COUNT),
        step(KEEP, 0, 0, 0),
        step(LOAD, 0, 0, OFFSET),
        step(ABOVE, 3, 0, (BAD * PAGE) as u32),
        step(ADD_KEPT, 0, 0, 0),
        step(ABOVE, 0, 1, (BAD * PAGE) as u32),
        step(ANSWER, 0, 0, answer),
        step(ANSWER, 0, 0, ALLOW),
    ]
}

static FILTER: [libc::sock_filter; 10] = at_the_page(libc::SYS_pread64, FAILED);
static FULL: [libc::sock_filter; 10] = at_the_page(libc::SYS_pwrite64, NO_ROOM);

/// Syncs of data.
static UNSYNCED: [libc::sock_filter; 4] = [
    step(LOAD, 0, 0, NUMBER),
    step(IS, 0, 1, libc::SYS_fdatasync as u32),
    step(ANSWER, 0, 0, FAILED),
    step(ANSWER, 0, 0, ALLOW),
];

/// New instances of inotify and fanotify, as where a user has all that he may have.
static DEAF: [libc::sock_filter; 5] = [
    step(LOAD, 0, 0, NUMBER),
    step(IS, 1, 0, libc::SYS_fanotify_init as u32),
    step(IS, 0, 1, libc::SYS_inotify_init1 as u32),
    step(ANSWER, 0, 0, NO_MORE),
    step(ANSWER, 0, 0, ALLOW),
];

fn refuse(filter: &'static [libc::sock_filter]) -> io::Result<()> {
    let filter = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: sets a flag of this process.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the list is static, and as long as it says; the kernel checks and copies it.
    let set = unsafe {
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter, 0, 0)
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has a command run behind a filter.
pub(crate) fn behind<'a>(
    command: &'a mut Command,
    filter: &'static [libc::sock_filter],
) -> &'a mut Command {
    // SAFETY: between fork and exec, it makes system calls only.
    unsafe { command.pre_exec(move || refuse(filter)) }
}

/// Whether there are filters here.
pub(crate) fn filters() -> bool {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        eprintln!("skipped: the filter is for another machine");
        return false;
    }
    let done = behind(&mut Command::new("true"), &FILTER).status();
    let filters = done.is_ok_and(|status| status.success());
    if !filters {
        eprintln!("skipped: this system lets nobody filter his own calls");
    }
    filters
}

fn run(here: &Here, words: &[&str]) -> Done {
    finish(words, behind(&mut here.command(words), &FILTER))
}

fn json(here: &Here, code: i32, words: &[&str]) -> serde_json::Value {
    let done = run(here, &[words, &["--json"]].concat());
    assert_eq!(done.code, code, "{}{}", done.out, done.err);
    serde_json::from_str(&done.out).unwrap()
}

#[test]
fn pages_that_cannot_be_read_are_named_and_what_covers_them_is_kept() {
    if !filters() {
        return;
    }
    let here = Here::new();
    let content: Vec<u8> = (0..PAGES * PAGE).map(|at| (at / PAGE * 31 + at % 251) as u8).collect();
    fs::write(here.path("a.db"), &content).unwrap();
    let made = json(&here, 2, &["protect", "a.db"]);
    assert_eq!(made["undecided"], 1, "{made}");
    let page = &made["undecided_pages"][0];
    assert_eq!((&page["page"], &page["reason"]), (&BAD.into(), &9.into()), "{made}");
    here.good(&["unprotect", "a.db", "--force"]);
    let told = run(&here, &["protect", "a.db"]);
    assert!(told.code == 2 && told.out.contains(&BAD.to_string()), "{}", told.out);
    assert!(told.err.contains("1 page could not be read"), "{}", told.err);
    // Readable again, but nobody knows what it held: it is as unknown as before.
    let found = here.json(2, &["verify", "a.db"]);
    assert_eq!((&found["undecided"], &found["corrupt"]), (&1.into(), &0.into()), "{found}");
    here.good(&["protect", "a.db", "--again"]);
    here.good(&["verify", "a.db"]);
    // What the page held before it went bad, only the side file that is there can tell.
    let side = fs::read(here.path("a.db.holdfast")).unwrap();
    let refused = json(&here, 12, &["protect", "a.db", "--again"]);
    assert_eq!(refused["error"]["kind"], "damaged", "{refused}");
    // The same where the file has changed, so that nothing about it is certain.
    let file = fs::File::options().write(true).open(here.path("a.db")).unwrap();
    file.set_modified(std::time::SystemTime::now()).unwrap();
    drop(file);
    let refused = json(&here, 12, &["protect", "a.db", "--again"]);
    assert_eq!(refused["error"]["kind"], "damaged", "{refused}");
    assert!(refused["error"]["cause"].to_string().contains("cannot be read"), "{refused}");
    assert!(fs::read(here.path("a.db.holdfast")).unwrap() == side);
    here.good(&["protect", "a.db", "--again"]);
    assert!(fs::read(here.path("a.db")).unwrap() == content);
}

/// Where nobody can be kept from storing meanwhile, nothing is replaced, and nothing called lost.
#[test]
fn a_page_that_nobody_could_be_kept_from_is_not_called_lost() {
    if !filters() {
        return;
    }
    let here = Here::new();
    fs::write(here.path("a.db"), vec![7; 40 * PAGE as usize]).unwrap();
    here.good(&["protect", "a.db"]);
    let path = here.path("a.db");
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[9], 3 * PAGE + 100).unwrap();
    file.set_modified(before).unwrap();
    drop(file);
    let words = &["repair", "a.db"];
    let done = finish(words, behind(&mut here.command(words), &DEAF));
    assert_eq!(done.code, 4, "{}{}", done.out, done.err);
    assert!(done.out.contains("left alone") && done.out.contains("0 lost"), "{}", done.out);
    let mended = here.json(1, words);
    assert_eq!(mended["repaired_pages"], serde_json::json!([3]));
}

/// A page whose place takes no other bytes is one page that is not repaired.
#[test]
fn a_page_that_cannot_be_written_ends_no_repair() {
    if !filters() {
        return;
    }
    let here = Here::new();
    let content: Vec<u8> = (0..PAGES * PAGE).map(|at| (at / PAGE * 31 + at % 251) as u8).collect();
    fs::write(here.path("a.db"), &content).unwrap();
    here.good(&["protect", "a.db"]);
    for page in [280, BAD, 299] {
        rot(&here.path("a.db"), page as usize);
    }
    let words = &["repair", "a.db", "--json"];
    let done = finish(words, behind(&mut here.command(words), &FULL));
    assert_eq!(done.code, 4, "{}{}", done.out, done.err);
    let told: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(told["repaired_pages"], serde_json::json!([280, 299]), "{told}");
    assert_eq!(told["lost_pages"], serde_json::json!([BAD]), "{told}");
    // Once there is room, it is as certain as before, and nothing else is the worse for it.
    let mended = here.json(1, &["repair", "a.db"]);
    assert_eq!(mended["repaired_pages"], serde_json::json!([BAD]), "{mended}");
    assert_eq!(mended["undecided"], 0, "{mended}");
    assert!(fs::read(here.path("a.db")).unwrap() == content);
}

/// What a repair did is told, also if the side file cannot be closed.
#[test]
fn what_was_done_is_told_whatever_comes_after_it() {
    if !filters() {
        return;
    }
    for json in [false, true] {
        let here = Here::with_file(40);
        here.good(&["protect", "a.db"]);
        // More than parity gives back: nothing has to be synced for them.
        rot(&here.path("a.db"), 8);
        rot(&here.path("a.db"), 9);
        let words: &[&str] = if json { &["repair", "a.db", "--json"] } else { &["repair", "a.db"] };
        let done = finish(words, behind(&mut here.command(words), &UNSYNCED));
        assert_eq!(done.code, 12, "{}{}", done.out, done.err);
        assert!(done.err.contains("a.db.holdfast: fdatasync failed"), "{}", done.err);
        if json {
            let told: serde_json::Value = serde_json::from_str(&done.out).unwrap();
            assert_eq!(told["lost_pages"], serde_json::json!([8, 9]), "{told}");
            assert!(told["trouble"].as_str().unwrap().contains("fdatasync"), "{told}");
        } else {
            assert!(done.out.contains("2 lost"), "{}", done.out);
        }
        assert!(here.json(4, &["repair", "a.db"])["trouble"].is_null());
    }
}
