//! How a pool is made and how it is opened. Every protection is a value.

use holdfast_layout::SumKind;

/// Parity rows kept in each zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Parity {
    /// None: damage is detected, not repaired.
    None,
    /// One row: any one lost page of a column is rebuilt.
    #[default]
    P,
    /// Two rows: any two lost pages of a column are rebuilt, one silently wrong one is located.
    PQ,
}

impl Parity {
    /// Number of parity rows.
    #[must_use]
    pub const fn rows(self) -> u32 {
        match self {
            Self::None => 0,
            Self::P => 1,
            Self::PQ => 2,
        }
    }

    /// From the number of parity rows.
    #[must_use]
    pub const fn from_rows(rows: u32) -> Self {
        match rows {
            0 => Self::None,
            1 => Self::P,
            _ => Self::PQ,
        }
    }
}

/// When reads outside of changes verify the sums of what they read. Opening an object for change
/// verifies always.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum VerifyReads {
    /// Never: damage is found by the scrubber, or when the object is opened for change.
    Never,
    /// Once after open. Damage that comes later is served until the scrubber finds it, or somebody
    /// opens the object for change: the window is the scrub period.
    #[default]
    FirstTouch,
    /// Each time: no read ever returns damaged bytes.
    Always,
}

/// How a new pool is made.
#[derive(Debug, Clone)]
pub struct CreateOptions {
    /// Bytes of the pool, all parts included.
    pub size: u64,
    /// Parity rows.
    pub parity: Parity,
    /// Sums of objects.
    pub sums: SumKind,
    /// Whether metadata and log are kept twice.
    pub metadata_copies: bool,
    /// Rows a zone is divided into, parity included, where it is large enough (O5: 100).
    pub rows: u32,
    /// Bytes of a frame: the largest contiguous loss that parity survives.
    pub frame: u64,
    /// Bytes of a chunk; 0 chooses by size.
    pub chunk: u64,
    /// Number of lanes: transactions that can run at once. 0 chooses.
    pub lanes: u32,
    /// Bytes of log in each copy; 0 chooses by medium.
    pub log: u64,
    /// Bytes of the events journal in each copy.
    pub events: u64,
    /// Whether faults may be injected on purpose.
    pub allow_inject: bool,
    /// A name for people.
    pub label: String,
    /// Identity of the pool. Chosen by the caller, so that campaigns are repeatable.
    pub uuid: [u8; 16],
}

impl Default for CreateOptions {
    fn default() -> Self {
        Self {
            size: 64 << 20,
            parity: Parity::P,
            sums: SumKind::Crc32c,
            metadata_copies: true,
            rows: 100,
            frame: 2 << 20,
            chunk: 0,
            lanes: 0,
            log: 0,
            events: 64 << 10,
            allow_inject: false,
            label: String::new(),
            uuid: [0; 16],
        }
    }
}

impl CreateOptions {
    /// A small pool for tests and campaigns: pages as frames, small chunks, few lanes. It
    /// survives the loss of one page in each column, not of 2 MiB.
    #[must_use]
    pub fn tiny(size: u64) -> Self {
        Self {
            size,
            rows: 8,
            frame: 4096,
            chunk: 8192,
            lanes: 4,
            log: 5 * 8192,
            events: 4096,
            ..Self::default()
        }
    }
}

/// How a pool is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenOptions {
    /// When reads verify.
    pub verify: VerifyReads,
    /// Whether guard words around private copies are checked at commit.
    pub guards: bool,
    /// Whether changes outside ranges declared with `declare` are refused (O36).
    pub debug_ranges: bool,
    /// Longest object contents that travel in the record; longer fresh objects are written in
    /// place under an intent record.
    pub inline_max: u64,
    /// Version words, as a power of two; 0 chooses by medium.
    pub version_bits: u32,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            verify: VerifyReads::default(),
            guards: true,
            debug_ranges: false,
            inline_max: 4096,
            version_bits: 0,
        }
    }
}
