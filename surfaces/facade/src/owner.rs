//! Commands for a pool that another process has open: lines of words over a local socket.
//!
//! ```text
//! -> scrub 0 1                       rate, whether to resume
//! <- progress 1048576 67108864       any number of these
//! <- done 12 4096 1 1 0 0 3 51234    or: failed locked cause; remedy
//! ```
//!
//! | request | answer |
//! |---|---|
//! | `check`, `scrub RATE RESUME` | a [`Summary`], after lines of progress |
//! | `pause`, `cancel`, `status` | a [`ScrubStatus`] |
//! | `grow BYTES` | bytes before, bytes now |
//! | `stats` | the figures since the pool was opened |
//! | `figures` | those, and the others of [`Figures`] |
//! | `latency` | number and count of each class of a [`Latency`] that is not empty |
//! | `poison AT CLEARABLE` | nothing |
//!
//! Both ends are of one build or refuse each other: the first word says which. The owner is told
//! nothing by a `poison` command but the order itself; what comes of it, it has to find.

use core::time::Duration;
use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use holdfast_object::{CheckReport, ScrubOptions, Scrubbed, Stats};
use holdfast_redundancy::progress::ScrubState;

use crate::background::{address_of, is_ours};
use crate::error::{Error, ErrorKind, Result};
use crate::latency::Latency;
use crate::pool::Figures;
use crate::scrubbing::ScrubStatus;

/// First word of every request.
pub(crate) const VERSION: &str = "holdfast-3";
/// Longest request or answer in bytes.
pub(crate) const LINE_MAX: u64 = 4096;
/// How often a client that waits for an answer looks whether it still has to.
const LOOK: Duration = Duration::from_millis(100);
/// An owner that says nothing for so long is asked whether it is still there.
const SILENCE: Duration = Duration::from_secs(5);

/// What a check or scrub came to, in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Live objects looked at.
    pub objects: u64,
    /// Their bytes.
    pub object_bytes: u64,
    /// Bytes of columns compared with their parity.
    pub column_bytes: u64,
    /// Findings.
    pub found: u64,
    /// Findings repaired.
    pub repaired: u64,
    /// Findings beyond the redundancy.
    pub lost: u64,
    /// Findings that nothing kept can judge; left as they were.
    pub undecided: u64,
    /// Whether it was paused or cancelled before its end.
    pub stopped: bool,
    /// Nanoseconds it took.
    pub nanos: u64,
}

impl Summary {
    /// Of a check.
    #[must_use]
    pub fn of_check(report: &CheckReport, took: Duration) -> Self {
        Self {
            objects: report.objects,
            object_bytes: report.object_bytes,
            column_bytes: report.column_bytes,
            found: report.found,
            nanos: u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
            ..Self::default()
        }
    }

    /// Of a scrub.
    #[must_use]
    pub fn of_scrub(done: &Scrubbed, took: Duration) -> Self {
        Self {
            repaired: done.repaired,
            lost: done.lost,
            undecided: done.undecided,
            stopped: done.state != ScrubState::Idle,
            ..Self::of_check(&done.report, took)
        }
    }

    pub(crate) fn words(&self) -> String {
        let Self { objects, object_bytes, column_bytes, found, repaired, lost, undecided, .. } =
            self;
        format!(
            "{objects} {object_bytes} {column_bytes} {found} {repaired} {lost} {undecided} {} {}",
            u8::from(self.stopped),
            self.nanos
        )
    }

    fn parse(words: &[u64]) -> Option<Self> {
        let &[
            objects,
            object_bytes,
            column_bytes,
            found,
            repaired,
            lost,
            undecided,
            stopped,
            nanos,
        ] = words
        else {
            return None;
        };
        let stopped = stopped != 0;
        Some(Self {
            objects,
            object_bytes,
            column_bytes,
            found,
            repaired,
            lost,
            undecided,
            stopped,
            nanos,
        })
    }
}

/// The process that has a pool open, as one that gives it commands sees it.
#[derive(Debug)]
pub struct Owner {
    stream: BufReader<UnixStream>,
    path: std::path::PathBuf,
    patience: Option<Duration>,
}

impl Owner {
    /// Reaches the process that has the pool in the file `path` open; `None` if nobody answers.
    #[must_use]
    pub fn reach(path: impl AsRef<Path>) -> Option<Self> {
        let path = path.as_ref();
        let stream = UnixStream::connect_addr(&address_of(path)?).ok()?;
        // Anybody could have taken the name.
        if !is_ours(&stream) {
            return None;
        }
        stream.set_read_timeout(Some(LOOK)).ok()?;
        let (stream, path) = (BufReader::new(stream), path.to_path_buf());
        Some(Self { stream, path, patience: None })
    }

    /// The same, given up once it has said nothing for so long; without, it is waited for as long
    /// as it is alive.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience: Some(patience), ..self }
    }

    /// Makes the owner check the pool.
    ///
    /// # Errors
    /// What the owner answers, or that it stopped answering.
    pub fn check(&mut self, progress: impl FnMut(u64, u64)) -> Result<Summary> {
        let words = self.ask("check", progress)?;
        Summary::parse(&words).ok_or_else(|| self.strange())
    }

    /// Makes the owner scrub the pool, at most `rate` bytes a second (`None`: no limit).
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn scrub(
        &mut self,
        options: ScrubOptions,
        progress: impl FnMut(u64, u64),
    ) -> Result<Summary> {
        let rate = options.rate.unwrap_or(0);
        let words = self.ask(&format!("scrub {rate} {}", u8::from(options.resume)), progress)?;
        Summary::parse(&words).ok_or_else(|| self.strange())
    }

    /// Makes the owner begin a scrub, and returns once it has begun or is done already.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn start_scrub(mut self, options: ScrubOptions) -> Result<()> {
        let rate = options.rate.unwrap_or(0);
        self.send(&format!("scrub {rate} {}", u8::from(options.resume)))?;
        self.answer(|_, _| {}, true).map(drop)
    }

    /// Makes the scrub that runs stop, to be resumed later, and waits until it has; where it is.
    ///
    /// # Errors
    /// No scrub is running; and as [`check`](Self::check).
    pub fn pause_scrub(&mut self) -> Result<ScrubStatus> {
        self.ask_status("pause")
    }

    /// Makes the scrub that runs stop for good, or gives up one that was paused; where it was.
    ///
    /// # Errors
    /// No scrub is running or paused; and as [`check`](Self::check).
    pub fn cancel_scrub(&mut self) -> Result<ScrubStatus> {
        self.ask_status("cancel")
    }

    /// How far the scrub is at this moment: later than what the pool's own record says.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn scrub_status(&mut self) -> Result<ScrubStatus> {
        self.ask_status("status")
    }

    /// Makes the owner grow the pool to `bytes`; how many it had, and has now.
    ///
    /// # Errors
    /// As [`Pool::grow`](crate::Pool::grow); and as [`check`](Self::check).
    pub fn grow(&mut self, bytes: u64) -> Result<(u64, u64)> {
        let words = self.ask(&format!("grow {bytes}"), |_, _| {})?;
        let &[before, after] = words.as_slice() else { return Err(self.strange()) };
        Ok((before, after))
    }

    /// The owner's figures since it opened the pool.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn stats(&mut self) -> Result<Stats> {
        let words = self.ask("stats", |_, _| {})?;
        stats_of(&words).ok_or_else(|| self.strange())
    }

    /// The owner's figures since it opened the pool, all of them.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn figures(&mut self) -> Result<Figures> {
        let words = self.ask("figures", |_, _| {})?;
        let figures = words.split_last_chunk::<4>().and_then(|(stats, rest)| {
            let (stats, &[syncs, reserved, read_only, nanos]) = (stats_of(stats)?, rest);
            Some(Figures { stats, syncs, reserved, read_only: read_only != 0, nanos })
        });
        figures.ok_or_else(|| self.strange())
    }

    /// How long the owner's transactions take.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn latency(&mut self) -> Result<Latency> {
        let words = self.ask("latency", |_, _| {})?;
        Latency::parse(&words).ok_or_else(|| self.strange())
    }

    /// Poisons the page at `at` in the owner's mapping: its loads meet a true media error.
    ///
    /// # Errors
    /// The pool was not created to be injected into; and as [`check`](Self::check).
    pub fn poison(&mut self, at: u64, clearable: bool) -> Result<()> {
        self.ask(&format!("poison {at} {}", u8::from(clearable)), |_, _| {}).map(drop)
    }

    fn ask_status(&mut self, request: &str) -> Result<ScrubStatus> {
        let words = self.ask(request, |_, _| {})?;
        ScrubStatus::parse(&words).ok_or_else(|| self.strange())
    }

    fn ask(&mut self, request: &str, progress: impl FnMut(u64, u64)) -> Result<Vec<u64>> {
        self.send(request)?;
        self.answer(progress, false)
    }

    fn send(&mut self, request: &str) -> Result<()> {
        let sent = writeln!(self.stream.get_mut(), "{VERSION} {request}");
        sent.map_err(|error| self.silent(&error.to_string()))
    }

    /// The numbers of the answer, or none at the first sign of life if that is enough.
    fn answer(&mut self, mut progress: impl FnMut(u64, u64), begun: bool) -> Result<Vec<u64>> {
        let mut last = (0, 0);
        loop {
            // Whoever waits is called also while there is nothing new, and can stop waiting.
            let line = self.line(|| progress(last.0, last.1))?;
            let (word, rest) = line.trim_end().split_once(' ').unwrap_or((line.trim_end(), ""));
            let numbers = || rest.split(' ').filter_map(|word| word.parse().ok()).collect();
            match word {
                "progress" if begun => return Ok(Vec::new()),
                "progress" => {
                    let numbers: Vec<u64> = numbers();
                    if let &[done, all] = numbers.as_slice() {
                        last = (done, all);
                        progress(done, all);
                    }
                }
                "done" => return Ok(numbers()),
                "failed" => {
                    let (name, text) = rest.split_once(' ').unwrap_or(("", rest));
                    let (cause, remedy) = text.split_once("; ").unwrap_or((text, "see there"));
                    let kind = ErrorKind::from_name(name).unwrap_or(ErrorKind::Refused);
                    let error = Error::new(kind, format!("its owner says: {cause}"));
                    return Err(error.with_remedy(remedy).at(&self.path));
                }
                _ => return Err(self.strange()),
            }
        }
    }

    /// The next line of the answer. `idle` is called now and then while it does not come.
    fn line(&mut self, mut idle: impl FnMut()) -> Result<String> {
        let (mut line, mut heard) = (Vec::new(), Instant::now());
        loop {
            let left = LINE_MAX.saturating_sub(line.len() as u64);
            match self.stream.by_ref().take(left).read_until(b'\n', &mut line) {
                Ok(_) if line.last() == Some(&b'\n') => {
                    return String::from_utf8(line).map_err(|_| self.strange());
                }
                Ok(0) => return Err(self.silent("it closed the connection")),
                Ok(_) => {}
                Err(error) if matches!(error.kind(), WouldBlock | TimedOut) => {
                    idle();
                    if self.patience.is_some_and(|patience| heard.elapsed() >= patience) {
                        return Err(self.silent("it may be stopped or busy"));
                    }
                    if heard.elapsed() >= SILENCE {
                        // A slow scrub has nothing to tell for long. A process that is stopped
                        // does not answer anything.
                        if !answers(&self.path) {
                            return Err(self.silent("it may be stopped"));
                        }
                        heard = Instant::now();
                    }
                }
                Err(error) if error.kind() == Interrupted => {}
                Err(error) => return Err(self.silent(&error.to_string())),
            }
        }
    }

    fn silent(&self, why: &str) -> Error {
        Error::new(
            ErrorKind::Locked,
            format!("the process that has it open does not answer: {why}"),
        )
        .with_remedy("try again, or close the pool there")
        .at(&self.path)
    }

    fn strange(&self) -> Error {
        Error::new(ErrorKind::Locked, "the process that has it open answers in another way")
            .with_remedy("use the same build as it")
            .at(&self.path)
    }
}

/// The counts of an engine as words.
pub(crate) fn words_of(stats: &Stats) -> String {
    let Stats { commits, aborts, conflicts, detected, repaired, lost, verified, reclaims } = stats;
    format!("{commits} {aborts} {conflicts} {detected} {repaired} {lost} {verified} {reclaims}")
}

fn stats_of(words: &[u64]) -> Option<Stats> {
    let &[commits, aborts, conflicts, detected, repaired, lost, verified, reclaims] = words else {
        return None;
    };
    Some(Stats { commits, aborts, conflicts, detected, repaired, lost, verified, reclaims })
}

/// Whether the owner of the pool answers at all: on a connection of its own, within [`SILENCE`].
fn answers(path: &Path) -> bool {
    let Some(mut other) = Owner::reach(path) else { return false };
    let patient = other.stream.get_ref().set_read_timeout(Some(SILENCE));
    let sent = patient.and_then(|()| writeln!(other.stream.get_mut(), "{VERSION} stats"));
    // One that has too many clients closes the connection: that is an answer, too.
    sent.is_ok() && other.stream.fill_buf().is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// A file whose owner is `serve`, and what `ask` makes of it.
    fn told<T>(
        serve: impl FnOnce(UnixListener) + Send + 'static,
        ask: impl FnOnce(Owner) -> Result<T>,
    ) -> Result<T> {
        let file = tempfile::NamedTempFile::new().unwrap();
        let listener = UnixListener::bind_addr(&address_of(file.path()).unwrap()).unwrap();
        let owner = thread::spawn(move || serve(listener));
        let told = ask(Owner::reach(file.path()).unwrap());
        owner.join().unwrap();
        told
    }

    /// Takes one request and gives this answer, whatever was asked.
    fn answer(listener: &UnixListener, text: &[u8]) -> BufReader<UnixStream> {
        let mut stream = BufReader::new(listener.accept().unwrap().0);
        let mut request = String::new();
        stream.read_line(&mut request).unwrap();
        assert!(request.starts_with(VERSION), "{request}");
        stream.get_mut().write_all(text).unwrap();
        stream
    }

    fn says<T>(text: &'static [u8], ask: impl FnOnce(Owner) -> Result<T>) -> String {
        let serve = move |listener: UnixListener| drop(answer(&listener, text));
        let told = told(serve, |owner| ask(owner.with_patience(PATIENCE)));
        told.err().map_or_else(|| "understood".to_owned(), |error| error.to_string())
    }

    #[test]
    fn an_answer_of_another_form_is_told_as_one_whatever_was_asked() {
        type Ask = fn(Owner) -> Result<()>;
        let asks: [(&str, Ask); 9] = [
            ("check", |mut it| it.check(|_, _| {}).map(drop)),
            ("scrub", |mut it| it.scrub(ScrubOptions::default(), |_, _| {}).map(drop)),
            ("pause", |mut it| it.pause_scrub().map(drop)),
            ("cancel", |mut it| it.cancel_scrub().map(drop)),
            ("status", |mut it| it.scrub_status().map(drop)),
            ("grow", |mut it| it.grow(1).map(drop)),
            ("stats", |mut it| it.stats().map(drop)),
            ("figures", |mut it| it.figures().map(drop)),
            ("latency", |mut it| it.latency().map(drop)),
        ];
        for (name, ask) in asks {
            for text in [&b"done 1 2 3\n"[..], b"well\n", b"done \xff\n"] {
                let told = says(text, ask);
                assert!(told.contains("answers in another way"), "{name}: {told}");
            }
            let told = says(b"progress 7\nprogress 1 2\n", ask);
            assert!(told.contains("it closed the connection"), "{name}: {told}");
        }
    }

    #[test]
    fn what_the_owner_refuses_is_told_with_its_words() {
        let told = says(b"failed locked it is busy; wait\n", |mut it| it.grow(1));
        assert!(told.contains("its owner says: it is busy") && told.contains("wait"), "{told}");
        let told = says(b"failed\n", |mut it| it.poison(0, true));
        assert!(told.contains("its owner says"), "{told}");
        assert_eq!(
            says(b"progress 1 2\n", |it| it.start_scrub(ScrubOptions::default())),
            "understood"
        );
    }

    #[test]
    fn a_line_without_an_end_is_given_up() {
        static LONG: [u8; LINE_MAX as usize] = [b'7'; LINE_MAX as usize];
        let told = says(&LONG, |mut it| it.stats());
        assert!(told.contains("it closed the connection"), "{told}");
    }

    #[test]
    fn an_owner_that_says_nothing_is_waited_for_so_long() {
        let serve = |listener: UnixListener| {
            let mut stream = answer(&listener, b"");
            // Until the other end has given up.
            let _ = stream.read_line(&mut String::new());
        };
        let mut idle = 0;
        let told = told(serve, |owner| {
            let mut owner = owner.with_patience(Duration::from_millis(250));
            owner.check(|_, _| idle += 1)
        });
        let told = told.unwrap_err().to_string();
        assert!(told.contains("it may be stopped or busy") && idle > 1, "{told}");
    }

    #[test]
    fn an_owner_that_is_slow_is_asked_whether_it_is_there() {
        let slow = thread::spawn(|| {
            let serve = |listener: UnixListener| {
                let mut first = answer(&listener, b"");
                // The second client is the question; it is hung up on, which is an answer.
                drop(answer(&listener, b""));
                first.get_mut().write_all(b"done 5 6\n").unwrap();
            };
            told(serve, |mut owner| owner.grow(6))
        });
        let stopped = told(
            |listener: UnixListener| {
                let mut first = answer(&listener, b"");
                let _ = first.read_line(&mut String::new());
            },
            |mut owner| owner.grow(6),
        );
        assert_eq!(slow.join().unwrap().unwrap(), (5, 6));
        assert!(stopped.unwrap_err().to_string().contains("it may be stopped"));
    }
}
