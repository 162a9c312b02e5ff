//! P+Q stripes: every loss of up to two units is made good, every single wrong unit is named.

use std::ops::Range;

use holdfast_codes::{
    Located, MAX_ROWS, PqSums, gf_mul_into, gf_mul_xor_into, gf_pow_g, locate, pq_encode,
    rebuild_from_p, rebuild_from_q, rebuild_two, xor_delta, xor_into, xor_many,
};
use proptest::prelude::*;
use proptest::sample::Index;

/// A consistent stripe.
#[derive(Clone, Debug)]
struct Stripe {
    rows: Vec<Vec<u8>>,
    p: Vec<u8>,
    q: Vec<u8>,
}

impl Stripe {
    fn new(count: usize, length: usize, seed: usize) -> Self {
        let byte = |row: usize, i: usize| {
            let mixed = (seed + row * 7919 + i * 104_729).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            (mixed >> 40) as u8
        };
        let row = |row| (0..length).map(|i| byte(row, i)).collect();
        let rows: Vec<Vec<u8>> = (0..count).map(row).collect();
        let (mut p, mut q) = (vec![1; length], vec![2; length]);
        pq_encode(&mut p, &mut q, &slices(&rows));
        Self { rows, p, q }
    }

    /// Sums of the stripe without the units of `lost`; P is unit `count`, Q unit `count + 1`.
    fn sums<'a>(&self, lost: &[usize], buffers: &'a mut [Vec<u8>; 2]) -> PqSums<'a> {
        let [a, b] = buffers;
        a.resize(self.p.len(), 9);
        b.resize(self.p.len(), 9);
        let mut sums = PqSums::new(a, b);
        // Backwards: the order of rows must not matter.
        for (i, row) in self.rows.iter().enumerate().rev().filter(|(i, _)| !lost.contains(i)) {
            sums.add(i, row);
        }
        if !lost.contains(&self.rows.len()) {
            sums.add_p(&self.p);
        }
        if !lost.contains(&(self.rows.len() + 1)) {
            sums.add_q(&self.q);
        }
        sums
    }

    fn locate(&self) -> Located {
        self.sums(&[], &mut [vec![], vec![]]).locate(self.rows.len())
    }

    fn others(&self, lost: &[usize]) -> Vec<(usize, &[u8])> {
        let rows = self.rows.iter().enumerate().filter(|(i, _)| !lost.contains(i));
        rows.map(|(i, row)| (i, row.as_slice())).collect()
    }
}

fn slices(rows: &[Vec<u8>]) -> Vec<&[u8]> {
    rows.iter().map(Vec::as_slice).collect()
}

/// Loses every pair of units in turn and rebuilds it by the function meant for that pair.
fn lose_every_pair(stripe: &Stripe) {
    let count = stripe.rows.len();
    for x in 0..count {
        let buffers = &mut [vec![], vec![]];
        // A single row is rebuilt from either check unit, whether or not the other is lost too.
        let rebuilt = stripe.sums(&[x, count + 1], buffers).solve_row_from_p();
        assert_eq!(rebuilt, stripe.rows[x]);
        let rebuilt = stripe.sums(&[x, count], buffers).solve_row_from_q(x);
        assert_eq!(rebuilt, stripe.rows[x]);

        let (row, p) = stripe.sums(&[x, count], buffers).solve_row_and_p(x);
        assert_eq!((&*row, &*p), (&*stripe.rows[x], &*stripe.p), "row {x} and P");
        let (row, q) = stripe.sums(&[x, count + 1], buffers).solve_row_and_q(x);
        assert_eq!((&*row, &*q), (&*stripe.rows[x], &*stripe.q), "row {x} and Q");

        for y in (0..count).filter(|y| *y != x) {
            let (row_x, row_y) = stripe.sums(&[x, y], buffers).solve_rows(x, y);
            assert_eq!(row_x, stripe.rows[x], "row {x} of {x} and {y}");
            assert_eq!(row_y, stripe.rows[y], "row {y} of {x} and {y}");
        }
    }
    let buffers = &mut [vec![], vec![]];
    let (p, q) = stripe.sums(&[count, count + 1], buffers).solve_p_and_q();
    assert_eq!((&*p, &*q), (&*stripe.p, &*stripe.q), "P and Q");
}

#[test]
fn every_pair_of_units_can_be_lost() {
    for count in 1..=12 {
        lose_every_pair(&Stripe::new(count, 97, count));
    }
}

#[test]
fn also_in_long_units_and_many_rows() {
    lose_every_pair(&Stripe::new(3, 5000, 0));
    let stripe = Stripe::new(MAX_ROWS, 24, 5);
    for (x, y) in [(0, 254), (254, 0), (127, 128), (253, 254)] {
        let buffers = &mut [vec![], vec![]];
        let (row_x, row_y) = stripe.sums(&[x, y], buffers).solve_rows(x, y);
        assert_eq!((&*row_x, &*row_y), (&*stripe.rows[x], &*stripe.rows[y]));
    }
}

#[test]
fn a_stripe_without_rows_has_zero_parity() {
    let (mut p, mut q) = ([1; 70], [1; 70]);
    pq_encode(&mut p, &mut q, &[]);
    assert_eq!((p, q), ([0; 70], [0; 70]));
}

/// Byte places, each with a value to put or to differ by.
fn places(count: Range<usize>) -> impl Strategy<Value = Vec<(Index, u8)>> {
    prop::collection::vec(any::<(Index, u8)>(), count)
}

proptest! {
    #[test]
    fn rebuilt_from_slices(count in 2..20usize, length in 0..700usize, seed in any::<u32>(),
                           pick in any::<[Index; 2]>()) {
        let stripe = Stripe::new(count, length, seed as usize);
        let x = pick[0].index(count);
        let y = (x + 1 + pick[1].index(count - 1)) % count;
        let (mut a, mut b) = (vec![1; length], vec![2; length]);

        let others: Vec<&[u8]> = stripe.others(&[x]).into_iter().map(|(_, row)| row).collect();
        rebuild_from_p(&mut a, &others, &stripe.p);
        prop_assert_eq!(&a, &stripe.rows[x]);

        rebuild_from_q(&mut a, x, &stripe.others(&[x]), &stripe.q);
        prop_assert_eq!(&a, &stripe.rows[x]);

        let lost = [(x, &mut a[..]), (y, &mut b[..])];
        rebuild_two(lost, &stripe.others(&[x, y]), &stripe.p, &stripe.q);
        prop_assert_eq!(&a, &stripe.rows[x]);
        prop_assert_eq!(&b, &stripe.rows[y]);
    }

    /// Patches of random rows in random order give the parity of the final rows.
    #[test]
    fn patched_equals_encoded(count in 1..10usize, length in 1..300usize, seed in any::<u32>(),
                              writes in places(1..8)) {
        let mut stripe = Stripe::new(count, length, seed as usize);
        for (place, value) in writes {
            let row = place.index(count);
            let start = place.index(length);
            let old = stripe.rows[row][start..].to_vec();
            stripe.rows[row][start..].fill(value);
            let mut delta = vec![0; length - start];
            xor_delta(&mut delta, &old, &stripe.rows[row][start..]);
            let mut weighted = vec![0; delta.len()];
            gf_mul_into(&mut weighted, &delta, gf_pow_g(row));
            xor_into(&mut stripe.p[start..], &delta);
            if seed % 2 == 0 {
                xor_into(&mut stripe.q[start..], &weighted);
            } else {
                gf_mul_xor_into(&mut stripe.q[start..], &delta, gf_pow_g(row));
            }
        }
        let (mut p, mut q) = (vec![0; length], vec![0; length]);
        pq_encode(&mut p, &mut q, &slices(&stripe.rows));
        prop_assert_eq!(&p, &stripe.p);
        prop_assert_eq!(&q, &stripe.q);
        let mut only_p = vec![0; length];
        xor_many(&mut only_p, &slices(&stripe.rows));
        prop_assert_eq!(&only_p, &stripe.p);
    }

    /// One unit wrong in any bytes by any amount is named.
    #[test]
    fn one_wrong_unit_is_located(count in 1..100usize, length in 1..1200usize, seed in any::<u32>(),
                                 unit in any::<Index>(),
                                 wrong in places(1..20)) {
        let mut stripe = Stripe::new(count, length, seed as usize);
        prop_assert_eq!(stripe.locate(), Located::Clean);
        let unit = unit.index(count + 2);
        let bytes = match unit {
            i if i < count => &mut stripe.rows[i],
            i if i == count => &mut stripe.p,
            _ => &mut stripe.q,
        };
        for (place, difference) in wrong {
            // Set rather than XORed, so that hitting one place twice cannot undo the damage.
            let at = place.index(length);
            let original = Stripe::new(count, length, seed as usize);
            let right = match unit {
                i if i < count => original.rows[i][at],
                i if i == count => original.p[at],
                _ => original.q[at],
            };
            bytes[at] = right ^ difference.max(1);
        }
        let expected = match unit {
            i if i < count => Located::Row(i),
            i if i == count => Located::P,
            _ => Located::Q,
        };
        prop_assert_eq!(stripe.locate(), expected);
    }
}

/// Two wrong units whose damage differs in place name two culprits, hence none.
#[test]
fn two_wrong_units_are_not_located() {
    let sound = Stripe::new(5, 1000, 3);
    let damage = |stripe: &mut Stripe, unit: usize, at: usize| match unit {
        5 => stripe.p[at] ^= 0x40,
        6 => stripe.q[at] ^= 0x11,
        row => stripe.rows[row][at] ^= 0xA5,
    };
    for x in 0..7 {
        for y in (0..7).filter(|y| *y != x) {
            for at in [0, 1, 511, 512, 998] {
                let mut stripe = sound.clone();
                damage(&mut stripe, x, at);
                damage(&mut stripe, y, 999);
                assert_eq!(stripe.locate(), Located::Unlocatable, "units {x} and {y} at {at}");
            }
        }
    }
}

/// Syndromes that point at a row the stripe does not have.
#[test]
fn a_row_out_of_range_is_not_located() {
    let (p, mut q) = ([0, 7, 0], [0; 3]);
    gf_mul_into(&mut q, &p, gf_pow_g(4));
    assert_eq!(locate(&p, &q, 5), Located::Row(4));
    assert_eq!(locate(&p, &q, 4), Located::Unlocatable);
    assert_eq!(locate(&p, &q, 0), Located::Unlocatable);
    assert_eq!(locate(&[], &[], 4), Located::Clean);
}

#[test]
#[should_panic(expected = "added to the sums of one stripe twice")]
fn a_row_cannot_be_added_twice() {
    let (mut a, mut b) = ([0; 4], [0; 4]);
    let mut sums = PqSums::new(&mut a, &mut b);
    sums.add(3, &[1; 4]);
    sums.add(3, &[1; 4]);
}

#[test]
#[should_panic(expected = "is to be rebuilt but was added")]
fn a_present_row_cannot_be_solved() {
    let (mut a, mut b) = ([0; 4], [0; 4]);
    let mut sums = PqSums::new(&mut a, &mut b);
    sums.add(3, &[1; 4]);
    sums.solve_rows(2, 3);
}

#[test]
#[should_panic(expected = "at most 255 rows")]
fn too_many_rows() {
    let row: &[u8] = &[0; 4];
    pq_encode(&mut [0; 4], &mut [0; 4], &[row; 256]);
}

#[test]
#[should_panic(expected = "must have one length")]
fn rows_of_unequal_length() {
    pq_encode(&mut [0; 100], &mut [0; 100], &[&[0; 100], &[0; 99]]);
}

#[test]
#[should_panic(expected = "must have one length, not 100 and 99")]
fn xor_of_unequal_length() {
    xor_into(&mut [0; 100], &[0; 99]);
}

#[test]
#[should_panic(expected = "row 3 cannot help to rebuild row 3")]
fn a_row_cannot_help_to_rebuild_itself() {
    rebuild_from_q(&mut [0; 4], 3, &[(3, &[1; 4])], &[0; 4]);
}

#[test]
#[should_panic(expected = "row 255 cannot help")]
fn a_row_that_no_stripe_has_cannot_help() {
    rebuild_from_q(&mut [0; 4], 3, &[(MAX_ROWS, &[1; 4])], &[0; 4]);
}
