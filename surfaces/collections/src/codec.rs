//! What typed maps take as keys and values, and the bytes they become.

use holdfast_layout::{Persist, TypeNumber, bytemuck};

/// What a typed map can have as keys: `str`, `[u8]`, and fixed-width integers. The order of the
/// bytes is the order of the keys.
pub trait Key: ToOwned {
    /// Number of the type, stored with a map.
    const TYPE: TypeNumber;

    /// The bytes of a key.
    type Bytes<'a>: AsRef<[u8]>
    where
        Self: 'a;

    /// The bytes that stand for the key.
    fn bytes(&self) -> Self::Bytes<'_>;

    /// Lends the key that `bytes` stand for to `use_it`; `None` if they stand for none.
    fn lend<R>(bytes: &[u8], use_it: impl FnOnce(&Self) -> R) -> Option<R>;
}

/// What a typed map can have as values: `str`, `[u8]`, and everything that is
/// [`Persist`]: numbers, arrays of them, pointers, structs that derive it.
pub trait Value: ToOwned {
    /// Number of the type, stored with a map.
    const TYPE: TypeNumber;

    /// The bytes that stand for the value.
    fn bytes(&self) -> &[u8];

    /// Lends the value that `bytes` stand for to `use_it`; `None` if they stand for none.
    fn lend<R>(bytes: &[u8], use_it: impl FnOnce(&Self) -> R) -> Option<R>;
}

const STR: TypeNumber = TypeNumber::of_name("holdfast.str", 1);

impl Key for [u8] {
    const TYPE: TypeNumber = TypeNumber::BYTES;
    type Bytes<'a> = &'a [u8];

    fn bytes(&self) -> &[u8] {
        self
    }

    fn lend<R>(bytes: &[u8], use_it: impl FnOnce(&Self) -> R) -> Option<R> {
        Some(use_it(bytes))
    }
}

impl Key for str {
    const TYPE: TypeNumber = STR;
    type Bytes<'a> = &'a [u8];

    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }

    fn lend<R>(bytes: &[u8], use_it: impl FnOnce(&Self) -> R) -> Option<R> {
        core::str::from_utf8(bytes).ok().map(use_it)
    }
}

macro_rules! integer_keys {
    ($($name:ident $flip:expr;)*) => {$(
        impl Key for $name {
            const TYPE: TypeNumber =
                TypeNumber::of_name(concat!("holdfast.ordered.", stringify!($name)), 1);
            type Bytes<'a> = [u8; size_of::<$name>()];

            #[expect(clippy::big_endian_bytes, reason = "bytes have to order as numbers do")]
            fn bytes(&self) -> Self::Bytes<'_> {
                (*self ^ $flip).to_be_bytes()
            }

            #[expect(clippy::big_endian_bytes, reason = "bytes have to order as numbers do")]
            fn lend<R>(bytes: &[u8], use_it: impl FnOnce(&Self) -> R) -> Option<R> {
                let bytes = bytes.try_into().ok()?;
                Some(use_it(&($name::from_be_bytes(bytes) ^ $flip)))
            }
        }
    )*};
}
// The top bit of a signed number is flipped: negative numbers come first then.
integer_keys! {
    u8 0; u16 0; u32 0; u64 0; u128 0;
    i8 i8::MIN; i16 i16::MIN; i32 i32::MIN; i64 i64::MIN; i128 i128::MIN;
}

impl Value for [u8] {
    const TYPE: TypeNumber = TypeNumber::BYTES;

    fn bytes(&self) -> &[u8] {
        self
    }

    fn lend<R>(bytes: &[u8], use_it: impl FnOnce(&Self) -> R) -> Option<R> {
        Some(use_it(bytes))
    }
}

impl Value for str {
    const TYPE: TypeNumber = STR;

    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }

    fn lend<R>(bytes: &[u8], use_it: impl FnOnce(&Self) -> R) -> Option<R> {
        core::str::from_utf8(bytes).ok().map(use_it)
    }
}

impl<T: Persist> Value for T {
    const TYPE: TypeNumber = T::TYPE;

    fn bytes(&self) -> &[u8] {
        bytemuck::bytes_of(self)
    }

    fn lend<R>(bytes: &[u8], use_it: impl FnOnce(&Self) -> R) -> Option<R> {
        bytemuck::try_pod_read_unaligned(bytes).ok().map(|value| use_it(&value))
    }
}

/// Name of a type number for people: of the types this crate knows; others are shown as numbers.
pub(crate) fn name_of(number: TypeNumber) -> String {
    const KNOWN: &[(TypeNumber, &str)] = &[
        (TypeNumber::BYTES, "[u8]"),
        (STR, "str"),
        (<u8 as Key>::TYPE, "u8"),
        (<u16 as Key>::TYPE, "u16"),
        (<u32 as Key>::TYPE, "u32"),
        (<u64 as Key>::TYPE, "u64"),
        (<u128 as Key>::TYPE, "u128"),
        (<i8 as Key>::TYPE, "i8"),
        (<i16 as Key>::TYPE, "i16"),
        (<i32 as Key>::TYPE, "i32"),
        (<i64 as Key>::TYPE, "i64"),
        (<i128 as Key>::TYPE, "i128"),
        (<u8 as Value>::TYPE, "u8"),
        (<u16 as Value>::TYPE, "u16"),
        (<u32 as Value>::TYPE, "u32"),
        (<u64 as Value>::TYPE, "u64"),
        (<i32 as Value>::TYPE, "i32"),
        (<i64 as Value>::TYPE, "i64"),
        (<f32 as Value>::TYPE, "f32"),
        (<f64 as Value>::TYPE, "f64"),
    ];
    KNOWN
        .iter()
        .find(|(known, _)| *known == number)
        .map_or_else(|| format!("type {:#010x}", number.0), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_integers_order_as_they_do_and_come_back() {
        fn check<K: Key + Ord + Copy + core::fmt::Debug>(mut keys: Vec<K>) {
            keys.sort_unstable();
            keys.dedup();
            for pair in keys.windows(2) {
                assert!(pair[0].bytes().as_ref() < pair[1].bytes().as_ref(), "{pair:?}");
            }
            for key in keys {
                assert_eq!(K::lend(key.bytes().as_ref(), |k| *k), Some(key));
                assert!(K::lend(&key.bytes().as_ref()[1..], |_| ()).is_none());
            }
        }
        let numbers = [0_i64, 1, -1, 255, 256, -256, i64::MAX, i64::MIN, 1 << 40, -(1 << 40)];
        check(numbers.to_vec());
        check(numbers.map(|n| n as u64).to_vec());
        check(numbers.map(|n| n as i8).to_vec());
        check(numbers.map(|n| n as u16).to_vec());
        check(numbers.map(|n| i128::from(n) * i128::from(n)).to_vec());
    }

    #[test]
    fn what_is_no_value_is_not_lent() {
        assert_eq!(<str as Value>::lend(b"\xff", str::len), None);
        assert_eq!(<str as Key>::lend(b"word", str::len), Some(4));
        assert_eq!(<u32 as Value>::lend(&[1, 0, 0], |n| *n), None);
        assert_eq!(<u32 as Value>::lend(&[1, 1, 0, 0], |n| *n), Some(257));
        assert_eq!(<[u16; 2] as Value>::lend(&[1, 0, 2, 0], |a| *a), Some([1, 2]));
    }

    #[test]
    fn types_have_names_or_at_least_numbers() {
        assert_eq!(name_of(<i64 as Key>::TYPE), "i64");
        assert_eq!(name_of(<str as Value>::TYPE), "str");
        assert_eq!(name_of(TypeNumber(0xabc)), "type 0x00000abc");
    }
}
