//! How much is not covered at a time: of a workload while it runs, and of a trace.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use holdfast_mapped::trace::{self, Window, vulnerability as reckon};
use holdfast_pmem::track::folios::Folios;

use super::Options;
use super::area::Area;
use super::hash::Hash;
use super::kept::{Free, Kept, Means, Protection};
use super::loads::{Choice, KeyValue, Load, Pairs, fill};
use super::losses::pairs;
use crate::report::{Report, Spread};
use crate::say::say;

/// Pages of a stripe, unless a trace's engine was told otherwise.
const DATA: u64 = 4;
/// Windows that passes are joined to.
const JOINED: [usize; 3] = [1, 10, 30];

pub(crate) fn vulnerability(o: &Options, report: &mut Report) -> anyhow::Result<()> {
    if let Some(path) = &o.trace {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("--trace: cannot read {}", path.display()))?;
        let windows = trace::read(&text).with_context(|| format!("--trace {}", path.display()))?;
        say!("-- {}: {} passes", path.display(), windows.len());
        tell(report, "trace", &windows);
        return Ok(());
    }
    let count = pairs(o);
    let area = Arc::new(Area::new(&o.dir.join("pairs"), Hash::room(count), Folios::Small)?);
    let mut load = KeyValue::new(fill::<Hash>(Arc::clone(&area), count), count, Choice::Zipf, 5);
    let protection = Protection { trace: true, ..Protection::of(Means::Lazy) };
    let kept = Kept::new(&area, protection)?;
    let engine = kept.engine().context("a file that is protected has an engine")?;
    kept.begin()?;
    drop(engine.take_trace());
    let (passes, period) = if o.quick { (3, 20) } else { (30, 1000) };
    let mut live = [0; holdfast_mapped::STEPS];
    for _ in 0..passes {
        let until = Instant::now() + Duration::from_millis(period);
        while Instant::now() < until {
            // A reader with some writes, and not in a hurry: thousands of operations a second.
            (0..16).for_each(|_| {
                std::hint::black_box(load.step(&mut Free));
            });
            std::thread::sleep(Duration::from_millis(1));
        }
        let told = engine.coverage()?;
        live.iter_mut().zip(told.histogram).for_each(|(sum, regions)| *sum += regions);
        kept.pass()?;
    }
    let windows = engine.take_trace();
    kept.end()?;
    say!("-- hash, zipf, 5 % updates, about 16,000 operations a second, a pass every {period} ms");
    say!("regions by the share of their pages not covered, before each pass: {live:?}");
    tell(report, "live", &windows);
    // What was written is what is read.
    let text: String =
        std::iter::once(trace::title()).chain(windows.iter().map(Window::line)).collect();
    anyhow::ensure!(trace::read(&text)? == windows, "a trace is not read as it was written");
    Ok(())
}

fn tell(report: &mut Report, of: &str, windows: &[Window]) {
    for joined in JOINED {
        let found = reckon(windows, joined, DATA);
        if found.windows == 0 {
            continue;
        }
        let one = |share: f64| Spread::of(vec![100.0 * share]);
        let name = format!("{of}, windows of {joined} passes");
        report.figure(&format!("largest share without sum, {name}"), "%", one(found.largest));
        report.figure(&format!("mean share without sum, {name}"), "%", one(found.mean));
        let stripes = one(found.largest_stripes);
        report.figure(&format!("largest share without parity, {name}"), "%", stripes);
        report.count(&format!("most pages, {name}"), "pages", found.most_pages);
        if let Some(times) = found.lasts() {
            let times = Spread::of(vec![times]);
            report.figure(&format!("data lasts longer than without, {name}"), "x", times);
        }
        say!("  {} windows by share, none, to 10 %, ... all: {:?}", found.windows, found.histogram);
    }
}
