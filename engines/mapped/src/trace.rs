//! How much is not covered at a time: which pages passes found stored to, kept, written down, and
//! reckoned up for windows of any length.
//!
//! The share of pages changed in a window is the share whose damage would not be found in it, or
//! not be repaired. A trace of a real run says what another period would have meant for it.
//!
//! A trace is text, one line for each pass: when it was, how many pages the file had, and the runs
//! that had been stored to since the pass before, as `FIRST+COUNT` in pages.
//!
//! ```text
//! holdfast-trace 1
//! 1000000000 4096 0+3 17+1
//! 2000000000 4096 17+1
//! ```

use core::fmt::{self, Write};
use std::collections::VecDeque;

use crate::bits::Bits;

/// First line of a trace.
const TITLE: &str = "holdfast-trace 1";
/// Most runs that are kept until somebody asks for them; the oldest windows go first.
const RUNS_KEPT: usize = 1 << 20;
/// Most pages of a file in a trace: 64 TiB.
const PAGES_MAX: u64 = 1 << 34;

/// What one pass found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Window {
    /// When the pass began, in nanoseconds of the clock.
    pub time_ns: u64,
    /// Pages of the file.
    pub pages: u64,
    /// Runs of pages stored to since the pass before: first page and how many, ascending.
    pub runs: Vec<(u64, u64)>,
}

impl Window {
    /// Its line, with its end.
    #[must_use]
    pub fn line(&self) -> String {
        let mut line = format!("{} {}", self.time_ns, self.pages);
        for (first, count) in &self.runs {
            let _ = write!(line, " {first}+{count}");
        }
        line.push('\n');
        line
    }
}

/// The first line of a trace, with its end.
#[must_use]
pub fn title() -> String {
    format!("{TITLE}\n")
}

/// Why a text is no trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoTrace {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: &'static str,
}

impl fmt::Display for NoTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} of the trace: {}; record it anew", self.line, self.what)
    }
}

impl std::error::Error for NoTrace {}

/// Reads a trace.
///
/// # Errors
/// The line that is none, and why.
pub fn read(text: &str) -> Result<Vec<Window>, NoTrace> {
    let mut lines = text.lines().zip(1..);
    if lines.next().map(|(line, _)| line) != Some(TITLE) {
        return Err(NoTrace { line: 1, what: "it does not begin with the title of a trace" });
    }
    let mut windows: Vec<Window> = Vec::new();
    for (text, line) in lines {
        let window = parse(text).map_err(|what| NoTrace { line, what })?;
        if windows.last().is_some_and(|last| last.time_ns > window.time_ns) {
            return Err(NoTrace { line, what: "it is older than the line before" });
        }
        windows.push(window);
    }
    Ok(windows)
}

fn parse(line: &str) -> Result<Window, &'static str> {
    let mut words = line.split(' ');
    let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
    let (time_ns, pages) = number().zip(number()).ok_or("it has no time, or no pages")?;
    if pages > PAGES_MAX {
        return Err("no file has so many pages");
    }
    let mut window = Window { time_ns, pages, runs: Vec::new() };
    let mut end = 0;
    for word in words {
        let run = word.split_once('+').and_then(|(first, count)| {
            Some((first.parse::<u64>().ok()?, count.parse::<u64>().ok()?))
        });
        let (first, count) = run.ok_or("a run is not two numbers")?;
        let stop = first.checked_add(count).filter(|stop| *stop <= pages);
        let stop = stop.ok_or("a run ends beyond the file")?;
        if first < end || count == 0 {
            return Err("runs are empty, or not in order");
        }
        end = stop;
        window.runs.push((first, count));
    }
    Ok(window)
}

/// Steps of the distribution.
pub const STEPS: usize = 11;

/// How much of a file is not covered, over windows.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Vulnerability {
    /// Windows there were.
    pub windows: u64,
    /// Largest share of the pages stored to in one.
    pub largest: f64,
    /// And on average.
    pub mean: f64,
    /// Most pages stored to in one.
    pub most_pages: u64,
    /// The same shares with a stripe's other pages, whose damage would not be repaired.
    pub largest_stripes: f64,
    /// Windows by their share: none, up to 10 %, up to 20 %, ... all.
    pub histogram: [u64; STEPS],
}

/// Reckons up a trace, for windows of `joined` passes (0 counts as 1) that follow each other, and
/// stripes of `data` pages. What is left over at the end makes no window.
#[must_use]
pub fn vulnerability(trace: &[Window], joined: usize, data: u64) -> Vulnerability {
    let mut all = Vulnerability::default();
    for windows in trace.chunks_exact(joined.max(1)) {
        let pages = windows.iter().map(|window| window.pages).max().unwrap_or(0);
        let mut runs: Vec<(u64, u64)> =
            windows.iter().flat_map(|window| window.runs.iter().copied()).collect();
        runs.sort_unstable();
        let data = data.max(1);
        let stripes = runs.iter().map(|(first, count)| {
            let from = first / data * data;
            (from, (first + count).next_multiple_of(data).min(pages) - from)
        });
        let stored = union(runs.iter().copied());
        let touched = union(stripes);
        let share = |count: u64| count as f64 / pages.max(1) as f64;
        all.windows += 1;
        all.mean += share(stored);
        all.largest = all.largest.max(share(stored));
        all.largest_stripes = all.largest_stripes.max(share(touched));
        all.most_pages = all.most_pages.max(stored);
        all.histogram[(stored * 10).div_ceil(pages.max(1)).min(10) as usize] += 1;
    }
    all.mean /= all.windows.max(1) as f64;
    all
}

/// Pages of runs that are ascending by their first page and may overlap.
fn union(runs: impl Iterator<Item = (u64, u64)>) -> u64 {
    let (mut pages, mut end) = (0, 0);
    for (first, count) in runs {
        let stop = first + count;
        pages += stop.saturating_sub(first.max(end));
        end = end.max(stop);
    }
    pages
}

/// Keeps windows until somebody asks.
#[derive(Debug, Default)]
pub(crate) struct Tracer {
    on: bool,
    open: Vec<(u64, u64)>,
    windows: VecDeque<Window>,
    kept: usize,
}

impl Tracer {
    pub(crate) fn new(on: bool) -> Self {
        Self { on, ..Self::default() }
    }

    /// Pages of a region that were stored to; regions come in ascending order.
    pub(crate) fn note(&mut self, region: u64, bits: Bits, pages: u32) {
        if !self.on {
            return;
        }
        for inside in bits.iter() {
            let page = region * u64::from(pages) + u64::from(inside);
            match self.open.last_mut() {
                Some((first, count)) if *first + *count == page => *count += 1,
                _ => self.open.push((page, 1)),
            }
        }
    }

    /// The pass is over.
    pub(crate) fn end(&mut self, time_ns: u64, pages: u64) {
        if !self.on {
            return;
        }
        let mut open = core::mem::take(&mut self.open);
        open.sort_unstable();
        let mut runs: Vec<(u64, u64)> = Vec::with_capacity(open.len());
        for (first, count) in open {
            match runs.last_mut() {
                // What somebody asked for between passes may be told twice.
                Some((from, many)) if first <= *from + *many => {
                    *many = (*many).max(first + count - *from);
                }
                _ => runs.push((first, count)),
            }
        }
        self.kept += runs.len() + 1;
        self.windows.push_back(Window { time_ns, pages, runs });
        while self.kept > RUNS_KEPT
            && let Some(old) = self.windows.pop_front()
        {
            self.kept -= old.runs.len() + 1;
        }
    }

    pub(crate) fn take(&mut self) -> Vec<Window> {
        self.kept = 0;
        core::mem::take(&mut self.windows).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(time_ns: u64, runs: &[(u64, u64)]) -> Window {
        Window { time_ns, pages: 100, runs: runs.to_vec() }
    }

    #[test]
    fn what_is_written_is_read() {
        let windows = [window(5, &[(0, 3), (17, 1)]), window(9, &[]), window(9, &[(99, 1)])];
        let text: String =
            core::iter::once(title()).chain(windows.iter().map(Window::line)).collect();
        assert_eq!(read(&text).unwrap(), windows);
    }

    #[test]
    fn what_is_no_trace_is_refused_by_its_line() {
        for (text, line, what) in [
            ("", 1, "title"),
            ("holdfast-trace 2\n", 1, "title"),
            ("holdfast-trace 1\n5\n", 2, "no time"),
            ("holdfast-trace 1\n5 x\n", 2, "no time"),
            ("holdfast-trace 1\n5 99999999999999\n", 2, "so many"),
            ("holdfast-trace 1\n5 10 3\n", 2, "two numbers"),
            ("holdfast-trace 1\n5 10 3+8\n", 2, "beyond"),
            ("holdfast-trace 1\n5 10 3+18446744073709551615\n", 2, "beyond"),
            ("holdfast-trace 1\n5 10 3+2 4+1\n", 2, "order"),
            ("holdfast-trace 1\n5 10 3+0\n", 2, "empty"),
            ("holdfast-trace 1\n5 10\n4 10\n", 3, "older"),
        ] {
            let error = read(text).unwrap_err();
            assert_eq!(error.line, line, "{text:?}");
            assert!(error.what.contains(what), "{text:?}: {error}");
        }
    }

    #[test]
    fn longer_windows_count_a_page_once() {
        let trace = [window(1, &[(0, 10)]), window(2, &[(5, 10)]), window(3, &[(50, 1)])];
        let single = vulnerability(&trace, 1, 4);
        assert_eq!((single.windows, single.most_pages), (3, 10));
        assert!((single.largest - 0.1).abs() < 1e-9);
        assert_eq!(single.histogram[1], 3);
        // Pages 0 to 11 are in the stripes of 0 to 9; 4 to 15 in those of 5 to 14.
        assert!((single.largest_stripes - 0.12).abs() < 1e-9);
        let double = vulnerability(&trace, 2, 4);
        assert_eq!((double.windows, double.most_pages), (1, 15));
        assert!((double.largest_stripes - 0.16).abs() < 1e-9);
    }

    #[test]
    fn what_nobody_asks_for_is_bounded() {
        let mut tracer = Tracer::new(true);
        for time in 0..3 {
            for region in 0..RUNS_KEPT as u64 / 256 {
                // Every second page: a run each.
                let bits = (0..128).fold(Bits::NONE, |bits, i| bits.or(Bits::one(i * 2)));
                tracer.note(region, bits, 256);
            }
            tracer.end(time, 1 << 20);
        }
        let windows = tracer.take();
        assert_eq!(windows.first().map(|window| window.time_ns), Some(2));
        assert!(tracer.take().is_empty());
    }
}
