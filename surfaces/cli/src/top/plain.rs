//! The figures without a screen: a table, a line for each look, objects for programs.

use std::path::Path;

use holdfast::Latency;
use serde_json::{Value, json};

use crate::commands::events::{event_json, line as event_line};
use crate::commands::scrub::{percent, position};
use crate::commands::stats::{latency_json, latency_words};
use crate::out::{Out, facts};
use crate::size::{show, show_nanos, show_time};
use crate::top::sample::View;

/// Events told.
const EVENTS: usize = 8;

/// A number a second, for people.
pub(crate) fn rate(number: f64) -> String {
    if number < 10.0 { format!("{number:.1}/s") } else { format!("{number:.0}/s") }
}

/// What the scrub does, in words.
pub(crate) fn scrub(view: &View) -> String {
    let status = &view.now.scrub;
    if status.progress.pass == 0 {
        return "never".to_owned();
    }
    let speed = view.scrubbed.map_or(String::new(), |bytes| format!(", {}/s", show(bytes as u64)));
    format!("pass {} {}: {}{speed}", status.progress.pass, status.state(), position(status))
}

/// What there is to say, each with its name.
pub(crate) fn rows(view: &View) -> Vec<(&'static str, String)> {
    let now = &view.now;
    let mut rows = vec![("state", now.state.clone())];
    match (&view.rates, &now.told) {
        (Some(rates), Some(told)) => {
            let over = if rates.since_open { " since it was opened" } else { "" };
            rows.push(("open for", show_nanos(told.figures.nanos)));
            rows.push(("commits", format!("{}{over}", rate(rates.commits))));
            rows.push(("transactions", format!("{}{over}", rate(rates.transactions))));
            let (aborts, conflicts) = (rate(rates.aborts), rate(rates.conflicts));
            rows.push(("aborts, conflicts", format!("{aborts}, {conflicts}")));
            rows.push(("verified by reads", format!("{} granules", rate(rates.verified))));
            rows.push(("log reclaims", rate(rates.reclaims)));
            rows.push(("writes and syncs", rate(rates.syncs)));
            rows.push(("took", latency_words(&rates.latency)));
            let stats = &told.figures.stats;
            let damages = format!(
                "{} found, {} repaired, {} lost",
                stats.detected, stats.repaired, stats.lost
            );
            rows.push(("damages", damages));
        }
        _ if now.in_use => rows.push(("owner", "does not answer".to_owned())),
        _ => rows.push(("owner", "nobody".to_owned())),
    }
    rows.push(("redundancy", view.redundancy()));
    rows.push(("scrub", scrub(view)));
    rows.push(("size", show(now.superblock.size)));
    let (used, free) = (now.space.used, now.space.free_chunks + now.space.free_places);
    rows.push(("used", format!("{} in {} objects", show(used), now.space.objects)));
    rows.push(("free", show(free)));
    rows
}

/// The last events, newest first, each in a line.
pub(crate) fn last_events(view: &View, most: usize) -> Vec<String> {
    view.now.events.iter().rev().take(most).map(event_line).collect()
}

/// Prints all of it.
pub(crate) fn once(out: Out, path: &Path, view: &View) {
    out.object("top", object(path, view));
    out.words(format!("{} at {}", path.display(), show_time(view.time_ns)));
    out.words(facts(&rows(view)).to_string());
    for event in last_events(view, EVENTS) {
        out.words(event);
    }
}

/// Prints a line of it.
pub(crate) fn line(out: Out, path: &Path, view: &View) {
    out.item("top", object(path, view), || {
        let did = match &view.rates {
            Some(rates) => format!(
                "commits {}  transactions {}  {}",
                rate(rates.commits),
                rate(rates.transactions),
                latency_words(&rates.latency)
            ),
            None if view.now.in_use => "its owner does not answer".to_owned(),
            None => view.now.state.clone(),
        };
        let status = &view.now.scrub;
        let scrub = match status.state() {
            "running" => format!("running, {} %", percent(status)),
            state => state.to_owned(),
        };
        let free = view.now.space.free_chunks + view.now.space.free_places;
        let last = view.now.events.last().map_or(0, |event| event.sequence);
        format!(
            "{}  {did}  scrub {scrub}  events {last}  free {}",
            show_time(view.time_ns),
            show(free)
        )
    });
}

fn object(path: &Path, view: &View) -> Value {
    let mut body = view.now.json(path);
    body["time_ns"] = view.time_ns.into();
    body["redundancy"] = view.redundancy().into();
    body["rates"] = view.rates.as_ref().map_or(Value::Null, |rates| {
        json!({
            "since_open": rates.since_open,
            "commits_per_second": rates.commits,
            "transactions_per_second": rates.transactions,
            "aborts_per_second": rates.aborts,
            "conflicts_per_second": rates.conflicts,
            "granules_verified_per_second": rates.verified,
            "log_reclaims_per_second": rates.reclaims,
            "syncs_per_second": rates.syncs,
            "latency_ns": latency_json(&rates.latency),
        })
    });
    body["scrubbed_bytes_per_second"] = json!(view.scrubbed);
    let events = view.now.events.iter().rev().take(EVENTS);
    body["events"] = events.map(event_json).collect();
    body
}

/// A percentile for people.
pub(crate) fn part(latency: &Latency, part: f64) -> String {
    latency.quantile(part).map_or_else(|| "-".to_owned(), show_nanos)
}
