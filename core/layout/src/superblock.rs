//! The superblock: what a pool is, where its parts are, and which log generation is alive.

use core::fmt;

use holdfast_codes::crc32c;

use crate::Certify;
use crate::bytes::{get_u32, get_u64, put, put_u32, put_u64};
use crate::format::{
    INCOMPATIBLE_KNOWN, MAGIC, PAGE_LEN, READ_ONLY_COMPATIBLE_KNOWN, SEQUENCE_MAX, VERSION,
};

/// How the two copies of the log lie on the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogPlacement {
    /// One copy in each side, at least a frame apart: a lost frame takes only one.
    Apart,
    /// Copies adjacent, written by one system call (page-cache files, one sync per commit).
    Adjacent,
}

/// Which sums protect objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SumKind {
    /// None: damage to object bytes is not detected.
    None,
    /// CRC-32C, the default.
    Crc32c,
    /// Adler-32, the paper's choice; weak on short objects.
    Adler32,
}

/// Contents of the superblock, decoded. See `docs/formats/pool.md` for each field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// Rises with each write; the newer valid copy wins.
    pub sequence: u64,
    /// Identity of the pool; seeds every checksum in it.
    pub uuid: [u8; 16],
    /// Features a reader may ignore.
    pub compatible: u64,
    /// Features a reader may ignore if it does not write.
    pub read_only_compatible: u64,
    /// Features a reader must know.
    pub incompatible: u64,
    /// Records of other generations are dead.
    pub log_generation: u64,
    /// Whether the pool was closed with nothing left to recover.
    pub clean: bool,
    /// Bytes of the pool.
    pub size: u64,
    /// Bytes of a frame: what one lost large page takes with it.
    pub frame: u64,
    /// Bytes of a heap chunk.
    pub chunk: u64,
    /// Bytes of a side (metadata and log); side A starts at 0, side B right after it.
    pub side_len: u64,
    /// Bytes of the events journal in each side.
    pub events_len: u64,
    /// Where the log starts in each side.
    pub log_start: u64,
    /// Bytes of one lane's ring.
    pub ring_len: u64,
    /// Number of lanes.
    pub lanes: u32,
    /// How log copies lie.
    pub log_placement: LogPlacement,
    /// Which sums protect objects.
    pub sum_kind: SumKind,
    /// Parity rows in each zone: 0, 1 (P) or 2 (P and Q).
    pub parity: u32,
    /// Copies of metadata and log: 1 or 2.
    pub copies: u32,
    /// Whether faults may be injected into this pool.
    pub allow_inject: bool,
    /// Pointer to the anchor object.
    pub anchor: u64,
    /// Rows a zone is divided into, where it is large enough.
    pub rows: u32,
    /// A name for people, UTF-8.
    pub label: String,
}

/// Why a page is not a superblock this build can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SuperblockError {
    /// It does not start with the magic: not a pool.
    NotAPool,
    /// The checksum does not match.
    Corrupt {
        /// Sum stored.
        expected: u32,
        /// Sum of the bytes found.
        found: u32,
    },
    /// Written by a newer version.
    NewerVersion(u32),
    /// Uses features this build does not know.
    UnknownFeatures(u64),
    /// A field has an impossible value.
    BadField {
        /// Name of the field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
}

impl fmt::Display for SuperblockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAPool => write!(f, "not a holdfast pool (no magic at its start)"),
            Self::Corrupt { expected, found } => {
                write!(f, "superblock is corrupt (sum {found:#010x}, stored {expected:#010x})")
            }
            Self::NewerVersion(v) => {
                write!(f, "pool has format version {v}, this build reads up to {VERSION}: upgrade")
            }
            Self::UnknownFeatures(mask) => {
                write!(f, "pool uses features this build does not know ({mask:#x}): upgrade")
            }
            Self::BadField { field, value } => {
                write!(f, "superblock field `{field}` has the impossible value {value:#x}")
            }
        }
    }
}

impl std::error::Error for SuperblockError {}

const FLAG_ALLOW_INJECT: u32 = 1;
/// Largest pool: what fits a pointer's offset.
const SIZE_MAX: u64 = 1 << 47;
/// Bytes of the label field.
pub const LABEL_LEN: usize = 64;

impl Superblock {
    /// Seed of every checksum in the pool.
    #[must_use]
    pub fn seed(&self) -> u32 {
        crc32c(0, &self.uuid)
    }

    /// The page as it is stored.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut page = vec![0; PAGE_LEN];
        put(&mut page, 0, &MAGIC);
        put_u32(&mut page, 12, VERSION);
        put_u64(&mut page, 16, self.sequence);
        put(&mut page, 24, &self.uuid);
        put_u64(&mut page, 40, self.compatible);
        put_u64(&mut page, 48, self.read_only_compatible);
        put_u64(&mut page, 56, self.incompatible);
        put_u64(&mut page, 64, self.log_generation);
        put_u64(&mut page, 72, u64::from(self.clean));
        put_u64(&mut page, 80, self.size);
        put_u64(&mut page, 88, self.frame);
        put_u64(&mut page, 96, self.chunk);
        put_u64(&mut page, 104, self.side_len);
        put_u64(&mut page, 112, self.events_len);
        put_u64(&mut page, 120, self.log_start);
        put_u64(&mut page, 128, self.ring_len);
        put_u32(&mut page, 136, self.lanes);
        put_u32(&mut page, 140, matches!(self.log_placement, LogPlacement::Adjacent).into());
        put_u32(&mut page, 144, self.sum_kind.code());
        put_u32(&mut page, 148, self.parity);
        put_u32(&mut page, 152, self.copies);
        put_u32(&mut page, 156, if self.allow_inject { FLAG_ALLOW_INJECT } else { 0 });
        put_u64(&mut page, 160, self.anchor);
        put_u32(&mut page, 168, self.rows);
        let label = self.label.as_bytes();
        put(&mut page, 176, &label[..label.len().min(LABEL_LEN)]);
        let sum = crc32c(0, &page);
        put_u32(&mut page, 8, sum);
        page
    }

    /// Reads a page that may be anything. Every length and count in the result is bounded, also
    /// where `certify` does not let the sum decide.
    ///
    /// # Errors
    /// A [`SuperblockError`] that says what the page is instead.
    pub fn decode(page: &[u8], certify: Certify) -> Result<Self, SuperblockError> {
        if page.len() < PAGE_LEN || page[..8] != MAGIC {
            return Err(SuperblockError::NotAPool);
        }
        let expected = get_u32(page, 8);
        let mut blank = page[..PAGE_LEN].to_vec();
        put_u32(&mut blank, 8, 0);
        let found = crc32c(0, &blank);
        let version = get_u32(page, 12);
        if !certify.agrees(expected, found) {
            return Err(SuperblockError::Corrupt { expected, found });
        }
        if version != VERSION {
            return Err(SuperblockError::NewerVersion(version));
        }
        let unknown = get_u64(page, 56) & !INCOMPATIBLE_KNOWN;
        if unknown != 0 {
            return Err(SuperblockError::UnknownFeatures(unknown));
        }
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&page[24..40]);
        let label = &page[176..176 + LABEL_LEN];
        let end = label.iter().position(|b| *b == 0).unwrap_or(LABEL_LEN);
        let this = Self {
            sequence: get_u64(page, 16),
            uuid,
            compatible: get_u64(page, 40),
            read_only_compatible: get_u64(page, 48),
            incompatible: get_u64(page, 56),
            log_generation: get_u64(page, 64),
            clean: get_u64(page, 72) == 1,
            size: get_u64(page, 80),
            frame: get_u64(page, 88),
            chunk: get_u64(page, 96),
            side_len: get_u64(page, 104),
            events_len: get_u64(page, 112),
            log_start: get_u64(page, 120),
            ring_len: get_u64(page, 128),
            lanes: get_u32(page, 136),
            log_placement: match get_u32(page, 140) {
                0 => LogPlacement::Apart,
                1 => LogPlacement::Adjacent,
                other => return Err(bad("log_placement", other.into())),
            },
            sum_kind: SumKind::from_code(get_u32(page, 144))
                .ok_or_else(|| bad("sum_kind", get_u32(page, 144).into()))?,
            parity: get_u32(page, 148),
            copies: get_u32(page, 152),
            allow_inject: get_u32(page, 156) & FLAG_ALLOW_INJECT != 0,
            anchor: get_u64(page, 160),
            rows: get_u32(page, 168),
            label: String::from_utf8_lossy(&label[..end]).into_owned(),
        };
        this.check()?;
        Ok(this)
    }

    /// Whether a writer that knows this build's features may write the pool.
    #[must_use]
    pub fn writable(&self) -> bool {
        self.read_only_compatible & !READ_ONLY_COMPATIBLE_KNOWN == 0
    }

    fn check(&self) -> Result<(), SuperblockError> {
        let page = PAGE_LEN as u64;
        let power = |field, value: u64, low: u64, high: u64| {
            if value.is_power_of_two() && (low..=high).contains(&value) {
                Ok(())
            } else {
                Err(bad(field, value))
            }
        };
        let within = |field, value: u64, low: u64, high: u64| {
            if (low..=high).contains(&value) { Ok(()) } else { Err(bad(field, value)) }
        };
        let paged = |field, value: u64| {
            if value.is_multiple_of(page) { Ok(()) } else { Err(bad(field, value)) }
        };
        within("sequence", self.sequence, 0, SEQUENCE_MAX)?;
        within("log_generation", self.log_generation, 0, SEQUENCE_MAX)?;
        within("size", self.size, 2 * page, SIZE_MAX)?;
        paged("size", self.size)?;
        power("frame", self.frame, page, 1 << 30)?;
        power("chunk", self.chunk, page, 1 << 30)?;
        within("side_len", self.side_len, self.frame, self.size / 2)?;
        if !self.side_len.is_multiple_of(self.frame) {
            return Err(bad("side_len", self.side_len));
        }
        within("events_len", self.events_len, page, 1 << 24)?;
        paged("events_len", self.events_len)?;
        // One is the engine's own: a transaction would wait for another one for ever.
        within("lanes", self.lanes.into(), 2, 1024)?;
        within("ring_len", self.ring_len, page, 1 << 34)?;
        paged("ring_len", self.ring_len)?;
        paged("log_start", self.log_start)?;
        within(
            "log_start",
            self.log_start,
            crate::format::EVENTS_START + self.events_len,
            self.side_len,
        )?;
        let log = u64::from(self.lanes) * self.ring_len;
        within("log_start", self.log_start + log, 0, self.side_len)?;
        within("parity", self.parity.into(), 0, 2)?;
        within("copies", self.copies.into(), 1, 2)?;
        within("rows", self.rows.into(), 2, 254)
    }
}

fn bad(field: &'static str, value: u64) -> SuperblockError {
    SuperblockError::BadField { field, value }
}

impl SumKind {
    /// The number stored.
    #[must_use]
    pub const fn code(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Crc32c => 1,
            Self::Adler32 => 2,
        }
    }

    /// From the number stored.
    #[must_use]
    pub const fn from_code(code: u32) -> Option<Self> {
        match code {
            0 => Some(Self::None),
            1 => Some(Self::Crc32c),
            2 => Some(Self::Adler32),
            _ => None,
        }
    }
}
