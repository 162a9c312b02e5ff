//! What holds for every command there is: help with an example, objects for programs on success,
//! failure and misuse, and examples that work as they stand.

use std::fs;

use crate::common::Here;
use serde_json::Value;

/// Every command and group of commands, found by their own help.
fn commands(here: &Here, words: &[String], found: &mut Vec<Vec<String>>) {
    let line: Vec<&str> = words.iter().map(String::as_str).chain(["--help"]).collect();
    let help = here.good(&line).out;
    found.push(words.to_vec());
    let Some((_, listed)) = help.split_once("Commands:\n") else { return };
    for line in listed.lines().take_while(|line| !line.is_empty()) {
        let name = line.split_whitespace().next().unwrap();
        if name != "help" {
            commands(here, &[words, &[name.to_owned()]].concat(), found);
        }
    }
}

/// The lines of output as objects, each with the version of their schema and a command.
fn objects(out: &str) -> Vec<Value> {
    let read = |line: &str| {
        let value: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(value["schema"] == 1 && value["command"].is_string(), "{line}");
        value
    };
    out.lines().map(read).collect()
}

#[test]
fn every_command_explains_itself_with_examples() {
    let here = Here::new();
    let mut found = Vec::new();
    commands(&here, &[], &mut found);
    assert!(found.len() > 28, "{found:?}");
    for words in found.iter().filter(|words| !words.is_empty()) {
        let line: Vec<&str> = words.iter().map(String::as_str).collect();
        let help = here.good(&[&line[..], &["--help"]].concat()).out;
        let example = format!("\n  holdfast {}", words.join(" "));
        let (_, shown) = help.split_once("\nExample").unwrap_or_else(|| panic!("{help}"));
        assert!(shown.contains(&example), "{words:?}: {shown}");
        for line in help.lines() {
            assert!(line.chars().count() <= 110, "{words:?}: {line}");
        }
    }
}

/// In an order in which each finds what it needs.
#[test]
fn the_examples_work() {
    let here = Here::new();
    fs::write(here.path("book.db"), "once upon a time\n".repeat(5000)).unwrap();
    fs::write(here.path("users.tsv"), "alan\t1\nalice\t2\nbob\t3\n").unwrap();
    for (code, line) in [
        (0, "pool create small.pool --size 4M --frame 4K --log 128K"),
        (0, "pool create a.pool --size 64M --allow-inject"),
        (0, "map load a.pool users users.tsv"),
        (0, "map put a.pool users alice 42"),
        (0, "map get a.pool users alice"),
        (0, "map scan a.pool users --prefix al --limit 10"),
        (0, "map list a.pool"),
        (0, "pool info a.pool -v"),
        (0, "pool grow a.pool 256M"),
        (0, "stats a.pool"),
        (0, "top a.pool --once --prometheus a.prom --html a.html"),
        (0, "inject bitflip a.pool --part object"),
        (4, "check a.pool"),
        (4, "check a.pool --repair --dry-run"),
        (1, "scrub start -w a.pool --rate 100M"),
        (0, "inject lost a.pool --record damage.jsonl"),
        (0, "inject restore a.pool --record damage.jsonl"),
        (0, "check a.pool"),
        (0, "inject torn a.pool --part parity"),
        (1, "repair a.pool"),
        (0, "scrub resume -w a.pool"),
        (0, "scrub status a.pool --json"),
        (0, "events a.pool --json"),
        (0, "map del a.pool users alice"),
        (0, "completions bash"),
        (0, "man"),
        (0, "man man1"),
        (0, "export a.pool users --output users.jsonl"),
        (0, "import a.pool users users.jsonl"),
        (0, "bench a.pool --pairs 200"),
        (0, "bench --shm --pairs 10000"),
        (0, "pool list"),
        (0, "pool rm a.pool --force"),
        (0, "protect book.db"),
        (0, "verify book.db"),
        (0, "status book.db --json"),
        (0, "repair book.db"),
        (0, "repair book.db --before book.before"),
        (0, "protect book.db --data 8 --parity 2 --again"),
        (0, "unprotect book.db"),
        (0, "pool create keep.pool --size 16M"),
        (0, "protect book.db --in keep.pool"),
        (0, "pool sweep keep.pool"),
        (0, "unprotect book.db"),
        (0, "guard --match *.db -- cat book.db"),
        (0, "guard --period 10s --match *.log:1s --match *.db -- cat book.db"),
    ] {
        here.expect(code, &line.split(' ').collect::<Vec<_>>());
    }
}

#[test]
fn every_command_speaks_to_programs() {
    let here = Here::new();
    here.pool("a.pool");
    let print = |code: i32, words: &[&str]| {
        let done = here.expect(code, &[words, &["--json"]].concat());
        (objects(&done.out), done.err)
    };
    let one = |code: i32, words: &[&str]| {
        let (mut objects, _) = print(code, words);
        assert_eq!(objects.len(), 1, "{words:?}: {objects:?}");
        objects.remove(0)
    };
    for (words, name) in [
        (&["pool", "create", "b.pool", "--size", "16M"][..], "pool create"),
        (&["pool", "info", "a.pool"], "pool info"),
        (&["pool", "grow", "a.pool", "48M"], "pool grow"),
        (&["pool", "list"], "pool list"),
        (&["pool", "sweep", "a.pool"], "pool sweep"),
        (&["stats", "a.pool"], "stats"),
        (&["top", "a.pool", "--once"], "top"),
        (&["completions", "zsh"], "completions"),
        (&["man"], "man"),
        (&["man", "man1"], "man"),
        (&["export", "a.pool", "words", "-o", "out.jsonl"], "export"),
        (&["import", "a.pool", "words", "out.jsonl"], "import"),
        (&["bench", "a.pool", "--pairs", "10"], "bench"),
        (&["pool", "rm", "b.pool", "--force"], "pool rm"),
        (&["check", "a.pool"], "check"),
        (&["check", "a.pool", "--repair"], "check"),
        (&["check", "a.pool", "--repair", "--dry-run"], "check"),
        (&["repair", "a.pool"], "repair"),
        (&["scrub", "start", "a.pool"], "scrub start"),
        (&["scrub", "resume", "a.pool"], "scrub resume"),
        (&["scrub", "status", "a.pool"], "scrub status"),
        (&["map", "put", "a.pool", "words", "k", "v"], "map put"),
        (&["map", "get", "a.pool", "words", "k"], "map get"),
        (&["map", "del", "a.pool", "words", "k"], "map del"),
        (&["map", "load", "a.pool", "words", "lines"], "map load"),
        (&["map", "list", "a.pool"], "map list"),
        (&["protect", "lines"], "protect"),
        (&["verify", "lines"], "verify"),
        (&["status", "lines"], "status"),
        (&["repair", "lines"], "repair"),
        (&["repair", "lines", "--before", "lines.before"], "repair"),
        (&["unprotect", "lines"], "unprotect"),
    ] {
        assert_eq!(one(0, words)["command"], name, "{words:?}");
    }
    assert_eq!(print(0, &["map", "scan", "a.pool", "words"]).0.len(), 500);
    assert_eq!(print(0, &["inject", "stray", "a.pool", "--count", "3"]).0.len(), 3);
    one(1, &["repair", "a.pool"]);
    assert!(print(0, &["events", "a.pool"]).0.len() >= 3);
    for words in [&["scrub", "pause", "a.pool"][..], &["scrub", "cancel", "a.pool"]] {
        let failed = one(8, words);
        assert_eq!((&failed["exit"], failed["error"].is_object()), (&8.into(), true), "{failed}");
    }
    // A guarded program has standard output to itself.
    let done = here.expect(0, &["guard", "--json", "--", "echo", "--json"]);
    assert_eq!(
        (done.out.as_str(), objects(&done.err)[0]["command"].as_str()),
        ("--json\n", Some("guard"))
    );
    // Misuse: the reason for programs, the usual words for people.
    for words in [&["nonsense"][..], &["map", "get", "a.pool"], &["repair", "a.pool", "--fast"]] {
        let (objects, told) = print(16, words);
        assert_eq!(objects.len(), 1, "{words:?}");
        assert_eq!(objects[0]["error"]["kind"], "usage", "{words:?}: {objects:?}");
        assert!(told.contains("Usage"), "{told}");
    }
}
