//! Figures: bytes that add up, counts that are those of the process that has the pool open, and
//! nothing that waits for one that does not answer.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::Child;
use std::time::{Duration, Instant};

use crate::common::{Here, ended, owner_listens, until, until_it_stands};
use holdfast::{Pool, ScrubOptions, TxError, VerifyReads};
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn the_bytes_of_a_pool_add_up() {
    let here = Here::new();
    here.pool("a.pool");
    let before = fs::read(here.path("a.pool")).unwrap();
    let stats = here.json(0, &["stats", "a.pool"]);
    let bytes = stats["bytes"].as_object().unwrap();
    let sum: u64 = bytes.values().map(|bytes| bytes.as_u64().unwrap()).sum();
    let size = stats["size"].as_u64().unwrap();
    // A chunk may be taken for something else than objects; regions are cut to whole frames.
    assert!(sum <= size && sum >= size / 100 * 90, "{sum} of {size}: {stats}");
    assert!(bytes["objects"].as_u64().unwrap() >= 500 * 12, "{stats}");
    assert!(bytes["parity"].as_u64().unwrap() > 0 && bytes["log"].as_u64().unwrap() > 0);
    assert_eq!(stats["owner"], serde_json::Value::Null);
    assert_eq!(stats["superblock_copies_good"], true);
    let inside = here.json(0, &["pool", "info", "a.pool"]);
    assert_eq!(stats["space"], inside["space"]);
    assert!(fs::read(here.path("a.pool")).unwrap() == before, "looking changed it");
    // What was found and repaired is counted from the journal.
    here.good(&["inject", "bitflip", "a.pool", "--part", "object", "--count", "3"]);
    here.expect(1, &["repair", "a.pool"]);
    let stats = here.json(0, &["stats", "a.pool"]);
    assert!(stats["journal"]["repaired"].as_u64().unwrap() >= 3, "{stats}");
    assert_eq!(stats["scrub"]["pass"].as_u64().map(|pass| pass > 0), Some(true), "{stats}");
}

#[test]
fn an_owner_tells_what_it_did() {
    let here = Here::new();
    here.pool("a.pool");
    let mut owner = here.started(&["map", "load", "a.pool", "m", "-", "--batch", "1"]);
    let mut lines = owner.stdin.take().unwrap();
    owner_listens(&here, "a.pool");
    // An owner that is held up may be too late with its answer.
    let answer = || {
        let mut stats = serde_json::Value::Null;
        until("an answer", || {
            stats = here.json(0, &["stats", "a.pool"]);
            stats["owner"].is_object()
        });
        stats
    };
    let commits = || answer()["owner"]["commits"].as_u64().unwrap();
    let before = commits();
    for n in 0..100 {
        writeln!(lines, "k{n}\tv").unwrap();
    }
    until("a hundred commits", || commits() >= before + 100);
    let stats = answer();
    let latency = &stats["owner"]["latency_ns"];
    assert!(latency["p50"].as_u64().unwrap() <= latency["p99"].as_u64().unwrap(), "{stats}");
    until("words about latency", || {
        let told = here.good(&["stats", "a.pool"]).out;
        told.contains("transactions took") && told.contains("p99 ")
    });
    // One that is stopped keeps nobody waiting.
    kill_process(Pid::from_child(&owner), Signal::STOP).unwrap();
    until_it_stands(owner.id());
    let begun = Instant::now();
    let stats = here.json(0, &["stats", "a.pool"]);
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    assert_eq!((&stats["owner"], &stats["in_use"]), (&serde_json::Value::Null, &true.into()));
    kill_process(Pid::from_child(&owner), Signal::CONT).unwrap();
    drop(lines);
    assert_eq!(ended(owner).code, 0);
}

/// What a command asks an owner that listens half a second late, as long as a pool takes to be
/// opened; nothing if the command is over by then. It ends well in any case.
fn asked_by(mut child: Child, address: &SocketAddr) -> Option<String> {
    std::thread::sleep(Duration::from_millis(500));
    let listener = UnixListener::bind_addr(address).unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut stream = None;
    until("a question or the end", || {
        stream = listener.accept().ok();
        stream.is_some() || child.try_wait().unwrap().is_some()
    });
    let asked = stream.map(|(stream, _)| {
        stream.set_nonblocking(false).unwrap();
        let mut asked = String::new();
        BufReader::new(stream).read_line(&mut asked).unwrap();
        asked
    });
    drop(listener);
    assert_eq!(ended(child).code, 0);
    asked
}

#[test]
fn an_owner_that_does_not_listen_yet_is_waited_for_and_one_that_never_does_is_not() {
    let here = Here::new();
    let path = here.path("a.pool");
    let quiet = Pool::options().size(16 << 20).commands(false).heal_loads(false);
    let _pool = quiet.create(&path).unwrap();
    let found = fs::metadata(&path).unwrap();
    let name = format!("holdfast-{:x}-{:x}", found.dev(), found.ino());
    let address = SocketAddr::from_abstract_name(name).unwrap();
    for words in
        [&["stats", "a.pool"][..], &["top", "a.pool", "--once"], &["scrub", "status", "a.pool"]]
    {
        // One that starts slowly may be past its patience before somebody listens: not each time.
        let asked = (0..10).find_map(|_| asked_by(here.started(words), &address));
        let asked = asked.unwrap_or_else(|| panic!("{words:?} does not wait"));
        assert!(asked.starts_with("holdfast-"), "{words:?}: {asked}");
    }
    let begun = Instant::now();
    let done = here.good(&["stats", "a.pool"]);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(done.err.contains("takes no commands of this user; try again"), "{}", done.err);
    let stats = here.json(0, &["stats", "a.pool"]);
    assert_eq!((&stats["owner"], &stats["in_use"]), (&serde_json::Value::Null, &true.into()));
}

#[test]
fn what_an_owner_counted_is_told_in_every_way() {
    let here = Here::new();
    let options = Pool::options().size(16 << 20).verify_reads(VerifyReads::Always);
    let pool = options.create(here.path("a.pool")).unwrap();
    let map = pool.map::<str, [u8]>("m").unwrap();
    for n in 0..50 {
        map.put(&format!("{n}"), &[7; 100]).unwrap();
        map.get(&format!("{n}")).unwrap();
    }
    for _ in 0..3 {
        pool.run(|_| Err::<(), _>(TxError::cancel("enough"))).unwrap_err();
    }
    // It ends with a watermark.
    pool.scrub(ScrubOptions::default(), |_, _| {}).unwrap();
    let counted = pool.stats();
    assert!(counted.aborts == 3 && counted.verified >= 50 && counted.reclaims > 0, "{counted:?}");
    let stats = here.json(0, &["stats", "a.pool"]);
    let named = [
        ("aborts", "aborts", counted.aborts),
        ("granules_verified", "verified by reads", counted.verified),
        ("log_reclaims", "log reclaims", counted.reclaims),
    ];
    let text = here.good(&["stats", "a.pool"]).out;
    let files = ["--prometheus", "prom", "--html", "html"];
    let looked = here.json(0, &[&["top", "a.pool", "--once"][..], &files].concat());
    let watched = here.good(&["top", "a.pool", "--once"]).out;
    let [page, html] = ["prom", "html"].map(|name| fs::read_to_string(here.path(name)).unwrap());
    for (name, words, count) in named {
        assert_eq!(stats["owner"][name], count, "{stats}");
        let line = text.lines().find(|line| line.contains(words)).expect(words);
        assert!(line.split_whitespace().any(|word| word == count.to_string()), "{line}");
        let line = format!("\nholdfast_{name}_total{{pool=\"a.pool\"}} {count}\n");
        assert!(page.contains(&line), "{line}: {page}");
        let rate = &looked["rates"][format!("{name}_per_second")];
        assert!(rate.as_f64().is_some_and(|rate| rate > 0.0), "{name}: {looked}");
        assert!(watched.contains(words) && html.contains(words), "{words}: {watched}");
    }
    drop((pool, map));
}

#[test]
fn labels_that_terminals_would_obey_are_told_to_programs_as_they_are() {
    let here = Here::new();
    let label = "a\u{9b}31m\u{7f}b";
    here.good(&["pool", "create", "a.pool", "--size", "16M", "--label", label]);
    let done = here.good(&["stats", "a.pool", "--json"]);
    assert!(!done.out.trim_end().contains(char::is_control), "{}", done.out);
    assert_eq!(here.json(0, &["stats", "a.pool"])["label"], label);
    assert_eq!(here.json(0, &["pool", "info", "a.pool"])["label"], label);
}
