//! What `cargo xtask lab` has run in its machine: files on memory and devices that fail, and the
//! same with a step left out, which has to be convicted.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use serde_json::Value;

use crate::tally::Tally;
use crate::{mapped, object};

/// What is said before the counts of it all.
pub const CAME_TO: &str = "sick: came to ";
/// What is said of a run with a step left out that was convicted.
pub const CONVICTED: &str = "sick: convicted without ";

/// What stands before the kind of a violation.
const FOUND: &str = "sick: Violation { fault: ";

/// Lets the machine fail under files of a campaign, and says what came of it.
#[must_use]
pub fn run(campaign: &str, orders: &str) -> ExitCode {
    let Ok(mut asked) = serde_json::from_str::<Value>(orders) else { return ExitCode::from(2) };
    // The kernel tells of each failure, on a line that is slow.
    let _ = std::fs::write("/proc/sys/kernel/printk", "1");
    let controls = asked.as_object_mut().and_then(|all| all.remove("controls"));
    let tally = match play(campaign, &asked) {
        Ok(tally) => tally,
        Err(error) => {
            eprintln!("sick: {error}");
            return ExitCode::from(2);
        }
    };
    for violation in &tally.violations {
        println!("sick: {violation:?}");
    }
    let figures = serde_json::json!({ "count": tally.count, "figures": tally.figures });
    println!("{CAME_TO}{figures}");
    let mut fine = tally.violated() == 0;
    // Of a run that failed already, nothing is learned from one that is to fail.
    if fine {
        for control in controls.iter().filter_map(Value::as_array).flatten() {
            fine &= convicted(campaign, &asked, control);
        }
    }
    if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn play(campaign: &str, asked: &Value) -> Result<Tally, serde_json::Error> {
    let orders = serde_json::from_value(asked.clone())?;
    Ok(match campaign {
        "mapped" => mapped::sick::run(&orders),
        _ => object::rows::media::device::run(&orders),
    })
}

/// Whether a line tells of something wrong. Who could not begin, or have a page fail, has noticed
/// nothing of what is left out.
fn judges(line: &str) -> bool {
    let begun = ["nobody knows `", "cannot be made to fail", "cannot be struck"];
    line.contains(FOUND) && !begun.iter().any(|words| line.contains(words))
}

/// Runs the same once more, in a process of its own, with one step left out, or several whose names
/// are joined by `+`; whether it failed.
fn convicted(campaign: &str, asked: &Value, control: &Value) -> bool {
    let name = control.as_str().unwrap_or_default();
    let mut asked = asked.clone();
    asked["off"] = name.split('+').collect();
    let folder = Path::new(asked["folder"].as_str().unwrap_or_default()).join(name);
    asked["folder"] = folder.to_string_lossy().into();
    let made = std::fs::create_dir_all(&folder);
    let me = made.and_then(|()| std::env::current_exe());
    let started = me.and_then(|me| {
        let words = [campaign, "--sick", &asked.to_string()];
        Command::new(me).args(words).stderr(Stdio::null()).output()
    });
    let output = match started {
        Ok(output) => output,
        Err(error) => {
            println!("sick: without {name}: {error}");
            return false;
        }
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let why = said.lines().find(|line| judges(line));
    // A program that the system ended for what it read has noticed as well; one that was killed for
    // want of memory, or gave up, has not.
    let fatal = [Some(libc::SIGBUS), Some(libc::SIGSEGV)];
    let ended = fatal.contains(&output.status.signal());
    if ended || output.status.code() == Some(1) && why.is_some() {
        // Not as it is said of what counts.
        let why = why.map(|line| line.trim_start_matches("sick: ").to_owned());
        println!("{CONVICTED}{name}: {}", why.unwrap_or_else(|| output.status.to_string()));
        return true;
    }
    println!("sick: without {name}, nothing was noticed: {}", output.status);
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::{Fault, Violation};

    #[test]
    fn who_could_not_begin_has_judged_nothing() {
        let line = |story| format!("sick: {:?}", Violation::new(Fault::Refused, story));
        assert!(judges(&line("a commit was refused")));
        for story in ["left out: nobody knows `it`", "page 3 cannot be made to fail: no"] {
            assert!(!judges(&line(story)), "{story}");
        }
        assert!(!judges("sick: came to something"));
    }
}
