//! Lines of a file, or of standard input, for commands that somebody may interrupt.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use crate::failure::{Failure, Outcome};

/// How often a wait for a line looks whether somebody interrupts.
const LOOK: Duration = Duration::from_millis(50);

/// What lines may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    /// Bytes of the longest one that is taken, without its end.
    pub(crate) longest: usize,
    /// Lines read before they are asked for.
    pub(crate) ahead: usize,
    /// What to do about a line that is none.
    pub(crate) remedy: &'static str,
}

/// The lines of a file. A thread reads them: who waits for input can be interrupted.
pub(crate) struct Lines {
    read: Receiver<Outcome<String>>,
    /// Bytes of the file; 0 if nobody knows.
    pub(crate) bytes: u64,
}

impl Lines {
    /// Those of the file, or of standard input for `-`.
    pub(crate) fn of(path: &Path, form: Form) -> Outcome<Self> {
        let (told, bytes) = sync_channel(1);
        let (tell, read) = sync_channel(form.ahead);
        let path = path.to_path_buf();
        let work = move || {
            let mut file = match open(&path) {
                Ok((file, bytes)) => {
                    let _ = told.send(Ok(bytes));
                    file
                }
                Err(failure) => return drop(told.send(Err(failure))),
            };
            for number in 1.. {
                let Some(line) = next_line(&mut file, &path, number, form).transpose() else {
                    return;
                };
                let last = line.is_err();
                if tell.send(line).is_err() || last {
                    return;
                }
            }
        };
        std::thread::Builder::new()
            .name("lines".to_owned())
            .spawn(work)
            .map_err(|error| Failure::io("a thread to read lines", &error))?;
        let bytes = wait(&bytes)?.unwrap_or_default();
        Ok(Self { read, bytes })
    }

    /// The next line; nothing at the end, or once somebody asked the command to stop.
    pub(crate) fn next(&self) -> Outcome<Option<String>> {
        wait(&self.read)
    }
}

/// Waits for what a thread has to say: nothing if it ended, or if somebody interrupts.
fn wait<T>(from: &Receiver<Outcome<T>>) -> Outcome<Option<T>> {
    while !crate::interrupt::asked() {
        match from.recv_timeout(LOOK) {
            Ok(told) => return told.map(Some),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    Ok(None)
}

fn open(path: &Path) -> Outcome<(Box<dyn BufRead>, u64)> {
    if path == Path::new("-") {
        return Ok((Box::new(BufReader::new(std::io::stdin())), 0));
    }
    let file = File::open(path).map_err(|error| Failure::io(path.display(), &error))?;
    let len = file.metadata().map_or(0, |found| found.len());
    Ok((Box::new(BufReader::new(file)), len))
}

/// The next line, without its end.
fn next_line(
    lines: &mut dyn BufRead,
    path: &Path,
    number: u64,
    form: Form,
) -> Outcome<Option<String>> {
    use std::io::Read;
    let bad = |what: &str| {
        Failure::new("invalid", format!("{}, line {number}: {what}", path.display()), form.remedy)
    };
    let mut line = Vec::new();
    // One byte more than a line can have, and its end.
    let read = lines.take(form.longest as u64 + 2).read_until(b'\n', &mut line);
    match read {
        Ok(0) => return Ok(None),
        Ok(_) => {}
        Err(error) => return Err(Failure::io(path.display(), &error)),
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    if line.len() > form.longest {
        return Err(bad(&format!(
            "is longer than {} bytes, the most a line can have",
            form.longest
        )));
    }
    String::from_utf8(line).map(Some).map_err(|_| bad("is no UTF-8 text"))
}
