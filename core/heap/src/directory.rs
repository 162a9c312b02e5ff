//! Entries of the chunk directory: what each chunk of a zone is.

use holdfast_layout::Certify;
use holdfast_layout::bytes::{get_u16, get_u32, put_u16, put_u32};

use crate::format::{CHUNK_LEN, KIND_FREE, KIND_LARGE, KIND_LOG, KIND_RUN, KIND_TAIL};
use crate::sums::Sums;

/// What a chunk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkKind {
    /// Nothing.
    Free,
    /// A run of objects of one size class.
    Run,
    /// First chunk of a large object.
    Large,
    /// Another chunk of a large object.
    Tail,
    /// Overflowing log records; zeros in parity.
    Log,
}

/// A directory entry, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkEntry {
    /// What the chunk is.
    pub kind: ChunkKind,
    /// Runs: the size class.
    pub class: u8,
    /// Rises each time the chunk changes its kind; seeds generations of its objects.
    pub generation: u16,
    /// Large: chunks of the object. Tail: distance to its first chunk.
    pub count: u32,
}

impl ChunkKind {
    const fn code(self) -> u8 {
        match self {
            Self::Free => KIND_FREE,
            Self::Run => KIND_RUN,
            Self::Large => KIND_LARGE,
            Self::Tail => KIND_TAIL,
            Self::Log => KIND_LOG,
        }
    }

    const fn from_code(code: u8) -> Option<Self> {
        match code {
            KIND_FREE => Some(Self::Free),
            KIND_RUN => Some(Self::Run),
            KIND_LARGE => Some(Self::Large),
            KIND_TAIL => Some(Self::Tail),
            KIND_LOG => Some(Self::Log),
            _ => None,
        }
    }
}

impl ChunkEntry {
    /// A chunk nobody used yet. It is written like any other when its zone is made: were zeros a
    /// valid entry, a run whose entry was wiped out would pass for free space.
    pub const VIRGIN: Self = Self { kind: ChunkKind::Free, class: 0, generation: 0, count: 0 };

    /// The entry as it is stored at pool offset `at`.
    #[must_use]
    pub fn encode(&self, sums: &Sums, at: u64) -> [u8; CHUNK_LEN] {
        let mut bytes = [0; CHUNK_LEN];
        bytes[4] = self.kind.code();
        bytes[5] = self.class;
        put_u16(&mut bytes, 6, self.generation);
        put_u32(&mut bytes, 8, self.count);
        let sum = sums.chunk_entry(at, &bytes);
        put_u32(&mut bytes, 0, sum);
        bytes
    }

    /// Reads bytes found at pool offset `at`, which may be anything. `None` if they are not a
    /// valid entry, as far as `certify` lets their sum decide.
    #[must_use]
    pub fn decode(bytes: &[u8; CHUNK_LEN], sums: &Sums, at: u64, certify: Certify) -> Option<Self> {
        if !certify.agrees(get_u32(bytes, 0), sums.chunk_entry(at, bytes)) {
            return None;
        }
        Some(Self {
            kind: ChunkKind::from_code(bytes[4])?,
            class: bytes[5],
            generation: get_u16(bytes, 6),
            count: get_u32(bytes, 8),
        })
    }

    /// The entry the chunk has next: another kind, a higher generation.
    #[must_use]
    pub fn next(&self, kind: ChunkKind, class: u8, count: u32) -> Self {
        Self { kind, class, generation: self.generation.wrapping_add(1), count }
    }
}
