//! The command is asked by people and by `xtask`: what it lists and writes is what the targets say,
//! and nobody has to read it to its end.

use std::fs::File;
use std::process::{Command, Stdio};

use holdfast_fuzz::{drive, targets};

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast-fuzz"));
    command.current_dir(env!("CARGO_MANIFEST_DIR")).args(words).stderr(Stdio::piped());
    command
}

/// Each that says something, in as little time as can be.
const SAYING: [&[&str]; 4] = [
    &["list"],
    &["replay", "messages", "00"],
    &["storm", "messages", "--runs", "1", "--corpus", "corpus"],
    &["storm", "messages", "--runs", "1", "--corpus", "corpus", "--json"],
];

#[test]
fn whoever_reads_no_further_hears_no_complaint() {
    for words in SAYING {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let ended = command(words).stdout(writer).output().expect("it starts");
        let complaint = String::from_utf8_lossy(&ended.stderr);
        assert_eq!((ended.status.code(), &*complaint), (Some(0), ""), "{words:?}");
    }
}

#[test]
fn what_cannot_be_written_is_an_error_and_no_panic() {
    for words in SAYING {
        let full = File::options().write(true).open("/dev/full").expect("it is always there");
        let ended = command(words).stdout(full).output().expect("it starts");
        let complaint = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(8), "{words:?}: {complaint}");
        assert!(complaint.contains("the standard output cannot be written to"), "{complaint}");
    }
}

#[test]
fn the_inputs_that_a_target_begins_with_are_written_into_a_folder() {
    for target in targets::ALL {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("of").join(target.name);
        let place = place.to_str().expect("a name in letters");
        let ended = command(&["seeds", target.name, place]).output().expect("it starts");
        assert!(ended.status.success(), "{ended:?}");
        let mut seeds = (target.seeds)();
        let mut written = drive::corpus(place.as_ref()).expect("it can be read");
        // Files are in the order of their names, which is another one from 1,000 on.
        seeds.sort();
        written.sort();
        assert!(!seeds.is_empty() && written == seeds, "{}", target.name);
    }
}
