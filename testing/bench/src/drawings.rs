//! Which charts are drawn, from which figures.

use std::path::Path;

use crate::charts::{Chart, Series};
use crate::foreign::pmemobj::MAPS;
use crate::race::Racer;
use crate::race::maps::MILLION;
use crate::report::Report;
use crate::scrubbed;

/// Draws every chart of which something was measured.
pub(crate) fn draw(report: &Report, dir: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir)?;
    let sizes = [64, 256, 1024, 4096];
    for threads in [1, 2] {
        for (file, what, set) in [
            ("overwrite-hot", "overwrite", " hot"),
            ("overwrite-cold", "overwrite", " cold"),
            ("overwrite-8-hot", "overwrite 8 B of", " hot"),
            ("overwrite-8-cold", "overwrite 8 B of", " cold"),
            ("alloc", "alloc", ""),
            ("free", "free", ""),
        ] {
            let names: Vec<_> =
                sizes.iter().map(|len| format!("{what} {len}{set} {threads}t")).collect();
            Chart {
                title: format!("{what}{set}, {threads} thread(s), per thread"),
                unit: "ns",
                groups: sizes.iter().map(|len| format!("{len} B")).collect(),
                series: raced(report, &names, &Racer::all(true)),
            }
            .save(&dir.join(format!("{file}-{threads}.svg")))?;
        }
    }
    for op in ["insert", "get", "remove"] {
        for len in [0, 100] {
            let names: Vec<_> = MAPS.iter().map(|map| format!("{map} {op} v{len}")).collect();
            Chart {
                title: format!("{op}, values of {len} bytes"),
                unit: "ns",
                groups: MAPS.iter().map(|map| (*map).to_owned()).collect(),
                series: raced(report, &names, &[Racer::Full, Racer::Peer, Racer::Replica]),
            }
            .save(&dir.join(format!("maps-{op}-{len}.svg")))?;
        }
    }
    growth(report, dir)?;
    let loads = ["1 insert, 1t", "1 insert, 2t", "64 inserts, 2t"];
    let stores = ["ours", "LMDB", "SQLite", "redb", "floor"];
    let of = |name| Series {
        name,
        values: loads.iter().map(|load| report.median(&format!("disk {load}, {name}"))).collect(),
    };
    Chart {
        title: "durable inserts on a disk; the floor is one write of 4 KiB".to_owned(),
        unit: "us",
        groups: loads.map(str::to_owned).to_vec(),
        series: stores.map(of).into_iter().collect(),
    }
    .save(&dir.join("disk.svg"))?;
    let rates = crate::interference::RATES.map(|(name, _)| name);
    let values = rates.map(|rate| report.median(&format!("overwrites of 256 B, {rate}")));
    Chart {
        title: "overwrites of 256 B beside a scrub".to_owned(),
        unit: "thousand/s",
        groups: rates.map(str::to_owned).to_vec(),
        series: vec![Series { name: "full", values: values.to_vec() }],
    }
    .save(&dir.join("scrub.svg"))?;
    let of = |every: &'static str| Series {
        name: every,
        values: MAPS.iter().map(|map| report.median(&scrubbed::name(map, every))).collect(),
    };
    Chart {
        title: "inserts with scrubs between".to_owned(),
        unit: "ns",
        groups: MAPS.iter().map(|map| (*map).to_owned()).collect(),
        series: scrubbed::EVERY.map(|(every, _)| of(every)).into(),
    }
    .save(&dir.join("scrub-inserts.svg"))
}

/// Ours at a million keys and at ten.
fn growth(report: &Report, dir: &Path) -> anyhow::Result<()> {
    for op in ["insert", "get", "remove"] {
        for len in [0, 100] {
            let of = |(name, count): (&'static str, usize)| {
                let figure = |map: &&str| format!("{map} {op} {count} keys v{len}");
                let values = MAPS.iter().map(|map| report.median(&figure(map))).collect();
                Series { name, values }
            };
            Chart {
                title: format!("{op}, values of {len} bytes, full protection"),
                unit: "ns",
                groups: MAPS.iter().map(|map| (*map).to_owned()).collect(),
                series: [("1 M keys", MILLION), ("10 M keys", 10 * MILLION)].map(of).into(),
            }
            .save(&dir.join(format!("growth-{op}-{len}.svg")))?;
        }
    }
    Ok(())
}

/// The bars of each racer, from figures called `NAME, RACER`.
fn raced(report: &Report, names: &[String], racers: &[Racer]) -> Vec<Series> {
    let median = |name: &String, racer: Racer| report.median(&format!("{name}, {}", racer.name()));
    let series = |racer: &Racer| Series {
        name: racer.name(),
        values: names.iter().map(|name| median(name, *racer)).collect(),
    };
    racers.iter().map(series).collect()
}
