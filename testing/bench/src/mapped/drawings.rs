//! Charts of what was measured.

use std::path::Path;

use crate::charts::{Chart, Series};
use crate::report::Report;

pub(crate) fn draw(report: &Report, dir: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir)?;
    let loads = [
        "hash zipf 100 %",
        "hash uniform 100 %",
        "B+tree zipf 100 %",
        "B+tree uniform 100 %",
        "lines uniform",
        "lines zipf",
        "lines sequential",
    ];
    let percent = |name: String| report.median(&name).map(|share| (100.0 * share).max(0.0));
    let of = |what: &str, period: u32| {
        let figure = |load: &&str| percent(format!("{what} {load}, lazy, {period} s, same core"));
        loads.iter().map(figure).collect()
    };
    Chart {
        title: "lost to lazy redundancy, updater on the same core".to_owned(),
        unit: "%",
        groups: loads.map(str::to_owned).to_vec(),
        series: vec![
            Series { name: "1 s", values: of("loss", 1) },
            Series { name: "model, 1 s", values: of("model", 1) },
            Series { name: "10 s", values: of("loss", 10) },
            Series { name: "30 s", values: of("loss", 30) },
        ],
    }
    .save(&dir.join("mapped-losses.svg"))?;
    let rate = |how: &'static str| {
        let figure = |load: &&str| report.median(&format!("kept {load}, {how}, 1 s, same core"));
        Series { name: how, values: loads.iter().map(figure).collect() }
    };
    Chart {
        title: "operations under protection, a period of 1 s".to_owned(),
        unit: "M/s",
        groups: loads.map(str::to_owned).to_vec(),
        series: ["lazy", "at each commit", "at each commit, bare"].map(rate).into(),
    }
    .save(&dir.join("mapped-rates.svg"))
}
