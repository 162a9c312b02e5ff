//! The demo's other processes: this program again, under commands it does not advertise.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::failure::{Failure, Outcome};
use crate::faults::Fault;

/// The process that damages the pool, from the parent's side. Ends when it is dropped.
#[derive(Debug)]
pub(crate) struct InjectorProcess {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl InjectorProcess {
    /// Starts it.
    pub(crate) fn start(pool: &Path, seed: u64) -> Outcome<Self> {
        let mut child = command("demo-injector", pool, seed)?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Failure::io("starting the injector", &error))?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(gone("the injector has no pipes"));
        };
        Ok(Self { child, orders: Some(orders), answers: BufReader::new(answers) })
    }

    /// Gives an order and waits until it is done; the faults that were injected.
    pub(crate) fn order(&mut self, text: &str) -> Outcome<Vec<Fault>> {
        let Some(orders) = &mut self.orders else { return Err(gone("the injector has ended")) };
        writeln!(orders, "{text}").map_err(|error| Failure::io("the injector", &error))?;
        let mut faults = Vec::new();
        loop {
            let mut line = String::new();
            let read = self.answers.read_line(&mut line);
            if read.map_err(|error| Failure::io("the injector", &error))? == 0 {
                return Err(gone("the injector ended; its message is above"));
            }
            match line.trim_end() {
                "ok" => return Ok(faults),
                line => faults.push(Fault::parse(line).ok_or_else(|| gone(line))?),
            }
        }
    }
}

impl Drop for InjectorProcess {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.child.wait();
    }
}

/// What became of a victim.
#[derive(Debug, Default)]
pub(crate) struct Death {
    /// Last transaction it was told to have committed.
    pub(crate) done: u64,
    /// Last transaction it began.
    pub(crate) begun: u64,
    /// Whether it died by its own hand, as it was meant to.
    pub(crate) killed: bool,
    /// Steps it met, if it survived.
    pub(crate) steps: Vec<(String, u64)>,
}

/// Runs a victim to its end.
pub(crate) fn victim(
    pool: &Path,
    seed: u64,
    runs: u64,
    fate: Option<(&str, u64)>,
) -> Outcome<Death> {
    use std::os::unix::process::ExitStatusExt;
    let mut command = command("demo-victim", pool, seed)?;
    command.arg("--runs").arg(runs.to_string());
    if let Some((step, nth)) = fate {
        command.arg("--step").arg(step).arg("--nth").arg(nth.to_string());
    }
    let output = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Failure::io("starting a victim", &error))?;
    let killed = output.status.signal().is_some();
    let mut death = Death { killed, ..Death::default() };
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["begun", number] => death.begun = number.parse().unwrap_or(0),
            ["done", number] => death.done = number.parse().unwrap_or(0),
            ["step", name, count] => {
                death.steps.push(((*name).to_owned(), count.parse().unwrap_or(0)));
            }
            _ => return Err(gone(line)),
        }
    }
    if !killed && !output.status.success() {
        return Err(gone(&format!("a victim ended with {}; its message is above", output.status)));
    }
    Ok(death)
}

fn command(name: &str, pool: &Path, seed: u64) -> Outcome<Command> {
    let own = std::env::current_exe().map_err(|error| Failure::io("this program", &error))?;
    let mut command = Command::new(own);
    command.arg(name).arg(pool).arg("--seed").arg(seed.to_string());
    Ok(command)
}

fn gone(what: &str) -> Failure {
    Failure::new("system", what, "run it again; if it stays, report it with the seed")
}
