//! The figures as Prometheus reads them: its text format, version 0.0.4.

use std::fmt::{Display, Write};
use std::path::Path;

use crate::commands::stats::PARTS;
use crate::top::sample::View;

/// A page being written, all of one pool.
struct Page {
    text: String,
    pool: String,
}

impl Page {
    /// A family of figures: its name, what it is, and each figure with a label of its own, if it
    /// has one.
    fn family<V: Display>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        figures: &[(Option<(&str, &str)>, V)],
    ) {
        let text = &mut self.text;
        // Writing to a string does not fail.
        let _ = writeln!(text, "# HELP holdfast_{name} {help}\n# TYPE holdfast_{name} {kind}");
        for (label, figure) in figures {
            let label = label
                .map_or(String::new(), |(name, value)| format!(",{name}=\"{}\"", escaped(value)));
            let _ = writeln!(text, "holdfast_{name}{{pool=\"{}\"{label}}} {figure}", self.pool);
        }
    }

    fn gauge(&mut self, name: &str, help: &str, figure: impl Display) {
        self.family(name, "gauge", help, &[(None, figure)]);
    }

    fn counter(&mut self, name: &str, help: &str, figure: u64) {
        self.family(&format!("{name}_total"), "counter", help, &[(None, figure)]);
    }
}

/// A label's value.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// All figures of a look.
pub(crate) fn page(path: &Path, view: &View) -> String {
    let pool = escaped(&path.display().to_string());
    let mut page = Page { text: String::new(), pool };
    let now = &view.now;
    page.gauge("time_seconds", "When the figures were taken", view.time_ns / 1_000_000_000);
    page.gauge("in_use", "Whether a process has the pool open", u8::from(now.in_use));
    page.gauge("owner_answers", "Whether that process answers", u8::from(now.told.is_some()));
    page.gauge("size_bytes", "Bytes of the pool", now.superblock.size);
    let kinds = now.kinds();
    let kinds: Vec<_> = kinds.iter().map(|(kind, bytes)| (Some(("kind", *kind)), *bytes)).collect();
    page.family("bytes", "gauge", "Bytes of the pool by what they are for", &kinds);
    page.gauge("objects", "Live objects", now.space.objects);
    page.gauge("largest_free_bytes", "Bytes of the largest free place", now.space.largest);
    page.gauge("parity_rows", "Lost pages of a column that are rebuilt", now.superblock.parity);
    page.gauge("metadata_copies", "Copies of metadata and log", now.superblock.copies);
    page.gauge("superblock_whole", "Whether its copies are good", u8::from(now.whole));
    scrub(&mut page, view);
    let outcomes = now.outcomes();
    let outcomes: Vec<_> =
        outcomes.iter().map(|(name, events)| (Some(("outcome", name.as_str())), *events)).collect();
    page.family("journal_events", "gauge", "Events in the journal by outcome", &outcomes);
    let last = now.events.last().map_or(0, |event| event.sequence);
    page.counter("events", "Events since the pool was made", last);
    owner(&mut page, view);
    page.text
}

fn scrub(page: &mut Page, view: &View) {
    let status = &view.now.scrub;
    let progress = &status.progress;
    let states = ["idle", "running", "interrupted", "paused", "cancelled"];
    let states = states.map(|state| (Some(("state", state)), u8::from(state == status.state())));
    page.family("scrub_state", "gauge", "What the scrub does: 1 for the state it is in", &states);
    page.gauge("scrub_pass", "Number of the pass", progress.pass);
    page.gauge("scrub_position_bytes", "How far the pass is", progress.next);
    page.gauge("scrub_verified_bytes", "Bytes verified in the pass", progress.scanned);
    page.gauge("scrub_found", "Damages found in the pass", progress.found);
    page.gauge("scrub_repaired", "Damages repaired in the pass", progress.repaired);
    page.gauge("scrub_lost", "Damages beyond repair in the pass", progress.lost);
    page.gauge("scrub_undecided", "Damages nothing can judge in the pass", progress.undecided);
}

/// What only the owner knows; left out if it does not answer, so that nothing old looks new.
fn owner(page: &mut Page, view: &View) {
    let Some(told) = &view.now.told else { return };
    let figures = &told.figures;
    let stats = &figures.stats;
    page.gauge("open_seconds", "Since the pool was opened", figures.nanos / 1_000_000_000);
    page.counter("commits", "Transactions that changed something", stats.commits);
    let help = "Transactions given up: by an error, a panic, or a commit that failed";
    page.counter("aborts", help, stats.aborts);
    page.counter("conflicts", "Times a transaction was run again", stats.conflicts);
    page.counter("granules_verified", "Granules verified by reads", stats.verified);
    page.counter("log_reclaims", "Times the log was freed by a sync or a mark", stats.reclaims);
    page.counter("damages_found", "Damages found", stats.detected);
    page.counter("damages_repaired", "Damages repaired", stats.repaired);
    page.counter("damages_lost", "Damages beyond the redundancy", stats.lost);
    page.counter("syncs", "Writes and syncs of the file", figures.syncs);
    page.gauge("read_only", "Whether changes are refused", u8::from(figures.read_only));
    page.gauge("can_grow_to_bytes", "Size up to which it can grow now", figures.reserved);
    let Some(rates) = &view.rates else { return };
    let names = PARTS.map(|(_, part)| part.to_string());
    let mut parts = Vec::new();
    for ((_, part), name) in PARTS.iter().zip(&names) {
        if let Some(nanos) = rates.latency.quantile(*part) {
            parts.push((Some(("quantile", name.as_str())), nanos as f64 / 1e9));
        }
    }
    let help = "How long transactions took since the last look, reads included, from a sample";
    page.family("transaction_seconds", "gauge", help, &parts);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_cannot_break_out() {
        let pool = escaped("a\"} 1\nb\\");
        assert_eq!(pool, "a\\\"} 1\\nb\\\\");
        let mut page = Page { text: String::new(), pool };
        page.gauge("size_bytes", "Bytes", 7);
        assert_eq!(page.text.lines().count(), 3);
        assert!(page.text.ends_with(" 7\n"));
    }
}
