//! Listing and removing: what is in use, left open, damaged or no pool at all is told apart, a list
//! changes nothing, and nothing is removed by mistake.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use crate::common::{Done, Here, ended, shown_until, terminal, until_committed};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn listed<'a>(list: &'a Value, name: &str) -> &'a Value {
    let is_it = |pool: &&Value| pool["path"].as_str().unwrap().ends_with(name);
    list["pools"].as_array().unwrap().iter().find(is_it).unwrap()
}

#[test]
fn a_list_tells_pools_from_other_files_and_what_state_they_are_in() {
    let here = Here::new();
    fs::create_dir(here.path("pools")).unwrap();
    let none = here.good(&["pool", "list", "pools"]).out;
    assert!(none.contains("no pools in pools"), "{none}");
    here.pool("pools/closed.pool");
    here.pool("pools/in-use.pool");
    here.pool("pools/killed.pool");
    let whole = fs::read(here.path("pools/closed.pool")).unwrap();
    fs::write(here.path("pools/half.pool"), &whole[..8 << 20]).unwrap();
    fs::write(here.path("pools/notes.txt"), "not a pool\n".repeat(1000)).unwrap();
    fs::write(here.path("pools/empty"), "").unwrap();
    fs::create_dir(here.path("pools/folder.pool")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(here.path("pools/pipe")).status().unwrap();
    assert!(made.success());
    std::os::unix::fs::symlink("nowhere", here.path("pools/dangling")).unwrap();
    // One process has a pool open, another died over one.
    let mut owner = here.started(&["map", "load", "pools/in-use.pool", "m", "-"]);
    let mut victim = here.started(&["map", "load", "pools/killed.pool", "m", "-"]);
    for name in ["pools/in-use.pool", "pools/killed.pool"] {
        // Its map is the last thing that it writes before it waits for lines.
        until_committed(&here, name, 1);
    }
    victim.kill().unwrap();
    victim.wait().unwrap();
    let before: Vec<Vec<u8>> = ["closed", "in-use", "killed", "half"]
        .map(|name| fs::read(here.path(&format!("pools/{name}.pool"))).unwrap())
        .into();
    // One that is cut off is damage left.
    let list = here.json(4, &["pool", "list", "pools"]);
    assert_eq!(list["pools"].as_array().unwrap().len(), 4, "{list}");
    assert_eq!(list["other_files"], 2, "{list}");
    assert_eq!(listed(&list, "closed.pool")["state"], "closed");
    assert_eq!(listed(&list, "closed.pool")["size"], 16 << 20);
    let state = format!("in use by process {}", owner.id());
    assert_eq!(listed(&list, "in-use.pool")["state"], state);
    assert_eq!(listed(&list, "in-use.pool")["in_use"], true);
    let killed = listed(&list, "killed.pool");
    assert!(killed["state"].as_str().unwrap().starts_with("not closed; it is recovered"), "{list}");
    assert_eq!(listed(&list, "half.pool")["error"]["kind"], "truncated");
    let told = here.expect(4, &["pool", "list", "pools"]).out;
    assert!(told.contains("16 MiB") && told.contains(&state), "{told}");
    assert!(!told.contains("notes"), "{told}");
    for (name, bytes) in ["closed", "in-use", "killed", "half"].iter().zip(before) {
        assert!(fs::read(here.path(&format!("pools/{name}.pool"))).unwrap() == bytes, "{name}");
    }
    // The space is that of the pool, counted from outside.
    let inside = here.json(0, &["pool", "info", "pools/closed.pool"]);
    assert_eq!(listed(&list, "closed.pool")["space"], inside["space"]);
    drop(owner.stdin.take());
    assert_eq!(ended(owner).code, 0);
}

#[test]
fn folders_that_are_none() {
    let here = Here::new();
    here.pool("a.pool");
    assert_eq!(here.json(8, &["pool", "list", "missing"])["error"]["kind"], "not-found");
    assert_eq!(here.json(8, &["pool", "list", "a.pool"])["error"]["kind"], "not-a-folder");
    assert_eq!(here.json(0, &["pool", "list"])["pools"][0]["path"], "./a.pool");
}

#[test]
fn what_is_in_use_or_no_pool_is_not_removed() {
    let here = Here::new();
    here.pool("a.pool");
    fs::write(here.path("notes.txt"), "not a pool\n".repeat(1000)).unwrap();
    std::os::unix::fs::symlink("a.pool", here.path("link.pool")).unwrap();
    let refused = |name: &str, kind: &str| {
        let told = here.json(8, &["pool", "rm", name, "--force"]);
        assert_eq!(told["error"]["kind"], kind, "{told}");
        assert!(fs::symlink_metadata(here.path(name)).is_ok(), "{name} is gone");
        told["error"].clone()
    };
    refused("notes.txt", "not-a-pool");
    refused("link.pool", "not-a-file");
    fs::create_dir(here.path("folder.pool")).unwrap();
    refused("folder.pool", "not-a-file");
    let none = here.json(8, &["pool", "rm", "missing.pool", "--force"]);
    assert_eq!(none["error"]["kind"], "not-found", "{none}");
    let pool = holdfast::Pool::open(here.path("a.pool")).unwrap();
    let told = refused("a.pool", "locked");
    assert!(told["cause"].as_str().unwrap().contains(&std::process::id().to_string()), "{told}");
    assert_eq!(told["remedy"], "close it there first");
    drop(pool);
    let looking = holdfast::Pool::open_read_only(here.path("a.pool")).unwrap();
    refused("a.pool", "locked");
    drop(looking);
    // Nobody can be asked: nothing is done.
    let told = here.json(16, &["pool", "rm", "a.pool"]);
    assert_eq!(told["error"]["kind"], "usage", "{told}");
    here.good(&["map", "get", "a.pool", "words", "key001"]);
    here.good(&["pool", "rm", "a.pool", "--force"]);
    assert!(!here.path("a.pool").exists());
    // A pool that was cut off may go, too.
    here.pool("b.pool");
    let file = fs::OpenOptions::new().write(true).open(here.path("b.pool")).unwrap();
    file.set_len(8 << 20).unwrap();
    here.good(&["pool", "rm", "b.pool", "--force"]);
    assert!(!here.path("b.pool").exists());
}

/// Runs `pool rm` at a terminal, waits for its question, and answers; nothing for an interrupt.
fn asked(here: &Here, answer: Option<&str>) -> (Done, String) {
    let (mut sits, runs) = terminal();
    let mut command = here.command(&["pool", "rm", "a.pool"]);
    let err = runs.try_clone().unwrap();
    let child = command.stdin(runs).stderr(err).stdout(Stdio::piped()).spawn().unwrap();
    drop(command);
    let question = shown_until(&mut sits, "[y/N] ");
    match answer {
        Some(answer) => sits.write_all(answer.as_bytes()).unwrap(),
        None => kill_process(Pid::from_child(&child), Signal::INT).unwrap(),
    }
    (ended(child), question)
}

#[test]
fn whoever_sits_at_a_terminal_is_asked_first() {
    let here = Here::new();
    here.pool("a.pool");
    for answer in [Some("n\n"), Some("\n"), Some("nope\n"), None] {
        let (done, question) = asked(&here, answer);
        assert_eq!(done.code, 32, "{answer:?}: {}", done.out);
        assert!(question.contains("remove a.pool, 16 MiB with "), "{question}");
        assert!(here.path("a.pool").exists(), "{answer:?}");
    }
    let (done, _) = asked(&here, Some("y\n"));
    assert_eq!(done.code, 0, "{}", done.out);
    assert!(done.out.starts_with("removed a.pool, "), "{}", done.out);
    assert!(!here.path("a.pool").exists());
}
