//! Every switch of the protection, one at a time: no goal hangs on it.

use std::sync::Arc;

use holdfast_mapped::{Durability, Instructions, Keep, Rearm};
use holdfast_pmem::track::folios::Folios;

use super::Options;
use super::area::{Area, can_flush};
use super::cases::{Case, how, run};
use super::hash::Hash;
use super::kept::{Kept, Means, Protection};
use super::loads::{Choice, KeyValue, PAIRS, Pairs, fill};
use super::losses::pairs;
use super::measure::{Both, Core};
use crate::report::Report;
use crate::say::say;

pub(crate) fn switches(o: &Options, report: &mut Report) -> anyhow::Result<()> {
    let count = pairs(o);
    let area = Arc::new(Area::new(&o.dir.join("pairs"), Hash::room(count), Folios::Small)?);
    let twin = Arc::new(Area::new(&o.dir.join("twin"), Hash::room(count), Folios::Small)?);
    let [kept, plain] = [&area, &twin]
        .map(|area| KeyValue::new(fill::<Hash>(Arc::clone(area), count), count, Choice::Zipf, 100));
    let mut load = Both { kept, plain, twin };
    say!("-- switches: hash, zipf, 100 % updates, of {PAIRS} pairs {count}, a period of 1 s");
    for (name, protection) in all() {
        if protection.volatile && !can_flush() {
            say!("not run: {name} (the processor cannot write lines back without dropping them)");
            continue;
        }
        let kept = Kept::new(&area, protection)?;
        let case = Case { load: "hash zipf 100 %", how: name, period: 1, core: Core::Same };
        run(o, report, &mut load, &kept, None, case)?;
    }
    Ok(())
}

/// What there is to switch.
fn all() -> Vec<(&'static str, Protection)> {
    let lazy = Protection::of(Means::Lazy);
    let keep = |sums, parity| Keep { sums, parity, ..Keep::default() };
    let mut all = vec![
        ("dirty bits + lazy", lazy),
        ("sums only", Protection { keep: keep(true, 0), ..lazy }),
        ("parity only", Protection { keep: keep(false, 1), ..lazy }),
        ("P and Q", Protection { keep: keep(true, 2), ..lazy }),
        ("nothing left open", Protection { rearm: Rearm::All, ..lazy }),
        ("portable instructions", Protection { instructions: Instructions::Portable, ..lazy }),
        ("batch of 512 pages", Protection { batch_pages: 512, ..lazy }),
        ("batch of 65536 pages", Protection { batch_pages: 65_536, ..lazy }),
        ("volatile caches, lazy", Protection { volatile: true, ..lazy }),
        ("durability power", Protection { durability: Durability::Power, ..lazy }),
    ];
    for means in [Means::FirstStore, Means::Notified, Means::AtCommit, Means::Bare] {
        all.push((how(means), Protection::of(means)));
    }
    let lost = |means| Protection { volatile: true, ..Protection::of(means) };
    all.push(("volatile caches, write-protect + lazy", lost(Means::FirstStore)));
    all.push(("volatile caches, at each commit", lost(Means::AtCommit)));
    all
}
