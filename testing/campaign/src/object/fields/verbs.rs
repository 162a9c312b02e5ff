//! Eight ways to damage a field.

use holdfast_workloads::Rng;

/// A way to damage a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// All bits 0.
    Zero,
    /// All bits 1.
    Ones,
    /// One more.
    More,
    /// One less.
    Less,
    /// One bit is flipped.
    Flip,
    /// The highest bit is flipped.
    High,
    /// What such a field holds elsewhere, or what lies next to it.
    Neighbour,
    /// Anything.
    Random,
}

impl Verb {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Zero,
        Self::Ones,
        Self::More,
        Self::Less,
        Self::Flip,
        Self::High,
        Self::Neighbour,
        Self::Random,
    ];

    /// The bytes of a damaged field.
    #[must_use]
    pub fn apply(self, bytes: &[u8], neighbour: &[u8], rng: &mut Rng) -> Vec<u8> {
        let mut new = bytes.to_vec();
        match self {
            Self::Zero => new.fill(0),
            Self::Ones => new.fill(0xff),
            Self::More => count(&mut new, 0xff, 0, 1),
            Self::Less => count(&mut new, 0, 0xff, 0xff),
            Self::Flip => {
                let bit = rng.below(8 * new.len() as u64);
                new[(bit / 8) as usize] ^= 1 << (bit % 8);
            }
            Self::High => {
                if let Some(last) = new.last_mut() {
                    *last ^= 0x80;
                }
            }
            Self::Neighbour => {
                let len = new.len().min(neighbour.len());
                new[..len].copy_from_slice(&neighbour[..len]);
            }
            Self::Random => rng.fill(&mut new),
        }
        new
    }
}

/// Adds or takes one from a little-endian number of any length: bytes that are `full` wrap to
/// `empty` and carry, the first other one changes by `step`.
fn count(bytes: &mut [u8], full: u8, empty: u8, step: u8) {
    for byte in bytes {
        if *byte == full {
            *byte = empty;
        } else {
            *byte = byte.wrapping_add(step);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_does_what_it_says() {
        let mut rng = Rng::new(1);
        let mut damaged = |verb: Verb, bytes: [u8; 3]| verb.apply(&bytes, &[7, 8], &mut rng);
        assert_eq!(damaged(Verb::More, [0xff, 0xff, 1]), [0, 0, 2]);
        assert_eq!(damaged(Verb::Less, [0, 0, 1]), [0xff, 0xff, 0]);
        assert_eq!(damaged(Verb::Less, [5, 0, 1]), [4, 0, 1]);
        assert_eq!(damaged(Verb::High, [1, 2, 3]), [1, 2, 0x83]);
        assert_eq!(damaged(Verb::Neighbour, [1, 2, 3]), [7, 8, 3]);
        assert_ne!(damaged(Verb::Flip, [0, 0, 0]), [0, 0, 0]);
    }
}
