//! `check` and `repair`: everything in a pool is looked at; repaired if asked for.

use std::path::Path;
use std::time::Instant;

use holdfast::collections::CheckReport as MapReport;
use holdfast::{
    CheckReport, Event, Finding, Key, MapInfo, Observer, Owner, Pool, ScrubOptions, Summary,
    TypeNumber, VerifyReads,
};
use serde_json::{Value as Json, json};

use crate::args::CheckArgs;
use crate::commands::events::event_json;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out::{Out, count, table};
use crate::progress::Progress;
use crate::session::{self, Access};
use crate::size::{show, show_nanos};

/// Findings shown to people who did not ask for more.
const SHOWN: usize = 20;
/// Findings in an object.
const LISTED: usize = 1000;
/// How the summary of a scrub ends that did not get to its end.
pub(crate) const STOPPED: &str = "; stopped before the end, `scrub resume` goes on";
/// Passes of a repair: a later one finds what an earlier one uncovered.
const PASSES: u32 = 3;

/// What a check came to.
#[derive(Debug, Default)]
struct Verdict {
    /// Damages found, by opening, by passing over the pool, in maps.
    found: u64,
    repaired: u64,
    lost: u64,
    /// Damages there at the end.
    left: u64,
    report: CheckReport,
    /// What opening the pool found, as its journal tells it.
    opening: Vec<Event>,
    maps: Vec<MapVerdict>,
    nanos: u64,
    interrupted: bool,
}

/// What checking a map came to.
#[derive(Debug)]
struct MapVerdict {
    name: String,
    report: MapReport,
}

/// `check`.
pub(crate) fn check(out: Out, args: &CheckArgs) -> Outcome {
    if args.repair && !args.dry_run {
        return repair_as(out, "check", &args.pool);
    }
    let known = last_event(&args.pool);
    let privately = Pool::options().verify_reads(VerifyReads::Always);
    match session::open_or_reach(&args.pool, |path| privately.open_private(path))? {
        Access::Here(pool) if args.repair => {
            let verdict = mend(out, &pool, known, "would repair")?;
            Ok(tell(out, "check", &args.pool, &verdict, Mode::DryRun))
        }
        Access::Here(pool) => {
            let verdict = look(out, "check", &pool, known)?;
            Ok(tell(out, "check", &args.pool, &verdict, Mode::Look))
        }
        Access::Owner(_) if args.repair => Err(Failure::new(
            "locked",
            format!("{}: is in use, and its owner repairs for good", args.pool.display()),
            "leave out --dry-run, or close the pool first",
        )),
        Access::Owner(owner) => by_owner(out, "check", &args.pool, owner, false),
    }
}

/// `repair`.
pub(crate) fn repair(out: Out, path: &Path) -> Outcome {
    repair_as(out, "repair", path)
}

fn repair_as(out: Out, command: &str, path: &Path) -> Outcome {
    let known = last_event(path);
    let options = Pool::options().verify_reads(VerifyReads::Always);
    let pool = match session::open_or_reach(path, |path| options.open(path))? {
        Access::Here(pool) => pool,
        Access::Owner(owner) => return by_owner(out, command, path, owner, true),
    };
    let verdict = mend(out, &pool, known, "repairing")?;
    drop(pool);
    Ok(tell(out, command, path, &verdict, Mode::Repair))
}

/// Number of the last event in the journal before the pool is opened. A journal that cannot be
/// read has none: then all of its events seem new, and are told.
fn last_event(path: &Path) -> u64 {
    let events = Observer::open(path).and_then(|observer| observer.events_from(0));
    events.ok().and_then(|events| events.last().map(|event| event.sequence)).unwrap_or(0)
}

/// Looks at everything, repairs nothing on purpose. What had to be mended to open the pool was
/// mended on pages that are thrown away.
fn look(out: Out, command: &str, pool: &Pool, known: u64) -> Outcome<Verdict> {
    let started = Instant::now();
    let at_open = pool.stats();
    let opening = pool.events_from(known.saturating_add(1));
    let progress = Progress::bytes(out, "checking");
    let mut report = pool.check(|done, all| {
        progress.set(done, all);
        crate::interrupt::end_if_asked(out, command);
    })?;
    progress.done();
    if !report.is_clean() {
        // Maps are walked as a repair would leave them: what is wrong then is lost. And a repair
        // tells which damages there are, where a look sees an object and its column disagree.
        let stop = |_: &_, _| crate::interrupt::end_if_asked(out, command);
        let mended = pool.scrub(ScrubOptions::default(), stop)?.report;
        report = if mended.is_clean() { report } else { mended };
    }
    let maps = check_maps(pool)?;
    let found = at_open.detected + report.found + broken(&maps);
    let nanos = nanos(started);
    Ok(Verdict { found, left: found, report, opening, maps, nanos, ..Verdict::default() })
}

/// Looks at everything and repairs it, until a pass finds nothing or nothing more can be done.
fn mend(out: Out, pool: &Pool, known: u64, what: &str) -> Outcome<Verdict> {
    let started = Instant::now();
    let mut verdict =
        Verdict { opening: pool.events_from(known.saturating_add(1)), ..Verdict::default() };
    let at_open = pool.stats();
    verdict.found = at_open.detected;
    verdict.repaired = at_open.repaired;
    for pass in 0..PASSES {
        let progress = Progress::bytes(out, what);
        let done = pool.scrub(ScrubOptions::default(), |state, all| {
            progress.set(state.next, all);
            if crate::interrupt::asked() {
                pool.scrub_control().pause();
            }
        })?;
        progress.done();
        if pass == 0 {
            verdict.report = done.report.clone();
        }
        verdict.found += done.report.found;
        verdict.repaired += done.repaired;
        verdict.interrupted = done.state != holdfast::ScrubState::Idle;
        if done.report.is_clean() || done.repaired == 0 || verdict.interrupted {
            break;
        }
    }
    if !verdict.interrupted {
        let rest = pool.check(|_, _| {})?;
        verdict.maps = check_maps(pool)?;
        verdict.left = rest.found + broken(&verdict.maps);
        verdict.lost = rest.found;
    }
    verdict.nanos = nanos(started);
    Ok(verdict)
}

/// Lets the owner of the pool do it.
fn by_owner(out: Out, command: &str, path: &Path, mut owner: Owner, repair: bool) -> Outcome {
    let progress = Progress::bytes(out, "the owner is at it");
    let summary = if repair {
        let mut pausing = Pausing::new(path);
        owner.scrub(ScrubOptions::default(), |done, all| {
            progress.set(done, all);
            pausing.pause_if_asked();
        })?
    } else {
        owner.check(|done, all| {
            progress.set(done, all);
            crate::interrupt::end_if_asked(out, command);
        })?
    };
    progress.done();
    Ok(tell_summary(out, command, path, &summary, repair))
}

/// Pauses the scrub of an owner once somebody interrupts the command that waits for it.
pub(crate) struct Pausing<'a> {
    path: &'a Path,
    done: bool,
}

impl<'a> Pausing<'a> {
    pub(crate) fn new(path: &'a Path) -> Self {
        Self { path, done: false }
    }

    pub(crate) fn pause_if_asked(&mut self) {
        if crate::interrupt::asked() && !self.done {
            // The connection that waits hears of it. An owner that does not answer is left by a
            // second interrupt.
            let asked = Owner::reach(self.path).map(|mut owner| owner.pause_scrub());
            self.done = matches!(asked, Some(Ok(_)));
        }
    }
}

/// Tells what an owner answered.
pub(crate) fn tell_summary(
    out: Out,
    command: &str,
    path: &Path,
    summary: &Summary,
    repair: bool,
) -> Exit {
    let Summary { found, repaired, lost, .. } = *summary;
    let left = if repair { lost + summary.undecided } else { found };
    out.object(command, summary_json(path, summary, left));
    out.words(format!(
        "{} {} and {} in {}: {found} damaged, {repaired} repaired, {lost} lost{}{}",
        if repair { "scrubbed" } else { "checked" },
        show(summary.column_bytes),
        count(summary.objects, "object"),
        show_nanos(summary.nanos),
        undecided(summary.undecided),
        if summary.stopped { STOPPED } else { "" },
    ));
    exit_of(found, left, summary.stopped)
}

/// What to add about findings that nothing can judge.
pub(crate) fn undecided(count: u64) -> String {
    if count == 0 { String::new() } else { format!(", {count} undecided and left alone") }
}

pub(crate) fn summary_json(path: &Path, summary: &Summary, left: u64) -> Json {
    json!({
        "path": path.display().to_string(),
        "by": "owner",
        "objects": summary.objects,
        "object_bytes": summary.object_bytes,
        "column_bytes": summary.column_bytes,
        "found": summary.found,
        "repaired": summary.repaired,
        "lost": summary.lost,
        "undecided": summary.undecided,
        "left": left,
        "interrupted": summary.stopped,
        "nanos": summary.nanos,
    })
}

/// Codes of a command that found so much and left so much.
pub(crate) fn exit_of(found: u64, left: u64, interrupted: bool) -> Exit {
    let exit = match (found, left) {
        (_, 1..) => Exit::LEFT,
        (1.., 0) => Exit::CORRECTED,
        (0, 0) => Exit::CLEAN,
    };
    if interrupted { exit.and(Exit::CANCELLED) } else { exit }
}

/// How a check was meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Look,
    DryRun,
    Repair,
}

fn tell(out: Out, command: &str, path: &Path, verdict: &Verdict, mode: Mode) -> Exit {
    let Verdict { found, repaired, lost, report, .. } = verdict;
    // What was repaired on pages that are thrown away is still there in the file.
    let left = if mode == Mode::Repair { verdict.left } else { *found };
    out.object(
        command,
        json!({
            "path": path.display().to_string(),
            "by": "command",
            "dry_run": mode != Mode::Repair,
            "objects": report.objects,
            "object_bytes": report.object_bytes,
            "column_bytes": report.column_bytes,
            "found": found,
            "repaired": repaired,
            "lost": lost,
            "left": left,
            "interrupted": verdict.interrupted,
            "nanos": verdict.nanos,
            "at_open": verdict.opening.iter().map(event_json).collect::<Vec<_>>(),
            "findings": report.findings.iter().take(LISTED).map(finding_json).collect::<Vec<_>>(),
            "maps": verdict.maps.iter().map(map_json).collect::<Vec<_>>(),
        }),
    );
    if !out.json {
        tell_people(out, verdict, mode, left);
    }
    exit_of(*found, left, verdict.interrupted)
}

fn tell_people(out: Out, verdict: &Verdict, mode: Mode, left: u64) {
    let report = &verdict.report;
    let opening = verdict.opening.iter().map(row_of_event);
    let rows: Vec<[String; 4]> = opening.chain(report.findings.iter().map(row_of)).collect();
    if !rows.is_empty() {
        let shown = if out.verbose > 0 { rows.len() } else { SHOWN };
        let mut shown_rows = table(&["at", "bytes", "verdict", "object"]);
        shown_rows.add_rows(rows.iter().take(shown));
        out.words(shown_rows.to_string());
        if rows.len() > shown {
            out.words(format!("... {} more (-v shows all)", rows.len() - shown));
        }
    }
    for map in &verdict.maps {
        for finding in &map.report.findings {
            out.answer(format!("map `{}`: {finding}", map.name));
        }
        out.more(|| format!("entries in map `{}`: {}", map.name, map.report.entries));
    }
    let Verdict { found, repaired, lost, .. } = verdict;
    let did = match mode {
        Mode::Look => format!("{found} damaged"),
        Mode::DryRun => {
            format!("{found} damaged, {repaired} can be repaired, {lost} are lost; nothing changed")
        }
        Mode::Repair => format!("{found} damaged, {repaired} repaired, {left} left"),
    };
    let (objects, bytes) = (count(report.objects, "object"), show(report.column_bytes));
    out.words(format!("{objects}, {bytes} in {}: {did}", show_nanos(verdict.nanos)));
    if mode == Mode::Look && *found > 0 {
        out.words("the file was not changed; `holdfast repair` repairs what can be");
    }
}

/// What a pass found, as a row of the table.
fn row_of(finding: &Finding) -> [String; 4] {
    [
        format!("{:#x}", finding.at),
        finding.len.to_string(),
        finding.verdict.to_string(),
        object_of(finding).unwrap_or_default(),
    ]
}

/// What opening found.
fn row_of_event(event: &Event) -> [String; 4] {
    let wrong = event.wrong.map_or_else(|| event.cause.to_string(), |wrong| wrong.to_string());
    let verdict = format!("corrupt: {wrong}, found by {}", event.finder);
    [format!("{:#x}", event.at), event.len.to_string(), verdict, String::new()]
}

/// One finding as an object.
fn finding_json(finding: &Finding) -> Json {
    json!({
        "at": finding.at,
        "len": finding.len,
        "verdict": finding.verdict.to_string(),
        "object": object_of(finding),
    })
}

fn object_of(finding: &Finding) -> Option<String> {
    (!finding.object.is_null()).then(|| finding.object.to_string())
}

fn map_json(map: &MapVerdict) -> Json {
    json!({
        "name": map.name,
        "entries": map.report.entries,
        "findings": map.report.findings,
    })
}

/// Maps that contradict themselves.
fn broken(maps: &[MapVerdict]) -> u64 {
    maps.iter().filter(|map| !map.report.is_sound()).count() as u64
}

/// Checks the catalogue and every map. Objects that are lost show as
/// findings of the maps they belong to.
fn check_maps(pool: &Pool) -> Outcome<Vec<MapVerdict>> {
    let name = "(catalogue)".to_owned();
    let catalogue = match pool.check_catalogue() {
        Ok(report) => report,
        Err(error) => failed(&error),
    };
    let sound = catalogue.is_sound();
    let mut verdicts = vec![MapVerdict { name, report: catalogue }];
    if sound {
        for (name, info) in pool.maps()? {
            let report = check_map(pool, &name, &info);
            verdicts.push(MapVerdict { name, report });
        }
    }
    Ok(verdicts)
}

/// Checks one map: as texts where it has some, else as what all maps are.
fn check_map(pool: &Pool, name: &str, info: &MapInfo) -> MapReport {
    let types = (info.key, info.value);
    let text = <str as Key>::TYPE;
    let checked = if types == (text, text) {
        pool.existing_map::<str, str>(name).and_then(|map| map.map(|map| map.check()).transpose())
    } else if types == (text, TypeNumber::BYTES) {
        pool.existing_map::<str, [u8]>(name).and_then(|map| map.map(|map| map.check()).transpose())
    } else {
        pool.run(|tx| {
            let Some(header) = pool.map_header(tx, name)? else { return Ok(None) };
            MapInfo::open_untyped(tx, header)?.check(tx).map(Some)
        })
    };
    checked.map_or_else(|error| failed(&error), Option::unwrap_or_default)
}

/// A report that says that there is none.
fn failed(error: &holdfast::Error) -> MapReport {
    MapReport { findings: vec![error.cause()], ..MapReport::default() }
}

fn nanos(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
