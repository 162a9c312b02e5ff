//! The collections: a million random keys inserted, looked up and removed, one a transaction.

use std::time::Instant;

use holdfast_collections::{Kind, Map};
use holdfast_object::OpenOptions;
use holdfast_workloads::rng::Rng;

use crate::Options;
use crate::object::{MODES, options};
use crate::report::{Report, Spread};
use crate::rig::Rig;

pub(crate) fn maps(o: &Options, report: &mut Report) -> anyhow::Result<()> {
    let count = if o.quick { 100_000 } else { 1_000_000 };
    for kind in Kind::ALL {
        let name = kind.name();
        for len in [0, 100] {
            let rig = Rig::new(&o.dir, &options(2 << 30, MODES[3]), OpenOptions::default())?;
            let pool = rig.pool();
            let map = pool.run(|tx| Map::<u64, [u8]>::create(tx, kind))?;
            let mut rng = Rng::new(7);
            let keys: Vec<u64> = (0..count).map(|_| rng.next_u64()).collect();
            let value = vec![3; len];
            let mut each = |what: &str, step: &mut dyn FnMut(u64) -> anyhow::Result<()>| {
                let start = Instant::now();
                for i in 0..count {
                    step(keys[if what == "insert" { i } else { i * 7919 % count }])?;
                }
                let ns = start.elapsed().as_secs_f64() * 1e9 / count as f64;
                report.figure(
                    &format!("{name} {what}, values of {len}"),
                    "ns",
                    Spread::of(vec![ns]),
                );
                anyhow::Ok(())
            };
            each("insert", &mut |k| Ok(pool.run(|tx| map.put(tx, &k, &value)).map(drop)?))?;
            each("get", &mut |k| {
                anyhow::ensure!(pool.run(|tx| map.get_with(tx, &k, |v| v.len()))? == Some(len));
                Ok(())
            })?;
            each("remove", &mut |k| Ok(pool.run(|tx| map.remove(tx, &k)).map(drop)?))?;
        }
    }
    Ok(())
}
