//! What Debian's package tools answer, and what their refusals mean.
//!
//! Only where nothing can be had, whoever asks, is there no machine to be played on: no apt, no
//! network, no right to install. What a source that answers does not have, or what was here before
//! and is not any more, is a failure: of the lab, which asks for the wrong thing, or of the day.

use std::process::{Command, Output};

use anyhow::{Context, Result, anyhow};

use super::packages::impossible;

/// What apt says of a host that it cannot get at.
const SILENT: &[&str] = &[
    "Could not resolve",
    "Temporary failure resolving",
    "Could not connect",
    "Unable to connect",
    "Network is unreachable",
    "onnection timed out",
];
/// What it says to somebody who may not change what is installed.
const RIGHTS: &[&str] = &["are you root?", "Could not open lock file"];
/// How the lines of an update begin that tell of a source that answered.
const ANSWERS: &[&str] = &["Hit:", "Get:"];

/// What a tool of apt's came to.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) fine: bool,
    /// What it printed, and what it complained of.
    pub(super) text: String,
    pub(super) error: String,
}

impl Said {
    /// All of what it printed.
    pub(super) fn all(&self) -> String {
        format!("{}\n{}", self.text, self.error)
    }
}

/// Runs one of apt's tools. Its words are those that are known here, whatever the user speaks.
pub(super) fn ask(command: &mut Command) -> Result<Said> {
    let name = command.get_program().to_string_lossy().into_owned();
    match command.env("LC_ALL", "C").output() {
        Ok(Output { status, stdout, stderr }) => {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
            Ok(Said { fine: status.success(), text: text(&stdout), error: text(&stderr) })
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(impossible(format!("no {name} here: the lab is made of Debian's packages")))
        }
        Err(error) => Err(error).with_context(|| format!("cannot start {name}")),
    }
}

/// Has the list of packages brought up to date, if that is permitted; if not, what is known does.
pub(super) fn update() -> Result<Said> {
    ask(Command::new("apt-get").args(["update", "--quiet"]))
}

/// Something that could not be had.
#[derive(Debug)]
pub(super) struct Refused<'a> {
    /// What it is, and that it cannot be had.
    pub(super) what: &'a str,
    /// What was said of it.
    pub(super) error: &'a str,
    /// What an update of the list of packages said just before, all of it.
    pub(super) update: &'a str,
    /// It was here before, or the list of packages was.
    pub(super) before: bool,
}

impl Refused<'_> {
    /// What it means: that no machine can be emulated here, or that something failed.
    pub(super) fn means(&self) -> anyhow::Error {
        let Self { what, error, update, before } = self;
        // One line, as what collects reasons takes lines.
        let error = error.split_whitespace().collect::<Vec<_>>().join(" ");
        let says = |text: &str, words: &[&str]| words.iter().any(|word| text.contains(word));
        let begins = |line: &str| ANSWERS.iter().any(|word| line.starts_with(word));
        if *before {
            return anyhow!("{what}, which could be had before: {error}");
        }
        if says(&error, RIGHTS) {
            return impossible(format!("{what}, there is no right to: {error}"));
        }
        if update.lines().any(begins) {
            return anyhow!("{what}, though the packages can be reached: {error}");
        }
        if says(&error, SILENT) || says(update, SILENT) {
            return impossible(format!("{what}, there is no network: {error}"));
        }
        anyhow!("{what}: {error}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Impossible;

    const UPDATED: &str = "Hit:1 http://deb.debian.org/debian bookworm InRelease";
    const SILENCE: &str = "Err:1 http://deb.debian.org/debian bookworm InRelease\n  \
                           Temporary failure resolving 'deb.debian.org'";
    const ROOTLESS: &str = "E: Could not open lock file /var/lib/apt/lists/lock - open (13)";

    fn is_skip(error: &str, update: &str, before: bool) -> bool {
        Refused { what: "it cannot be had", error, update, before }.means().is::<Impossible>()
    }

    #[test]
    fn what_a_source_that_answers_does_not_give_is_a_failure() {
        let gone = "E: Failed to fetch http://d/pool/l/linux.deb  404  Not Found";
        assert!(!is_skip(gone, UPDATED, false));
        assert!(!is_skip(gone, "", false), "an answer, if not the one that was wished");
        assert!(!is_skip("no such kernel", "Get:1 http://d InRelease [151 kB]", false));
        assert!(!is_skip("E: Unable to locate package ndctl", UPDATED, false));
        // One source of two: the network is there.
        assert!(!is_skip("no such kernel", &format!("{SILENCE}\n{UPDATED}"), false));
    }

    #[test]
    fn without_network_or_rights_nothing_can_be_played() {
        let silent = "E: Failed to fetch http://d/linux.deb  Could not resolve 'd'";
        assert!(is_skip(silent, SILENCE, false));
        assert!(is_skip(silent, ROOTLESS, false));
        assert!(is_skip("no such kernel", SILENCE, false));
        let lock = "E: Unable to acquire the dpkg frontend lock (/var/lib), are you root?";
        assert!(is_skip(lock, UPDATED, false));
        // Somebody else is installing: that passes.
        let held = "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 7";
        assert!(!is_skip(held, UPDATED, false) && !is_skip(held, "", false));
    }

    #[test]
    fn what_it_means_is_told_in_one_line() {
        let refused = Refused { what: "no", error: "W: one\n  E: two", update: "", before: false };
        assert_eq!(refused.means().to_string(), "no: W: one E: two");
    }

    #[test]
    fn what_was_here_before_is_missed_whatever_the_network_does() {
        assert!(!is_skip("no kernel in the list", SILENCE, true));
        assert!(!is_skip("Could not resolve 'd'", ROOTLESS, true));
    }

    #[test]
    fn a_tool_that_is_not_there_is_no_failure_of_its_own() {
        let error = ask(&mut Command::new("no-such-tool-of-apts")).unwrap_err();
        assert!(error.is::<Impossible>(), "{error:#}");
        let said = ask(Command::new("sh").args(["-c", "echo one; echo two >&2; exit 3"])).unwrap();
        assert!(!said.fine && said.text == "one" && said.error == "two");
    }
}
