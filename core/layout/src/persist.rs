//! Plain persistent data: types whose bytes may go to a medium and come back.

use bytemuck::Pod;

/// A 32-bit number for a type: a hash of its name, declared version and field layout (O4, OG12).
///
/// Stable across builds and machines; it is stored in every object's slot and compared when a
/// typed pointer is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeNumber(pub u32);

impl TypeNumber {
    /// Objects allocated as raw bytes.
    pub const BYTES: Self = Self::of_name("holdfast.bytes", 1);

    /// Number of a type without fields of its own: `name` and `version`.
    #[must_use]
    pub const fn of_name(name: &str, version: u32) -> Self {
        Self::start(name, version).end()
    }

    /// Begins the number of a type with fields; used by the derive.
    #[must_use]
    pub const fn start(name: &str, version: u32) -> TypeHash {
        TypeHash(0xcbf2_9ce4_8422_2325).text(name).word(version as u64)
    }
}

/// A [`TypeNumber`] in the making: FNV-1a over name, version, then each field's name, offset and
/// type. Evaluated at compile time.
#[derive(Debug, Clone, Copy)]
pub struct TypeHash(u64);

impl TypeHash {
    const fn byte(self, b: u8) -> Self {
        Self((self.0 ^ b as u64).wrapping_mul(0x0000_0100_0000_01b3))
    }

    const fn text(mut self, s: &str) -> Self {
        let bytes = s.as_bytes();
        let mut i = 0;
        while i < bytes.len() {
            self = self.byte(bytes[i]);
            i += 1;
        }
        self.byte(0xff)
    }

    const fn word(mut self, w: u64) -> Self {
        let mut i = 0;
        while i < 8 {
            self = self.byte((w >> (8 * i)) as u8);
            i += 1;
        }
        self
    }

    /// Adds a field: its name, its offset in bytes, and the number of its type.
    #[must_use]
    pub const fn field(self, name: &str, offset: usize, of: TypeNumber) -> Self {
        self.text(name).word(offset as u64).word(of.0 as u64)
    }

    /// Adds a size or count.
    #[must_use]
    pub const fn size(self, n: usize) -> Self {
        self.word(n as u64)
    }

    /// The finished number; never zero, which means "no type".
    #[must_use]
    pub const fn end(self) -> TypeNumber {
        let folded = (self.0 ^ (self.0 >> 32)) as u32;
        TypeNumber(if folded == 0 { 1 } else { folded })
    }
}

/// Data that may live in a pool: fixed layout, no padding, no pointers or references, and every
/// bit pattern a value, since the bytes come back from a medium that may have rotted.
///
/// Use `#[derive(Persist)]`; it refuses at compile time what does not qualify. `bool`, `char`,
/// enums, `usize`, references and raw pointers do not: store an integer, or a
/// [`Ptr`](crate::Ptr).
///
/// # Safety
///
/// The type has the same layout in every build (`repr(C)` or `repr(transparent)`), and contains
/// nothing whose meaning ends with the process.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be stored in a pool",
    label = "not plain persistent data",
    note = "stored are fixed-width numbers, arrays of them, `Ptr<T>`, and structs that derive \
            `Persist`: every bit pattern has to be a value, and mean the same after a restart",
    note = "for a `bool`, `char` or enum store an integer; for `usize` a `u64`; for a reference, \
            `Box`, `Vec` or `String` allocate an object and store a `Ptr` to it"
)]
pub unsafe trait Persist: Pod {
    /// Number of the type, stored with every object.
    const TYPE: TypeNumber;
}

macro_rules! persist_numbers {
    ($($t:ty),*) => {$(
        // SAFETY: a fixed-width number has one layout on the platforms the workspace builds for
        // (little-endian, 64-bit) and no process-local meaning.
        unsafe impl Persist for $t {
            const TYPE: TypeNumber = TypeNumber::of_name(stringify!($t), 1);
        }
    )*};
}
persist_numbers!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128, f32, f64);

// SAFETY: an array lays out its elements without gaps.
unsafe impl<T: Persist, const N: usize> Persist for [T; N]
where
    [T; N]: Pod,
{
    const TYPE: TypeNumber =
        TypeNumber::start("array", 1).field("element", 0, T::TYPE).size(N).end();
}
