//! One event: something was found wrong, and what became of it.

use core::fmt;

use holdfast_codes::crc32c;
use holdfast_layout::Certify;
use holdfast_layout::bytes::{get_u32, get_u64, put_u32, put_u64};

use crate::format::EVENT_LEN;
use crate::verdict::{Side, Wrong};

/// How the damage showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The medium refused the bytes.
    MediaError,
    /// The platform lists the page as bad; it was not touched yet.
    Listed,
    /// The bytes do not agree with their sum.
    Sum,
    /// A column does not add up.
    Parity,
    /// The two copies of a mirrored record or of a log record differ, or one is invalid.
    Copies,
    /// An entry verifies but what it says is impossible.
    Impossible,
    /// Written by a newer build.
    Unknown(u8),
}

/// Who found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Finder {
    /// A read by the program.
    Read,
    /// Opening an object for change.
    Change,
    /// A commit, after its record was durable.
    Commit,
    /// The scrubber.
    Scrub,
    /// Opening the pool, crash recovery included.
    Open,
    /// A check on demand.
    Check,
    /// A repair of something else.
    Repair,
    /// A direct load of the program that met a media error.
    Load,
    /// Written by a newer build.
    Unknown(u8),
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// Found; its repair is a later event, or was not asked for.
    Detected,
    /// The right bytes are back in their place.
    Repaired,
    /// The right bytes are back; their frame moved to a spare one.
    Relocated,
    /// Beyond the redundancy kept: the bytes named are lost, all others are not.
    Lost,
    /// It could not be decided; nothing was changed.
    Undecided,
    /// The right bytes are back in memory only: their page stays bad, and its frame cannot move.
    StoodIn,
    /// Written by a newer build.
    Unknown(u8),
}

/// An entry of the events journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Rises by one with each event of the pool; set by the journal.
    pub sequence: u64,
    /// When, in nanoseconds of the clock given at open.
    pub time_ns: u64,
    /// How the damage showed.
    pub cause: Cause,
    /// Who found it.
    pub finder: Finder,
    /// First byte concerned, as an offset into the pool.
    pub at: u64,
    /// Bytes concerned.
    pub len: u64,
    /// The unit that was wrong; `None` if that could not be told.
    pub wrong: Option<Wrong>,
    /// CRC-32C of the bytes found, 0 if they could not be read.
    pub before_sum: u32,
    /// CRC-32C of the bytes there after the repair, 0 if there was none.
    pub after_sum: u32,
    /// What became of it.
    pub outcome: Outcome,
    /// From detection to the end of the repair, in nanoseconds.
    pub duration_ns: u64,
    /// Pointer word of the object concerned, 0 if none.
    pub object: u64,
    /// When all around the bytes was last verified and right, by the clock given at open; 0 if
    /// never, or if that is not kept.
    pub verified_ns: u64,
}

impl Event {
    /// The entry as it is stored at offset `place` of the journal of the pool seeded `seed`.
    #[must_use]
    pub fn encode(&self, seed: u32, place: u64) -> [u8; EVENT_LEN] {
        let mut entry = [0; EVENT_LEN];
        entry[4] = self.cause.code();
        entry[5] = self.finder.code();
        entry[6] = self.wrong.map_or(0, wrong_code);
        entry[7] = self.outcome.code();
        put_u64(&mut entry, 8, self.sequence);
        put_u64(&mut entry, 16, self.time_ns);
        put_u64(&mut entry, 24, self.at);
        put_u64(&mut entry, 32, self.len);
        put_u64(&mut entry, 40, self.object);
        put_u64(&mut entry, 48, self.duration_ns);
        put_u32(&mut entry, 56, self.before_sum);
        put_u32(&mut entry, 60, self.after_sum);
        put_u64(&mut entry, 64, self.verified_ns);
        let sum = entry_sum(seed, place, &entry);
        put_u32(&mut entry, 0, sum);
        entry
    }

    /// Reads an entry that may be anything, found at offset `place` of the journal; `None` if it
    /// is not an entry written there (the zeros of a new journal are none), as far as `certify`
    /// lets its sum decide.
    #[must_use]
    pub fn decode(seed: u32, place: u64, entry: &[u8], certify: Certify) -> Option<Self> {
        let entry = entry.get(..EVENT_LEN)?;
        if !certify.agrees(get_u32(entry, 0), entry_sum(seed, place, entry)) {
            return None;
        }
        Some(Self {
            sequence: get_u64(entry, 8),
            time_ns: get_u64(entry, 16),
            cause: Cause::from_code(entry[4]),
            finder: Finder::from_code(entry[5]),
            at: get_u64(entry, 24),
            len: get_u64(entry, 32),
            wrong: wrong_from_code(entry[6]),
            before_sum: get_u32(entry, 56),
            after_sum: get_u32(entry, 60),
            outcome: Outcome::from_code(entry[7]),
            duration_ns: get_u64(entry, 48),
            object: get_u64(entry, 40),
            verified_ns: get_u64(entry, 64),
        })
    }
}

fn entry_sum(seed: u32, place: u64, entry: &[u8]) -> u32 {
    crc32c(crc32c(seed, &place.to_le_bytes()), &entry[4..])
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} {} at {:#x}+{:#x}: ", self.sequence, self.cause, self.at, self.len)?;
        match self.wrong {
            Some(wrong) => write!(f, "{wrong} wrong, ")?,
            None => f.write_str("unit unknown, ")?,
        }
        write!(f, "found by {}, {}", self.finder, self.outcome)
    }
}

const fn wrong_code(wrong: Wrong) -> u8 {
    match wrong {
        Wrong::Data => 1,
        Wrong::Slot => 2,
        Wrong::Sum => 3,
        Wrong::Directory => 4,
        Wrong::ParityP => 5,
        Wrong::ParityQ => 6,
        Wrong::Mirror { side: Side::A } => 7,
        Wrong::Mirror { side: Side::B } => 8,
        Wrong::Log => 9,
        Wrong::FreeOrParity => 10,
    }
}

const fn wrong_from_code(code: u8) -> Option<Wrong> {
    Some(match code {
        1 => Wrong::Data,
        2 => Wrong::Slot,
        3 => Wrong::Sum,
        4 => Wrong::Directory,
        5 => Wrong::ParityP,
        6 => Wrong::ParityQ,
        7 => Wrong::Mirror { side: Side::A },
        8 => Wrong::Mirror { side: Side::B },
        9 => Wrong::Log,
        10 => Wrong::FreeOrParity,
        _ => return None,
    })
}

/// Gives an enum of an entry its number on the medium and its name for people.
macro_rules! coded {
    ($type:ident { $($name:ident = $code:literal $text:literal,)+ }) => {
        impl $type {
            /// The number stored.
            #[must_use]
            pub const fn code(self) -> u8 {
                match self {
                    $(Self::$name => $code,)+
                    Self::Unknown(code) => code,
                }
            }

            /// From the number stored.
            #[must_use]
            pub const fn from_code(code: u8) -> Self {
                match code {
                    $($code => Self::$name,)+
                    other => Self::Unknown(other),
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name => f.write_str($text),)+
                    Self::Unknown(code) => write!(f, "unknown ({code})"),
                }
            }
        }
    };
}

coded!(Cause {
    MediaError = 1 "media error",
    Listed = 2 "listed as bad",
    Sum = 3 "sum mismatch",
    Parity = 4 "parity mismatch",
    Copies = 5 "copies differ",
    Impossible = 6 "impossible entry",
});

coded!(Finder {
    Read = 1 "read",
    Change = 2 "open for change",
    Commit = 3 "commit",
    Scrub = 4 "scrub",
    Open = 5 "open",
    Check = 6 "check",
    Repair = 7 "repair",
    Load = 8 "load",
});

coded!(Outcome {
    Detected = 1 "detected",
    Repaired = 2 "repaired",
    Relocated = 3 "relocated",
    Lost = 4 "lost",
    Undecided = 5 "undecided",
    StoodIn = 6 "stays bad, served from memory",
});
