//! What keys and values of maps are, on both sides of the border: bytes as C has them, and bytes as
//! a map keeps them, whose order is that of the keys.

use holdfast::collections::KEY_MAX;
use holdfast::layout::bytemuck;
use holdfast::{Key, TypeNumber, Value};

use crate::border::{Done, Fail};

/// What keys or values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub enum holdfast_content {
    /// Any bytes.
    HoldfastContentBytes = 0,
    /// UTF-8, without a zero at its end.
    HoldfastContentText = 1,
    /// A uint64_t; as keys in order of numbers.
    HoldfastContentU64 = 2,
    /// An int64_t; as keys in order of numbers.
    HoldfastContentI64 = 3,
}

pub(crate) use holdfast_content as Content;

/// All of them; what is not here is none.
const ALL: [Content; 4] = [
    Content::HoldfastContentBytes,
    Content::HoldfastContentText,
    Content::HoldfastContentU64,
    Content::HoldfastContentI64,
];

/// Does something with the Rust types of keys and values.
macro_rules! with_types {
    ($keys:expr, $values:expr, $k:ident, $v:ident => $call:expr) => {
        with_types!(@one $keys, $k => with_types!(@one $values, $v => $call))
    };
    (@one $content:expr, $name:ident => $call:expr) => {
        match $content {
            $crate::content::Content::HoldfastContentBytes => {
                type $name = [u8];
                $call
            }
            $crate::content::Content::HoldfastContentText => {
                type $name = str;
                $call
            }
            $crate::content::Content::HoldfastContentU64 => {
                type $name = u64;
                $call
            }
            $crate::content::Content::HoldfastContentI64 => {
                type $name = i64;
                $call
            }
        }
    };
}
pub(crate) use with_types;

/// A key as a map keeps it.
#[derive(Debug)]
pub(crate) enum Kept<'k> {
    Same(&'k [u8]),
    Number([u8; 8]),
}

impl AsRef<[u8]> for Kept<'_> {
    fn as_ref(&self) -> &[u8] {
        match self {
            Kept::Same(bytes) => bytes,
            Kept::Number(bytes) => bytes,
        }
    }
}

impl Content {
    pub(crate) fn of_number(number: u32, what: &str) -> Done<Self> {
        let found = ALL.into_iter().find(|content| *content as u32 == number);
        found.ok_or_else(|| Fail::invalid(format!("{what}: {number} is no holdfast_content")))
    }

    /// What keys of that type are.
    pub(crate) fn of_keys(number: TypeNumber) -> Option<Self> {
        ALL.into_iter().find(|content| with_types!(@one *content, K => <K as Key>::TYPE) == number)
    }

    /// What values of that type are.
    pub(crate) fn of_values(number: TypeNumber) -> Option<Self> {
        ALL.into_iter()
            .find(|content| with_types!(@one *content, V => <V as Value>::TYPE) == number)
    }

    /// Refuses what is no such key or value.
    pub(crate) fn expect(self, bytes: &[u8], what: &str) -> Done {
        let wrong = match self {
            Self::HoldfastContentBytes => return Ok(()),
            Self::HoldfastContentText if core::str::from_utf8(bytes).is_ok() => return Ok(()),
            Self::HoldfastContentText => "text; this is not UTF-8".to_owned(),
            _ if bytes.len() == size_of::<u64>() => return Ok(()),
            _ => format!("numbers of 8 bytes; this has {}", bytes.len()),
        };
        Err(Fail::invalid(format!("{what}: the map takes {wrong}")))
    }

    /// A key as the map keeps it.
    pub(crate) fn keep<'k>(self, key: &'k [u8], what: &str) -> Done<Kept<'k>> {
        if key.len() > KEY_MAX {
            let text = format!("{what} has {} bytes; at most {KEY_MAX} are a key", key.len());
            return Err(Fail::invalid(text));
        }
        self.expect(key, what)?;
        Ok(match self {
            Self::HoldfastContentU64 => Kept::Number(Key::bytes(&number::<u64>(key))),
            Self::HoldfastContentI64 => Kept::Number(Key::bytes(&number::<i64>(key))),
            _ => Kept::Same(key),
        })
    }

    /// Shows a key that was kept as C has it; `None` if it is none.
    pub(crate) fn show_key<R>(self, kept: &[u8], see: impl FnOnce(&[u8]) -> R) -> Option<R> {
        match self {
            Self::HoldfastContentU64 => {
                <u64 as Key>::lend(kept, |number| see(bytemuck::bytes_of(number)))
            }
            Self::HoldfastContentI64 => {
                <i64 as Key>::lend(kept, |number| see(bytemuck::bytes_of(number)))
            }
            _ => Some(see(kept)),
        }
    }

    /// Whether a value that was kept is one.
    pub(crate) fn is_value(self, kept: &[u8]) -> bool {
        let number = matches!(self, Self::HoldfastContentU64 | Self::HoldfastContentI64);
        !number || kept.len() == size_of::<u64>()
    }
}

/// The number C handed over, of which `expect` saw that it has 8 bytes.
fn number<N: bytemuck::Pod>(bytes: &[u8]) -> N {
    bytemuck::pod_read_unaligned(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_keys_are_kept_in_their_order_and_shown_as_they_were() {
        let numbers = [i64::MIN, -1, 0, 1, i64::MAX];
        let content = Content::HoldfastContentI64;
        let kept: Vec<_> = numbers
            .iter()
            .map(|n| content.keep(bytemuck::bytes_of(n), "it").unwrap().as_ref().to_vec())
            .collect();
        assert!(kept.is_sorted());
        for (number, kept) in numbers.iter().zip(&kept) {
            let shown = content.show_key(kept, |bytes| bytes == bytemuck::bytes_of(number));
            assert_eq!(shown, Some(true));
        }
        assert_eq!(content.show_key(&kept[0][1..], |_| ()), None);
    }

    #[test]
    fn the_types_are_those_of_maps_made_in_rust() {
        assert_eq!(Content::of_keys(<u64 as Key>::TYPE), Some(Content::HoldfastContentU64));
        assert_eq!(Content::of_values(<u64 as Value>::TYPE), Some(Content::HoldfastContentU64));
        assert_eq!(Content::of_keys(<u64 as Value>::TYPE), None);
        assert_eq!(Content::of_keys(<u32 as Key>::TYPE), None);
    }
}
