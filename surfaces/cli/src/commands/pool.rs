//! `pool create` and `pool info`.

use std::path::Path;

use holdfast::layout::{Region, RegionKind, Superblock};
use holdfast::protect::KeptRegion;
use holdfast::{ErrorKind, MapInfo, Observer, Parity, Pool, Space, Status, SumKind};
use serde_json::{Value, json};

use crate::args::{CreateArgs, ParityArg, SumsArg};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out::{Out, facts, hex};
use crate::session;
use crate::size::{show, show_time};

/// Makes a pool.
pub(crate) fn create(out: Out, args: &CreateArgs) -> Outcome {
    refuse_none(args)?;
    let mut options = Pool::options()
        .size(args.size)
        .parity(match args.parity {
            ParityArg::None => Parity::None,
            ParityArg::P => Parity::P,
            ParityArg::Pq => Parity::PQ,
        })
        .sums(match args.sums {
            SumsArg::None => SumKind::None,
            SumsArg::Crc32c => SumKind::Crc32c,
            SumsArg::Adler32 => SumKind::Adler32,
        })
        .label(args.label.as_str())
        .allow_inject(args.allow_inject)
        .metadata_copies(!args.single_copy);
    if let Some(rows) = args.rows {
        options = options.rows(rows);
    }
    if let Some(frame) = args.frame {
        options = options.frame(frame);
    }
    if let Some(chunk) = args.chunk {
        options = options.chunk(chunk);
    }
    if let Some(lanes) = args.lanes {
        options = options.lanes(lanes);
    }
    if let Some(log) = args.log {
        options = options.log(log);
    }
    if let Some(events) = args.events {
        options = options.events(events);
    }
    let pool = options.create(&args.pool)?;
    let (superblock, regions, status) = (pool.superblock(), pool.regions(), pool.status());
    let space = pool.space();
    drop(pool);
    let about = About { superblock: &superblock, regions: &regions, status: &status };
    out.object("pool create", about.json(&args.pool, Some(&space), None));
    out.words(format!("created {}", args.pool.display()));
    out.words(about.table(Some(&space)).to_string());
    Ok(Exit::CLEAN)
}

/// Refuses counts and lengths of zero: to whoever asks for them they do not mean a choice by size.
fn refuse_none(args: &CreateArgs) -> Outcome<()> {
    let none = [
        ("--lanes", args.lanes == Some(0), "no transaction could run"),
        ("--log", args.log == Some(0), "no transaction could be made durable"),
        ("--chunk", args.chunk == Some(0), "no object would have a place"),
        ("--events", args.events == Some(0), "no event would be kept"),
    ];
    let Some((option, _, why)) = none.into_iter().find(|(_, none, _)| *none) else {
        return Ok(());
    };
    Err(Failure::usage(
        format!("{option} 0: {why}"),
        format!("give {option} at least 1, or leave it out for what fits the pool"),
    ))
}

/// Shows a pool: what an observer sees and, if nobody has it open, what is in it.
pub(crate) fn info(out: Out, path: &Path) -> Outcome {
    let observer = Observer::open(path)?;
    let found = observer.found_superblock()?;
    let (regions, status) = (observer.regions()?, observer.status());
    let about = About { superblock: &found.superblock, regions: &regions, status: &status };
    let holder = observer.holder();
    let (mut space, mut maps, mut exit, mut refusal) = (None, None, Exit::CLEAN, None);
    let mut kept = Vec::new();
    match session::to_look(path) {
        Ok(pool) => {
            space = Some(pool.space());
            maps = Some(pool.maps()?);
            kept = KeptRegion::of(&pool)?;
            exit = session::finish(out, pool, false)?;
        }
        Err(Failure::Pool(error)) if error.kind() == ErrorKind::Locked => {}
        Err(failure) => refusal = Some(failure),
    }
    let state = state(holder, found.superblock.clean);
    let mut body = about.json(path, space.as_ref(), maps.as_deref());
    body["state"] = state.as_str().into();
    body["in_use"] = holder.is_some().into();
    body["events"] = observer.events_from(0)?.last().map_or(0, |event| event.sequence).into();
    body["files"] = super::sweep::json_of(&kept).into();
    out.object("pool info", body);
    out.words(format!("{}: {state}", path.display()));
    out.words(about.table(space.as_ref()).to_string());
    if out.verbose > 0 {
        out.words(about.region_table().to_string());
    }
    if let Some(maps) = &maps
        && !maps.is_empty()
    {
        out.words(super::map::table_of(maps).to_string());
    }
    if !kept.is_empty() {
        out.words(super::sweep::table_of(&kept).to_string());
    }
    refusal.map_or(Ok(exit), Err)
}

/// What is known of a pool without opening it.
struct About<'a> {
    superblock: &'a Superblock,
    regions: &'a [Region],
    status: &'a Status,
}

impl About<'_> {
    fn json(
        &self,
        path: &Path,
        space: Option<&Space>,
        maps: Option<&[(String, MapInfo)]>,
    ) -> Value {
        let s = self.superblock;
        json!({
            "path": path.display().to_string(),
            "label": s.label,
            "uuid": hex(&s.uuid),
            "size": s.size,
            "clean": s.clean,
            "parity_rows": s.parity,
            "rows": s.rows,
            "sums": sums(s.sum_kind),
            "copies": s.copies,
            "frame": s.frame,
            "chunk": s.chunk,
            "lanes": s.lanes,
            "log": s.ring_len * u64::from(s.lanes),
            "allow_inject": s.allow_inject,
            "medium": self.status.kind.to_string(),
            "file_system": self.status.file_system,
            "survives": self.survives(),
            "regions": self.regions.iter().map(region_json).collect::<Vec<_>>(),
            "space": space.map(space_json),
            "maps": maps.map(super::map::json_of),
        })
    }

    /// What a commit of a writer would survive: the mapping here may be one that only looks.
    fn survives(&self) -> &'static str {
        match self.status.kind {
            holdfast_pmem::MediumKind::Shm => "process crash only",
            _ => "power cut",
        }
    }

    fn table(&self, space: Option<&Space>) -> comfy_table::Table {
        let s = self.superblock;
        let parity = match Parity::from_rows(s.parity) {
            Parity::None => "none: damage is found, not repaired".to_owned(),
            Parity::P => "P: one lost page of each column is rebuilt".to_owned(),
            Parity::PQ => "P and Q: two lost pages of each column are rebuilt".to_owned(),
        };
        let copies = if s.copies == 2 { "twice" } else { "once" };
        let mut rows = vec![
            ("size", show(s.size)),
            ("label", s.label.clone()),
            ("medium", format!("{} ({})", self.status.kind, self.status.file_system)),
            ("a commit survives", self.survives().to_owned()),
            ("parity", parity),
            ("sums", sums(s.sum_kind).to_owned()),
            ("metadata and log", copies.to_owned()),
            ("largest loss survived", format!("{} in one place", show(s.frame))),
            ("faults on purpose", if s.allow_inject { "allowed" } else { "refused" }.to_owned()),
        ];
        if s.label.is_empty() {
            rows.retain(|(what, _)| *what != "label");
        }
        if let Some(space) = space {
            let free = space.free_chunks + space.free_places;
            rows.push(("objects", format!("{} of {}", space.objects, show(space.object_bytes))));
            rows.push(("free", format!("{}, largest object {}", show(free), show(space.largest))));
        }
        facts(&rows)
    }

    fn region_table(&self) -> comfy_table::Table {
        let mut table = crate::out::table(&["region", "start", "bytes", "rows", "row"]);
        for region in self.regions {
            let rows = match region.kind {
                RegionKind::Zone => format!("{}+{}", region.data_rows, region.parity_rows),
                _ => String::new(),
            };
            let row = if region.row_len > 0 { show(region.row_len) } else { String::new() };
            let start = format!("{:#x}", region.start);
            table.add_row([region_name(region), start, show(region.len), rows, row]);
        }
        table
    }
}

/// What a pool is doing: who has it open for writing, or how it was left.
pub(crate) fn state(holder: Option<Option<u32>>, clean: bool) -> String {
    match holder {
        Some(Some(process)) => format!("in use by process {process}"),
        Some(None) => "in use".to_owned(),
        None if clean => "closed".to_owned(),
        None => "not closed; it is recovered when it is opened next".to_owned(),
    }
}

fn sums(kind: SumKind) -> &'static str {
    match kind {
        SumKind::None => "none",
        SumKind::Crc32c => "crc32c",
        SumKind::Adler32 => "adler32",
    }
}

fn region_name(region: &Region) -> String {
    match region.kind {
        RegionKind::SideA => "side A".to_owned(),
        RegionKind::SideB => "side B".to_owned(),
        RegionKind::Spare => "spare frames".to_owned(),
        RegionKind::Zone => "zone".to_owned(),
        RegionKind::Unknown(code) => format!("unknown ({code})"),
    }
}

fn region_json(region: &Region) -> Value {
    json!({
        "kind": region_name(region),
        "start": region.start,
        "len": region.len,
        "data_rows": region.data_rows,
        "parity_rows": region.parity_rows,
        "row_len": region.row_len,
    })
}

pub(crate) fn space_json(space: &Space) -> Value {
    json!({
        "total": space.total,
        "used": space.used,
        "overhead": space.overhead,
        "free_chunks": space.free_chunks,
        "free_places": space.free_places,
        "objects": space.objects,
        "object_bytes": space.object_bytes,
        "largest": space.largest,
    })
}

/// A moment of the journal; the start of time is none.
pub(crate) fn moment(nanos: u64) -> String {
    if nanos == 0 { "-".to_owned() } else { show_time(nanos) }
}
