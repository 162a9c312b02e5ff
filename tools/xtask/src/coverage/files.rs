//! Which files count, by what they do, and why the others of the same crates do not.
//!
//! A file of what ships is either in [`MODULES`] or in `EXEMPT`, with a reason: a new one that
//! recovers, repairs, opens or parses cannot be forgotten in silence.

/// A module, and its files.
pub(super) type Module = (&'static str, &'static [&'static str]);

/// Modules by what they do, each with its files.
pub(super) const MODULES: &[Module] =
    &[("recovery", RECOVERY), ("repair", REPAIR), ("open", OPEN), ("parse", PARSE)];

const RECOVERY: &[&str] = &[
    "core/heap/src/heap.rs",
    "core/logs/src/numbers.rs",
    "core/logs/src/scan.rs",
    "engines/mapped/src/recover.rs",
    "engines/mapped/src/take.rs",
    "engines/mapped/src/why.rs",
    "engines/object/src/blame.rs",
    "engines/object/src/changes.rs",
    "engines/object/src/chunks.rs",
    "engines/object/src/in_place.rs",
    "engines/object/src/overflow.rs",
    "engines/object/src/owed.rs",
    "engines/object/src/recover.rs",
    "engines/object/src/redo.rs",
    "engines/object/src/redo_judge.rs",
    "engines/object/src/redo_parity.rs",
    "engines/object/src/settle.rs",
];

const REPAIR: &[&str] = &[
    "base/codes/src/pq.rs",
    "base/codes/src/rebuild.rs",
    "base/pmem/src/badblocks.rs",
    "base/pmem/src/handler.rs",
    "base/pmem/src/mapped/repair.rs",
    "base/pmem/src/registry.rs",
    "base/pmem/src/registry/life.rs",
    "base/pmem/src/registry/slot.rs",
    "core/heap/src/sums.rs",
    "core/heap/src/units.rs",
    "core/logs/src/group.rs",
    "core/logs/src/ring.rs",
    "core/redundancy/src/columns.rs",
    "core/redundancy/src/copies.rs",
    "core/redundancy/src/exempt.rs",
    "core/redundancy/src/intent.rs",
    "core/redundancy/src/pages.rs",
    "core/redundancy/src/pages/verdict.rs",
    "core/redundancy/src/parity.rs",
    "core/redundancy/src/progress.rs",
    "engines/mapped/src/heal.rs",
    "engines/mapped/src/repair.rs",
    "engines/mapped/src/scrub.rs",
    "engines/object/src/anew.rs",
    "engines/object/src/beside.rs",
    "engines/object/src/bring_back.rs",
    "engines/object/src/candidates.rs",
    "engines/object/src/copies.rs",
    "engines/object/src/halves.rs",
    "engines/object/src/hold.rs",
    "engines/object/src/hopeless.rs",
    "engines/object/src/located.rs",
    "engines/object/src/made_up.rs",
    "engines/object/src/mend_unit.rs",
    "engines/object/src/newer.rs",
    "engines/object/src/one_sided.rs",
    "engines/object/src/repair.rs",
    "engines/object/src/report.rs",
    "engines/object/src/scrub.rs",
    "engines/object/src/stand_in.rs",
    "engines/object/src/sweep.rs",
    "engines/object/src/whole_page.rs",
    "surfaces/cli/src/commands/check.rs",
    "surfaces/cli/src/commands/mend.rs",
    "surfaces/facade/src/protect/before.rs",
    "surfaces/facade/src/protect/heal.rs",
    "surfaces/facade/src/protect/rest.rs",
];

const OPEN: &[&str] = &[
    "base/pmem/src/file.rs",
    "base/pmem/src/making.rs",
    "base/pmem/src/mapped.rs",
    "core/heap/src/directory.rs",
    "core/heap/src/table.rs",
    "core/heap/src/verify.rs",
    "core/logs/src/lanes.rs",
    "core/redundancy/src/mirror.rs",
    "core/redundancy/src/record.rs",
    "core/redundancy/src/remap.rs",
    "core/redundancy/src/superblock.rs",
    "core/redundancy/src/zone.rs",
    "engines/mapped/src/admit.rs",
    "engines/mapped/src/check.rs",
    "engines/mapped/src/look.rs",
    "engines/mapped/src/protect.rs",
    "engines/mapped/src/side.rs",
    "engines/object/src/geometry.rs",
    "engines/object/src/grow.rs",
    "engines/object/src/log.rs",
    "engines/object/src/open.rs",
    "engines/object/src/pool.rs",
    "surfaces/collections/src/hash/check.rs",
    "surfaces/collections/src/hash/mod.rs",
    "surfaces/collections/src/map.rs",
    "surfaces/collections/src/report.rs",
    "surfaces/collections/src/skip/check.rs",
    "surfaces/collections/src/skip/mod.rs",
    "surfaces/collections/src/tree/check.rs",
    "surfaces/collections/src/tree/mod.rs",
    "surfaces/facade/src/observer.rs",
    "surfaces/facade/src/options.rs",
    "surfaces/facade/src/protect/area.rs",
    "surfaces/facade/src/protect/file.rs",
    "surfaces/facade/src/protect/kept.rs",
    "surfaces/facade/src/protect/live.rs",
    "surfaces/facade/src/protect/region.rs",
    "surfaces/facade/src/protect/side.rs",
];

const PARSE: &[&str] = &[
    "base/pmem/src/desk.rs",
    "base/pmem/src/track/holders.rs",
    "base/pmem/src/track/maps.rs",
    "base/pmem/src/track/pagemap.rs",
    "base/pmem/src/track/record.rs",
    "core/layout/src/bytes.rs",
    "core/layout/src/certify.rs",
    "core/layout/src/field.rs",
    "core/layout/src/mirrored.rs",
    "core/layout/src/persist.rs",
    "core/layout/src/ptr.rs",
    "core/layout/src/region.rs",
    "core/layout/src/remap.rs",
    "core/layout/src/superblock.rs",
    "core/logs/src/entry.rs",
    "core/logs/src/record.rs",
    "core/redundancy/src/event.rs",
    "core/redundancy/src/events.rs",
    "engines/mapped/src/bits.rs",
    "engines/mapped/src/header.rs",
    "engines/mapped/src/live.rs",
    "engines/mapped/src/region.rs",
    "engines/mapped/src/trace.rs",
    "surfaces/cli/src/commands/lines.rs",
    "surfaces/cli/src/commands/transfer.rs",
    "surfaces/cli/src/config.rs",
    "surfaces/cli/src/lib.rs",
    "surfaces/cli/src/size.rs",
    "surfaces/collections/src/entry.rs",
    "surfaces/collections/src/item.rs",
    "surfaces/facade/src/owner.rs",
    "surfaces/facade/src/protect/extent.rs",
    "surfaces/facade/src/protect/pointer.rs",
    "surfaces/facade/src/serve.rs",
    "surfaces/guard/src/proc.rs",
    "surfaces/guard-wire/src/ledger.rs",
    "surfaces/guard-wire/src/ledger/entries.rs",
    "surfaces/guard-wire/src/link.rs",
    "surfaces/guard-wire/src/message.rs",
];

/// A reason, and the files it is the reason of: paths, folders (`/` at their end), or names that a
/// file has in any crate.
#[cfg(test)]
const EXEMPT: &[(&str, &[&str])] = &[
    ("modules, re-exports and the page of the crate", &["lib.rs", "main.rs"]),
    ("offsets, held against docs/formats", &["format.rs"]),
    ("words for what others found out", &["error.rs", "surfaces/cli/src/failure.rs"]),
    ("tests", &["tests.rs", "base/pmem/src/asm/tests/stepped.rs"]),
    (
        "declarations, of which a derive makes code; what it reads is fuzzed",
        &["surfaces/cli/src/args.rs"],
    ),
    (
        "built for model checkers only",
        &[
            "base/pmem/src/modelled.rs",
            "base/pmem/src/table_in_model.rs",
            "engines/object/src/modelled.rs",
        ],
    ),
    (
        "instructions: loads, stores, flushes, keys; held against plain loops",
        &["base/pmem/src/asm.rs", "base/pmem/src/cpu.rs", "base/pmem/src/keys.rs"],
    ),
    (
        "loads, stores and syncs of a medium that is open",
        &[
            "base/pmem/src/dated.rs",
            "base/pmem/src/foreign.rs",
            "base/pmem/src/fork.rs",
            "base/pmem/src/frames.rs",
            "base/pmem/src/mapped/serve.rs",
            "base/pmem/src/medium.rs",
            "base/pmem/src/medium/owned.rs",
            "base/pmem/src/space.rs",
            "base/pmem/src/table.rs",
            "surfaces/facade/src/protect/medium.rs",
        ],
    ),
    (
        "faults made on purpose",
        &[
            "base/pmem/src/call.rs",
            "base/pmem/src/inject.rs",
            "base/pmem/src/inject/device.rs",
            "base/pmem/src/inject/durable.rs",
            "surfaces/cli/src/faults/",
        ],
    ),
    (
        "values that others act upon",
        &[
            "base/pmem/src/options.rs",
            "base/pmem/src/site.rs",
            "base/pmem/src/status.rs",
            "core/logs/src/seed.rs",
            "core/redundancy/src/verdict.rs",
            "engines/mapped/src/options.rs",
            "engines/object/src/anchor.rs",
            "engines/object/src/options.rs",
            "surfaces/facade/src/protect/options.rs",
            "surfaces/facade/src/protect/status.rs",
        ],
    ),
    (
        "time, pace and threads that call what is counted",
        &[
            "base/pmem/src/clock.rs",
            "base/pmem/src/faults.rs",
            "core/redundancy/src/pace.rs",
            "surfaces/facade/src/background.rs",
            "surfaces/facade/src/clock.rs",
            "surfaces/facade/src/latency.rs",
            "surfaces/facade/src/protect/gate.rs",
            "surfaces/facade/src/protect/keeper.rs",
            "surfaces/facade/src/scrubbing.rs",
        ],
    ),
    (
        "who stores to a file: held against each other by the tests of dirty sources",
        &[
            "base/pmem/src/track.rs",
            "base/pmem/src/track/async_protect.rs",
            "base/pmem/src/track/bar.rs",
            "base/pmem/src/track/bits.rs",
            "base/pmem/src/track/board.rs",
            "base/pmem/src/track/board/sheet.rs",
            "base/pmem/src/track/controller.rs",
            "base/pmem/src/track/direct.rs",
            "base/pmem/src/track/ear.rs",
            "base/pmem/src/track/first_store.rs",
            "base/pmem/src/track/first_store/left.rs",
            "base/pmem/src/track/first_store/seats.rs",
            "base/pmem/src/track/folios.rs",
            "base/pmem/src/track/notified.rs",
            "base/pmem/src/track/soft_dirty.rs",
            "base/pmem/src/track/span.rs",
            "base/pmem/src/track/uffd.rs",
            "surfaces/facade/src/protect/source.rs",
            "surfaces/facade/src/protect/watch.rs",
        ],
    ),
    (
        "commits: their crash images and their elisions are counted instead",
        &[
            "core/heap/src/class.rs",
            "core/logs/src/deferred.rs",
            "core/logs/src/pages.rs",
            "core/logs/src/space.rs",
            "core/logs/src/still.rs",
            "engines/mapped/src/busy.rs",
            "engines/mapped/src/commit.rs",
            "engines/object/src/batch.rs",
            "engines/object/src/commit.rs",
            "engines/object/src/diff.rs",
            "engines/object/src/patched.rs",
        ],
    ),
    (
        "transactions under way: models and recorded histories judge them",
        &[
            "engines/object/src/begun.rs",
            "engines/object/src/fresh.rs",
            "engines/object/src/judged.rs",
            "engines/object/src/known.rs",
            "engines/object/src/lane.rs",
            "engines/object/src/marks.rs",
            "engines/object/src/raw_view.rs",
            "engines/object/src/shared.rs",
            "engines/object/src/touched.rs",
            "engines/object/src/tx.rs",
            "engines/object/src/versions.rs",
            "engines/object/src/view.rs",
        ],
    ),
    (
        "what users call: passes on to the engines and tells",
        &[
            "engines/mapped/src/coverage.rs",
            "engines/mapped/src/engine.rs",
            "surfaces/facade/src/anatomy.rs",
            "surfaces/facade/src/maps.rs",
            "surfaces/facade/src/pool.rs",
            "surfaces/facade/src/protect.rs",
            "surfaces/facade/src/protect/told.rs",
        ],
    ),
    (
        "arithmetic of sums and parity: each way to do it is held against the plainest one",
        &[
            "base/codes/src/adler.rs",
            "base/codes/src/cpu.rs",
            "base/codes/src/crc.rs",
            "base/codes/src/crc_tables.rs",
            "base/codes/src/dispatch.rs",
            "base/codes/src/gf.rs",
            "base/codes/src/gf_tables.rs",
            "base/codes/src/paths.rs",
            "base/codes/src/reference/",
            "base/codes/src/x86/",
            "base/codes/src/xor.rs",
        ],
    ),
    ("locks and clocks, which model checkers replace", &["base/sync/"]),
    ("the medium that fails on purpose, of which a crash or a fault is made", &["base/faultmem/"]),
    (
        "what transactions of any engine promise, and one without a medium to try it on",
        &["core/txn/"],
    ),
    ("runs in the compiler", &["core/derive/"]),
    (
        "maps by transactions: models and recorded histories judge them",
        &[
            "surfaces/collections/src/api.rs",
            "surfaces/collections/src/bucket.rs",
            "surfaces/collections/src/codec.rs",
            "surfaces/collections/src/common.rs",
            "surfaces/collections/src/hash/grow.rs",
            "surfaces/collections/src/hash/shrink.rs",
            "surfaces/collections/src/separator.rs",
            "surfaces/collections/src/sip.rs",
            "surfaces/collections/src/skip/path.rs",
            "surfaces/collections/src/structures.rs",
            "surfaces/collections/src/tree/btree.rs",
            "surfaces/collections/src/tree/crit.rs",
            "surfaces/collections/src/tree/radix.rs",
            "surfaces/collections/src/tree/range_node.rs",
            "surfaces/collections/src/tree/rbtree.rs",
            "surfaces/collections/src/tree/trie.rs",
        ],
    ),
    (
        "the same calls for C: its tests are programs that are built without counting",
        &["surfaces/capi/"],
    ),
    ("loaded into programs that are built without counting", &["surfaces/preload/"]),
    (
        "supervision of programs that run: its tests stop, kill and fork them, and do not end when \
         they are counted; what they repair, the engine repairs",
        &[
            "surfaces/guard/src/anchors.rs",
            "surfaces/guard/src/asks.rs",
            "surfaces/guard/src/choose.rs",
            "surfaces/guard/src/clock.rs",
            "surfaces/guard/src/code.rs",
            "surfaces/guard/src/covers.rs",
            "surfaces/guard/src/drill.rs",
            "surfaces/guard/src/eyes.rs",
            "surfaces/guard/src/file.rs",
            "surfaces/guard/src/file/",
            "surfaces/guard/src/foreign.rs",
            "surfaces/guard/src/freeze.rs",
            "surfaces/guard/src/handing.rs",
            "surfaces/guard/src/inherit.rs",
            "surfaces/guard/src/lease.rs",
            "surfaces/guard/src/names.rs",
            "surfaces/guard/src/options.rs",
            "surfaces/guard/src/processors.rs",
            "surfaces/guard/src/program.rs",
            "surfaces/guard/src/release.rs",
            "surfaces/guard/src/runs.rs",
            "surfaces/guard/src/schedule.rs",
            "surfaces/guard/src/serve.rs",
            "surfaces/guard/src/settling.rs",
            "surfaces/guard/src/sides.rs",
            "surfaces/guard/src/source.rs",
            "surfaces/guard/src/spaces.rs",
            "surfaces/guard/src/strict.rs",
            "surfaces/guard/src/summary.rs",
            "surfaces/guard/src/tell.rs",
            "surfaces/guard/src/traces.rs",
        ],
    ),
    (
        "commands over the facade, and what they print",
        &[
            "surfaces/cli/src/commands/",
            "surfaces/cli/src/demo/",
            "surfaces/cli/src/exit.rs",
            "surfaces/cli/src/interrupt.rs",
            "surfaces/cli/src/out.rs",
            "surfaces/cli/src/progress.rs",
            "surfaces/cli/src/rng.rs",
            "surfaces/cli/src/session.rs",
            "surfaces/cli/src/top/",
        ],
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    fn listed() -> Vec<&'static str> {
        MODULES.iter().flat_map(|(_, files)| *files).copied().collect()
    }

    /// The sources of a folder, by their paths in the workspace.
    fn sources(folder: &str, into: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(root().join(folder)).expect("a folder") {
            let entry = entry.expect("an entry");
            let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                sources(&path, into);
            } else if path.ends_with(".rs") {
                into.insert(path);
            }
        }
    }

    /// All files of the crates that ship.
    fn all() -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        for group in ["base", "core", "engines", "surfaces"] {
            for entry in std::fs::read_dir(root().join(group)).expect("a group") {
                let room = entry.expect("a room").file_name().to_string_lossy().into_owned();
                sources(&format!("{group}/{room}/src"), &mut all);
            }
        }
        all
    }

    /// Whether an exemption is one of this file.
    fn covers(exempt: &str, file: &str) -> bool {
        match exempt {
            folder if folder.ends_with('/') => file.starts_with(folder),
            path if path.contains('/') => file == path,
            name => Path::new(file).file_name().is_some_and(|own| own == name),
        }
    }

    /// What nobody decided about, and what was decided about and is not there.
    fn undecided(all: &BTreeSet<String>) -> Vec<String> {
        let exempt: Vec<&str> = EXEMPT.iter().flat_map(|(_, files)| *files).copied().collect();
        let listed = listed();
        let decided = |file: &String| {
            listed.contains(&file.as_str()) || exempt.iter().any(|exempt| covers(exempt, file))
        };
        let open = all.iter().filter(|file| !decided(file)).cloned();
        let gone = listed.iter().filter(|file| !all.contains(**file)).map(|file| (*file).into());
        let idle = exempt.iter().filter(|exempt| !all.iter().any(|file| covers(exempt, file)));
        open.chain(gone).chain(idle.map(|exempt| (*exempt).into())).collect()
    }

    #[test]
    fn every_file_counts_or_has_a_reason_not_to() {
        assert_eq!(undecided(&all()), Vec::<String>::new());
    }

    #[test]
    fn a_new_file_and_one_that_is_gone_are_told() {
        let mut all = all();
        let new = ["engines/object/src/revive.rs", "surfaces/collections/src/list/mod.rs"];
        all.extend(new.map(str::to_owned));
        all.remove("engines/object/src/redo.rs");
        assert_eq!(undecided(&all), [new[0], new[1], "engines/object/src/redo.rs"]);
    }

    #[test]
    fn no_file_is_there_twice_or_listed_and_exempt_by_its_path() {
        let mut files = listed();
        files.extend(EXEMPT.iter().flat_map(|(_, files)| *files));
        let count = files.len();
        files.sort_unstable();
        files.dedup();
        assert_eq!(files.len(), count);
    }
}
