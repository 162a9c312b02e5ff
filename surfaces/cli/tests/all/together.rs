//! Several commands at one pool at the same time: those that look do not disturb each other, nobody
//! takes a change for damage, and an owner that does not answer keeps nobody waiting for ever.

use std::fs;
use std::process::Child;
use std::time::{Duration, Instant};

use crate::common::{Done, Here, ended, handles_int, owner_listens, until_it_stands};
use rustix::process::{Pid, Signal, kill_process};

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn those_who_look_never_find_the_pool_in_use_by_each_other() {
    let here = Here::new();
    here.pool("a.pool");
    for _ in 0..4 {
        let all: Vec<Child> = (0..24)
            .map(|n| match n % 3 {
                0 => here.started(&["check", "a.pool"]),
                1 => here.started(&["pool", "info", "a.pool"]),
                _ => here.started(&["map", "get", "a.pool", "words", "key001"]),
            })
            .collect();
        for child in all {
            let done = ended(child);
            assert_eq!(done.code, 0, "{}{}", done.out, done.err);
            assert!(!done.out.contains("in use"), "{}", done.out);
        }
    }
}

#[test]
fn changes_beside_a_look_are_no_damage() {
    let here = Here::new();
    here.good(&["pool", "create", "a.pool", "--size", "64M"]);
    let lines = |word: &str| -> String {
        (0..20_000).map(|n| format!("key{n:05}\t{word} of {n}\n")).collect()
    };
    fs::write(here.path("lines"), lines("first")).unwrap();
    here.good(&["map", "load", "a.pool", "m", "lines"]);
    fs::write(here.path("lines"), lines("other").repeat(2)).unwrap();
    let (check, load) = (
        &["check", "a.pool"][..],
        &["map", "load", "a.pool", "m", "lines", "--batch", "10000"][..],
    );
    let mut together = 0;
    for wait in (0..6).cycle().take(60) {
        let looks = here.started(check);
        std::thread::sleep(Duration::from_millis(5 * wait));
        let writes = here.started(load);
        // The writer waits for a look that began before; a look that comes later asks the writer.
        let both = [(check, ended(looks)), (load, ended(writes))];
        together += u32::from(!both.iter().any(|(_, done)| was_held_up(done)));
        for (words, done) in both {
            if was_held_up(&done) {
                here.good(words);
            } else {
                assert_eq!(done.code, 0, "{words:?}: {}{}", done.out, done.err);
            }
        }
        if together == 6 {
            return;
        }
    }
    panic!("only {together} times nobody was held up");
}

/// Whether a command gave up on the other one, as it should on one that is slow: a look that takes
/// too long for a writer, an owner that listens too late, or one that ends when it was just asked.
fn was_held_up(done: &Done) -> bool {
    let texts = ["is being read", "takes no commands", "it closed the connection"];
    done.code == 8 && texts.iter().any(|text| done.err.contains(text))
}

#[test]
fn a_writer_does_not_wait_for_a_long_look_for_ever() {
    let here = Here::new();
    here.pool("a.pool");
    let looking = holdfast::Pool::open_read_only(here.path("a.pool")).unwrap();
    let commands = [
        &["map", "put", "a.pool", "words", "k", "v"][..],
        &["repair", "a.pool"],
        &["scrub", "start", "-w", "a.pool"],
    ];
    let id = format!("is being read by process {}; wait until that is done", std::process::id());
    // Each waits for seconds: beside each other.
    for started in commands.map(|words| here.started(words)) {
        let done = ended(started);
        assert_eq!(done.code, 8, "{}", done.err);
        assert!(done.err.contains(&id), "{}", done.err);
    }
    drop(looking);
    here.good(&["repair", "a.pool"]);
}

#[test]
fn an_owner_that_is_stopped_is_told_and_can_be_left() {
    let here = Here::new();
    here.pool("a.pool");
    let mut owner = here.started(&["map", "load", "a.pool", "m", "-"]);
    let lines = owner.stdin.take().unwrap();
    owner_listens(&here, "a.pool");
    here.good(&["check", "a.pool"]);
    send(&owner, Signal::STOP);
    until_it_stands(owner.id());
    let check = here.started(&["check", "a.pool", "--json"]);
    let scrub = here.started(&["scrub", "start", "-w", "a.pool"]);
    handles_int(&check);
    std::thread::sleep(Duration::from_millis(500));
    let begun = Instant::now();
    send(&check, Signal::INT);
    let done = ended(check);
    assert_eq!(done.code, 32, "{}{}", done.out, done.err);
    assert!(begun.elapsed() < Duration::from_secs(30), "one interrupt is enough");
    let done = ended(scrub);
    assert_eq!(done.code, 8, "{}{}", done.out, done.err);
    assert!(done.err.contains("does not answer: it may be stopped; "), "{}", done.err);
    // What needs no answer works.
    here.good(&["events", "a.pool"]);
    here.good(&["scrub", "status", "a.pool"]);
    send(&owner, Signal::CONT);
    drop(lines);
    assert_eq!(ended(owner).code, 0);
}

#[test]
fn scrubs_are_stopped_however_slow_they_are() {
    let here = Here::new();
    here.pool("a.pool");
    for by in ["an interrupt", "another command"] {
        // It would take months.
        let child = here.started(&["scrub", "start", "a.pool", "--rate", "1"]);
        while !here.good(&["scrub", "status", "a.pool"]).out.contains("running") {}
        if by == "an interrupt" {
            send(&child, Signal::INT);
        } else {
            here.good(&["scrub", "pause", "a.pool"]);
        }
        let done = ended(child);
        assert_eq!(done.code, 32, "{by}: {}{}", done.out, done.err);
    }
}

#[test]
fn names_from_a_pool_do_not_reach_the_terminal_as_commands() {
    let here = Here::new();
    let label = ["--label", "\u{1b}[31mred\u{7}"];
    let made = here.good(&[&["pool", "create", "a.pool", "--size", "16M"][..], &label].concat());
    here.good(&["map", "put", "a.pool", "\u{1b}]0;title\u{7}", "k", "v"]);
    for words in
        [&["pool", "info", "a.pool"][..], &["map", "list", "a.pool"], &["check", "a.pool", "-v"]]
    {
        let out = here.good(words).out;
        assert!(!out.contains('\u{1b}') && out.contains("u{1b}"), "{out}");
    }
    let none = here.expect(8, &["map", "get", "a.pool", "\u{1b}[2J", "k"]);
    assert!(!made.out.contains('\u{1b}') && !none.err.contains('\u{1b}'), "{}", none.err);
    // Programs get them as they are.
    assert_eq!(here.json(0, &["pool", "info", "a.pool"])["label"], "\u{1b}[31mred\u{7}");
}
