//! The protection in force lets through what is the library's, on every thread.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod common;

use std::sync::mpsc;
use std::thread;

use common::{HERE, filled, folders, numbered, protected};
use holdfast_pmem::{Mapped, Medium, PAGE, Protect, Protection};

/// Stores and loads in every way that is allowed, with and without announcing it.
fn work(medium: &Mapped, page: u64) {
    let at = page * PAGE;
    medium.put(HERE, at, &filled(0x10)).unwrap();
    medium.begin_write();
    medium.begin_write();
    medium.xor(HERE, at + 8, &[0x01; 100]).unwrap();
    medium.end_write();
    medium.put(HERE, at + 16, &[0x20]).unwrap();
    medium.end_write();
    medium.zero(HERE, at + 9, 3).unwrap();
    medium.drain(HERE);
    let mut found = [0; 12];
    medium.read(at + 6, &mut found).unwrap();
    assert_eq!(found, [0x10, 0x10, 0x11, 0, 0, 0, 0x11, 0x11, 0x11, 0x11, 0x20, 0x11]);
    let view = medium.view(at + 6, 12).unwrap();
    // SAFETY: the range lies in the mapping; this page is this thread's alone.
    assert_eq!(unsafe { std::slice::from_raw_parts(view, 12) }, found);
}

#[test]
fn threads_older_and_younger_than_the_pool_can_use_it() {
    for folder in folders() {
        for protection in [Protect::Auto, Protect::Alias, Protect::Mprotect, Protect::None] {
            let folder = tempfile::tempdir_in(folder.path()).unwrap();
            thread::scope(|scope| {
                let (send, receive) = mpsc::channel::<std::sync::Arc<Mapped>>();
                // Its rights were fixed before the pool was there.
                let older = scope.spawn(move || work(&receive.recv().unwrap(), 1));
                let (_, medium) = numbered(&folder, 4, &protected(protection));
                let medium = std::sync::Arc::new(medium);
                send.send(medium.clone()).unwrap();
                work(&medium, 0);
                let young = medium.clone();
                // Born inside an announced window, which is not its own.
                medium.begin_write();
                let younger = scope.spawn(move || work(&young, 2));
                medium.end_write();
                older.join().unwrap();
                younger.join().unwrap();
            });
        }
    }
}

#[test]
fn an_end_without_a_beginning_does_a_lone_thread_no_harm() {
    for folder in folders() {
        for protection in [Protect::Auto, Protect::Alias, Protect::Mprotect, Protect::None] {
            let folder = tempfile::tempdir_in(folder.path()).unwrap();
            let (_, medium) = numbered(&folder, 1, &protected(protection));
            medium.end_write();
            work(&medium, 0);
            medium.end_write();
            medium.put(HERE, 1, &[0x30]).unwrap();
        }
    }
}

#[test]
fn the_strongest_is_chosen_and_told() {
    let [disk, _] = folders().try_into().unwrap();
    let in_force = |protection| {
        let folder = tempfile::tempdir_in(disk.path()).unwrap();
        numbered(&folder, 1, &protected(protection)).1.protection()
    };
    let keys = holdfast_pmem::Cpu::detect().protection_keys;
    println!("protected by {:?}", in_force(Protect::Auto));
    assert_eq!(in_force(Protect::Auto), if keys { Protection::Keys } else { Protection::Alias });
    assert_eq!(in_force(Protect::Alias), Protection::Alias);
    assert_eq!(in_force(Protect::Mprotect), Protection::Mprotect);
    assert_eq!(in_force(Protect::None), Protection::None);
}
