//! The judge of images: a process of its own, so that what it dies of is judged as well.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// How long one image may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// A process that judges.
#[derive(Debug)]
pub(super) struct Judge {
    process: Child,
    ask: ChildStdin,
    answers: Receiver<String>,
    /// What it counted in all images.
    pub(super) figures: BTreeMap<String, u64>,
}

impl Judge {
    /// A judge who knows what was said; what it complains of goes to a file.
    pub(super) fn new(
        (program, campaign): (&Path, &str),
        said: &Path,
        complaints: &Path,
    ) -> Result<Self> {
        let errors = File::create(complaints).context("cannot make a file for complaints")?;
        let mut process = Command::new(program)
            .args([campaign, "--images"])
            .arg(said)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let ask = process.stdin.take().context("the judge cannot be asked")?;
        let output = process.stdout.take().context("the judge cannot answer")?;
        let (send, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { process, ask, answers, figures: BTreeMap::new() })
    }

    /// What is wrong with a pool, of whose threads so many transactions had ended.
    pub(super) fn judge(&mut self, pool: &Path, ended: &[u64]) -> Result<Option<String>> {
        let line = json!({ "pool": pool, "ended": ended }).to_string();
        let asked = writeln!(self.ask, "{line}").and_then(|()| self.ask.flush());
        let answer = match asked {
            Err(_) => return Ok(Some(self.end())),
            Ok(()) => self.answers.recv_timeout(PATIENCE),
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Disconnected) => return Ok(Some(self.end())),
            Err(RecvTimeoutError::Timeout) => {
                let _ = self.process.kill();
                let _ = self.process.wait();
                return Ok(Some(format!("the pool was not judged in {PATIENCE:?}")));
            }
        };
        let answer: Value = serde_json::from_str(&answer).context("the judge says nonsense")?;
        for (name, count) in answer["figures"].as_object().into_iter().flatten() {
            *self.figures.entry(name.clone()).or_default() += count.as_u64().unwrap_or(0);
        }
        match &answer["violation"] {
            Value::Null => Ok(None),
            Value::String(story) => Ok(Some(story.clone())),
            _ => anyhow::bail!("the judge says nonsense: {answer}"),
        }
    }

    /// How a process ended that should not have.
    fn end(&mut self) -> String {
        match self.process.wait() {
            Ok(status) => format!("the process that opened the pool ended: {status}"),
            Err(error) => format!("the process that opened the pool ended: {error}"),
        }
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn judge(folder: &Path, script: &str) -> Judge {
        let program = folder.join("judge");
        let text = folder.join("text");
        std::fs::write(&text, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&text, std::fs::Permissions::from_mode(0o755)).unwrap();
        // By a process of its own: what this one has open to write, a child that another test
        // starts meanwhile has as well, and then the program cannot be started.
        assert!(Command::new("cp").args([&text, &program]).status().unwrap().success());
        Judge::new((&program, "object"), Path::new("said"), &folder.join("complaints")).unwrap()
    }

    #[test]
    fn a_verdict_is_what_is_answered_and_silence_is_one_too() {
        let folder = tempfile::tempdir().unwrap();
        let script = r#"read a; echo '{"violation":null,"figures":{"x":2}}'
            read a; echo '{"violation":"lost","figures":{"x":3}}'
            read a; exit 7"#;
        let mut judge = judge(folder.path(), script);
        assert_eq!(judge.judge(Path::new("pool"), &[1]).unwrap(), None);
        assert_eq!(judge.judge(Path::new("pool"), &[1]).unwrap(), Some("lost".to_owned()));
        assert_eq!(judge.figures["x"], 5);
        let died = judge.judge(Path::new("pool"), &[1]).unwrap().unwrap();
        assert!(died.contains("exit status: 7"), "{died}");
    }
}
