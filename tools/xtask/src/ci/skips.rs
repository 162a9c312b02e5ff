//! Which tests skipped something, and why: a test that passes keeps what it prints to itself, so
//! one that found no room for its story here would look like one that told it.
//!
//! `cargo test -- --show-output` prints it all. Everything is passed on but that; of it the lines
//! with `skipped:` are kept for the summary. Other programs say it in lines of the same sort; what
//! no test answers for is the step's own. The last lines that were passed on are kept as well, to
//! be told again if the step fails: a log may be cut everywhere but at its end.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result};

/// What a test prints before the reason.
const MARK: &str = "skipped:";

/// How long lines are waited for once the command has ended: processes that a test left behind
/// may have its output open for as long as they like.
const PATIENCE: Duration = Duration::from_secs(1);

/// How many lines of a step are told again if it fails.
const LAST: usize = 60;

/// What is kept of what steps print.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Who skipped something, and why.
    pub(crate) skips: Vec<String>,
    /// The last lines that the last step has passed on, the last first.
    pub(crate) last: VecDeque<String>,
}

/// Runs the command of a step and passes on what it prints to `out`; what the summary tells of it
/// is added to `kept`.
pub(crate) fn run(
    (step, command): (&str, &mut Command),
    out: &mut dyn Write,
    kept: &mut Kept,
) -> Result<ExitStatus> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start it")?;
    let output = child.stdout.take().context("it has no output")?;
    let (send, lines) = channel();
    std::thread::spawn(move || read(output, &send));
    let mut filter = Filter::default();
    let mut ended = None;
    loop {
        match lines.recv_timeout(PATIENCE) {
            Ok(line) if filter.passes(&line) => {
                writeln!(out, "{line}").and_then(|()| out.flush()).context("cannot print")?;
                kept.last.truncate(LAST - 1);
                kept.last.push_front(line);
            }
            Ok(_) => (),
            Err(RecvTimeoutError::Timeout) if ended.is_none() => {
                ended = child.try_wait().context("cannot wait for it")?;
            }
            Err(_) => break,
        }
    }
    kept.skips.append(&mut filter.skips);
    kept.skips.extend(filter.said.drain(..).map(|reason| format!("{step}: {reason}")));
    ended.map_or_else(|| child.wait().context("cannot wait for it"), Ok)
}

/// Sends line after line, until there are none, or nobody takes them.
fn read(output: impl Read, lines: &Sender<String>) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line).is_ok_and(|read| read != 0) {
        let text = String::from_utf8_lossy(&line);
        if lines.send(text.trim_end_matches('\n').to_owned()).is_err() {
            return;
        }
        line.clear();
    }
}

/// What of the output is passed on, and what was found in it.
#[derive(Debug, Default)]
struct Filter {
    /// Within the output of tests that passed.
    inside: bool,
    /// The test that printed what comes.
    test: String,
    /// Said by one that tells its name afterwards.
    said: Vec<String>,
    skips: Vec<String>,
}

impl Filter {
    /// Whether the line is passed on.
    fn passes(&mut self, line: &str) -> bool {
        if line == "successes:" {
            self.inside = true;
        } else if line == "failures:" || line.starts_with("test result:") {
            self.inside = false;
        }
        let reason = line.find(MARK).map(|at| line[at + MARK.len()..].trim().to_owned());
        if !self.inside {
            if let Some(name) = line.strip_prefix("test ").and_then(|it| it.split(" ... ").next()) {
                let said = self.said.drain(..);
                self.skips.extend(said.map(|reason| format!("{name}: {reason}")));
            }
            self.said.extend(reason);
            return true;
        }
        let name = line.strip_prefix("---- ").and_then(|it| it.strip_suffix(" stdout ----"));
        if let Some(name) = name {
            name.clone_into(&mut self.test);
        }
        self.skips.extend(reason.map(|reason| format!("{}: {reason}", self.test)));
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "
running 2 tests
test a::kept ... ok
test a::left ... ok

successes:

---- a::kept stdout ----
a line

---- a::left stdout ----
skipped: one processor only

successes:
    a::kept
    a::left

test result: ok. 2 passed
  skipped: no rings here
test a story ... ok (3 ms)
";

    #[test]
    fn who_skipped_is_told_and_what_passed_prints_nothing_else() {
        let mut filter = Filter::default();
        let passed: Vec<_> = OUTPUT.lines().filter(|line| filter.passes(line)).collect();
        let found = ["a::left: one processor only", "a story: no rings here"];
        assert_eq!(filter.skips, found);
        assert!(!passed.contains(&"a line"));
        assert!(passed.contains(&"test a::left ... ok"));
        assert!(passed.contains(&"test result: ok. 2 passed"));
    }

    #[test]
    fn what_a_failed_test_printed_is_passed_on() {
        let mut filter = Filter::default();
        let lines = ["successes:", "quiet", "failures:", "---- b stdout ----", "why"];
        let passed: Vec<_> = lines.into_iter().filter(|line| filter.passes(line)).collect();
        assert_eq!(passed, ["failures:", "---- b stdout ----", "why"]);
    }

    #[test]
    fn nobody_waits_for_what_a_test_left_behind() {
        let mut kept = Kept::default();
        let started = std::time::Instant::now();
        let script = "echo skipped: no; echo 'test it ... ok'; sleep 60 & exit 3";
        let status = {
            let mut shell = Command::new("sh");
            run(("test", shell.args(["-c", script])), &mut Vec::new(), &mut kept).unwrap()
        };
        assert_eq!((status.code(), kept.skips), (Some(3), vec!["it: no".to_owned()]));
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn what_no_test_answers_for_is_the_steps_own() {
        let (mut kept, mut out) = (Kept::default(), Vec::new());
        let script = "echo '==> cuts: a pool'; echo 'skipped: blocklog: no loop devices'";
        let status = run(("lab", Command::new("sh").args(["-c", script])), &mut out, &mut kept);
        assert!(status.unwrap().success());
        assert_eq!(kept.skips, ["lab: blocklog: no loop devices"]);
        assert_eq!(String::from_utf8(out).unwrap().lines().count(), 2, "all of it is passed on");
    }

    #[test]
    fn the_last_lines_of_each_step_are_kept() {
        let (mut kept, mut out) = (Kept::default(), Vec::new());
        for last in ["100", "7"] {
            let mut seq = Command::new("seq");
            kept.last.clear();
            run(("count", seq.arg(last)), &mut out, &mut kept).unwrap();
            assert_eq!(kept.last.front().unwrap(), last);
            assert_eq!(kept.last.len(), last.parse::<usize>().unwrap().min(LAST));
        }
        assert_eq!(kept.last.back().unwrap(), "1");
    }
}
