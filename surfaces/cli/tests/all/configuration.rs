//! The configuration: it takes the place of built-in defaults and of nothing else, a line that is
//! wrong is named, and what shells and the manual are told is what the command knows.

use std::fs;
use std::process::Command;

use crate::common::{Done, Here, finish};
use serde_json::Value;

const GOOD: &str = "\
# Pools of the bank.
[output]
json = true

[create]
size = \"32M\"
parity = \"pq\"
label = \"from the file\"
lanes = 8

[scrub]
rate = \"100M\"

[bench]
pairs = 30
";

/// Runs with a variable in the environment.
fn with_variable(here: &Here, value: &str, words: &[&str]) -> Done {
    finish(words, here.command(words).env("HOLDFAST_CONFIG", value))
}

fn object(done: &Done) -> Value {
    serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{error}: {}", done.out))
}

#[test]
fn flags_win_over_the_file_and_the_file_over_what_is_built_in() {
    let here = Here::new();
    fs::write(here.path("bank.toml"), GOOD).unwrap();
    let create = |name: &str, more: &[&str]| {
        let words = [&["--config", "bank.toml", "pool", "create", name], more].concat();
        object(&here.good(&words))
    };
    let made = create("a.pool", &[]);
    assert_eq!((&made["size"], &made["parity_rows"]), (&(32 << 20).into(), &2.into()), "{made}");
    // One lane more is the engine's own.
    assert_eq!((&made["label"], &made["lanes"]), (&"from the file".into(), &9.into()), "{made}");
    let made = create("b.pool", &["--size", "16M", "--parity", "p", "--label", "", "--lanes", "4"]);
    assert_eq!((&made["size"], &made["parity_rows"]), (&(16 << 20).into(), &1.into()), "{made}");
    assert_eq!((&made["label"], &made["lanes"]), (&"".into(), &5.into()), "{made}");
    let told = here.good(&["pool", "info", "a.pool", "--config=bank.toml", "--no-json"]).out;
    assert!(told.starts_with("a.pool: closed"), "{told}");
    let told = object(&here.good(&["bench", "a.pool", "--config", "bank.toml"]));
    assert_eq!(told["pairs"], 30);
    // Help says what is in force.
    let help = here.good(&["pool", "create", "--help", "--config", "bank.toml"]).out;
    assert!(help.contains("[default: 32M]"), "{help}");
    // The environment names a file where no flag does.
    let told = with_variable(&here, "bank.toml", &["pool", "info", "a.pool"]);
    assert_eq!(object(&told)["size"], 32 << 20);
    let words = ["pool", "info", "a.pool", "--config", "/dev/null"];
    assert!(with_variable(&here, "bank.toml", &words).out.starts_with("a.pool: closed"));
    assert!(with_variable(&here, "", &words[..3]).out.starts_with("a.pool: closed"));
}

#[test]
fn lines_that_are_wrong_are_named() {
    let here = Here::new();
    here.pool("a.pool");
    for (text, line, what) in [
        ("[output]\n\nloud = true\n", 3, "no key `loud` in [output]; there are json, quiet"),
        ("[pools]\n", 1, "no table or key `pools`"),
        ("[create]\nsize = \"64M\"\nparity = \"r\"\n", 3, "`parity`: must be one of none, p, pq"),
        ("[create]\nsize = \"64M\n", 2, ""),
        ("[create]\nrows = 4294967296\n", 2, "`rows`: `4294967296` is no number"),
        ("[scrub]\nrate = 1.5\n", 2, "`rate`: has no type"),
    ] {
        fs::write(here.path("a.toml"), text).unwrap();
        let words = ["check", "a.pool", "--config", "a.toml"];
        let told = here.expect(16, &words).err;
        assert!(told.contains(&format!("a.toml, line {line}: {what}")), "{text}: {told}");
        assert!(told.contains("; correct the line"), "{told}");
        assert_eq!(here.json(16, &words)["error"]["kind"], "usage");
        assert_eq!(with_variable(&here, "a.toml", &words[..2]).code, 16);
    }
    fs::write(here.path("bytes.toml"), b"[output]\n\xff = 1\n").unwrap();
    fs::write(here.path("long.toml"), "# \n".repeat(1 << 20)).unwrap();
    for (name, what) in [
        ("missing.toml", "No such file"),
        (".", "is no regular file"),
        ("/dev/zero", "is no regular file"),
        ("bytes.toml", "UTF-8"),
        ("long.toml", "is longer than 1048576 bytes"),
    ] {
        let told = here.expect(16, &["check", "a.pool", "--config", name]).err;
        assert!(told.contains(what) && told.contains("name another file"), "{name}: {told}");
    }
    here.expect(16, &["check", "a.pool", "--config"]);
    here.expect(16, &["check", "a.pool", "--json", "--no-json"]);
}

#[test]
fn shells_and_the_manual_know_every_command() {
    let here = Here::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = here.good(&["completions", shell]).out;
        for word in ["import", "grow", "scrub", "no-json", "allow-inject"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    here.expect(16, &["completions", "tcsh"]);
    let script = here.good(&["completions", "bash"]).out;
    fs::write(here.path("script"), script).unwrap();
    let mut bash = Command::new("bash");
    let done = finish(&[], bash.args(["-n", "script"]).current_dir(here.folder()));
    assert_eq!(done.code, 0, "{}", done.err);
    let told = here.json(0, &["man", "pages"]);
    let pages = told["pages"].as_array().unwrap();
    for page in ["holdfast.1", "holdfast-pool-create.1", "holdfast-import.1"] {
        assert!(pages.contains(&page.into()), "{page}: {told}");
    }
    assert!(pages.len() > 28, "{told}");
    assert!(!told.to_string().contains("demo-"), "those are for nobody: {told}");
    for page in pages {
        let text = fs::read_to_string(here.path("pages").join(page.as_str().unwrap())).unwrap();
        assert!(text.contains(".TH ") && text.contains(".SH SYNOPSIS"), "{page}");
    }
    let first = here.good(&["man"]).out;
    assert!(
        fs::read_to_string(here.path("pages/holdfast.1")).unwrap().trim_end() == first.trim_end()
    );
    fs::write(here.path("file"), "").unwrap();
    assert_ne!(here.run(&["man", "file"]).code, 0);
}
