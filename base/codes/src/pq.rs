//! P+Q parity: two check units per stripe, `P = sum of row_i` and `Q = sum of g^i * row_i`.
//!
//! Any two lost units can be computed from the others, and one unit that is silently wrong can be
//! *named*. Both sums are linear, so rows may be added in any order and patched independently;
//! [`PqSums`] takes them one at a time, in buffers as small as the caller likes, because every
//! byte position of a stripe is a code word of its own.
//!
//! | lost | add to the sums | solve with |
//! |---|---|---|
//! | one row | other rows, P or Q | `solve_row_from_p`, `solve_row_from_q` |
//! | two rows | other rows, P, Q | `solve_rows` |
//! | a row and P | other rows, Q | `solve_row_and_p` |
//! | a row and Q | other rows, P | `solve_row_and_q` |
//! | P, Q or both | all rows | `solve_p_and_q` |
//! | nothing known to be | all rows, P, Q | `locate` |

use crate::dispatch;
use crate::gf::{gf_inv, gf_mul, gf_mul_into, gf_mul_xor_into, gf_pow_g, logarithm};
use crate::gf_tables::ORDER;
use crate::xor::{is_zero, same_length, xor_into};

/// Most rows a stripe can have: g has that many different powers.
pub const MAX_ROWS: usize = ORDER;

/// Bytes worked on at a time where a temporary is needed.
const STEP: usize = 512;

/// Computes both check units of a stripe: `p` = sum of all rows, `q` = sum of g^i times `rows[i]`.
///
/// Outputs of several MiB are written with streaming stores as by [`crate::xor_many`].
///
/// # Panics
///
/// If the lengths differ or there are more than [`MAX_ROWS`] rows.
pub fn pq_encode(p: &mut [u8], q: &mut [u8], rows: &[&[u8]]) {
    dispatch::pq_encode(p, q, rows);
}

/// Running sums over the units of one stripe, or over the same byte range of each of them.
///
/// ```
/// use holdfast_codes::{PqSums, pq_encode};
/// let rows = [*b"first row", *b"other row", *b"third row"];
/// let (mut p, mut q) = ([0; 9], [0; 9]);
/// pq_encode(&mut p, &mut q, &[&rows[0], &rows[1], &rows[2]]);
///
/// let (mut a, mut b) = ([0; 9], [0; 9]);
/// let mut sums = PqSums::new(&mut a, &mut b);
/// sums.add(1, &rows[1]);
/// sums.add_p(&p);
/// sums.add_q(&q);
/// let (lost_0, lost_2) = sums.solve_rows(0, 2);
/// assert_eq!((&*lost_0, &*lost_2), (&rows[0][..], &rows[2][..]));
/// ```
#[derive(Debug)]
pub struct PqSums<'a> {
    /// Sum of what was added: rows and P.
    p: &'a mut [u8],
    /// Sum of what was added: rows times their coefficient, and Q.
    q: &'a mut [u8],
    /// One bit per row added, so that mistakes of the caller are not taken for data.
    added: [u64; 4],
}

impl<'a> PqSums<'a> {
    /// Sums of nothing, kept in two buffers of the caller, which are overwritten with zeros.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn new(p: &'a mut [u8], q: &'a mut [u8]) -> Self {
        same_length(p, q);
        p.fill(0);
        q.fill(0);
        Self { p, q, added: [0; 4] }
    }

    /// Adds a data row.
    ///
    /// # Panics
    ///
    /// If `bytes` has another length than the buffers, `row` is not below [`MAX_ROWS`], or the
    /// row was added before.
    pub fn add(&mut self, row: usize, bytes: &[u8]) {
        assert!(!self.has(row), "row {row} is added to the sums of one stripe twice");
        self.added[row / 64] |= 1 << (row % 64);
        dispatch::pq_add(self.p, self.q, bytes, gf_pow_g(row));
    }

    /// Adds the stored P unit. Panics if `bytes` has another length than the buffers.
    pub fn add_p(&mut self, bytes: &[u8]) {
        xor_into(self.p, bytes);
    }

    /// Adds the stored Q unit. Panics if `bytes` has another length than the buffers.
    pub fn add_q(&mut self, bytes: &[u8]) {
        xor_into(self.q, bytes);
    }

    /// The sum of rows and P: a syndrome once all rows and P are added.
    pub fn p(&self) -> &[u8] {
        self.p
    }

    /// The sum of weighted rows and Q: a syndrome once all rows and Q are added.
    pub fn q(&self) -> &[u8] {
        self.q
    }

    /// The one row missing from all other rows and P.
    pub fn solve_row_from_p(self) -> &'a mut [u8] {
        self.p
    }

    /// Row `row`, missing from all other rows and Q.
    ///
    /// # Panics
    ///
    /// If `row` was added or is not below [`MAX_ROWS`].
    pub fn solve_row_from_q(self, row: usize) -> &'a mut [u8] {
        self.expect_missing(row);
        scale(self.q, gf_inv(gf_pow_g(row)));
        self.q
    }

    /// Rows `x` and `y`, in this order, missing from all other rows, P and Q.
    ///
    /// # Panics
    ///
    /// If `x` equals `y`, or one of them was added or is not below [`MAX_ROWS`].
    pub fn solve_rows(self, x: usize, y: usize) -> (&'a mut [u8], &'a mut [u8]) {
        self.expect_missing(x);
        self.expect_missing(y);
        assert!(x != y, "row {x} is lost once, not twice");
        // P = X + Y and Q = g^x X + g^y Y, hence (g^x + g^y) X = g^y P + Q; the factor is not
        // zero because powers of g below 255 differ.
        let over = gf_inv(gf_pow_g(x) ^ gf_pow_g(y));
        let of_p = gf_mul(gf_pow_g(y), over);
        for (p, q) in self.p.chunks_mut(STEP).zip(self.q.chunks_mut(STEP)) {
            let mut buffer = [0; STEP];
            let row_x = &mut buffer[..p.len()];
            gf_mul_into(row_x, p, of_p);
            gf_mul_xor_into(row_x, q, over);
            q.copy_from_slice(p);
            xor_into(q, row_x);
            p.copy_from_slice(row_x);
        }
        (self.p, self.q)
    }

    /// Row `row` and P, in this order, missing from all other rows and Q.
    ///
    /// # Panics
    ///
    /// If `row` was added or is not below [`MAX_ROWS`].
    pub fn solve_row_and_p(self, row: usize) -> (&'a mut [u8], &'a mut [u8]) {
        self.expect_missing(row);
        scale(self.q, gf_inv(gf_pow_g(row)));
        xor_into(self.p, self.q);
        (self.q, self.p)
    }

    /// Row `row` and Q, in this order, missing from all other rows and P.
    ///
    /// # Panics
    ///
    /// If `row` was added or is not below [`MAX_ROWS`].
    pub fn solve_row_and_q(self, row: usize) -> (&'a mut [u8], &'a mut [u8]) {
        self.expect_missing(row);
        gf_mul_xor_into(self.q, self.p, gf_pow_g(row));
        (self.p, self.q)
    }

    /// P and Q from all rows (neither stored unit added).
    pub fn solve_p_and_q(self) -> (&'a mut [u8], &'a mut [u8]) {
        (self.p, self.q)
    }

    /// Which unit of a stripe of `rows` rows is wrong, after all rows, P and Q are added.
    pub fn locate(&self, rows: usize) -> Located {
        locate(self.p, self.q, rows)
    }

    fn has(&self, row: usize) -> bool {
        assert!(row < MAX_ROWS, "a stripe has at most {MAX_ROWS} rows, there is no row {row}");
        self.added[row / 64] >> (row % 64) & 1 != 0
    }

    fn expect_missing(&self, row: usize) {
        assert!(!self.has(row), "row {row} is to be rebuilt but was added to the sums");
    }
}

/// What the syndromes of a stripe say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Located {
    /// All units agree.
    Clean,
    /// The rows agree with Q: P is wrong.
    P,
    /// The rows agree with P: Q is wrong.
    Q,
    /// Only a change of this row explains both syndromes.
    Row(usize),
    /// No change of a single unit explains the syndromes: more than one unit is wrong.
    Unlocatable,
}

/// Finds the one silently wrong unit of a stripe of `rows` data rows.
///
/// The syndromes are the stored P and Q, each XORed with what the stored rows give. Row i wrong by
/// a difference d shows as d in P and g^i * d in Q, so every byte must give the same i; P or Q
/// wrong shows in its own syndrome alone. Two wrong units are told from one unless they imitate
/// it at every byte that differs; the more bytes differ, the less likely.
///
/// # Panics
///
/// If the syndromes differ in length.
pub fn locate(p_syndrome: &[u8], q_syndrome: &[u8], rows: usize) -> Located {
    same_length(p_syndrome, q_syndrome);
    match (is_zero(p_syndrome), is_zero(q_syndrome)) {
        (true, true) => return Located::Clean,
        (false, true) => return Located::P,
        (true, false) => return Located::Q,
        (false, false) => {}
    }
    let mut pairs = p_syndrome.iter().zip(q_syndrome);
    let Some((d, weighted)) = pairs.find(|(p, q)| **p != 0 && **q != 0) else {
        return Located::Unlocatable;
    };
    let coef = gf_mul(*weighted, gf_inv(*d));
    let row = logarithm(coef);
    if row >= rows {
        return Located::Unlocatable;
    }
    for (p, q) in p_syndrome.chunks(STEP).zip(q_syndrome.chunks(STEP)) {
        let mut buffer = [0; STEP];
        let expected = &mut buffer[..p.len()];
        gf_mul_into(expected, p, coef);
        if expected != q {
            return Located::Unlocatable;
        }
    }
    Located::Row(row)
}

/// Multiplies every byte by `coef`, in place.
pub(crate) fn scale(bytes: &mut [u8], coef: u8) {
    for chunk in bytes.chunks_mut(STEP) {
        let mut buffer = [0; STEP];
        let product = &mut buffer[..chunk.len()];
        gf_mul_into(product, chunk, coef);
        chunk.copy_from_slice(product);
    }
}

/// The check every whole-stripe function makes before it relies on one length.
pub(crate) fn check_rows(p: &[u8], q: &[u8], rows: &[&[u8]]) {
    assert!(rows.len() <= MAX_ROWS, "a stripe has at most {MAX_ROWS} rows, not {}", rows.len());
    same_length(p, q);
    for row in rows {
        same_length(p, row);
    }
}
