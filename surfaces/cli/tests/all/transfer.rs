//! Export and import: whatever bytes are in a map come back, a batch is put whole or not at all,
//! and bad lines are told by their numbers.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;

use crate::common::{Here, commits, ended, owner_listens, until, until_committed};
use holdfast::{Kind, Pool};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Pairs that are hard to write down; in one kind of map, where it takes the time of all others, a
/// value of megabytes.
fn hostile(kind: Kind) -> Vec<(Vec<u8>, Vec<u8>)> {
    let all: Vec<u8> = (0..=255).collect();
    let many = if kind == Kind::Hash { 8000 } else { 300 };
    let mut pairs: Vec<(Vec<u8>, Vec<u8>)> = vec![
        (b"".to_vec(), b"the empty key".to_vec()),
        (b"empty".to_vec(), b"".to_vec()),
        (b"\0".to_vec(), b"\0\0".to_vec()),
        (b"\n\r\t\"\\{}[],:".to_vec(), b"{\"key\":\"k\",\"value\":\"v\"}\n".to_vec()),
        ("\u{1b}[2J\u{9b}\u{7f}\u{2028}\u{feff}".into(), "\u{10ffff}\u{e000}".into()),
        (b"\xff\xfe".to_vec(), b"\x80".to_vec()),
        (b"\xed\xa0\x80".to_vec(), b"half of a pair".to_vec()),
        (b"\xc0\x80".to_vec(), b"overlong".to_vec()),
        (all.clone(), all.repeat(many)),
        (vec![b'k'; 65_536], vec![0xff; 3]),
        (vec![0xff; 65_536], b"longest".to_vec()),
    ];
    pairs.extend((0..2500_u32).map(|n| (n.to_le_bytes().to_vec(), (n * n).to_le_bytes().to_vec())));
    pairs.sort();
    pairs.dedup_by(|a, b| a.0 == b.0);
    pairs
}

/// A pool with a map of hostile pairs.
fn filled(here: &Here, name: &str, kind: Kind) -> Vec<(Vec<u8>, Vec<u8>)> {
    let pool = Pool::options().size(64 << 20).create(here.path(name)).unwrap();
    let map = pool.map_as::<[u8], [u8]>("m", kind).unwrap();
    let pairs = hostile(kind);
    let put = pool.run(|tx| {
        for (key, value) in &pairs {
            map.map().put(tx, key, value)?;
        }
        Ok(())
    });
    put.unwrap();
    pairs
}

fn contents(here: &Here, name: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let pool = Pool::open(here.path(name)).unwrap();
    let map = pool.existing_map::<[u8], [u8]>("m").unwrap().unwrap();
    let mut found = Vec::new();
    pool.run(|tx| {
        found.clear();
        map.map().for_each(tx, |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            Ok(())
        })
    })
    .unwrap();
    found.sort();
    found
}

#[test]
fn what_is_exported_and_imported_is_the_same() {
    let here = Here::new();
    for kind in Kind::ALL {
        let word = kind.name();
        let name = &format!("{word}.pool");
        let pairs = filled(&here, name, kind);
        let out = format!("{word}.jsonl");
        let told = here.json(0, &["export", name, "m", "--output", &out]);
        assert_eq!(told["pairs"], pairs.len(), "{told}");
        let text = fs::read_to_string(here.path(&out)).unwrap();
        assert_eq!(text.lines().count(), pairs.len());
        assert!(text.lines().all(|line| !line.contains(char::is_control)), "{word}");
        let copy = format!("copy-{name}");
        here.good(&["pool", "create", &copy, "--size", "64M"]);
        let into = ["import", &copy, "m", &out, "--types", "bytes-bytes", "--kind", word];
        let told = here.json(0, &into);
        assert_eq!((&told["pairs"], &told["new"]), (&pairs.len().into(), &pairs.len().into()));
        assert!(contents(&here, &copy) == pairs, "{word}");
        // Once more changes nothing.
        assert_eq!(here.json(0, &into)["new"], 0);
        assert!(contents(&here, &copy) == pairs, "{word}");
        here.good(&["check", &copy]);
        // On standard output, dressed or not, it is the same and is taken.
        for json in [&[][..], &["--json"]] {
            let lines = here.good(&[&["export", name, "m"], json].concat()).out;
            if json.is_empty() {
                assert!(lines == text, "{word}");
            } else {
                let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
                assert_eq!((&first["schema"], &first["command"]), (&1.into(), &"export".into()));
            }
            fs::write(here.path("again"), lines).unwrap();
            let told = here.json(0, &["import", &copy, "m", "again"]);
            assert_eq!((&told["pairs"], &told["new"]), (&pairs.len().into(), &0.into()));
        }
        assert!(contents(&here, &copy) == pairs, "{word}");
    }
}

#[test]
fn maps_of_texts_go_through_strings_and_refuse_bytes() {
    let here = Here::new();
    here.pool("a.pool");
    let lines = here.good(&["export", "a.pool", "words"]).out;
    assert!(lines.starts_with("{\"key\":\"key000\",\"value\":\"value 0\"}\n"), "{lines}");
    let scanned = here.good(&["map", "scan", "a.pool", "words", "--json"]).out;
    for text in [&lines, &scanned] {
        fs::write(here.path("lines.jsonl"), text).unwrap();
        for types in ["text-bytes", "text-text"] {
            let told = here.json(0, &["import", "a.pool", types, "lines.jsonl", "--types", types]);
            assert_eq!(told["pairs"], 500, "{told}");
            let same = here.good(&["export", "a.pool", types]).out;
            assert!(same == lines);
        }
    }
    fs::write(here.path("bytes"), "{\"key_b64\":\"/w==\",\"value\":\"v\"}\n").unwrap();
    let told = here.json(8, &["import", "a.pool", "words", "bytes"]);
    assert!(told["bad_lines"][0]["what"].as_str().unwrap().contains("are of text"), "{told}");
    fs::write(here.path("bytes"), "{\"key\":\"k\",\"value_b64\":\"/w==\"}\n").unwrap();
    here.expect(8, &["import", "a.pool", "text-text", "bytes"]);
    here.good(&["import", "a.pool", "text-bytes", "bytes"]);
}

#[test]
fn a_batch_with_a_bad_line_is_not_put_and_the_bad_lines_are_told() {
    let here = Here::new();
    here.good(&["pool", "create", "a.pool", "--size", "16M"]);
    let good = |n: u64| format!("{{\"key\":\"k{n:03}\",\"value\":\"{n}\"}}\n");
    let mut lines: Vec<String> = (1..=100).map(good).collect();
    lines[24] = "{\"key\":\"k\",\"value\":1}\n".to_owned();
    lines[41] = "nonsense\n".to_owned();
    lines[98] = "{\"key\":\"k\"}\n".to_owned();
    fs::write(here.path("lines"), lines.concat()).unwrap();
    bad_lines_of_all_sorts_are_told(&here, &lines);
    let import = ["import", "a.pool", "m", "lines", "--batch", "10"];
    let told = here.json(8, &import);
    let numbers: Vec<&Value> =
        told["bad_lines"].as_array().unwrap().iter().map(|bad| &bad["line"]).collect();
    assert_eq!(numbers, [25, 42, 99]);
    assert_eq!((&told["pairs"], &told["next_line"]), (&20.into(), &21.into()), "{told}");
    assert_eq!((&told["exit"], &told["error"]["kind"]), (&8.into(), &"invalid".into()));
    let told = here.expect(8, &import).err;
    assert!(told.contains("lines, line 42: no JSON"), "{told}");
    assert!(told.contains("3 bad lines: 25, 42, 99; nothing from line 21 on"), "{told}");
    assert!(told.contains("go on with --from 21"), "{told}");
    // Whole batches are there and nothing of the one with the bad line.
    assert_eq!(here.good(&["map", "scan", "a.pool", "m"]).out.lines().count(), 20);
    for at in [24, 41, 98] {
        lines[at] = good(at as u64 + 1);
    }
    fs::write(here.path("lines"), lines.concat()).unwrap();
    let told = here.json(0, &[&import[..], &["--from", "21"]].concat());
    assert_eq!((&told["pairs"], &told["next_line"]), (&80.into(), &101.into()), "{told}");
    assert_eq!(here.good(&["map", "scan", "a.pool", "m"]).out.lines().count(), 100);
}

/// With lines 25, 42 and 99 bad, two more: one that names a key twice, one that is no text.
fn bad_lines_of_all_sorts_are_told(here: &Here, lines: &[String]) {
    let mut bytes: Vec<Vec<u8>> = lines.iter().map(|line| line.clone().into_bytes()).collect();
    bytes[29] = b"{\"key\":\"k030\",\"value\":\"30\",\"key\":\"other\"}\n".to_vec();
    bytes[49] = b"{\"key\":\"\xe9\",\"value\":\"v\"}\n".to_vec();
    fs::write(here.path("worse"), bytes.concat()).unwrap();
    here.good(&["pool", "create", "b.pool", "--size", "16M"]);
    let told = here.json(8, &["import", "b.pool", "m", "worse", "--batch", "10"]);
    let bad = told["bad_lines"].as_array().unwrap();
    let numbers: Vec<&Value> = bad.iter().map(|bad| &bad["line"]).collect();
    assert_eq!(numbers, [25, 30, 42, 50, 99], "{told}");
    assert!(bad[1]["what"].as_str().unwrap().starts_with("the field `key` twice"), "{told}");
    assert_eq!(bad[3]["what"], "is no UTF-8 text");
    assert_eq!((&told["pairs"], &told["next_line"]), (&20.into(), &21.into()), "{told}");
    // Those that were imported before are not looked at again.
    let told = here.json(8, &["import", "b.pool", "m", "worse", "--from", "60"]);
    assert_eq!(told["bad_lines"].as_array().unwrap().len(), 1, "{told}");
}

#[test]
fn a_batch_that_does_not_fit_leaves_those_before_it() {
    let here = Here::new();
    here.good(&["pool", "create", "a.pool", "--size", "16M"]);
    let big = "v".repeat(100_000);
    let lines: String =
        (0..200).map(|n| format!("{{\"key\":\"{n:03}\",\"value\":\"{big}\"}}\n")).collect();
    fs::write(here.path("lines"), lines).unwrap();
    let told = here.json(8, &["import", "a.pool", "m", "lines", "--batch", "10"]);
    assert_eq!(told["error"]["kind"], "no-space", "{told}");
    let (pairs, next) = (told["pairs"].as_u64().unwrap(), told["next_line"].as_u64().unwrap());
    assert!(pairs > 0 && pairs.is_multiple_of(10) && next == pairs + 1, "{told}");
    let cause = told["error"]["cause"].as_str().unwrap();
    assert!(cause.contains(&format!("lines {next} to {}", next + 9)), "{cause}");
    here.good(&["check", "a.pool"]);
    let there = here.good(&["export", "a.pool", "m"]).out.lines().count() as u64;
    assert_eq!(there, pairs);
    here.good(&["pool", "grow", "a.pool", "64M"]);
    let from = next.to_string();
    here.good(&["import", "a.pool", "m", "lines", "--batch", "10", "--from", &from]);
    assert_eq!(here.good(&["export", "a.pool", "m"]).out.lines().count(), 200);
}

#[test]
fn files_and_words_that_cannot_be() {
    let here = Here::new();
    here.pool("a.pool");
    fs::write(here.path("taken"), "mine").unwrap();
    let told = here.json(8, &["export", "a.pool", "words", "--output", "taken"]);
    assert_eq!(told["error"]["kind"], "exists", "{told}");
    assert_eq!(fs::read(here.path("taken")).unwrap(), b"mine");
    for (words, kind) in [
        (&["export", "a.pool", "none"][..], "not-found"),
        (&["export", "a.pool", "none", "--output", "new"], "not-found"),
        (&["export", "a.pool", "words", "--output", "no/where"], "not-found"),
        (&["import", "a.pool", "words", "missing"], "not-found"),
        (&["import", "a.pool", "words", "."], "not-a-file"),
        (&["import", "a.pool", "", "lines"], "invalid"),
    ] {
        assert_eq!(here.json(8, words)["error"]["kind"], kind, "{words:?}");
    }
    assert!(!here.path("new").exists());
    here.expect(16, &["import", "a.pool", "words", "lines", "--batch", "0"]);
    here.expect(16, &["import", "a.pool", "words", "lines", "--from", "0"]);
    fs::write(here.path("latin"), b"{\"key\":\"\xe9\",\"value\":\"v\"}\n").unwrap();
    let told = here.expect(8, &["import", "a.pool", "words", "latin"]).err;
    assert!(told.contains("latin, line 1: is no UTF-8 text"), "{told}");
    assert!(told.contains("go on with --from 1"), "{told}");
    let told = here.json(8, &["export", "a.pool", "none"]);
    assert_eq!(told["error"]["path"], "a.pool", "{told}");
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let done = here.command(&["export", "a.pool", "words"]).stdout(full).output().unwrap();
    assert_eq!(done.status.code(), Some(8));
}

#[test]
fn readers_that_go_away_and_interrupts() {
    let here = Here::new();
    filled(&here, "a.pool", Kind::BTree);
    let mut child = here.started(&["export", "a.pool", "m"]);
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.signal(), Some(Signal::PIPE.as_raw()), "{:?}", done.status);
    assert_eq!(String::from_utf8_lossy(&done.stderr), "");
    // An import that waits for lines: whole batches stay, and the next line is told.
    here.good(&["pool", "create", "b.pool", "--size", "16M"]);
    let mut child = here.started(&["import", "b.pool", "m", "--batch", "2", "--json"]);
    let mut lines = child.stdin.take().unwrap();
    owner_listens(&here, "b.pool");
    // It makes the map before it takes lines.
    let mut made = None;
    until("the map", || {
        made = commits(&here, "b.pool");
        made >= Some(1)
    });
    for n in 0..5 {
        writeln!(lines, "{{\"key\":\"{n}\",\"value\":\"v\"}}").unwrap();
    }
    until_committed(&here, "b.pool", made.unwrap() + 2);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let done = ended(child);
    assert_eq!(done.code, 32, "{}{}", done.out, done.err);
    let told: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!((&told["pairs"], &told["next_line"]), (&4.into(), &5.into()), "{told}");
    drop(lines);
    assert_eq!(here.good(&["map", "scan", "b.pool", "m"]).out.lines().count(), 4);
}

#[test]
fn benches_measure_and_leave_nothing_behind() {
    let here = Here::new();
    here.pool("a.pool");
    let before = here.good(&["export", "a.pool", "words"]).out;
    let objects = |here: &Here| here.json(0, &["stats", "a.pool"])["space"]["objects"].clone();
    // The catalogue may grow by the first map; from then on nothing stays.
    here.good(&["bench", "a.pool", "--pairs", "20"]);
    let there = objects(&here);
    for kind in Kind::ALL.map(Kind::name) {
        let told = here.json(0, &["bench", "a.pool", "--pairs", "200", "--kind", kind]);
        for name in ["put", "get", "del"] {
            let took = &told["took"][name];
            assert_eq!(took["number"], 200, "{told}");
            assert!(took["p50_ns"].as_u64().unwrap() <= took["most_ns"].as_u64().unwrap());
        }
    }
    assert_eq!(objects(&here), there);
    assert!(here.good(&["export", "a.pool", "words"]).out == before);
    here.good(&["check", "a.pool"]);
    let child = here.started(&["bench", "--shm", "--pairs", "500", "--value", "1K"]);
    // Others may have a bench there at this moment.
    let pool = format!("/dev/shm/holdfast-bench-{}", child.id());
    let done = ended(child);
    let told = done.out;
    assert_eq!(done.code, 0, "{told}{}", done.err);
    assert!(told.contains("process crash only") && told.contains("p99.9"), "{told}");
    assert!(!fs::exists(pool).unwrap(), "it was left behind");
    for words in [
        &["bench"][..],
        &["bench", "a.pool", "--shm"],
        &["bench", "a.pool", "--pairs", "0"],
        &["bench", "--shm", "--value", "2M"],
    ] {
        here.expect(16, words);
    }
    // An interrupt ends it, and it clears up.
    let child = here.started(&["bench", "a.pool", "--pairs", "1000000", "--json"]);
    until_committed(&here, "a.pool", 20);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let done = ended(child);
    assert_eq!(done.code & 32, 32, "{} {}", done.code, done.err);
    assert_eq!(objects(&here), there);
}
