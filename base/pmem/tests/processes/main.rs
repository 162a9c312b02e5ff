//! Stories in which a process dies, forks, or meets another one. The program starts itself with
//! `--child ROLE FILE` and looks at how the child ended.
//!
//! `fatal.rs` signals that must end a process, `handlers.rs` handlers that were there before ours,
//! `owners.rs` locks and forks, `limits.rs` a file system and a table without room.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

#[path = "../common/mod.rs"]
mod common;
mod fatal;
mod handlers;
mod limits;
mod owners;

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// What a child returns that has come to its end.
const DONE: i32 = 0;

/// A test: its name and what it does.
type Story = (&'static str, fn());
/// What a child does with the file it is given; the number is its exit code.
type Role = (&'static str, fn(&Path) -> i32);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, role, file] = args.as_slice()
        && flag == "--child"
    {
        let roles = [fatal::ROLES, handlers::ROLES, limits::ROLES, owners::ROLES].concat();
        let (_, run) = roles.iter().find(|(name, _)| name == role).expect("a role of this file");
        std::process::exit(run(Path::new(file)));
    }
    let filter = args.iter().find(|arg| !arg.starts_with('-'));
    let stories = [fatal::STORIES, handlers::STORIES, limits::STORIES, owners::STORIES].concat();
    for (name, run) in stories.iter().filter(|(name, _)| filter.is_none_or(|f| name.contains(f))) {
        println!("story {name} ...");
        run();
    }
    println!("processes: ok");
}

/// Starts this program in a role.
fn start(role: &str, file: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--child", role])
        .arg(file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Runs this program in a role to its end, which must come soon.
fn run(role: &str, file: &Path) -> ExitStatus {
    let mut child = start(role, file);
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > end {
            child.kill().unwrap();
            panic!("{role} hangs");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Runs a role that must die of a signal.
fn dies_of(role: &str, file: &Path, signal: i32) {
    let status = run(role, file);
    assert_eq!(status.signal(), Some(signal), "{role}: {status}");
}

/// Runs a role that must end with this code.
fn ends_with(role: &str, file: &Path, code: i32) {
    let status = run(role, file);
    assert_eq!(status.code(), Some(code), "{role}: {status}");
}

/// A numbered file of 8 pages in `folder`, closed.
fn closed_file(folder: &tempfile::TempDir) -> PathBuf {
    let options = common::protected(holdfast_pmem::Protect::Auto);
    let (path, medium) = common::numbered(folder, 8, &options);
    drop(medium);
    path
}
