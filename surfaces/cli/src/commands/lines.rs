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

/// Bytes behind those a line can have after which its end is not looked for any more.
const SKIPPED_MAX: u64 = 1 << 30;

/// A line as it was found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Without its end; or why it cannot be taken. The next line can be had all the same.
    pub(crate) text: Result<String, String>,
    /// Bytes in the file, its end among them.
    pub(crate) bytes: u64,
}

/// The lines of a file. A thread reads them: who waits for input can be interrupted.
pub(crate) struct Lines {
    read: Receiver<Outcome<Line>>,
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
    pub(crate) fn next(&self) -> Outcome<Option<Line>> {
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

/// The next line. An error ends the file: no line behind it can be had.
fn next_line(
    lines: &mut dyn BufRead,
    path: &Path,
    number: u64,
    form: Form,
) -> Outcome<Option<Line>> {
    use std::io::Read;
    let failed = |error: std::io::Error| Failure::io(path.display(), &error);
    let too_long = || format!("is longer than {} bytes, the most a line can have", form.longest);
    let mut line = Vec::new();
    // One byte more than a line can have, and its end.
    let most = form.longest as u64 + 2;
    let mut bytes = lines.take(most).read_until(b'\n', &mut line).map_err(failed)? as u64;
    if bytes == 0 {
        return Ok(None);
    }
    if bytes == most && line.last() != Some(&b'\n') {
        drop(line);
        let skipped = lines.take(SKIPPED_MAX).skip_until(b'\n').map_err(failed)? as u64;
        if skipped == SKIPPED_MAX {
            let cause = format!("{}, line {number}: {}", path.display(), too_long());
            return Err(Failure::new("invalid", cause, form.remedy));
        }
        bytes += skipped;
        return Ok(Some(Line { text: Err(too_long()), bytes }));
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    let text = if line.len() > form.longest {
        Err(too_long())
    } else {
        String::from_utf8(line).map_err(|_| "is no UTF-8 text".to_owned())
    };
    Ok(Some(Line { text, bytes }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_cannot_be_taken_does_not_hide_the_next() {
        let long = [b'x'; 5000];
        let text = [&b"abcd\nabcde\n"[..], &long, b"\nabcd\r\nabcd\r\r\n\xff\n\nend"].concat();
        let mut file = BufReader::with_capacity(16, text.as_slice());
        let form = Form { longest: 4, ahead: 1, remedy: "" };
        let mut found = Vec::new();
        let mut bytes = 0;
        while let Some(line) = next_line(&mut file, Path::new("it"), 1, form).unwrap() {
            bytes += line.bytes;
            found.push(line.text.unwrap_or_else(|what| what[..9].to_owned()));
        }
        let long = "is longer";
        assert_eq!(found, ["abcd", long, long, "abcd", long, "is no UTF", "", "end"]);
        assert_eq!(bytes, text.len() as u64);
    }

    #[test]
    fn what_never_ends_is_no_line() {
        let mut zeros = BufReader::with_capacity(1 << 20, std::io::repeat(0));
        let form = Form { longest: 4, ahead: 1, remedy: "end it" };
        let failed = next_line(&mut zeros, Path::new("zeros"), 1, form).unwrap_err();
        assert!(failed.to_string().starts_with("zeros, line 1: is longer than 4"), "{failed}");
    }
}
