//! Recovery from records that were damaged or forged.
//!
//! Where one copy of each record is whole, all that was acknowledged is there.
//!
//! A step with the flag [`FORGED`] is an entry of a record that takes the place of the newest one,
//! in both copies, with a sum that is right: recovery believes it.

use std::collections::BTreeMap;

use holdfast_campaign::object::driver::Driver;
use holdfast_campaign::object::fields::meet::unchanged;
use holdfast_campaign::object::fields::spots::Guard;
use holdfast_campaign::object::handle::Handle;
use holdfast_campaign::object::model::{Object, name};
use holdfast_campaign::object::raw::log::{Record, pending};
use holdfast_layout::{Field, RawPtr};
use holdfast_logs::format::{
    DATA_LEN, FIELDS_DATA, FIELDS_FRESH, FIELDS_OVERFLOW, FIELDS_RECORD, FIELDS_SLOT, FRESH_LEN,
    KIND_DATA, KIND_FRESH, KIND_OVERFLOW, KIND_SLOT, LINE_LEN, OVERFLOW_LEN, RECORD_LEN, SLOT_LEN,
};
use holdfast_pmem::Medium;
use holdfast_txn::Transaction;
use holdfast_workloads::Rng;

use super::pool::{planted, reopened};
use crate::bed::{Bed, Hurt, RECORDS, STEPS, bed, must};
use crate::lie::lie;
use crate::script::{Script, Step};

/// The step is an entry.
const FORGED: u8 = 4;
/// The entry's place is in the pool.
const INSIDE: u8 = 8;
/// Most bytes of a forged record: others follow it.
const LONGEST: usize = 2048;

/// Target `logs`.
pub(super) fn run(input: &[u8]) {
    let script = Script::read(input);
    let bed = bed(RECORDS.start + usize::from(script.head[0]) % RECORDS.len());
    let medium = bed.specimen.medium();
    let (forged, plain): (Vec<Step>, Vec<Step>) =
        script.steps.iter().take(STEPS).copied().partition(|step| step.has(FORGED));
    if !forged.is_empty() {
        forge(bed, &medium, &script, &forged);
    }
    let hurt = bed.damage(&medium, &plain, |spot| spot.guard == Guard::Log);
    let hurt = Hurt { all: hurt.all || !forged.is_empty(), ..hurt };
    let opened = lie("opened", reopened(bed, medium), |_| None);
    let Some(driver) = opened else {
        assert!(hurt.all, "one copy of each record is whole, and the pool is refused");
        return;
    };
    Bed::read(&driver, &hurt, "recovered");
    if !hurt.all {
        let (there, all) = (contents(&driver).len(), driver.ledger.objects().len());
        let there = lie("objects", there, |there| there - 1);
        assert_eq!(there, all, "one copy of each record is whole, and not all is there");
    }
    let before = driver.medium.crash_point().newest();
    let found = driver.pool.check(|_, _| {}).map_err(|error| error.to_string());
    planted(&driver.medium, ["check stores", "check ruins"]);
    must(unchanged(&before, &driver.medium, "a check"), "after recovery");
    let first = contents(&driver);
    // What is recovered is recovered: a crash now leaves a pool that opens, and that is the same.
    let image = driver.medium.crash_point().persisted();
    driver.medium.abandon(driver.pool);
    let medium = bed.specimen.world.after(image);
    let Some(driver) = lie("reopened", reopened(bed, medium), |_| None) else {
        panic!("a pool that was recovered is refused after a crash; a check had said {found:?}");
    };
    let again = contents(&driver);
    let again = lie("bytes after", again, |all| with(all, |one| one.0.push(0)));
    let again = lie("type after", again, |all| with(all, |one| one.1 ^= 1));
    for (word, one) in &again {
        let same = first.get(word).is_none_or(|first| first == one);
        assert!(same, "{} is another one after a second recovery", name(*word));
    }
    driver.medium.abandon(driver.pool);
}

/// Bytes and types of the objects that are served, by the words of their pointers.
type Contents = BTreeMap<u64, (Vec<u8>, u32)>;

/// What is served at this moment of the objects that somebody knows.
fn contents(driver: &Driver) -> Contents {
    let objects = driver.ledger.objects();
    let read = |(word, object): (u64, &Object)| {
        let of = RawPtr::from_word(word);
        let mut bytes = vec![0; object.bytes.len()];
        let kind = driver.pool.run(|tx| {
            tx.read_bytes(of, 0, &mut bytes)?;
            Ok(tx.type_of(of)?.0)
        });
        Some((word, (bytes, kind.ok()?)))
    };
    objects.iter().filter_map(read).collect()
}

/// The same with the first one changed.
fn with(mut all: Contents, change: impl FnOnce(&mut (Vec<u8>, u32))) -> Contents {
    if let Some(one) = all.values_mut().next() {
        change(one);
    }
    all
}

/// Puts a record of these entries where the newest one is.
fn forge(bed: &Bed, medium: &Handle, script: &Script, entries: &[Step]) {
    let Some((superblock, seed)) = bed.bytes.superblock() else { return };
    let all = pending(&bed.bytes, superblock, seed);
    let newest = all.iter().map(|record| record.number).max();
    for record in all.iter().filter(|record| Some(record.number) == newest) {
        let Some(head) = bed.bytes.get(record.at, RECORD_LEN as u64) else { continue };
        let mut bytes = made(head, entries, medium.len());
        if script.head[1] & 1 != 0 {
            // One copy only: the other is as it was, and as good.
            bytes.truncate(LINE_LEN);
        }
        let sum = record.seed.sum(record.at, &bytes[4..]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        place(bed, medium, record, &bytes);
        if script.head[1] & 2 != 0 {
            return;
        }
    }
}

fn place(bed: &Bed, medium: &Handle, record: &Record, bytes: &[u8]) {
    if record.at + bytes.len() as u64 <= medium.len() {
        must(bed.sealer.store(medium, record.at, bytes, false), "a forged record");
    }
}

/// The bytes of a record with these entries, its sum left open.
fn made(head: &[u8], entries: &[Step], pool: u64) -> Vec<u8> {
    let mut bytes = head.to_vec();
    let mut count = 0_u64;
    for step in entries {
        let entry = entry(step, pool);
        if bytes.len() + entry.len() > LONGEST {
            break;
        }
        bytes.extend(entry);
        count += 1;
    }
    bytes.resize(bytes.len().next_multiple_of(LINE_LEN), 0);
    let lines = (bytes.len() / LINE_LEN) as u64;
    set(&mut bytes, FIELDS_RECORD, "lines", lines);
    set(&mut bytes, FIELDS_RECORD, "entries", count);
    bytes
}

fn entry(step: &Step, pool: u64) -> Vec<u8> {
    let mut rng = Rng::new(step.value);
    let offset = if step.has(INSIDE) { step.value % pool } else { step.value };
    let len = u64::from(step.place);
    let (kind, room, fields) = match step.verb % 5 {
        0 | 1 => (KIND_DATA, DATA_LEN, FIELDS_DATA),
        2 => (KIND_SLOT, SLOT_LEN, FIELDS_SLOT),
        3 => (KIND_FRESH, FRESH_LEN, FIELDS_FRESH),
        _ => (KIND_OVERFLOW, OVERFLOW_LEN, FIELDS_OVERFLOW),
    };
    let mut bytes = vec![0; room];
    rng.fill(&mut bytes[8..]);
    set(&mut bytes, fields, "offset", offset);
    set(&mut bytes, fields, "kind", kind.into());
    match kind {
        KIND_DATA => {
            let len = if step.verb.is_multiple_of(5) { len % 128 } else { len };
            set(&mut bytes, fields, "len", len);
            let held = bytes.len();
            bytes.resize(held + (len as usize % 512).next_multiple_of(8), 0);
            bytes[12..16].fill(0);
        }
        KIND_FRESH => set(&mut bytes, fields, "len", len),
        KIND_OVERFLOW => set(&mut bytes, fields, "len", len),
        _ => {}
    }
    bytes
}

/// Sets a field to the low bytes of a number.
fn set(record: &mut [u8], fields: &[Field], name: &str, value: u64) {
    let Some(field) = fields.iter().find(|field| field.name == name) else { return };
    let (at, len) = (field.at as usize, (field.len as usize).min(8));
    record[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_campaign::object::raw::{Bytes, Scope, number as number_of, survey};
    use holdfast_layout::format::{FIELDS_SUPERBLOCK, REGIONS_PAGE};

    #[test]
    fn a_forged_record_certifies() {
        for number in RECORDS {
            let bed = bed(number);
            let medium = bed.specimen.medium();
            let step = Step { verb: 2, flags: FORGED | INSIDE, value: 64, ..Step::default() };
            forge(bed, &medium, &Script::default(), &[step; 2]);
            let now = Bytes::of(&medium);
            let (superblock, seed) = now.superblock().expect("a pool");
            let newest = pending(&now, superblock, seed).into_iter().max_by_key(|r| r.number);
            let kinds: Vec<u8> = newest.expect("a record").entries.iter().map(|e| e.0).collect();
            assert_eq!(kinds, [KIND_SLOT; 2], "bed {number}");
        }
    }

    /// Whether a bed is opened with one forged entry in both copies of its newest record.
    fn opens(number: usize, verb: u8, place: u64) -> bool {
        let bed = bed(number);
        let medium = bed.specimen.medium();
        // A length of 16 bytes, where the entry has one.
        let step = Step { place: 16, verb, flags: FORGED, value: place };
        forge(bed, &medium, &Script::default(), &[step]);
        let opened = reopened(bed, medium);
        opened.map(|driver| driver.medium.abandon(driver.pool)).is_some()
    }

    #[test]
    fn a_record_changes_nothing_but_rows_of_data() {
        for number in RECORDS {
            let (superblock, _) = bed(number).bytes.superblock().expect("a pool");
            let bytes = &bed(number).bytes;
            let zone = survey(bytes, Scope::OBJECTS).expect("a pool").zones.swap_remove(0);
            let end = zone.start + zone.row_len * zone.data_rows;
            let side = number_of(FIELDS_SUPERBLOCK, "side_len", superblock);
            let last = *zone.chunks.last().map(|chunk| &chunk.at).expect("chunks");
            for (place, inside) in [
                (0, false),
                (REGIONS_PAGE, false),
                (side + REGIONS_PAGE, false),
                (zone.start - 8, false),
                (last, true),
                (end - 16, true),
                (end - 8, false),
                (end, false),
            ] {
                for verb in [0, 2, 3] {
                    let opened = opens(number, verb, place);
                    assert_eq!(opened, inside, "bed {number}, entry {verb} of {place:#x}");
                }
            }
        }
    }
}
