//! Everyday use: pools are made and shown, maps are filled, read, scanned.

use std::io::Write;
use std::process::Stdio;

use crate::common::{Done, Here};

#[test]
fn a_pool_is_made_and_shown() {
    let here = Here::new();
    let options = ["--size", "16M", "--parity", "pq", "--label", "bank", "--json"];
    let made = here.good(&[&["pool", "create", "a.pool"][..], &options].concat());
    assert!(made.out.contains("\"label\":\"bank\""), "{}", made.out);
    let info = here.json(0, &["pool", "info", "a.pool"]);
    assert_eq!(info["size"], 16 << 20);
    assert_eq!(info["parity_rows"], 2);
    assert_eq!(info["clean"], true);
    assert_eq!(info["allow_inject"], false);
    assert_eq!(info["state"], "closed");
    let text = here.good(&["pool", "info", "a.pool", "-v"]).out;
    for word in ["16 MiB", "bank", "P and Q", "side B", "closed"] {
        assert!(text.contains(word), "{word} in {text}");
    }
    assert_eq!(here.good(&["pool", "info", "a.pool", "-q"]).out, "");
}

#[test]
fn every_option_of_a_pool_takes() {
    let here = Here::new();
    let words = [
        "pool",
        "create",
        "a.pool",
        "--size",
        "4M",
        "--frame",
        "4K",
        "--chunk",
        "8K",
        "--rows",
        "10",
        "--lanes",
        "3",
        "--log",
        "128K",
        "--events",
        "8K",
        "--parity",
        "none",
        "--sums",
        "adler32",
        "--single-copy",
    ];
    here.good(&words);
    let info = here.json(0, &["pool", "info", "a.pool"]);
    assert_eq!((info["frame"].as_u64(), info["chunk"].as_u64()), (Some(4096), Some(8192)));
    assert_eq!((info["parity_rows"].as_u64(), info["copies"].as_u64()), (Some(0), Some(1)));
    assert_eq!(info["sums"], "adler32");
    here.good(&["map", "put", "a.pool", "m", "k", "v"]);
    assert_eq!(here.good(&["map", "get", "a.pool", "m", "k"]).out, "v\n");
    here.good(&["check", "a.pool"]);
}

#[test]
fn values_are_put_and_got_and_deleted() {
    let here = Here::new();
    here.good(&["pool", "create", "a.pool", "--size", "16M"]);
    here.good(&["map", "put", "a.pool", "users", "alice", "42"]);
    let put = here.json(0, &["map", "put", "a.pool", "users", "alice", "43"]);
    assert_eq!(put["replaced"], true);
    here.good(&["map", "put", "a.pool", "users", "bob", "two words"]);
    here.good(&["map", "put", "a.pool", "hashed", "x", "y", "--kind", "hashmap"]);
    assert_eq!(here.good(&["map", "get", "a.pool", "users", "bob"]).out, "two words\n");
    assert_eq!(here.json(0, &["map", "get", "a.pool", "users", "alice"])["value"], "43");
    here.good(&["map", "del", "a.pool", "users", "alice"]);
    for words in
        [["map", "get", "a.pool", "users", "alice"], ["map", "del", "a.pool", "users", "x"]]
    {
        let gone = here.expect(8, &words);
        assert!(gone.err.contains("no key"), "{}", gone.err);
        assert_eq!(here.json(8, &words)["error"]["kind"], "not-found");
    }
    let none = here.expect(8, &["map", "get", "a.pool", "others", "x"]);
    assert!(none.err.contains("hashed, users"), "{}", none.err);
    let list = here.json(0, &["map", "list", "a.pool"]);
    assert_eq!(list["maps"][0]["name"], "hashed");
    assert_eq!(list["maps"][0]["kind"], "hashmap");
    assert_eq!(list["maps"][1]["value"], "[u8]");
}

#[test]
fn lines_are_loaded_and_scanned_in_order() {
    let here = Here::new();
    here.pool("a.pool");
    let scan = |more: &[&str]| here.good(&[&["map", "scan", "a.pool", "words"], more].concat()).out;
    assert_eq!(scan(&[]).lines().count(), 500);
    assert_eq!(scan(&["--limit", "2"]), "key000\tvalue 0\nkey001\tvalue 1\n");
    assert_eq!(scan(&["--prefix", "key49"]).lines().count(), 10);
    assert_eq!(scan(&["--from", "key123", "--to", "key125"]).lines().count(), 2);
    assert_eq!(scan(&["--from", "z"]), "");
    let lines = scan(&["--limit", "1", "--json"]);
    let line: serde_json::Value = serde_json::from_str(&lines).unwrap();
    assert_eq!((&line["key"], &line["value"]), (&"key000".into(), &"value 0".into()));
    // More than one page of them.
    let many: String = (0..2500).map(|n| format!("n{n:05},{n}\n")).collect();
    std::fs::write(here.path("many"), many).unwrap();
    let load = ["map", "load", "a.pool", "many", "many", "--separator", ",", "--batch", "400"];
    assert_eq!(here.json(0, &load)["new"], 2500);
    assert_eq!(here.json(0, &load)["new"], 0);
    assert_eq!(here.good(&["map", "scan", "a.pool", "many"]).out.lines().count(), 2500);
    here.good(&["check", "a.pool"]);
}

#[test]
fn lines_are_loaded_from_standard_input() {
    let here = Here::new();
    here.good(&["pool", "create", "a.pool", "--size", "16M"]);
    let mut command = here.command(&["map", "load", "a.pool", "m", "-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"a\t1\r\n\nb\t2").unwrap();
    assert_eq!(Done::of(child.wait_with_output().unwrap()).code, 0);
    assert_eq!(here.good(&["map", "scan", "a.pool", "m"]).out, "a\t1\nb\t2\n");
}

#[test]
fn lines_that_are_none_are_refused_with_their_number() {
    let here = Here::new();
    here.good(&["pool", "create", "a.pool", "--size", "16M"]);
    for (bytes, words) in [
        (&b"a\t1\nb 2\n"[..], "entry 2"),
        (b"a\t1\n\xff\xfe\t2\n", "line 2"),
        (&[b'x'; 3 << 20], "line 1"),
    ] {
        std::fs::write(here.path("bad"), bytes).unwrap();
        let done = here.expect(8, &["map", "load", "a.pool", "m", "bad"]);
        assert!(done.err.contains(words), "{}", done.err);
    }
    here.expect(8, &["map", "load", "a.pool", "m", "missing"]);
    here.expect(16, &["map", "load", "a.pool", "m", "bad", "--batch", "0"]);
    let long = "k".repeat(70_000) + "\tv\n";
    std::fs::write(here.path("bad"), long).unwrap();
    let done = here.expect(8, &["map", "load", "a.pool", "m", "bad"]);
    assert!(done.err.contains("65536"), "{}", done.err);
}

#[test]
fn maps_of_other_types_are_named_not_guessed() {
    let here = Here::new();
    let pool = holdfast::Pool::options().size(16 << 20).create(here.path("a.pool")).unwrap();
    pool.map::<u64, i64>("numbers").unwrap().put(&1, &2).unwrap();
    pool.map::<[u8], [u8]>("bytes").unwrap().put(b"\xffk", b"\x00v").unwrap();
    pool.map::<str, str>("texts").unwrap().put("k", "v").unwrap();
    drop(pool);
    let done = here.expect(8, &["map", "get", "a.pool", "numbers", "1"]);
    assert!(done.err.contains("keys of u64 and values of i64"), "{}", done.err);
    assert_eq!(here.good(&["map", "scan", "a.pool", "bytes"]).out, "0xff6b\t0x0076\n");
    assert_eq!(here.good(&["map", "get", "a.pool", "texts", "k"]).out, "v\n");
    let report = here.json(0, &["check", "a.pool"]);
    assert_eq!(report["maps"].as_array().unwrap().len(), 4, "{report}");
}
