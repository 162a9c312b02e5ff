//! How much of a file is not covered at a time: of one in use, as whoever keeps it tells, and of a
//! trace of what passes found.

use std::path::Path;

use holdfast::protect::trace::{self, STEPS, Share, Vulnerability, vulnerability};
use holdfast::protect::{Live, ProtectStatus, Verdicts};
use serde_json::{Map, Value, json};

use crate::commands::pool::moment;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out::{Out, count, table};
use crate::size::show_nanos;

/// Windows that passes of a trace are joined to.
const JOINED: [usize; 3] = [1, 10, 30];
/// Largest trace that is read, in bytes.
const TRACE_MAX: u64 = 1 << 30;

/// When the last pass began: one that covered something, where that is all that is on record.
pub(crate) fn last_pass(status: &ProtectStatus) -> u64 {
    let windows = status.live.as_ref().map(|live| &live.windows);
    windows.and_then(|windows| windows.last()).map_or(status.coverage.covered_ns, |w| w.time_ns)
}

/// Shares of the last windows, reckoned up.
#[derive(Debug, Default)]
struct Last {
    mean: f64,
    largest: f64,
    mean_stripes: f64,
    largest_stripes: f64,
    histogram: [u64; STEPS],
}

impl Last {
    fn of(windows: &[Share]) -> Self {
        let mut all = Self::default();
        for window in windows {
            let share = |pages: u64| pages as f64 / window.pages.max(1) as f64;
            let (alone, stripes) = (share(window.stored), share(window.in_stripes));
            all.mean += alone / windows.len() as f64;
            all.mean_stripes += stripes / windows.len() as f64;
            all.largest = all.largest.max(alone);
            all.largest_stripes = all.largest_stripes.max(stripes);
            all.histogram[window.class()] += 1;
        }
        all
    }
}

/// Adds what only whoever keeps the file knows to an object.
pub(crate) fn add_to(all: &mut Map<String, Value>, live: &Live) {
    let Live { keeping, counts, verdicts, windows, .. } = live;
    let last = Last::of(windows);
    let more = json!({
        "asked_ns": live.at_ns,
        "period_ns": keeping.period_ns,
        "longest_wait_ns": keeping.longest_ns,
        "tracking": keeping.tracking.to_string(),
        "passes": counts.passes,
        "covered": counts.covered,
        "unchanged": counts.unchanged,
        "corrupt": counts.corrupt,
        "repaired": counts.repaired,
        "became_undecided": counts.undecided,
        "verdicts": {
            "pages": verdicts.pages,
            "good": verdicts.good,
            "uncovered": verdicts.uncovered,
            "corrupt": verdicts.corrupt,
            "repaired": verdicts.repaired,
            "lost": verdicts.lost,
            "undecided": verdicts.undecided,
            "at_ns": verdicts.at_ns,
        },
        "windows": windows.iter().map(|window| json!({
            "time_ns": window.time_ns,
            "took_ns": window.took_ns,
            "pages": window.pages,
            "stored": window.stored,
            "in_stripes": window.in_stripes,
        })).collect::<Vec<_>>(),
        "window_mean_share": last.mean,
        "window_largest_share": last.largest,
        "window_mean_share_stripes": last.mean_stripes,
        "window_largest_share_stripes": last.largest_stripes,
        "window_histogram": last.histogram,
    });
    if let Value::Object(more) = more {
        all.extend(more);
    }
}

/// The same for people.
pub(crate) fn rows(live: &Live) -> Vec<(&'static str, String)> {
    let Live { keeping, counts, verdicts, windows, .. } = live;
    let took = windows.last().map_or(0, |window| window.took_ns);
    let mut passes = format!(
        "one each {}, the last took {}; {} covered something",
        show_nanos(keeping.period_ns),
        show_nanos(took),
        counts.passes,
    );
    if keeping.longest_ns > 0 {
        passes += &format!("; nothing waited longer than {}", show_nanos(keeping.longest_ns));
    }
    let last = Last::of(windows);
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    vec![
        ("asked", moment(live.at_ns)),
        ("stores noticed by", keeping.tracking.to_string()),
        ("passes", passes),
        ("verdicts", words(verdicts)),
        (
            "since it was opened",
            format!(
                "{} corrupt, {} repaired, {} undecided",
                counts.corrupt, counts.repaired, counts.undecided
            ),
        ),
        (
            "not covered, by sums",
            format!(
                "{} on average, {} at the most, of the last {}",
                percent(last.mean),
                percent(last.largest),
                count(windows.len() as u64, "window"),
            ),
        ),
        (
            "not covered, by parity",
            format!(
                "{} on average, {} at the most",
                percent(last.mean_stripes),
                percent(last.largest_stripes)
            ),
        ),
        ("windows by share", classes(&last.histogram).unwrap_or_else(|| "none yet".to_owned())),
    ]
}

fn words(verdicts: &Verdicts) -> String {
    let Verdicts { pages, good, uncovered, corrupt, repaired, lost, undecided, at_ns } = verdicts;
    let when = match at_ns {
        0 => format!("first look, {} so far", count(*pages, "page")),
        at => format!("last look at all {} ended {}", count(*pages, "page"), moment(*at)),
    };
    format!(
        "{when}: {good} good, {corrupt} corrupt ({repaired} repaired, {lost} lost), {undecided} \
         undecided, {uncovered} stored to since"
    )
}

/// The classes that are not empty.
pub(crate) fn classes(classes: &[u64]) -> Option<String> {
    let shown = classes.iter().enumerate().filter(|(_, count)| **count > 0);
    let shown: Vec<String> = shown
        .map(|(class, count)| match class {
            0 => format!("none: {count}"),
            class => format!("up to {} %: {count}", class * 10),
        })
        .collect();
    (!shown.is_empty()).then(|| shown.join(", "))
}

/// Reckons up a trace, for windows of so many passes.
pub(crate) fn of_trace(out: Out, path: &Path, data: u32) -> Outcome {
    use std::io::Read;
    let failed = |error: std::io::Error| Failure::io(path.display(), &error);
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut text = String::new();
    let read = file.take(TRACE_MAX + 1).read_to_string(&mut text);
    let none = |what: String| {
        let cause = format!("{}: {what}", path.display());
        Failure::new("invalid", cause, "name a trace that `guard --trace` wrote")
    };
    match read {
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            return Err(none("is no text".to_owned()));
        }
        Err(error) => return Err(failed(error)),
        Ok(read) if read as u64 > TRACE_MAX => {
            return Err(none("is longer than a trace may be".to_owned()));
        }
        Ok(_) => {}
    }
    // A pass may be adding its line just now.
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    let windows = trace::read(&text[..whole]).map_err(|error| none(error.to_string()))?;
    let reckoned: Vec<(usize, Vulnerability)> = JOINED
        .into_iter()
        .map(|joined| (joined, vulnerability(&windows, joined, u64::from(data))))
        .filter(|(_, found)| found.windows > 0)
        .collect();
    out.object("status", trace_json(path, data, windows.len(), &reckoned));
    let passes = count(windows.len() as u64, "pass").replace("passs", "passes");
    out.words(format!("{}: {passes}, stripes of {data} pages", path.display()));
    if !reckoned.is_empty() {
        out.words(trace_table(&reckoned));
    }
    Ok(Exit::CLEAN)
}

fn trace_json(path: &Path, data: u32, passes: usize, all: &[(usize, Vulnerability)]) -> Value {
    let one = |(joined, found): &(usize, Vulnerability)| {
        json!({
            "passes": joined,
            "windows": found.windows,
            "mean_share": found.mean,
            "largest_share": found.largest,
            "largest_share_stripes": found.largest_stripes,
            "mean_share_stripes": found.mean_stripes,
            "lasts_times": found.lasts(),
            "most_pages": found.most_pages,
            "histogram": found.histogram,
        })
    };
    json!({
        "trace": path.display().to_string(),
        "data": data,
        "passes": passes,
        "joined": all.iter().map(one).collect::<Vec<_>>(),
    })
}

fn trace_table(all: &[(usize, Vulnerability)]) -> String {
    let percent = |share: f64| format!("{:.2} %", share * 100.0);
    let head =
        ["window", "windows", "mean", "largest", "with stripes", "data lasts", "windows by share"];
    let mut shown = table(&head);
    for (joined, found) in all {
        shown.add_row([
            if *joined == 1 { "1 pass".to_owned() } else { format!("{joined} passes") },
            found.windows.to_string(),
            percent(found.mean),
            percent(found.largest),
            percent(found.largest_stripes),
            found.lasts().map_or_else(String::new, |times| format!("{times:.0} x as long")),
            classes(&found.histogram).unwrap_or_default(),
        ]);
    }
    shown.to_string()
}
