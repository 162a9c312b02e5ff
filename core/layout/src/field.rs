//! One field of an on-media structure, as data that the format check can read.

/// A field of an on-media structure: its name, where it starts and how many bytes it has.
///
/// `format.rs` files list their structures as `&[Field]`; `xtask formats` compares each list with
/// the table of the same name in `docs/formats/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Name of the field, as the format page spells it.
    pub name: &'static str,
    /// Offset from the start of the structure, in bytes.
    pub at: u64,
    /// Length in bytes.
    pub len: u64,
}

impl Field {
    /// Describes a field.
    #[must_use]
    pub const fn new(name: &'static str, at: u64, len: u64) -> Self {
        Self { name, at, len }
    }

    /// The bytes of this field in `record`, or `None` if the record is too short.
    #[must_use]
    pub fn of<'a>(&self, record: &'a [u8]) -> Option<&'a [u8]> {
        let start = usize::try_from(self.at).ok()?;
        let end = start.checked_add(usize::try_from(self.len).ok()?)?;
        record.get(start..end)
    }
}

/// Whether the fields follow each other without gaps and end at `len`.
#[must_use]
pub const fn covers(fields: &[Field], len: u64) -> bool {
    let (mut next, mut i) = (0, 0);
    while i < fields.len() {
        if fields[i].at != next {
            return false;
        }
        next += fields[i].len;
        i += 1;
    }
    next == len
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_overlaps_and_other_ends_are_seen() {
        let (one, two) = (Field::new("one", 0, 8), Field::new("two", 8, 4));
        assert!(covers(&[one, two], 12) && covers(&[], 0));
        assert!(!covers(&[one, two], 13) && !covers(&[two, one], 12) && !covers(&[one, one], 16));
    }
}
