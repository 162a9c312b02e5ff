//! Typed offsets: how objects of a pool name each other.

use core::{cmp, fmt, hash, marker::PhantomData};

use crate::persist::{Persist, TypeNumber};

/// Bits of an offset inside a pointer; pools are smaller than 2^48 bytes.
pub const OFFSET_BITS: u32 = 48;
const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;

/// An untyped pointer into a pool: 48 bits of offset, 16 bits of generation.
///
/// The generation is the one of the object's slot when the object was allocated. A pointer kept
/// after its object was freed and its place reused names an older generation, and is refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct RawPtr(u64);

impl RawPtr {
    /// The pointer to nothing.
    pub const NULL: Self = Self(0);

    /// Names the object at `offset` in its `generation`. Offsets beyond 48 bits are cut off, and
    /// then name nothing that exists.
    #[must_use]
    pub const fn new(offset: u64, generation: u16) -> Self {
        Self((offset & OFFSET_MASK) | ((generation as u64) << OFFSET_BITS))
    }

    /// The pointer as one word, as it is stored.
    #[must_use]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// A pointer from a stored word. Any word is a pointer; whether it names anything is checked
    /// when it is followed.
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// Byte offset of the object from the start of the pool.
    #[must_use]
    pub const fn offset(self) -> u64 {
        self.0 & OFFSET_MASK
    }

    /// Generation of the object's slot.
    #[must_use]
    pub const fn generation(self) -> u16 {
        (self.0 >> OFFSET_BITS) as u16
    }

    /// Whether this is the pointer to nothing.
    #[must_use]
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The same place, said to hold a `T`. Checked when it is followed.
    #[must_use]
    pub const fn typed<T>(self) -> Ptr<T> {
        Ptr { raw: self, of: PhantomData }
    }
}

impl fmt::Debug for RawPtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_null() {
            f.write_str("null")
        } else {
            write!(f, "{:#x}@{}", self.offset(), self.generation())
        }
    }
}

impl fmt::Display for RawPtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A pointer to a `T` in a pool. Plain data: it may be stored in other objects.
#[repr(transparent)]
pub struct Ptr<T> {
    raw: RawPtr,
    of: PhantomData<fn() -> T>,
}

impl<T> Ptr<T> {
    /// The pointer to nothing.
    #[must_use]
    pub const fn null() -> Self {
        RawPtr::NULL.typed()
    }

    /// Without the type.
    #[must_use]
    pub const fn raw(self) -> RawPtr {
        self.raw
    }

    /// Whether this is the pointer to nothing.
    #[must_use]
    pub const fn is_null(self) -> bool {
        self.raw.is_null()
    }
}

impl<T> Clone for Ptr<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Ptr<T> {}
impl<T> PartialEq for Ptr<T> {
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}
impl<T> Eq for Ptr<T> {}
impl<T> PartialOrd for Ptr<T> {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Ptr<T> {
    fn cmp(&self, other: &Self) -> cmp::Ordering {
        self.raw.cmp(&other.raw)
    }
}
impl<T> hash::Hash for Ptr<T> {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.raw.hash(state);
    }
}
impl<T> Default for Ptr<T> {
    fn default() -> Self {
        Self::null()
    }
}
impl<T> fmt::Debug for Ptr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.raw, f)
    }
}

// SAFETY: transparent over one u64, for which zero is a value.
unsafe impl bytemuck::Zeroable for RawPtr {}
// SAFETY: transparent over one u64: no padding, every bit pattern valid, Copy, 'static.
unsafe impl bytemuck::Pod for RawPtr {}
// SAFETY: transparent over RawPtr (its PhantomData has no bytes).
unsafe impl<T: 'static> bytemuck::Zeroable for Ptr<T> {}
// SAFETY: transparent over RawPtr: no padding, every bit pattern valid, Copy, 'static.
unsafe impl<T: 'static> bytemuck::Pod for Ptr<T> {}

// SAFETY: plain data by the two impls above.
unsafe impl Persist for RawPtr {
    const TYPE: TypeNumber = TypeNumber::of_name("holdfast.RawPtr", 1);
}
// SAFETY: as RawPtr. The pointee's layout is not part of the pointer's: recursion would not end.
unsafe impl<T: 'static> Persist for Ptr<T> {
    const TYPE: TypeNumber = TypeNumber::of_name("holdfast.Ptr", 1);
}
