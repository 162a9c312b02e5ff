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
use std::collections::{BTreeMap, VecDeque};

use crate::bits::Bits;

/// First line of a trace.
const TITLE: &str = "holdfast-trace 1";
/// Most runs that are kept until somebody asks for them; the oldest windows go first.
const RUNS_KEPT: usize = 1 << 20;
/// Windows of which the shares are kept, whether anybody asks for them or not.
pub const SHARES_KEPT: usize = 64;
/// Most pages of a file in a trace: 64 TiB.
pub(crate) const PAGES_MAX: u64 = 1 << 34;

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

/// How much of the file one window left uncovered, without the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Share {
    /// When the pass that ended it began, in nanoseconds of the clock.
    pub time_ns: u64,
    /// How long that pass took.
    pub took_ns: u64,
    /// Pages of the file.
    pub pages: u64,
    /// Pages that had been stored to since the pass before.
    pub stored: u64,
    /// The same with the other pages of their stripes, whose damage would not have been repaired.
    pub in_stripes: u64,
}

impl Share {
    /// Its class in a distribution: nothing, up to 10 %, up to 20 %, ... all.
    #[must_use]
    pub fn class(&self) -> usize {
        class(self.stored, self.pages)
    }
}

/// The class of a share of so many pages.
pub(crate) fn class(part: u64, pages: u64) -> usize {
    let tenths = u128::from(part).saturating_mul(10).div_ceil(u128::from(pages.max(1)));
    usize::try_from(tenths).map_or(STEPS - 1, |tenths| tenths.min(STEPS - 1))
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
    /// And on average.
    pub mean_stripes: f64,
    /// Windows by their share: none, up to 10 %, up to 20 %, ... all.
    pub histogram: [u64; STEPS],
}

impl Vulnerability {
    /// How many times as long it takes until data is lost as it does without redundancy, if pages
    /// are damaged one at a time, each as likely as any other and at any time as at another; `None`
    /// if all that was stored was covered. A page is lost if it is stored to, or another of its
    /// stripe is, in the window in which it is damaged. Two in one stripe between two scrubs are
    /// left out: at rates at which a page lasts for years, those are rarer by far.
    ///
    /// A window counts whole for a page that was stored to at its end, so it is longer in truth.
    #[must_use]
    pub fn lasts(&self) -> Option<f64> {
        (self.mean_stripes > 0.0).then(|| 1.0 / self.mean_stripes)
    }
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
        all.mean_stripes += share(touched);
        all.most_pages = all.most_pages.max(stored);
        all.histogram[class(stored, pages)] += 1;
    }
    all.mean /= all.windows.max(1) as f64;
    all.mean_stripes /= all.windows.max(1) as f64;
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

/// Keeps windows until somebody asks, and the shares of the last ones.
#[derive(Debug, Default)]
pub(crate) struct Tracer {
    on: bool,
    /// Pages of a region.
    region: u64,
    /// Stored to since the last pass over everything: a page that a sync had covered meanwhile, and
    /// that was stored to again, counts once.
    open: BTreeMap<u64, Bits>,
    windows: VecDeque<Window>,
    kept: usize,
    shares: VecDeque<Share>,
}

impl Tracer {
    pub(crate) fn new(on: bool) -> Self {
        Self { on, ..Self::default() }
    }

    /// Pages of a region of so many pages that were stored to.
    pub(crate) fn note(&mut self, region: u64, bits: Bits, pages: u32) {
        if !bits.is_empty() {
            self.region = u64::from(pages);
            let open = self.open.entry(region).or_insert(Bits::NONE);
            *open = open.or(bits);
        }
    }

    /// A pass over everything is over: when it began, how long it took, the pages of the file and
    /// the data pages of a stripe.
    pub(crate) fn end(&mut self, (time_ns, took_ns): (u64, u64), pages: u64, data: u64) {
        let (mut stored, mut in_stripes, mut last) = (0, 0, None);
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for (region, bits) in core::mem::take(&mut self.open) {
            for inside in bits.iter() {
                let page = region.saturating_mul(self.region).saturating_add(u64::from(inside));
                let stripe = page / data.max(1);
                if page >= pages {
                    // Cut off since.
                    continue;
                }
                stored += 1;
                if last.replace(stripe) != Some(stripe) {
                    in_stripes += data.max(1).min(pages - stripe * data.max(1));
                }
                match runs.last_mut() {
                    Some((first, count)) if *first + *count == page => *count += 1,
                    _ if self.on => runs.push((page, 1)),
                    _ => {}
                }
            }
        }
        if self.shares.len() == SHARES_KEPT {
            self.shares.pop_front();
        }
        self.shares.push_back(Share { time_ns, took_ns, pages, stored, in_stripes });
        if !self.on {
            return;
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

    /// The last windows, the oldest first.
    pub(crate) fn shares(&self) -> Vec<Share> {
        self.shares.iter().copied().collect()
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
    fn data_lasts_as_much_longer_as_less_is_without_parity() {
        // A share of 8 %, of 4 % and of nothing: 4 % on average.
        let trace = [window(1, &[(3, 2)]), window(2, &[(8, 1)]), window(3, &[])];
        let found = vulnerability(&trace, 1, 4);
        assert!((found.mean_stripes - 0.04).abs() < 1e-9);
        assert!((found.lasts().unwrap() - 25.0).abs() < 1e-9);
        // Of longer stripes more goes with each page: 8 %, 8 % and nothing.
        assert!((vulnerability(&trace, 1, 8).lasts().unwrap() - 18.75).abs() < 1e-9);
        assert_eq!(vulnerability(&trace[2..], 1, 4).lasts(), None);
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
            tracer.end((time, 1), 1 << 20, 4);
        }
        let windows = tracer.take();
        assert_eq!(windows.first().map(|window| window.time_ns), Some(2));
        assert!(tracer.take().is_empty());
    }
    #[test]
    fn a_page_counts_once_a_window_and_the_last_windows_are_known() {
        let mut tracer = Tracer::new(false);
        for time in 0..SHARES_KEPT as u64 + 3 {
            // Covered on a sync between two passes, and stored to again.
            tracer.note(0, Bits::range(3, 2), 8);
            tracer.note(0, Bits::range(4, 1), 8);
            // The last region has one page; behind it the file was cut off.
            tracer.note(2, Bits::range(0, 3), 8);
            tracer.end((time, 7), 17, 4);
        }
        tracer.end((99, 7), 17, 4);
        let shares = tracer.shares();
        assert_eq!(shares.len(), SHARES_KEPT);
        let share = Share { time_ns: 4, took_ns: 7, pages: 17, stored: 3, in_stripes: 9 };
        assert_eq!((shares[0], share.class()), (share, 2));
        assert_eq!(shares.last().map(|share| (share.stored, share.class())), Some((0, 0)));
        assert!(tracer.take().is_empty(), "pages are kept for whoever asked for them only");
        let all = Share { stored: u64::MAX, ..share };
        assert_eq!(all.class(), STEPS - 1);
    }
}
