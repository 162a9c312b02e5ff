//! One workload under one protection: measured, held against the model, printed.

use std::time::Duration;

use super::Options;
use super::kept::{Kept, Means};
use super::loads::Load;
use super::measure::{Both, Core, Figures, Plan, driver, measure};
use super::model::Model;
use crate::report::{Limit, Report, Spread};
use crate::say::say;

/// Long against what refills a cache, short against what others on the machine do.
const TURN: Duration = Duration::from_millis(100);

/// Pages of a stripe.
const STRIPE: f64 = 4.0;

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

    /// How long and how often. One period of a second is short, so a round has three of them.
    fn plan(&self, o: &Options) -> Plan {
        let seconds = |s: f64| Duration::from_secs_f64(s);
        let core = self.core;
        if o.quick {
            let (period, turn) = (seconds(0.05), seconds(0.01));
            return Plan {
                period,
                periods: 3,
                rounds: 1,
                before: period,
                warm: period,
                turn,
                core,
            };
        }
        let period = seconds(f64::from(self.period));
        let (periods, rounds, before) = if self.period == 1 { (3, 5, 2.0) } else { (1, 3, 5.0) };
        let (before, warm) = (seconds(before), seconds(1.0));
        Plan { period, periods, rounds, before, warm, turn: TURN, core }
    }
}

/// Runs a case. Its loss is kept under `loss NAME`.
pub(crate) fn run<L: Load>(
    o: &Options,
    report: &mut Report,
    both: &mut Both<L>,
    kept: &Kept,
    model: Option<Model>,
    case: Case<'_>,
) -> anyhow::Result<Figures> {
    let name = case.name();
    if case.is_left_out(o) {
        return Ok(Figures::default());
    }
    let figures = measure(both, kept, &case.plan(o))?;
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
    // No two of them in one stripe: it is longer in truth.
    let exposed = (figures.pages() * STRIPE / figures.of_pages as f64).clamp(f64::EPSILON, 1.0);
    let lasts = Spread::of(vec![1.0 / exposed]);
    report.figure(&format!("data lasts longer than without, at least {name}"), "x", lasts);
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

/// How much faster the driver is alone than the loop that was measured, and a goal on it: losses
/// of a loop that is mostly driver are understated.
pub(crate) fn alone<L: Load>(
    o: &Options,
    report: &mut Report,
    load: &mut L,
    name: &str,
    rate: f64,
) {
    let times = (rate > 0.0).then(|| 1e9 / rate / driver(load));
    if let Some(times) = times {
        report.figure(&format!("driver alone {name}"), "x", Spread::of(vec![times]));
    }
    let short = format!("driver {name}").replace(" 100 %", "").replace([' ', '+'], "_");
    judge(o, report, &short, times, Limit::AtLeast(5.0));
}

/// A goal on a loss.
pub(crate) fn goal(o: &Options, report: &mut Report, name: &str, case: Case<'_>, limit: f64) {
    let figure = format!("loss {}", case.name());
    let value = report.median(&figure);
    judge_of(o, report, name, &[case], value, Limit::AtMost(limit));
}

/// Losses of rounds further apart say that others use the machine in a way that turns do not even
/// out: a loss of a few percent cannot be told from that.
const RESTLESS: f64 = 0.06;

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
    let apart = |case: &Case<'_>| report.apart(&format!("loss {}", case.name()));
    let most = cases.iter().filter_map(apart).fold(0.0, f64::max);
    if most > RESTLESS && !o.quick {
        let why = format!("the machine is not quiet: losses of rounds are {most:.2} apart");
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
