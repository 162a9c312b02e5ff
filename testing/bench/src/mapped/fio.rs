//! Somebody else's program: fio with its engine for mapped files, alone.
//!
//! It knows nothing of us, so it runs under `holdfast guard` with a period of one second, and
//! without. What it reports is compared.

use std::path::Path;
use std::process::Command;

use anyhow::Context;
use serde_json::Value;

use super::Options;
use crate::report::{Report, Spread};
use crate::say::say;

const SECONDS: u32 = 10;

pub(crate) fn fio(o: &Options, report: &mut Report) -> anyhow::Result<()> {
    if Command::new("fio").arg("--version").output().is_err() {
        say!("not run: fio is not installed (as root: apt-get install fio)");
        return Ok(());
    }
    let own = std::env::current_exe()?;
    let holdfast = own.with_file_name("holdfast");
    for pattern in ["randwrite", "write"] {
        let rates = (0..if o.quick { 1 } else { 3 }).map(|_| once(o, pattern, None));
        let plain = rates.collect::<anyhow::Result<Vec<f64>>>()?;
        report.rounds(&format!("fio {pattern}, unprotected"), "MB/s", plain);
        if !holdfast.exists() {
            say!("not run: fio under guard ({} is not built)", holdfast.display());
            continue;
        }
        let rates = (0..if o.quick { 1 } else { 3 }).map(|_| once(o, pattern, Some(&holdfast)));
        let kept = rates.collect::<anyhow::Result<Vec<f64>>>()?;
        report.rounds(&format!("fio {pattern}, guarded, 1 s"), "MB/s", kept);
        let over = (format!("fio {pattern}, guarded, 1 s"), format!("fio {pattern}, unprotected"));
        if let Some(ratio) = report.ratio(&over.0, &over.1) {
            let loss =
                Spread { median: 1.0 - ratio.median, low: 1.0 - ratio.high, high: 1.0 - ratio.low };
            report.figure(&format!("loss fio {pattern}, guarded, 1 s"), "share", loss);
        }
    }
    Ok(())
}

/// Megabytes a second that it says it wrote.
fn once(o: &Options, pattern: &str, guard: Option<&Path>) -> anyhow::Result<f64> {
    let file = o.dir.join("fio.data");
    let (seconds, size) = if o.quick { (1, "16m") } else { (SECONDS, "1g") };
    let mut command = match guard {
        Some(holdfast) => {
            let mut command = Command::new(holdfast);
            command.args(["guard", "--period", "1s", "--match"]).arg(&file).args(["--", "fio"]);
            command
        }
        None => Command::new("fio"),
    };
    command
        .args(["--name=job", "--ioengine=mmap", "--bs=64", "--time_based", "--thread"])
        .args(["--output-format=json", "--norandommap", "--randrepeat=0"])
        .arg(format!("--rw={pattern}"))
        .arg(format!("--runtime={seconds}"))
        .arg(format!("--size={size}"))
        .arg(format!("--filename={}", file.display()));
    let output = command.output().context("running fio")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let start = text.find('{').with_context(|| format!("fio said: {text}"))?;
    let end = text.rfind('}').unwrap_or(start) + 1;
    let told: Value = serde_json::from_str(&text[start..end]).context("what fio wrote")?;
    let rate = told["jobs"][0]["write"]["bw_bytes"].as_f64().context("fio's bandwidth")?;
    let _ = std::fs::remove_file(&file);
    let _ = std::fs::remove_file(file.with_extension("data.holdfast"));
    Ok(rate / 1e6)
}
