//! Somebody else's program: fio with its engine for mapped files, alone.
//!
//! It knows nothing of us, so it runs under `holdfast guard` and without, for three periods and
//! longer. What it reports is compared.

use std::path::Path;
use std::process::Command;

use anyhow::Context;
use serde_json::Value;

use super::Options;
use crate::report::{Report, Spread};
use crate::say::say;

/// Shortest run.
const SECONDS: u32 = 10;

pub(crate) fn fio(o: &Options, report: &mut Report) -> anyhow::Result<()> {
    if Command::new("fio").arg("--version").output().is_err() {
        say!("not run: fio is not installed (as root: apt-get install fio)");
        return Ok(());
    }
    let own = std::env::current_exe()?;
    let holdfast = own.with_file_name("holdfast");
    if !holdfast.exists() {
        say!("not run: fio under guard ({} is not built)", holdfast.display());
        return Ok(());
    }
    // The longer ones take minutes, and nobody's goal hangs on them.
    let periods: &[u32] = if o.all && !o.quick { &[1, 10, 30] } else { &[1] };
    for period in periods {
        for pattern in ["randwrite", "write"] {
            compare(o, report, &holdfast, pattern, *period)?;
        }
    }
    Ok(())
}

/// One pattern with and without guard, in turns, as everything else: a machine that slows down
/// costs both.
fn compare(
    o: &Options,
    report: &mut Report,
    holdfast: &Path,
    pattern: &str,
    period: u32,
) -> anyhow::Result<()> {
    let (mut plain, mut kept) = (Vec::new(), Vec::new());
    for _ in 0..if o.quick { 1 } else { 3 } {
        plain.push(once(o, pattern, period, None)?);
        kept.push(once(o, pattern, period, Some(holdfast))?);
    }
    let alone = format!("fio {pattern}, unprotected, {period} s");
    let guarded = format!("fio {pattern}, guarded, {period} s");
    report.rounds(&alone, "MB/s", plain);
    report.rounds(&guarded, "MB/s", kept);
    if let Some(ratio) = report.ratio(&guarded, &alone) {
        let loss =
            Spread { median: 1.0 - ratio.median, low: 1.0 - ratio.high, high: 1.0 - ratio.low };
        report.figure(&format!("loss {guarded}"), "share", loss);
    }
    Ok(())
}

/// What the guard says of the run that has just ended.
fn passes(summary: &Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(summary).context("the guard's summary")?;
    let told: Value = serde_json::from_str(&text).context("the guard's summary")?;
    let file = &told["files"][0];
    let passes = file["passes"].as_u64().context("passes of the guard")?;
    let oldest = file["oldest_ns"].as_f64().context("age of the oldest store")? / 1e9;
    anyhow::ensure!(file["corrupt"] == 0 && file["undecided"] == 0, "false alarm: {file}");
    say!("  {passes} passes, the oldest store not covered was {oldest:.2} s old");
    Ok(())
}

/// Megabytes a second that it says it wrote.
fn once(o: &Options, pattern: &str, period: u32, guard: Option<&Path>) -> anyhow::Result<f64> {
    let file = o.dir.join("fio.data");
    let summary = o.dir.join("fio.summary");
    let (seconds, size) = if o.quick { (1, "16m") } else { (SECONDS.max(3 * period), "1g") };
    let mut command = match guard {
        Some(holdfast) => {
            let mut command = Command::new(holdfast);
            let period = format!("{period}s");
            command.args(["guard", "--json", "--period", &period, "--summary"]).arg(&summary);
            command.arg("--match").arg(&file).args(["--", "fio"]);
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
    if guard.is_some() {
        passes(&summary)?;
    }
    let rate = told["jobs"][0]["write"]["bw_bytes"].as_f64().context("fio's bandwidth")?;
    let _ = std::fs::remove_file(&file);
    let _ = std::fs::remove_file(file.with_extension("data.holdfast"));
    Ok(rate / 1e6)
}
