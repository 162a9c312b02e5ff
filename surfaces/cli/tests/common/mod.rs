//! Running the built command: in a folder of its own, as a shell would.

#![allow(dead_code, reason = "each test file uses some of it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// A folder to work in; gone afterwards.
pub(crate) struct Here {
    folder: tempfile::TempDir,
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Here {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.current_dir(self.folder.path()).args(words);
        command
    }

    /// Runs the command; it must neither panic nor die.
    pub(crate) fn run(&self, words: &[&str]) -> Done {
        let done = Done::of(self.command(words).output().unwrap());
        assert!(!done.err.contains("panicked"), "{words:?}: {}", done.err);
        done
    }

    /// Runs the command and expects this code.
    pub(crate) fn expect(&self, code: i32, words: &[&str]) -> Done {
        let done = self.run(words);
        assert_eq!(done.code, code, "{words:?}: {}{}", done.out, done.err);
        done
    }

    /// Runs a command that has to find nothing wrong.
    pub(crate) fn good(&self, words: &[&str]) -> Done {
        self.expect(0, words)
    }

    /// Runs a command with `--json` and expects this code; the one object it printed.
    pub(crate) fn json(&self, code: i32, words: &[&str]) -> Value {
        let done = self.expect(code, &[words, &["--json"]].concat());
        let value: Value = serde_json::from_str(&done.out)
            .unwrap_or_else(|error| panic!("{words:?}: {error}: {}", done.out));
        assert_eq!(value["schema"], 1, "{words:?}");
        value
    }

    /// Makes a pool with some entries, that faults may be injected into.
    pub(crate) fn pool(&self, name: &str) {
        let size = ["--size", "16M", "--parity", "pq", "--allow-inject"];
        self.good(&[&["pool", "create", name][..], &size].concat());
        let lines: String = (0..500).map(|n| format!("key{n:03}\tvalue {n}\n")).collect();
        std::fs::write(self.path("lines"), lines).unwrap();
        self.good(&["map", "load", name, "words", "lines"]);
    }
}

impl Done {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}
