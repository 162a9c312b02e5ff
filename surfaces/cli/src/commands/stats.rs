//! `stats`: where the bytes of a pool are, what its journal and its last scrub counted, and what
//! the process that has it open has done since. Nothing is locked.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use holdfast::layout::{Region, RegionKind, Superblock};
use holdfast::{Event, Figures, Latency, Observer, ScrubStatus, Space};
use serde_json::{Value, json};

use crate::commands::pool::{space_json, state};
use crate::commands::scrub::{position, recorded, status_json};
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::out::{Out, count, facts};
use crate::session::{self, OWNER_WAIT};
use crate::size::{show, show_nanos};

/// How long an answer of the owner is waited for; one that is stopped does not give any.
const ANSWER_WAIT: Duration = Duration::from_millis(500);

/// What the process that has a pool open tells.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Told {
    pub(crate) figures: Figures,
    pub(crate) latency: Latency,
}

/// What is known of a pool at one moment, from outside and from its owner.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) state: String,
    pub(crate) superblock: Superblock,
    pub(crate) regions: Vec<Region>,
    pub(crate) space: Space,
    pub(crate) events: Vec<Event>,
    pub(crate) scrub: ScrubStatus,
    /// Whether both copies of the superblock are good.
    pub(crate) whole: bool,
    pub(crate) in_use: bool,
    /// Nothing if nobody has the pool open, or if whoever has does not answer.
    pub(crate) told: Option<Told>,
}

impl Snapshot {
    /// Looks at a pool and asks its owner, if there is one; one that does not listen yet is waited
    /// for. The heap is counted unless the figures are there already: that reads every slot.
    pub(crate) fn take(
        observer: &Observer,
        counted: Option<Space>,
        wait: Duration,
    ) -> Outcome<Self> {
        let ask = || {
            let mut owner = session::reach_within(observer, wait)?.with_patience(ANSWER_WAIT);
            let told = Told { figures: owner.figures().ok()?, latency: owner.latency().ok()? };
            Some((told, owner.scrub_status().ok()?))
        };
        let (told, scrub) = ask().unzip();
        let found = observer.found_superblock()?;
        let holder = observer.holder();
        let scrub = match scrub {
            Some(scrub) => scrub,
            None => recorded(observer)?,
        };
        Ok(Self {
            state: state(holder, found.superblock.clean),
            whole: !found.needs_heal() || found.superblock.copies < 2,
            superblock: found.superblock,
            regions: observer.regions()?,
            space: match counted {
                Some(space) => space,
                None => observer.space()?,
            },
            events: observer.events_from(0)?,
            scrub,
            in_use: holder.is_some(),
            told,
        })
    }

    /// Events of the journal by what became of them.
    pub(crate) fn outcomes(&self) -> BTreeMap<String, u64> {
        let mut outcomes = BTreeMap::new();
        for event in &self.events {
            *outcomes.entry(event.outcome.to_string()).or_default() += 1;
        }
        outcomes
    }

    /// Bytes of the pool by what they are for; they add up to its size, less what no region uses.
    pub(crate) fn kinds(&self) -> [(&'static str, u64); 8] {
        let s = &self.superblock;
        let of = |kind: RegionKind| {
            let regions = self.regions.iter().filter(move |region| region.kind == kind);
            regions.map(|region| region.len).sum::<u64>()
        };
        let zones = || self.regions.iter().filter(|region| region.kind == RegionKind::Zone);
        let parity: u64 =
            zones().map(|zone| u64::from(zone.parity_rows).saturating_mul(zone.row_len)).sum();
        let sides = of(RegionKind::SideA) + of(RegionKind::SideB);
        let log = (s.ring_len * u64::from(s.lanes)).saturating_mul(s.copies.into()).min(sides);
        let space = &self.space;
        let directory = of(RegionKind::Zone).saturating_sub(parity + space.total);
        [
            ("objects", space.object_bytes),
            ("slack in their places", space.used.saturating_sub(space.object_bytes)),
            ("slots and sums", space.overhead),
            ("free", space.free_chunks + space.free_places),
            ("parity", parity),
            ("directory", directory),
            ("log", log),
            ("other metadata, spare", (sides - log) + of(RegionKind::Spare)),
        ]
    }

    pub(crate) fn json(&self, path: &Path) -> Value {
        let kinds: serde_json::Map<String, Value> =
            self.kinds().into_iter().map(|(kind, bytes)| (kind.to_owned(), bytes.into())).collect();
        let s = &self.superblock;
        let mut scrub = status_json(path, &self.scrub);
        if let Some(scrub) = scrub.as_object_mut() {
            scrub.remove("path");
        }
        json!({
            "path": path.display().to_string(),
            "label": s.label,
            "size": s.size,
            "state": self.state,
            "in_use": self.in_use,
            "parity_rows": s.parity,
            "copies": s.copies,
            "superblock_copies_good": self.whole,
            "bytes": kinds,
            "space": space_json(&self.space),
            "journal": self.outcomes(),
            "last_event": self.events.last().map_or(0, |event| event.sequence),
            "scrub": scrub,
            "owner": self.told.as_ref().map(told_json),
        })
    }
}

fn told_json(told: &Told) -> Value {
    let Figures { stats, syncs, reserved, read_only, nanos } = told.figures;
    json!({
        "open_ns": nanos,
        "commits": stats.commits,
        "aborts": stats.aborts,
        "conflicts": stats.conflicts,
        "granules_verified": stats.verified,
        "log_reclaims": stats.reclaims,
        "detected": stats.detected,
        "repaired": stats.repaired,
        "lost": stats.lost,
        "syncs": syncs,
        "can_grow_to": reserved,
        "read_only": read_only,
        "latency_ns": latency_json(&told.latency),
    })
}

/// Percentiles people ask for.
pub(crate) const PARTS: [(&str, f64); 4] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

pub(crate) fn latency_json(latency: &Latency) -> Value {
    let parts = PARTS.map(|(name, part)| (name.to_owned(), json!(latency.quantile(part))));
    let mut all: serde_json::Map<String, Value> = parts.into_iter().collect();
    all.insert("count".to_owned(), latency.count().into());
    all.into()
}

/// Percentiles in a line.
pub(crate) fn latency_words(latency: &Latency) -> String {
    let show = |(name, part)| {
        let nanos = latency.quantile(part).map_or_else(|| "-".to_owned(), show_nanos);
        format!("{name} {nanos}")
    };
    PARTS.map(show).join(", ")
}

/// Shows the figures of a pool.
pub(crate) fn stats(out: Out, path: &Path) -> Outcome {
    let observer = Observer::open(path)?;
    let now = Snapshot::take(&observer, None, OWNER_WAIT)?;
    out.object("stats", now.json(path));
    out.words(format!("{}: {}", path.display(), now.state));
    let size = now.superblock.size;
    let mut rows: Vec<(&str, String)> = vec![("size", show(size))];
    for (kind, bytes) in now.kinds() {
        let tenths = u128::from(bytes) * 1000 / u128::from(size.max(1));
        rows.push((kind, format!("{}, {}.{} %", show(bytes), tenths / 10, tenths % 10)));
    }
    rows.push(("number of objects", now.space.objects.to_string()));
    rows.push(("largest free place", show(now.space.largest)));
    let journal: Vec<String> =
        now.outcomes().iter().map(|(outcome, events)| format!("{events} {outcome}")).collect();
    let journal = if journal.is_empty() { "empty".to_owned() } else { journal.join(", ") };
    rows.push(("journal", journal));
    let scrub = match now.scrub.progress.pass {
        0 => "never".to_owned(),
        pass => format!("pass {pass} {}: {}", now.scrub.state(), position(&now.scrub)),
    };
    rows.push(("scrub", scrub));
    if let Some(told) = &now.told {
        let Figures { stats, syncs, reserved, read_only, nanos } = told.figures;
        rows.push(("open for", show_nanos(nanos)));
        rows.push(("commits", stats.commits.to_string()));
        rows.push(("aborts", stats.aborts.to_string()));
        rows.push(("conflicts", stats.conflicts.to_string()));
        rows.push(("verified by reads", count(stats.verified, "granule")));
        rows.push(("log reclaims", stats.reclaims.to_string()));
        rows.push(("damages found", stats.detected.to_string()));
        rows.push(("repaired", stats.repaired.to_string()));
        rows.push(("lost", stats.lost.to_string()));
        rows.push(("writes and syncs", syncs.to_string()));
        rows.push(("transactions took", latency_words(&told.latency)));
        rows.push(("can grow to", show(reserved)));
        if read_only {
            rows.push(("changes", "refused".to_owned()));
        }
    }
    out.words(facts(&rows).to_string());
    if now.told.is_none() && now.in_use {
        out.note(
            "the process that has it open does not answer, and what it did is not known: it opens \
             the pool still, is stopped, or takes no commands of this user; try again",
        );
    }
    Ok(Exit::CLEAN)
}
