//! The cases that goals hang on.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use holdfast_pmem::track::folios::Folios;

use super::Options;
use super::area::Area;
use super::cases::{Case, alone, goal, how, judge_of, run};
use super::hash::Hash;
use super::kept::{Kept, Means, Protection};
use super::loads::{Choice, KeyValue, Lines, Load, PAIRS, Pairs, fill};
use super::measure::{Both, Core};
use super::model::Model;
use super::tree::Tree;
use crate::place::Place;
use crate::report::{Limit, Report};
use crate::say::say;

/// Limits of the losses of a workload: with a period of one second, of thirty.
type Limits = (f64, f64);

/// Limits of the key-value workload, in memory.
const ZIPF: Limits = (0.04, 0.01);
const UNIFORM: Limits = (0.08, 0.015);
const READ_ONLY: f64 = 0.01;
/// On a disk: at most so many times these.
const ON_DISK: f64 = 2.0;
/// Limits of stores of 64 bytes.
const RANDOM: Limits = (0.45, 0.02);
const SEQUENTIAL: f64 = 0.02;
const OVER_MODEL: f64 = 1.25;
/// On a core of its own: the share of the faults and a fifth of it.
const OWN_CORE: f64 = 1.2;
/// Lazy over redundancy at each commit.
const OVER_COMMIT: f64 = 3.0;

pub(crate) fn pairs(o: &Options) -> u64 {
    if o.quick { PAIRS >> 5 } else { PAIRS }
}

/// Bytes of the file of lines.
pub(crate) fn lines_len(o: &Options) -> u64 {
    if o.quick { 32 << 20 } else { 1 << 30 }
}

fn rounds(o: &Options) -> usize {
    if o.quick { 1 } else { 5 }
}

pub(crate) fn hash(o: &Options, report: &mut Report) -> anyhow::Result<()> {
    let place = o.dir.clone();
    key_value::<Hash>(o, report, &place, "", 1.0)
}

pub(crate) fn tree(o: &Options, report: &mut Report) -> anyhow::Result<()> {
    let place = o.dir.clone();
    key_value::<Tree>(o, report, &place, "", 1.0)
}

/// The hash table again, on a disk, with pages cached one by one.
pub(crate) fn disk(o: &Options, report: &mut Report) -> anyhow::Result<()> {
    let folder = match &o.disk {
        Some(folder) => folder.clone(),
        None => target()?,
    };
    let place = Place::make(&folder).context("--disk")?;
    key_value::<Hash>(o, report, place.path(), "disk ", ON_DISK)
}

/// The folder this program was built into.
fn target() -> anyhow::Result<std::path::PathBuf> {
    let own = std::env::current_exe()?;
    Ok(own.parent().context("a program lies in a folder")?.to_owned())
}

fn key_value<P: Pairs>(
    o: &Options,
    report: &mut Report,
    dir: &Path,
    place: &str,
    times: f64,
) -> anyhow::Result<()> {
    let count = pairs(o);
    let area = Arc::new(Area::new(&dir.join("pairs"), P::room(count), Folios::Small)?);
    let twin = Arc::new(Area::new(&dir.join("twin"), P::room(count), Folios::Small)?);
    let pairs: [P; 2] = [fill(Arc::clone(&area), count), fill(Arc::clone(&twin), count)];
    say!("-- {place}{}, {count} pairs, {} MiB; {}", P::name(), area.len() >> 20, area.folios);
    for area in [&area, &twin] {
        std::fs::File::open(area.path())?.sync_all()?;
    }
    let lazy = Kept::new(&area, Protection::of(Means::Lazy))?;
    let model = Model::of(&lazy, false, rounds(o))?;
    say!("  a first store costs {:.0} ns, a page of a pass {:.0} ns", model.first, model.cover);
    let main = P::name() == "hash";
    let [kept, plain] = pairs.map(|pairs| KeyValue::new(pairs, count, Choice::Uniform, 100));
    let mut load = Both { kept, plain, twin };
    for (choice, limits) in [(Choice::Zipf, ZIPF), (Choice::Uniform, UNIFORM)] {
        load.again(count, choice, 100);
        let name = format!("{place}{} {} 100 %", P::name(), choice.name());
        let short = format!("{place}{}_{}", P::name(), choice.name()).replace([' ', '+'], "_");
        let case = |means, period, core| Case { load: &name, how: how(means), period, core };
        let second = case(Means::Lazy, 1, Core::Same);
        let figures = run(o, report, &mut load, &lazy, Some(model), second)?;
        alone(o, report, &mut load.plain, &name, figures.plain.iter().copied().fold(0.0, f64::max));
        goal(o, report, &format!("{short}_loss_1s"), second, limits.0 * times);
        if main || o.all {
            let long = case(Means::Lazy, 30, Core::Same);
            run(o, report, &mut load, &lazy, Some(model), long)?;
            goal(o, report, &format!("{short}_loss_30s"), long, limits.1 * times);
        }
        if o.all {
            let ten = case(Means::Lazy, 10, Core::Same);
            run(o, report, &mut load, &lazy, Some(model), ten)?;
        }
        if main {
            let own = case(Means::Lazy, 1, Core::Own);
            run(o, report, &mut load, &lazy, Some(model), own)?;
        }
    }
    if main {
        reads(o, report, &mut load, &lazy, model, (place, times))?;
    }
    drop(lazy);
    if main {
        faults(o, report, &mut load, &area, (place, times))?;
    }
    if times <= 1.0 {
        commits(o, report, &mut load, &area)?;
    }
    Ok(())
}

type Where<'a> = (&'a str, f64);

/// Shares of updates below all: none has a goal.
fn reads<P: Pairs>(
    o: &Options,
    report: &mut Report,
    load: &mut Both<KeyValue<P>>,
    lazy: &Kept,
    model: Model,
    (place, times): Where<'_>,
) -> anyhow::Result<()> {
    for percent in if o.all { vec![50, 5, 0] } else { vec![0] } {
        load.again(pairs(o), Choice::Uniform, percent);
        let name = format!("{place}{} uniform {percent} %", P::name());
        let case = Case { load: &name, how: how(Means::Lazy), period: 1, core: Core::Same };
        run(o, report, load, lazy, Some(model), case)?;
        if percent == 0 {
            let short = format!("{place}{}_read_only_loss_1s", P::name()).replace(' ', "_");
            goal(o, report, &short, case, READ_ONLY * times);
        }
    }
    Ok(())
}

/// What tracking alone takes from the program, and what an updater on its own core adds to it.
fn faults<P: Pairs>(
    o: &Options,
    report: &mut Report,
    load: &mut Both<KeyValue<P>>,
    area: &Arc<Area>,
    (place, times): Where<'_>,
) -> anyhow::Result<()> {
    let tracked = Kept::new(area, Protection::of(Means::TrackOnly))?;
    for choice in [Choice::Zipf, Choice::Uniform] {
        load.again(pairs(o), choice, 100);
        let name = format!("{place}{} {} 100 %", P::name(), choice.name());
        let case = |means| Case { load: &name, how: how(means), period: 1, core: Core::Own };
        run(o, report, load, &tracked, None, case(Means::TrackOnly))?;
        let loss = |means| report.median(&format!("loss {}", case(means).name()));
        let over = loss(Means::Lazy).zip(loss(Means::TrackOnly)).map(|(own, share)| own / share);
        let short = format!("{place}{}_{}_own_core_over_faults", P::name(), choice.name());
        let limit = Limit::AtMost(OWN_CORE * times);
        let cases = [case(Means::Lazy), case(Means::TrackOnly)];
        judge_of(o, report, &short.replace(' ', "_"), &cases, over, limit);
    }
    Ok(())
}

/// Redundancy at each commit, where each operation is one.
fn commits<P: Pairs>(
    o: &Options,
    report: &mut Report,
    load: &mut Both<KeyValue<P>>,
    area: &Arc<Area>,
) -> anyhow::Result<()> {
    for means in [Means::AtCommit, Means::Bare] {
        let kept = Kept::new(area, Protection::of(means))?;
        for choice in [Choice::Zipf, Choice::Uniform] {
            load.again(pairs(o), choice, 100);
            let name = format!("{} {} 100 %", P::name(), choice.name());
            commit(o, report, load, &kept, (&name, means))?;
        }
    }
    Ok(())
}

fn commit<L: Load>(
    o: &Options,
    report: &mut Report,
    load: &mut Both<L>,
    kept: &Kept,
    (name, means): (&str, Means),
) -> anyhow::Result<()> {
    let case = |means| Case { load: name, how: how(means), period: 1, core: Core::Same };
    run(o, report, load, kept, None, case(means))?;
    let rate = |means| report.median(&format!("kept {}", case(means).name()));
    let over = rate(Means::Lazy).zip(rate(means)).map(|(lazy, commit)| lazy / commit);
    if means == Means::AtCommit {
        let short = name.trim_end_matches(" 100 %").replace([' ', '+'], "_");
        let limit = Limit::AtLeast(OVER_COMMIT);
        let cases = [case(Means::Lazy), case(means)];
        judge_of(o, report, &format!("{short}_lazy_over_commit"), &cases, over, limit);
    } else if let Some(over) = over {
        say!("  lazy over {}, {name}: {over:.2}", how(means));
    }
    Ok(())
}

/// Stores of 64 bytes over a gibibyte.
pub(crate) fn lines(o: &Options, report: &mut Report) -> anyhow::Result<()> {
    let area = Arc::new(Area::new(&o.dir.join("lines"), lines_len(o), Folios::Small)?);
    let twin = Arc::new(Area::new(&o.dir.join("twin"), lines_len(o), Folios::Small)?);
    area.touch();
    twin.touch();
    let both = |choice| {
        let [kept, plain] = [&area, &twin].map(|area| Lines::new(Arc::clone(area), choice));
        Both { kept, plain, twin: Arc::clone(&twin) }
    };
    say!("-- stores of 64 B over {} MiB; {}", area.len() >> 20, area.folios);
    let lazy = Kept::new(&area, Protection::of(Means::Lazy))?;
    for (choice, long) in [
        (Choice::Uniform, Some(RANDOM.1)),
        (Choice::Zipf, None),
        (Choice::Sequential, Some(SEQUENTIAL)),
    ] {
        let model = Model::of(&lazy, choice == Choice::Sequential, rounds(o))?;
        say!("  a first store costs {:.0} ns, a page of a pass {:.0} ns", model.first, model.cover);
        let mut load = both(choice);
        let name = format!("lines {}", choice.name());
        let case = |period| Case { load: &name, how: how(Means::Lazy), period, core: Core::Same };
        let figures = run(o, report, &mut load, &lazy, Some(model), case(1))?;
        alone(o, report, &mut load.plain, &name, figures.plain.iter().copied().fold(0.0, f64::max));
        over_model(o, report, case(1));
        if choice == Choice::Uniform {
            goal(o, report, "lines_uniform_loss_1s", case(1), RANDOM.0);
        }
        if let Some(limit) = long {
            run(o, report, &mut load, &lazy, Some(model), case(30))?;
            goal(o, report, &format!("lines_{}_loss_30s", choice.name()), case(30), limit);
            over_model(o, report, case(30));
        }
        if o.all {
            run(o, report, &mut load, &lazy, Some(model), case(10))?;
            let own = Case { core: Core::Own, ..case(1) };
            run(o, report, &mut load, &lazy, Some(model), own)?;
        }
    }
    drop(lazy);
    for means in [Means::AtCommit, Means::Bare] {
        let kept = Kept::new(&area, Protection::of(means))?;
        for choice in [Choice::Uniform, Choice::Zipf, Choice::Sequential] {
            let mut load = both(choice);
            commit(o, report, &mut load, &kept, (&format!("lines {}", choice.name()), means))?;
        }
    }
    Ok(())
}

/// What was lost over what should have been.
fn over_model(o: &Options, report: &mut Report, case: Case<'_>) {
    let figure = |what: &str| report.median(&format!("{what} {}", case.name()));
    let over = figure("loss").zip(figure("model")).map(|(loss, model)| loss / model);
    let short = format!("{} {}s over model", case.load, case.period).replace(' ', "_");
    judge_of(o, report, &short, &[case], over, Limit::AtMost(OVER_MODEL));
}
