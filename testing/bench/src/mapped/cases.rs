//! One workload under one protection: measured, held against the model, printed.

use std::time::Duration;

use super::Options;
use super::kept::{Kept, Means};
use super::loads::Load;
use super::measure::{Core, Figures, Plan, driver, measure};
use super::model::Model;
use crate::report::{Limit, Report, Spread};
use crate::say::say;

/// What is asked of a case.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case<'a> {
    /// Of the workload and where it runs, such as "hash zipf 100 %".
    pub(crate) load: &'a str,
    /// Of the protection.
    pub(crate) how: &'a str,
    pub(crate) period: u32,
    pub(crate) core: Core,
}

impl Case<'_> {
    /// The name of its figures.
    pub(crate) fn name(&self) -> String {
        let core = if self.core == Core::Same { "same core" } else { "own core" };
        format!("{}, {}, {} s, {core}", self.load, self.how, self.period)
    }

    /// Whether it is longer than what was asked for.
    fn is_left_out(&self, o: &Options) -> bool {
        o.brief && self.period > 1
    }

    /// How long and how often. One period of a second is short, so a window has three of them; of
    /// longer ones, three windows have three.
    fn plan(&self, o: &Options) -> Plan {
        let seconds = |s: f64| Duration::from_secs_f64(s);
        let core = self.core;
        if o.quick {
            let short = seconds(0.05);
            return Plan { period: short, periods: 3, rounds: 1, plain: short, warm: short, core };
        }
        let period = seconds(f64::from(self.period));
        let (periods, plain, warm) = match self.period {
            1 => (3, 1.0, 1.0),
            10 => (1, 4.0, 2.0),
            _ => (1, 6.0, 2.0),
        };
        Plan { period, periods, rounds: 3, plain: seconds(plain), warm: seconds(warm), core }
    }
}

/// Runs a case. Its loss is kept under `loss NAME`.
pub(crate) fn run<L: Load>(
    o: &Options,
    report: &mut Report,
    load: &mut L,
    kept: &Kept,
    model: Option<Model>,
    case: Case<'_>,
) -> anyhow::Result<Figures> {
    let name = case.name();
    if case.is_left_out(o) {
        return Ok(Figures::default());
    }
    let figures = measure(load, kept, &case.plan(o))?;
    let millions = |rates: &[f64]| rates.iter().map(|rate| rate / 1e6).collect();
    report.rounds(&format!("plain {name}"), "M/s", millions(&figures.plain));
    report.rounds(&format!("kept {name}"), "M/s", millions(&figures.kept));
    report.rounds(&format!("loss {name}"), "share", figures.loss.clone());
    if !figures.cpu_loss.is_empty() {
        let by_cpu = Spread::of(figures.cpu_loss.clone());
        report.figure(&format!("loss by processor time {name}"), "share", by_cpu);
    }
    if !figures.passes.is_empty() {
        passes(report, &name, &case, &figures, o);
    }
    if let Some(model) = model {
        let period = case.plan(o).period.as_secs_f64();
        let expected = model.loss(figures.pages(), period, case.core);
        report.figure(&format!("model {name}"), "share", Spread::of(vec![expected]));
    }
    let [plain, with] = &figures.latency;
    report.latency(&format!("{name}, unprotected"), plain);
    report.latency(&name, with);
    Ok(figures)
}

/// What the updater did.
fn passes(report: &mut Report, name: &str, case: &Case<'_>, figures: &Figures, o: &Options) {
    let all = figures.passes.len();
    let pages = Spread::of(vec![figures.pages()]);
    report.figure(&format!("dirty pages per pass {name}"), "pages", pages);
    let shared = Spread::of(vec![figures.pass_seconds() * 1e3]);
    report.figure(&format!("pass {name}"), "ms", shared);
    let cpu = Spread::of(vec![figures.updater_cpu / figures.seconds]);
    report.figure(&format!("updater {name}"), "CPU-s/s", cpu);
    let oldest = Spread::of(vec![figures.oldest]);
    report.figure(&format!("oldest uncovered store {name}"), "s", oldest);
    say!(
        "  {all} passes in {:.1} s; program on core 0, updater on core {}; period {:.2} s",
        figures.seconds,
        u32::from(case.core == Core::Own),
        case.plan(o).period.as_secs_f64(),
    );
}

/// Prints how much faster the driver is alone than the loop that was measured.
pub(crate) fn alone<L: Load>(report: &mut Report, load: &mut L, name: &str, rate: f64) {
    let times = 1e9 / rate / driver(load);
    report.figure(&format!("driver alone {name}"), "x", Spread::of(vec![times]));
    if times < 5.0 {
        say!("  the driver is less than five times as fast: losses of {name} are understated");
    }
}

/// A goal on a loss.
pub(crate) fn goal(o: &Options, report: &mut Report, name: &str, case: Case<'_>, limit: f64) {
    let figure = format!("loss {}", case.name());
    let value = report.median(&figure);
    judge_of(o, report, name, &[case], value, Limit::AtMost(limit));
}

/// Rates without protection further apart than this say that others use the machine: losses of a
/// few percent cannot be told from that.
const RESTLESS: f64 = 1.25;

/// A goal on a value that was made from cases, if the machine was quiet while they ran.
pub(crate) fn judge_of(
    o: &Options,
    report: &mut Report,
    name: &str,
    cases: &[Case<'_>],
    value: Option<f64>,
    limit: Limit,
) {
    if cases.iter().any(|case| case.is_left_out(o)) {
        return report.left_out(name, "--brief: periods of one second only");
    }
    let unrest = |case: &Case<'_>| report.unrest(&format!("plain {}", case.name()));
    let most = cases.iter().filter_map(unrest).fold(1.0, f64::max);
    if most > RESTLESS && !o.quick {
        let why = format!(
            "the machine is not quiet: without protection, rounds are a factor of {most:.2} apart"
        );
        return report.unmeasured(name, &why);
    }
    judge(o, report, name, value, limit);
}

/// A goal on a value, if there is one and the run was long enough.
pub(crate) fn judge(
    o: &Options,
    report: &mut Report,
    name: &str,
    value: Option<f64>,
    limit: Limit,
) {
    match value {
        _ if o.quick => report.left_out(name, "--quick: too short to tell"),
        Some(value) => report.goal(name, value, limit),
        None => report.unmeasured(name, "its figure is missing"),
    }
}

/// The protections named as in the paper's table.
pub(crate) const fn how(means: Means) -> &'static str {
    match means {
        Means::TrackOnly => "tracked only",
        Means::Lazy => "lazy",
        Means::FirstStore => "write-protect + lazy",
        Means::Notified => "notification + lazy",
        Means::AtCommit => "at each commit",
        Means::Bare => "at each commit, bare",
    }
}
