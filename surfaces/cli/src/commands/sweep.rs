//! `pool sweep`: of which files a pool has the redundancy, and the removal of what belongs to none.

use holdfast::protect::{KeptRegion, Standing};
use serde_json::{Value, json};

use crate::args::SweepArgs;
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::out::{Out, count, table};
use crate::size::show;

/// Removes what was left, and what was asked for; shows the rest.
pub(crate) fn sweep(out: Out, args: &SweepArgs) -> Outcome {
    let (removed, kept) = KeptRegion::sweep(&args.pool, &args.drop)?;
    out.object(
        "pool sweep",
        json!({
            "path": args.pool.display().to_string(),
            "removed": json_of(&removed),
            "regions": json_of(&kept),
        }),
    );
    if !kept.is_empty() {
        out.words(table_of(&kept).to_string());
    }
    out.words(format!(
        "{} removed, {} left",
        count(removed.len() as u64, "region"),
        count(kept.len() as u64, "region"),
    ));
    let lost = kept.iter().filter(|region| region.standing == Standing::Lost).count();
    if lost > 0 {
        out.note(format!(
            "{}: the pointer is not where it was; after `repair` of a file that was moved, it is \
             known again, and what belongs to none is removed with --drop",
            count(lost as u64, "region")
        ));
    }
    Ok(Exit::CLEAN)
}

/// Regions, for programs.
pub(crate) fn json_of(regions: &[KeptRegion]) -> Vec<Value> {
    let of = |region: &KeptRegion| {
        json!({
            "region": region.id,
            "bytes": region.len,
            "pointer": region.pointer.as_ref().map(|path| path.display().to_string()),
            "standing": name(region.standing),
        })
    };
    regions.iter().map(of).collect()
}

/// Regions, for people.
pub(crate) fn table_of(regions: &[KeptRegion]) -> comfy_table::Table {
    let mut rows = table(&["region", "bytes", "pointer", "is"]);
    for region in regions {
        let pointer = region.pointer.as_ref().map(|path| path.display().to_string());
        let words = match region.standing {
            Standing::Pointed => "in use",
            Standing::Left => "left by a command that was killed, or damaged",
            Standing::Lost => "not pointed to from there",
            Standing::Unsure => "not to be told just now",
        };
        let (id, pointer) = (region.id.clone(), pointer.unwrap_or_default());
        rows.add_row([id, show(region.len), pointer, words.to_owned()]);
    }
    rows
}

const fn name(standing: Standing) -> &'static str {
    match standing {
        Standing::Pointed => "pointed",
        Standing::Left => "left",
        Standing::Lost => "lost",
        Standing::Unsure => "unsure",
    }
}
