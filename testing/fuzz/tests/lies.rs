//! Each question of each oracle convicts: what a target's subject answers is falsified on its way.

use std::collections::BTreeSet;

use holdfast_fuzz::drive::{Broken, input, play};
use holdfast_fuzz::lie::telling;
use holdfast_fuzz::{Target, find, memory};

#[global_allocator]
static MEMORY: memory::Counting = memory::Counting;

/// Each of these lies is told by the target within so many runs, and convicted at once: by the
/// oracle that says `why`, and by nobody else.
fn convicted(target: &str, runs: u64, lies: &[(&'static str, &str)]) {
    let target: &'static Target = find(target).expect("a target");
    let corpus = (target.seeds)();
    let mut left = BTreeSet::new();
    for (name, why) in lies {
        let tries = (0..runs).map(|number| input(target, &corpus, 1, number));
        let (broken, told) =
            telling(name, || tries.into_iter().find_map(|input| play(target, &input).err()));
        match broken.map(|finding| finding.broken) {
            Some(Broken::Panicked(story)) if story.contains(why) => {}
            other => drop(left.insert(format!("{name}, told {told}: {other:?}"))),
        }
    }
    assert!(left.is_empty(), "not convicted: {left:#?}");
    let sound = input(target, &corpus, 1, runs / 2);
    play(target, &sound).expect("without a lie it holds");
}

/// What a refused open must not do, and what is told by each answer of it.
const REFUSED: [(&str, &str); 4] = [
    ("refused once", "and then opened"),
    ("reason", "refused for another reason"),
    ("refused stores", "an open that failed"),
    ("refused ruins", "an open that failed"),
];
const CHANGED: &str = "which is not concerned, is changed";

#[test]
fn args() {
    let lies = [
        ("reason", "nobody knows why"),
        ("again", "in the same way"),
        ("again is fine", "in the same way"),
        ("strange", "with an option that there is not"),
        ("names nothing", "the option is not named"),
        ("names another", "the option is not named"),
    ];
    convicted("args", 400, &lies);
}

#[test]
fn events() {
    let lies = [
        ("seal", "sealed, and does not verify"),
        ("believes all", "events that verify"),
        ("read", "events that verify"),
        ("later", "from its middle on"),
        ("heal", "healed"),
        ("healed", "healed"),
        ("append", "the new event"),
        ("number", "the next number"),
        ("again", "opened again"),
    ];
    convicted("events", 500, &lies);
}

#[test]
fn logs() {
    let changed = "a check changed the pool";
    let lies = [
        ("opened", "and the pool is refused"),
        ("recovered", "recovered"),
        ("objects", "and not all is there"),
        ("reopened", "a pool that was recovered is refused"),
        ("bytes after", "is another one after a second recovery"),
        ("type after", "is another one after a second recovery"),
        ("check stores", changed),
        ("check ruins", changed),
        ("refused once", "and then opened"),
        ("reason", "refused for another reason"),
        ("refused stores", "an open that failed"),
    ];
    convicted("logs", 400, &lies);
}

#[test]
fn maps() {
    let lies = [
        ("put", ": put"),
        ("put lost", ""),
        ("replace", ": replace"),
        ("remove", ": remove"),
        ("remove lost", ""),
        ("take", ": take"),
        ("get", ": get"),
        ("contains", ": contains"),
        ("hash order", "a hash map has no order"),
        ("scan", " to "),
        ("scan count", " to "),
        ("cursor", "what the cursor shows"),
        ("cursor skips", "the cursor came by each once"),
        ("first", ": first"),
        ("last", ": last"),
        ("len", ": len"),
        ("empty", ": is_empty"),
        ("sound", "unsound"),
        ("entries", "entries of a check"),
        ("cancelled", "was to be cancelled"),
        ("destroyed", "something is left"),
    ];
    convicted("maps", 2000, &lies);
}

#[test]
fn pointers() {
    let lies = [
        ("seal", "sealed, and does not verify"),
        ("told", "a good pointer"),
        ("stray", "the data file was changed"),
        ("pointer", "a look changed the pointer"),
        ("pool", "a look changed the pool"),
    ];
    convicted("pointer", 200, &lies);
}

#[test]
fn an_open() {
    let lies = [
        ("opened", "opened: "),
        ("changed", "changed: "),
        ("closed and opened again", "closed and opened again: "),
        ("bytes", CHANGED),
        ("length", CHANGED),
        ("kind", CHANGED),
        ("one object", CHANGED),
    ];
    convicted("open", 400, &[&REFUSED[..], &lies[..]].concat());
}

#[test]
fn a_check() {
    let same = "the same when it is made again";
    let lies = [
        ("says nothing", same),
        ("counts another", same),
        ("finds another", same),
        ("check stores", "a check changed the pool"),
        ("check ruins", "a check changed the pool"),
        ("checked", "checked: "),
        ("bytes", CHANGED),
        ("one object", CHANGED),
    ];
    convicted("check", 400, &lies);
}

#[test]
fn a_repair() {
    let finds = "a repair said clean";
    let lies = [
        ("found nothing", finds),
        ("lost nothing", finds),
        ("repaired all", finds),
        ("check fails", "a check after a repair"),
        ("finds more", finds),
        ("repaired", "repaired: "),
        ("bytes", CHANGED),
        ("kind", CHANGED),
    ];
    convicted("repair", 400, &lies);
}

#[test]
fn side_files() {
    let changed = "that was not damaged was changed";
    let lies = [
        ("bit", changed),
        ("page", changed),
        ("bad", changed),
        ("last", changed),
        ("shorter", "another length"),
        ("verdict", "called corrupt"),
        ("looked", "a look at all pages calls a sound page corrupt"),
        ("scrubbed", "a scrub calls a sound page corrupt"),
        ("mended", "a repair says Repaired"),
        ("lost", "a repair says Lost"),
    ];
    convicted("side", 400, &lies);
}

#[test]
fn answers_and_messages() {
    let other = "it is another";
    let lies = [
        ("words", other),
        ("another", other),
        ("fewer", other),
        ("no row", other),
        ("long", "bytes"),
    ];
    convicted("answers", 1000, &lies);
    let names = ["request", "magic", "version", "word", "answer", "answer's word"];
    convicted("messages", 1000, &names.map(|name| (name, "said again")));
}
