//! Parity: patches add up, every combination is rebuilt, and who is wrong is named.

use crate::common::{Numbers, PAGE, ROW_LEN, ROWS, ZONE, bytes, dax, zone};
use holdfast_faultmem::{Clear, FaultMedium};
use holdfast_pmem::{MediaCause, Medium, Site};
use holdfast_redundancy::parity::{check, patch, rebuild, store, syndromes};
use holdfast_redundancy::{
    Columns, Error, Exempt, ExemptRanges, NoneExempt, Parity, ParitySites, Scratch, Suspect, Unit,
    Zone,
};
use proptest::prelude::*;

const STORE: Site = Site::new("test.store");
const SITES: ParitySites = ParitySites { p: Site::new("test.p"), q: Site::new("test.q") };

/// Has the parity of a zone agree with its rows.
fn recompute(m: &FaultMedium, zone: &Zone, exempt: &impl Exempt) {
    let found = syndromes(m, zone, 0, ROW_LEN, exempt, &mut Scratch::new()).unwrap();
    let right = |unit, wrong: &[u8]| -> Vec<u8> {
        let now = unit_bytes(m, zone, unit, 0, wrong.len() as u64);
        now.iter().zip(wrong).map(|(a, b)| a ^ b).collect()
    };
    let (p, q) = (right(Unit::P, &found.p), right(Unit::Q, &found.q));
    store(m, zone, 0, (&p, &q), SITES).unwrap();
}

/// A zone with random rows and right parity.
fn filled(parity: u32, seed: u64, exempt: &impl Exempt) -> (FaultMedium, Zone) {
    let (m, zone) = (dax(), zone(parity));
    let data = Numbers(seed).bytes(zone.data_len() as usize);
    m.put(STORE, zone.data_start(), &data).unwrap();
    recompute(&m, &zone, exempt);
    (m, zone)
}

fn units(parity: u32) -> Vec<Unit> {
    let rows = (0..ROWS).map(Unit::Row);
    rows.chain([Unit::P, Unit::Q].into_iter().take(parity as usize)).collect()
}

fn unit_bytes(m: &FaultMedium, zone: &Zone, unit: Unit, col: u64, len: u64) -> Vec<u8> {
    bytes(m, zone.unit_at(unit, col), len)
}

#[test]
fn parity_is_the_sum_of_its_definition() {
    let (m, zone) = filled(2, 1, &NoneExempt);
    let rows: Vec<Vec<u8>> =
        (0..ROWS).map(|row| unit_bytes(&m, &zone, Unit::Row(row), 0, ROW_LEN)).collect();
    for i in 0..ROW_LEN as usize {
        let p = rows.iter().fold(0, |sum, row| sum ^ row[i]);
        let q = rows
            .iter()
            .rev()
            .fold(0u8, |sum, row| (sum << 1) ^ (if sum & 0x80 != 0 { 0x1d } else { 0 }) ^ row[i]);
        assert_eq!(unit_bytes(&m, &zone, Unit::P, i as u64, 1), [p]);
        assert_eq!(unit_bytes(&m, &zone, Unit::Q, i as u64, 1), [q]);
    }
}

#[test]
fn concurrent_patches_leave_the_parity_of_the_data() {
    for parity in 1..=2 {
        let (m, zone) = filled(parity, 2, &NoneExempt);
        let columns = Columns::new();
        columns.add_zone(&zone);
        std::thread::scope(|scope| {
            for seed in 0..3 {
                let (m, columns) = (&m, &columns);
                scope.spawn(move || change(m, &zone, columns, seed, 150));
            }
        });
        assert_eq!(check(&m, &zone, 0, ROW_LEN, &NoneExempt, &mut Scratch::new()).unwrap(), []);
        let before: Vec<_> =
            units(parity).iter().map(|u| unit_bytes(&m, &zone, *u, 0, ROW_LEN)).collect();
        recompute(&m, &zone, &NoneExempt);
        for (unit, before) in units(parity).iter().zip(before) {
            assert_eq!(unit_bytes(&m, &zone, *unit, 0, ROW_LEN), before);
        }
    }
}

/// Overwrites random ranges as a commit does: columns, data, parity, columns.
fn change(m: &FaultMedium, zone: &Zone, columns: &Columns, seed: u64, times: u32) {
    let (mut numbers, mut scratch) = (Numbers(seed), Scratch::new());
    for _ in 0..times {
        let at = zone.data_start() + numbers.below(zone.data_len());
        let len = 1 + numbers.below((zone.data_end() - at).min(5000));
        let mut ids = Vec::new();
        columns.ids_of(zone, at, len, &mut ids);
        ids.sort_unstable();
        ids.dedup();
        columns.lock_all(m, &ids);
        let new = numbers.bytes(len as usize);
        let delta: Vec<u8> = bytes(m, at, len).iter().zip(&new).map(|(a, b)| a ^ b).collect();
        m.put(STORE, at, &new).unwrap();
        patch(m, zone, at, &delta, &mut scratch, SITES).unwrap();
        columns.unlock_all(&ids);
    }
}

#[test]
fn a_patch_longer_than_the_buffers_is_right() {
    let region = Zone::for_size(ZONE, 40 * PAGE, 4, 2, PAGE, PAGE).unwrap();
    let zone = Zone::new(&region, 0).unwrap();
    let len = ZONE + 40 * PAGE;
    let config = holdfast_faultmem::Config::default();
    let m = FaultMedium::new(len, holdfast_pmem::MediumKind::Dax, &config);
    assert!(zone.row_len() > 2 * holdfast_redundancy::parity::BLOCK as u64);
    let new = Numbers(5).bytes((zone.data_len() - 200) as usize);
    let at = zone.data_start() + 100;
    m.put(STORE, at, &new).unwrap();
    patch(&m, &zone, at, &new, &mut Scratch::new(), SITES).unwrap();
    let all = zone.row_len();
    assert_eq!(check(&m, &zone, 0, all, &NoneExempt, &mut Scratch::new()).unwrap(), []);
    let lost = [Unit::Row(0), Unit::Row(1)];
    let mut scratch = Scratch::new();
    let got = rebuild(&m, &zone, &lost, 0, all, &NoneExempt, Parity::Both, &mut scratch).unwrap();
    assert_eq!(got[0], bytes(&m, zone.at(0, 0), all));
    assert_eq!(got[1], bytes(&m, zone.at(1, 0), all));
}

#[test]
fn a_bad_parity_page_keeps_no_other_from_its_patch() {
    for bad in [Unit::P, Unit::Q] {
        for page in 0..2 {
            let (m, zone) = filled(2, 6, &NoneExempt);
            // Over the end of a page.
            let (at, len) = (zone.at(1, PAGE - 100), 200);
            m.poison(zone.unit_at(bad, page * PAGE), PAGE, Clear::Able).unwrap();
            let new = Numbers(9).bytes(len as usize);
            let delta: Vec<u8> = bytes(&m, at, len).iter().zip(&new).map(|(a, b)| a ^ b).collect();
            m.put(STORE, at, &new).unwrap();
            let mut scratch = Scratch::new();
            assert!(patch(&m, &zone, at, &delta, &mut scratch, SITES).is_err());
            let right = bytes(&m, zone.at(1, 0), 2 * PAGE);
            let with = if bad == Unit::P { Parity::Q } else { Parity::P };
            let missing = [Unit::Row(1)];
            let all = 2 * PAGE;
            let got = rebuild(&m, &zone, &missing, 0, all, &NoneExempt, with, &mut scratch);
            assert_eq!(got.unwrap()[0], right, "{bad:?} {page}");
            // The page of the same parity that is not bad was patched, too.
            let (other, with) =
                ((1 - page) * PAGE, if bad == Unit::P { Parity::P } else { Parity::Q });
            let got = rebuild(&m, &zone, &missing, other, PAGE, &NoneExempt, with, &mut scratch);
            assert_eq!(got.unwrap()[0], right[other as usize..][..PAGE as usize]);
        }
    }
}

#[test]
fn every_combination_of_lost_units_comes_back() {
    for parity in 0..=2u32 {
        let (m, zone) = filled(parity, 3, &NoneExempt);
        for a in units(parity) {
            for b in units(parity).into_iter().map(Some).chain([None]) {
                for with in [Parity::P, Parity::Q, Parity::Both] {
                    one_combination(&m, &zone, a, b, with);
                }
            }
        }
    }
}

fn one_combination(m: &FaultMedium, zone: &Zone, a: Unit, b: Option<Unit>, with: Parity) {
    let missing: Vec<Unit> = [Some(a), b].into_iter().flatten().collect();
    let rows = missing.iter().filter(|u| matches!(u, Unit::Row(_))).count();
    let p = zone.has_p() && with != Parity::Q && !missing.contains(&Unit::P);
    let q = zone.has_q() && with != Parity::P && !missing.contains(&Unit::Q);
    let possible = Some(a) != b && rows <= usize::from(p) + usize::from(q);
    let (col, len) = (100, ROW_LEN - 333);
    let mut scratch = Scratch::new();
    match rebuild(m, zone, &missing, col, len, &NoneExempt, with, &mut scratch) {
        Ok(got) => {
            assert!(possible, "{missing:?} with {with:?}");
            for (unit, got) in missing.iter().zip(got) {
                assert_eq!(got, unit_bytes(m, zone, *unit, col, len), "{missing:?} {with:?}");
            }
        }
        Err(Error::TooManyMissing { .. }) => assert!(!possible, "{missing:?} with {with:?}"),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn rebuilding_reads_nothing_of_what_is_missing() {
    let (m, zone) = filled(2, 4, &NoneExempt);
    let lost = [Unit::Row(1), Unit::Row(4)];
    let right = lost.map(|unit| unit_bytes(&m, &zone, unit, 0, PAGE));
    for unit in lost {
        m.poison(zone.unit_at(unit, 0), 1, Clear::Able).unwrap();
    }
    let mut scratch = Scratch::new();
    let both = Parity::Both;
    let got = rebuild(&m, &zone, &lost, 0, PAGE, &NoneExempt, both, &mut scratch).unwrap();
    assert_eq!(got, right);
    // With one of them not named, its bytes are an error and never zeros.
    for with in [Parity::P, Parity::Q, Parity::Both] {
        let one = rebuild(&m, &zone, &lost[..1], 0, PAGE, &NoneExempt, with, &mut scratch);
        match one {
            Err(Error::Media(e)) => {
                assert_eq!((e.at, e.cause), (zone.at(4, 0), MediaCause::Poison))
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(check(&m, &zone, 0, PAGE, &NoneExempt, &mut scratch), Err(Error::Media(_))));
    // The page column beside it is not concerned.
    assert_eq!(check(&m, &zone, PAGE, PAGE, &NoneExempt, &mut scratch).unwrap(), []);
}

#[test]
fn p_and_q_confirm_each_other_or_contradict() {
    let (m, zone) = filled(2, 6, &NoneExempt);
    let right = unit_bytes(&m, &zone, Unit::Row(2), 0, PAGE);
    let mut scratch = Scratch::new();
    let mut one =
        |with| rebuild(&m, &zone, &[Unit::Row(2)], 0, PAGE, &NoneExempt, with, &mut scratch);
    assert_eq!(one(Parity::Both).unwrap()[0], right);
    m.flip_bit(zone.at(3, 77), 2).unwrap();
    m.flip_bit(zone.at(3, 90), 2).unwrap();
    match one(Parity::Both) {
        Err(Error::Contradiction { at, len }) => assert_eq!((at, len), (zone.at(2, 77), 14)),
        other => panic!("{other:?}"),
    }
    assert_ne!(one(Parity::P).unwrap()[0], right, "a candidate is only a candidate");
    assert_ne!(one(Parity::Q).unwrap()[0], right, "a candidate is only a candidate");
}

#[test]
fn parities_that_disagree_about_a_row_are_a_contradiction() {
    let (m, zone) = filled(2, 6, &NoneExempt);
    m.flip_bit(zone.at(3, 77), 2).unwrap();
    let mut scratch = Scratch::new();
    let missing = [Unit::Row(2)];
    let got = rebuild(&m, &zone, &missing, 0, PAGE, &NoneExempt, Parity::Both, &mut scratch);
    let at = zone.at(2, 77);
    assert!(matches!(got, Err(Error::Contradiction { at: found, len: 1 }) if found == at));
}

#[test]
fn damage_at_different_bytes_is_told_apart() {
    let (m, zone) = filled(2, 8, &NoneExempt);
    m.stray(zone.at(0, 640), &[0x55; 30]).unwrap();
    m.stray(zone.at(4, 1280), &[0x66; 30]).unwrap();
    m.stray(zone.q_at(2000), &[0x77; 8]).unwrap();
    let found = check(&m, &zone, 0, PAGE, &NoneExempt, &mut Scratch::new()).unwrap();
    let suspects: Vec<_> = found.iter().map(|f| f.suspect).collect();
    let unit = Suspect::Unit;
    assert_eq!(suspects, [unit(Unit::Row(0)), unit(Unit::Row(4)), unit(Unit::Q)]);
    assert!(found.iter().all(|f| f.len <= 30));
    // At the same bytes, two units are one too many.
    m.stray(zone.at(2, 640), &Numbers(1).bytes(30)).unwrap();
    let found = check(&m, &zone, 640, 30, &NoneExempt, &mut Scratch::new()).unwrap();
    assert_eq!(found.iter().map(|f| f.suspect).collect::<Vec<_>>(), [Suspect::Several]);
}

#[test]
fn each_check_is_needed() {
    for (site, unit) in
        [("redundancy.parity.check-p", Unit::P), ("redundancy.parity.check-q", Unit::Q)]
    {
        let (m, zone) = filled(2, 9, &NoneExempt);
        m.flip_bit(zone.unit_at(unit, 5), 0).unwrap();
        let find = || check(&m, &zone, 0, PAGE, &NoneExempt, &mut Scratch::new()).unwrap();
        assert_eq!(find().len(), 1);
        m.elide_name(site);
        assert_eq!(find(), [], "{site} is not what finds a damaged {unit:?}");
    }
}

#[test]
fn exempt_bytes_count_as_zeros_and_are_not_read() {
    let log = [(ZONE + PAGE + 100, 1000), (ZONE + 3 * PAGE, PAGE)];
    let exempt = ExemptRanges(&log);
    let (m, zone) = filled(2, 10, &exempt);
    assert_ne!(check(&m, &zone, 0, ROW_LEN, &NoneExempt, &mut Scratch::new()).unwrap(), []);
    m.put(STORE, log[0].0, &[9; 1000]).unwrap();
    m.poison(log[1].0, PAGE, Clear::Able).unwrap();
    let mut scratch = Scratch::new();
    assert_eq!(check(&m, &zone, 0, ROW_LEN, &exempt, &mut scratch).unwrap(), []);
    let right = unit_bytes(&m, &zone, Unit::Row(2), 0, ROW_LEN);
    let lost = [Unit::Row(2), Unit::Row(0)];
    let both = Parity::Both;
    let got = rebuild(&m, &zone, &lost, 0, ROW_LEN, &exempt, both, &mut scratch).unwrap();
    assert_eq!(got[0], right);
    let (from, to) = ((PAGE + 100) as usize, (PAGE + 1100) as usize);
    assert_eq!(got[1][from..to], [0; 1000]);
    assert_eq!(got[1][..from], bytes(&m, ZONE, PAGE + 100));
}

#[test]
fn what_lies_outside_the_zone_is_refused() {
    let (m, zone) = filled(2, 11, &NoneExempt);
    let mut scratch = Scratch::new();
    let before = m.crash_point().newest().into_bytes();
    for (at, len) in [(ZONE - 1, 2), (zone.data_end() - 1, 2), (zone.p_at(0), 1), (u64::MAX, 1)] {
        let refused = patch(&m, &zone, at, &vec![1; len], &mut scratch, SITES);
        assert!(matches!(refused, Err(Error::OutsideZone { .. })));
    }
    for (col, len) in [(0, ROW_LEN + 1), (ROW_LEN, 1), (u64::MAX, 2), (1, u64::MAX)] {
        let none = &NoneExempt;
        assert!(check(&m, &zone, col, len, none, &mut scratch).is_err());
        assert!(syndromes(&m, &zone, col, len, none, &mut scratch).is_err());
        let lost = [Unit::P];
        assert!(rebuild(&m, &zone, &lost, col, len, none, Parity::P, &mut scratch).is_err());
    }
    for unit in [Unit::Row(ROWS), Unit::Row(u32::MAX)] {
        let refused = rebuild(&m, &zone, &[unit], 0, 1, &NoneExempt, Parity::P, &mut scratch);
        assert!(matches!(refused, Err(Error::TooManyMissing { .. })));
    }
    assert_eq!(m.crash_point().newest().into_bytes(), before);
}

#[test]
fn a_pool_without_parity_has_nothing_to_say() {
    let (m, zone) = filled(0, 12, &NoneExempt);
    let mut scratch = Scratch::new();
    patch(&m, &zone, ZONE, &[1, 2, 3], &mut scratch, SITES).unwrap();
    assert_eq!(check(&m, &zone, 0, ROW_LEN, &NoneExempt, &mut scratch).unwrap(), []);
    let none = syndromes(&m, &zone, 0, ROW_LEN, &NoneExempt, &mut scratch).unwrap();
    assert!(none.p.is_empty() && none.q.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn one_damaged_unit_is_named(
        seed in any::<u64>(), parity in 1..=2u32, pick in any::<prop::sample::Index>(),
        col in 0..ROW_LEN - 64, damage in prop::collection::vec(1..=255u8, 1..64),
    ) {
        let (m, zone) = filled(parity, seed, &NoneExempt);
        let unit = units(parity)[pick.index(units(parity).len())];
        let len = damage.len() as u64;
        let right = unit_bytes(&m, &zone, unit, col, len);
        let wrong: Vec<u8> = right.iter().zip(&damage).map(|(a, b)| a ^ b).collect();
        m.stray(zone.unit_at(unit, col), &wrong).unwrap();
        let mut scratch = Scratch::new();
        let found = check(&m, &zone, 0, ROW_LEN, &NoneExempt, &mut scratch).unwrap();
        prop_assert_eq!(found.len(), 1);
        prop_assert_eq!((found[0].col, found[0].len), (col, len));
        let named = if parity == 2 { Suspect::Unit(unit) } else { Suspect::Any };
        prop_assert_eq!(found[0].suspect, named);
        let with = if parity == 2 { Parity::Both } else { Parity::P };
        let got = rebuild(&m, &zone, &[unit], col, len, &NoneExempt, with, &mut scratch).unwrap();
        prop_assert_eq!(&got[0], &right);
        let found = syndromes(&m, &zone, col, len, &NoneExempt, &mut scratch).unwrap();
        prop_assert_eq!(found.p == damage, unit != Unit::Q);
    }

    #[test]
    fn exempt_reads_are_what_their_definition_says(
        ranges in prop::collection::vec((0..300u64, 0..60u64), 0..6),
        at in 0..200u64, len in 0..200usize,
    ) {
        let m = dax();
        m.put(STORE, 0, &[7; 1024]).unwrap();
        let mut log = Vec::new();
        let mut next = 0;
        for (gap, len) in ranges {
            log.push((next + gap, len));
            next += gap + len;
        }
        let inside = |i: u64| log.iter().any(|(from, n)| (*from..from + n).contains(&i));
        let expected: Vec<u8> =
            (at..at + len as u64).map(|i| if inside(i) { 0 } else { 7 }).collect();
        let mut got = vec![1; len];
        holdfast_redundancy::exempt::read_exempt(&m, at, &mut got, &ExemptRanges(&log)).unwrap();
        prop_assert_eq!(&got, &expected);
        let by_closure = |at: u64, len: u64| {
            log.iter().copied().find(|(from, n)| *n > 0 && from + n > at && *from < at + len)
        };
        holdfast_redundancy::exempt::read_exempt(&m, at, &mut got, &by_closure).unwrap();
        prop_assert_eq!(&got, &expected);
    }

    #[test]
    fn no_answer_of_an_exempt_set_hangs_a_read(
        start in any::<u64>(), n in any::<u64>(), at in 0..4096u64, len in 0..4096usize,
    ) {
        let mut got = vec![1; len];
        let answer = move |_, _| Some((start, n));
        holdfast_redundancy::exempt::read_exempt(&dax(), at, &mut got, &answer).unwrap();
        prop_assert!(got.iter().all(|b| *b == 0));
    }
}
