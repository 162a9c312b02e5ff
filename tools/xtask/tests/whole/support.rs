//! A small workspace that every check accepts, for tests that then break one thing in it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

const FORMAT: &str = "//! Offsets.\n\nuse crate::field::Field;\n\n/// A head.\n\
    pub const FIELDS_HEAD: &[Field] = &[Field::new(\"magic\", 0, 8), Field::new(\"crc\", 8, 4)];\n";

const PAGE: &str = "# Layout\n\nSee [the papers](../papers.md#mechanisms).\n\n\
    <!-- format: layout HEAD -->\n\
    | offset | size | name | meaning | fault it answers |\n|---|---|---|---|---|\n\
    | 0 | 8 | `magic` | what this is | misdirected write |\n\
    | 8 | 4 | `crc` | sum of the rest | bit rot |\n";

/// What `xtask` said and how it ended.
#[derive(Debug)]
pub(crate) struct Said {
    /// Exit code.
    pub code: Option<i32>,
    /// Standard output and standard error, in this order.
    pub text: String,
}

/// The workspace; its folder is removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Tree {
    dir: TempDir,
}

impl Tree {
    /// A workspace with two crates, a format page and a page of papers.
    pub(crate) fn new() -> Self {
        let tree = Self { dir: tempfile::tempdir().expect("a temporary folder") };
        tree.write(".gitignore", "/target\n");
        tree.crate_at("base/codes", "holdfast-codes", "");
        tree.crate_at(
            "core/layout",
            "holdfast-layout",
            "holdfast-codes = { path = \"../../base/codes\" }",
        );
        tree.write("core/layout/src/format.rs", FORMAT);
        tree.write("core/layout/tests/head.rs", "//! Heads.\n\n#[test]\nfn head_is_read() {}\n");
        tree.write("docs/formats/layout.md", PAGE);
        let series = |letters: &str, last: u32, rest: &str| -> String {
            (1..=last).map(|number| format!("| {letters}{number} {rest}\n")).collect()
        };
        let built = "| a head | `core/layout/src/format.rs` | `head_is_read` |";
        let mechanisms = [("O", 40), ("OB", 10), ("L", 34), ("LB", 12)];
        let gaps = [("OG", 16), ("LG", 15)].map(|(id, n)| series(id, n, "| a gap | closed |"));
        let tests = [("OT", 16), ("LT", 14)];
        let tests = tests.map(|(id, n)| series(id, n, "| a head | `head_is_read` |"));
        let rows = mechanisms.map(|(id, n)| series(id, n, built)).concat();
        let rows = [rows, gaps.concat(), tests.concat()].concat();
        let head = "# Mechanisms\n\n| id | what | module | test |\n|---|---|---|---|\n";
        tree.write("docs/papers.md", &format!("{head}{rows}"));
        for (letters, last, page) in [("OG", 16, "object"), ("LG", 15, "mapped")] {
            let decisions = series(letters, last, "| it is closed |");
            let page = format!("docs/design/{page}.md");
            tree.write(&page, &format!("# Decisions\n\n{decisions}"));
        }
        let git = Command::new("git").args(["init", "-q"]).current_dir(tree.root()).status();
        assert!(git.expect("git runs").success());
        tree
    }

    /// Its root.
    pub(crate) fn root(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a file and the folders it needs.
    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder is made");
        std::fs::write(path, text).expect("a file is written");
    }

    /// Reads a file.
    pub(crate) fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.root().join(path)).expect("a file is read")
    }

    /// Removes a file.
    pub(crate) fn remove(&self, path: &str) {
        std::fs::remove_file(self.root().join(path)).expect("a file is removed");
    }

    /// Adds a crate with a doc long enough and these lines under `[dependencies]`.
    pub(crate) fn crate_at(&self, room: &str, name: &str, dependencies: &str) {
        let manifest = format!(
            "[package]\nname = \"{name}\"\ndescription = \"A crate\"\nedition = \"2024\"\n\n\
             [dependencies]\n{dependencies}\n\n[lints]\nworkspace = true\n"
        );
        self.write(&format!("{room}/Cargo.toml"), &manifest);
        self.write(&format!("{room}/src/lib.rs"), &"//! What this is for.\n".repeat(15));
        self.manifest();
    }

    /// Writes the root manifest: a group is a member only once it has a room.
    fn manifest(&self) {
        let groups = ["base", "core", "engines", "surfaces", "testing", "tools"];
        let there = groups.into_iter().filter(|group| self.root().join(group).is_dir());
        let members: Vec<String> = there.map(|group| format!("\"{group}/*\"")).collect();
        let text = format!(
            "[workspace]\nresolver = \"3\"\nmembers = [{}]\n\n\
             [workspace.lints.rust]\nmissing_docs = \"warn\"\n",
            members.join(", ")
        );
        self.write("Cargo.toml", &text);
    }

    /// Puts a program in the place of cargo: it notes its arguments in `calls`, fails for those
    /// that contain a word of `failing`, and leaves `cargo metadata` to the real one.
    pub(crate) fn fake_cargo(&self, failing: &str) -> PathBuf {
        let path = self.root().join("target/fake-cargo");
        let text = format!(
            "#!/bin/sh\ncase \"$1\" in metadata) exec \"$REAL_CARGO\" \"$@\";; esac\n\
             echo \"$* [$RUSTDOCFLAGS]\" >> \"{}\"\n\
             for word in {failing}; do case \" $* \" in *\" $word \"*) exit 7;; esac; done\n",
            self.root().join("target/calls").display()
        );
        self.program("target/fake-cargo", &text);
        self.write("target/calls", "");
        path
    }

    /// Writes a script that can be started.
    pub(crate) fn program(&self, path: &str, text: &str) {
        self.write("target/text", text);
        self.copy(&self.root().join("target/text"), path);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(self.root().join(path), mode).expect("a mode is set");
    }

    /// Copies a program. A process of its own does it: what this one has open to write, a child
    /// that another test starts meanwhile has as well, and then the program cannot be started.
    pub(crate) fn copy(&self, from: &Path, to: &str) {
        let to = self.root().join(to);
        std::fs::create_dir_all(to.parent().expect("a folder")).expect("a folder is made");
        let done = Command::new("cp").arg("--remove-destination").args([from, &to]).status();
        assert!(done.expect("cp runs").success());
    }

    /// What the fake cargo was called with.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.read("target/calls").lines().map(str::to_owned).collect()
    }

    /// Runs `xtask` here.
    pub(crate) fn xtask(&self, arguments: &[&str]) -> Said {
        said(self.command(arguments).output())
    }

    /// Runs `xtask` here with another program in the place of cargo.
    pub(crate) fn xtask_with(&self, cargo: &Path, arguments: &[&str]) -> Said {
        self.xtask_as(Path::new(env!("CARGO_BIN_EXE_xtask")), cargo, arguments)
    }

    /// The same of a program that is `xtask`.
    pub(crate) fn xtask_as(&self, program: &Path, cargo: &Path, arguments: &[&str]) -> Said {
        let real = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = self.command_of(program, arguments);
        said(command.env("CARGO", cargo).env("REAL_CARGO", real).output())
    }

    /// The same with the programs of a folder of this workspace before all others.
    pub(crate) fn xtask_among(&self, programs: &str, cargo: &Path, arguments: &[&str]) -> Said {
        let others = std::env::var_os("PATH").unwrap_or_default();
        let places = std::iter::once(self.root().join(programs));
        let path = std::env::join_paths(places.chain(std::env::split_paths(&others)));
        let mut command = self.command(arguments);
        said(command.env("CARGO", cargo).env("PATH", path.expect("no colon in it")).output())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        self.command_of(Path::new(env!("CARGO_BIN_EXE_xtask")), arguments)
    }

    fn command_of(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.arg("--root").arg(self.root()).args(arguments).env_remove("RUSTDOCFLAGS");
        // The programs that lie there are real ones, and would be run for minutes.
        command.env_remove("CARGO_TARGET_DIR");
        command
    }
}

fn said(output: std::io::Result<Output>) -> Said {
    let output = output.expect("xtask runs");
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Said { code: output.status.code(), text: text.concat() }
}

impl Said {
    /// Asserts that the check passed.
    #[track_caller]
    pub(crate) fn passed(&self) {
        assert_eq!(self.code, Some(0), "{}", self.text);
    }

    /// Asserts that the check ran, failed, and said this.
    #[track_caller]
    pub(crate) fn refused(&self, part: &str) {
        assert_eq!(self.code, Some(1), "{}", self.text);
        assert!(self.text.contains(part), "not said: {part}\n{}", self.text);
    }
}
