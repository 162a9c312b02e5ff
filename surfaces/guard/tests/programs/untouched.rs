//! What must hold of whatever is not guarded: it is as if there were no guard.

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_guard::side_of;
use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};

use crate::bare;
use crate::checks::{launch, options, place, run, stories, wait_until};
use crate::stories::{PAGE, beside, mark, wait_for};
use crate::taken::skipped;

pub(crate) const ALL: &[(&str, fn())] = &[
    ("files that are not guarded are opened by nobody else", spools),
    ("orphans that never say who they are are buried", orphans),
    ("files of another world of names leave those of this one alone", apart),
];

/// What is heard in a folder while a program runs: what happened, and to which name.
fn heard(folder: &Path, run: impl FnOnce()) -> Vec<(ReadFlags, CString)> {
    let ear = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).unwrap();
    add_watch(&ear, folder, WatchFlags::ALL_EVENTS).unwrap();
    run();
    let mut room = [MaybeUninit::uninit(); 4096];
    let mut events = Reader::new(ear, &mut room);
    let mut heard = Vec::new();
    while let Ok(event) = events.next() {
        heard.push((event.events(), event.file_name().unwrap_or_default().to_owned()));
    }
    // Those that are alike and follow each other may be told once.
    heard.dedup();
    heard
}

/// Whoever waits for files in a folder takes one that was closed for whole.
fn spools() {
    let [free, guarded] = [false, true].map(|guarded| {
        let place = place();
        let spool = beside(&place.file, "spool");
        std::fs::create_dir(&spool).unwrap();
        heard(&spool, || {
            if guarded {
                let summary = launch("spools", &place.file, options()).run().unwrap();
                assert!(summary.status.success() && summary.files.len() == 1, "{summary}");
            } else {
                let words = ["--story", "spools"];
                let done = Command::new(stories()).args(words).arg(&place.file).status();
                assert!(done.unwrap().success());
            }
        })
    });
    assert!(free.iter().any(|(what, _)| what.contains(ReadFlags::CLOSE_WRITE)), "{free:?}");
    assert_eq!(guarded, free);
}

/// Files of that world have the names of files of this one, which have side files.
fn apart() {
    let place = place();
    let second = place.file.with_file_name("second.bin");
    std::fs::copy(&place.file, &second).unwrap();
    let files = [&place.file, &second];
    files.iter().for_each(|file| drop(run("touch", file, options())));
    let all = || files.map(|file| [file.clone(), side_of(file)].map(|it| std::fs::read(it).ok()));
    let before = all();
    assert!(before.iter().flatten().all(Option::is_some));
    let summary = launch("lives apart", &place.file, options()).run().unwrap();
    if skipped(&summary, "nobody may make such a world here") {
        return;
    }
    assert!(summary.status.success() && summary.files.is_empty(), "{summary}");
    assert!(all() == before, "{summary}");
    for file in files {
        let told = |(path, why): &(PathBuf, String)| path == file && why.contains("leads");
        assert!(summary.refused.iter().any(told), "{summary}");
    }
}

/// What a process is that has a number, and its parent.
pub(crate) fn state_of(process: &str) -> Option<(String, u32)> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let mut words = text.rsplit_once(')')?.1.split_ascii_whitespace();
    Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
}

/// The guard adopts them; as anywhere, nothing is left of them once they are dead.
fn orphans() {
    let place = place();
    bare::write(&beside(&place.file, "bare"));
    let other = beside(&place.file, "other");
    std::fs::copy(&place.file, &other).unwrap();
    let me = std::env::current_exe().unwrap();
    let mut guard = Command::new(me);
    let guard = guard.args(["--guard", "leaves orphans"]).arg(&place.file).spawn().unwrap();
    wait_for(&place.file, "ready");
    let dead = || {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let all = all.filter_map(|entry| state_of(entry.file_name().to_str()?));
        all.filter(|(state, parent)| state == "Z" && *parent == guard.id()).count()
    };
    let buried = wait_until(|| dead() == 0);
    let stored = std::fs::read(&other).unwrap()[bare::PAGE_OF * PAGE..].starts_with(bare::STORED);
    mark(&place.file, "go");
    let mut guard = guard;
    assert!(guard.wait().unwrap().success() && stored && buried);
}
