//! Requests and answers: eight words each, every field checked before it is believed.

use core::ops::Range;

use holdfast_pmem::PAGE;

/// Bytes of every message.
pub const MESSAGE: usize = 64;
/// Version of everything in this crate. Both ends come from one build; anything else is refused.
pub const VERSION: u16 = 7;
/// Most files that are guarded at a time.
pub const MOST_FILES: u32 = 512;

const MAGIC: u32 = u32::from_le_bytes(*b"hfgw");
/// First address that no program has.
const ADDRESSES: u64 = 1 << 47;
/// The number of a process that is not known.
const SOMEBODY: u64 = u64::MAX;
/// First byte that no file has.
const BYTES: u64 = 1 << 62;

/// Why a message was not understood, or not granted. The number is what travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Refusal {
    /// It is no message, or a field is out of its bounds.
    Malformed = 1,
    /// It is of another version.
    Version = 2,
    /// Whoever sent it is not who may.
    Stranger = 3,
    /// It names an address space that is not known.
    NoSpace = 4,
    /// It names a file that is not guarded.
    NoFile = 5,
    /// A descriptor is missing that belongs to it.
    NoDescriptor = 6,
    /// It could not be done; the supervisor knows why.
    Failed = 7,
    /// No answer came in time. Never travels.
    Late = 8,
}

impl Refusal {
    const ALL: [Self; 7] = [
        Self::Malformed,
        Self::Version,
        Self::Stranger,
        Self::NoSpace,
        Self::NoFile,
        Self::NoDescriptor,
        Self::Failed,
    ];
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Malformed => "the message is malformed",
            Self::Version => "the message is of another version; use parts of one build",
            Self::Stranger => "the sender is not guarded here",
            Self::NoSpace => "no such address space",
            Self::NoFile => "no such file",
            Self::NoDescriptor => "a descriptor is missing",
            Self::Failed => "it could not be done",
            Self::Late => "no answer came in time",
        })
    }
}

/// Whole pages `[start, end)` of a program's addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
}

impl Place {
    /// The pages that `[address, address + len)` touches; `None` if that is nothing or no address.
    #[must_use]
    pub fn new(address: u64, len: u64) -> Option<Self> {
        let end = address.checked_add(len)?.checked_next_multiple_of(PAGE)?;
        let start = address - address % PAGE;
        (start < end && end <= ADDRESSES).then_some(Self { start, end })
    }

    /// Bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.end - self.start
    }

    /// What both have in common.
    #[must_use]
    pub fn and(self, other: Self) -> Option<Self> {
        let (start, end) = (self.start.max(other.start), self.end.min(other.end));
        (start < end).then_some(Self { start, end })
    }

    /// What is left of it, below and above, without `hole`.
    #[must_use]
    pub fn without(self, hole: Self) -> [Option<Self>; 2] {
        let piece = |range: Range<u64>| {
            (range.start < range.end).then_some(Self { start: range.start, end: range.end })
        };
        [piece(self.start..self.end.min(hole.start)), piece(self.start.max(hole.end)..self.end)]
    }

    fn checked(start: u64, end: u64) -> Option<Self> {
        let whole = start.is_multiple_of(PAGE) && end.is_multiple_of(PAGE);
        (whole && start < end && end <= ADDRESSES).then_some(Self { start, end })
    }
}

/// What a guarded program says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// A program began, or a child was forked off the space `from`. Answered by
    /// [`Answer::Welcome`]. The connection is kept for as long as the anchor lives.
    Hello {
        /// The space this one was forked from; 0 after an exec.
        from: u64,
        /// The program ran before, and has files open that nobody watched: nothing is judged until
        /// [`Request::Ready`].
        late: bool,
    },
    /// The space has an anchor.
    Anchored {
        /// The space.
        space: u64,
        /// The anchor's process.
        process: u32,
    },
    /// The program has the ledger, and announces what it does from now on. Until then the space
    /// is believed nothing: it counts as a stranger.
    Joined {
        /// The space.
        space: u64,
    },
    /// A program that came late, or has a file that was taken, has told of everything.
    Ready {
        /// The space.
        space: u64,
        /// The file that was taken; `None` if the program came late.
        file: Option<u32>,
    },
    /// Whether the file of the descriptor sent along is to be guarded. The program has just opened
    /// it.
    Ask {
        /// The supervisor did not answer of late, so the answer is not waited for as long as
        /// others ([`hasty`](crate::link::hasty)).
        hasty: bool,
    },
    /// Whether the supervisor answers. Answered by [`Answer::Done`].
    Listen,
    /// The file of the descriptor sent along was given a name, and may have been open and mapped
    /// before. Answered by [`Answer::Taken`] if it is guarded since now.
    Named {
        /// The space.
        space: u64,
    },
    /// The board of a guarded file.
    Board {
        /// Its number.
        file: u32,
    },
    /// A mapping of a guarded file that is registered and not stored to yet. The descriptor sent
    /// along keeps the registration.
    Map {
        /// The space.
        space: u64,
        /// The file's number.
        file: u32,
        /// Where it is mapped.
        place: Place,
        /// The file's byte at the start.
        at: u64,
        /// Whether it may be stored to now.
        writable: bool,
        /// Whether it replaced something that other threads may have been storing to.
        replaced: bool,
        /// Whether it was there, and may have been stored to, before anybody watched.
        late: bool,
    },
    /// A part of the space is about to be unmapped, and cannot be stored to any more.
    Unmap {
        /// The space.
        space: u64,
        /// Which part.
        place: Place,
    },
    /// What was stored to there is to be taken now.
    Harvest {
        /// The space.
        space: u64,
        /// Which part.
        place: Place,
    },
    /// A part of the space is about to become writable.
    Writable {
        /// The space.
        space: u64,
        /// Which part.
        place: Place,
    },
    /// The program syncs: what it wrote to the file is to be covered first. Answered by
    /// [`Answer::Done`] once it is, and by [`Answer::Unguarded`] if it is not.
    Cover {
        /// The file's number.
        file: u32,
        /// First byte.
        at: u64,
        /// Bytes.
        len: u64,
    },
    /// The program writes to the file by ways that cannot be announced, from now on or no more.
    Stream {
        /// The space.
        space: u64,
        /// The file's number.
        file: u32,
        /// Whether it begins.
        begins: bool,
    },
    /// A load of the page met a media error. Answered by [`Answer::Healed`], or by
    /// [`Answer::Unguarded`] if the page cannot be put right.
    Heal {
        /// The space.
        space: u64,
        /// The file's number.
        file: u32,
        /// The page of the file.
        page: u64,
        /// Whether its memory failed, and not only that it could not be read in.
        memory: bool,
    },
    /// The program loaded something that does not find what stands before the C library.
    Unfollowed {
        /// The space.
        space: u64,
    },
    /// The program is about to be replaced by another, or it was not after all.
    Exec {
        /// The space.
        space: u64,
        /// Whether it stays what it was.
        stays: bool,
    },
    /// The process is about to start another one that is to be another program: what it has for
    /// writing may go there.
    Spawn {
        /// The space.
        space: u64,
        /// Which of the starts of this process.
        ticket: u64,
        /// Whether handles go along that are to be closed: the start may take them over.
        all: bool,
    },
    /// What came of that.
    Spawned {
        /// The space.
        space: u64,
        /// Which start.
        ticket: u64,
        /// Who was started.
        child: Spawned,
    },
    /// A handle that can write to the file is about to be sent through the socket that comes along.
    Handed {
        /// The space.
        space: u64,
        /// The file's number.
        file: u32,
    },
}

/// Who was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spawned {
    /// Nobody.
    Nobody,
    /// A child, but only the C library knows which.
    Somebody,
    /// This process.
    Process(u32),
}

/// What the supervisor answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It is done.
    Done,
    /// The number of the space; the ledger's descriptor comes along.
    Welcome {
        /// The number.
        space: u64,
        /// The process, as the supervisor numbers it: its own number for itself is another where
        /// it has process numbers of its own.
        process: u32,
    },
    /// The file is guarded under this number; the board's descriptor comes along.
    Guarded {
        /// The number.
        file: u32,
    },
    /// The file is guarded from now on under this number, and nothing is judged until
    /// [`Request::Ready`]: the program tells what it has of it.
    Taken {
        /// The number.
        file: u32,
    },
    /// The file is not guarded.
    Unguarded,
    /// The page of the file is right; a descriptor of the file comes along.
    Healed,
    /// It was refused.
    Refused(Refusal),
}

/// The words of a message: what it is, then its fields.
type Words = [u64; MESSAGE / 8];

fn pack(kind: u16, fields: &[u64]) -> [u8; MESSAGE] {
    let mut words: Words = [0; MESSAGE / 8];
    words[0] = u64::from(MAGIC) | u64::from(VERSION) << 32 | u64::from(kind) << 48;
    for (word, field) in words[1..].iter_mut().zip(fields) {
        *word = *field;
    }
    let mut bytes = [0; MESSAGE];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn unpack(bytes: &[u8]) -> Result<(u16, [u64; 7]), Refusal> {
    if bytes.len() != MESSAGE {
        return Err(Refusal::Malformed);
    }
    let mut words: Words = [0; MESSAGE / 8];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        let mut eight = [0; 8];
        eight.copy_from_slice(chunk);
        *word = u64::from_le_bytes(eight);
    }
    let [head, fields @ ..] = words;
    if head as u32 != MAGIC {
        return Err(Refusal::Malformed);
    }
    if (head >> 32) as u16 != VERSION {
        return Err(Refusal::Version);
    }
    Ok(((head >> 48) as u16, fields))
}

fn file_of(word: u64) -> Result<u32, Refusal> {
    u32::try_from(word).ok().filter(|file| *file < MOST_FILES).ok_or(Refusal::Malformed)
}

fn process_of(word: u64) -> Result<u32, Refusal> {
    let process = i32::try_from(word).ok().filter(|process| *process > 1);
    process.map(i32::unsigned_abs).ok_or(Refusal::Malformed)
}

fn flag(word: u64) -> Result<bool, Refusal> {
    match word {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Refusal::Malformed),
    }
}

impl Request {
    /// As it travels.
    #[must_use]
    pub fn encode(&self) -> [u8; MESSAGE] {
        match *self {
            Self::Hello { from, late } => pack(1, &[from, late.into()]),
            Self::Ask { hasty } => pack(2, &[hasty.into()]),
            Self::Board { file } => pack(3, &[file.into()]),
            Self::Map { space, file, place, at, writable, replaced, late } => {
                let flags = u64::from(writable) | u64::from(replaced) << 1 | u64::from(late) << 2;
                pack(4, &[space, file.into(), place.start, place.end, at, flags])
            }
            Self::Unmap { space, place } => pack(5, &[space, place.start, place.end]),
            Self::Harvest { space, place } => pack(6, &[space, place.start, place.end]),
            Self::Writable { space, place } => pack(7, &[space, place.start, place.end]),
            Self::Cover { file, at, len } => pack(8, &[file.into(), at, len]),
            Self::Stream { space, file, begins } => pack(9, &[space, file.into(), begins.into()]),
            Self::Exec { space, stays } => pack(10, &[space, stays.into()]),
            Self::Anchored { space, process } => pack(11, &[space, process.into()]),
            Self::Ready { space, file } => {
                pack(12, &[space, file.map_or(0, |file| u64::from(file) + 1)])
            }
            Self::Heal { space, file, page, memory } => {
                pack(13, &[space, file.into(), page, memory.into()])
            }
            Self::Unfollowed { space } => pack(14, &[space]),
            Self::Named { space } => pack(15, &[space]),
            Self::Joined { space } => pack(16, &[space]),
            Self::Spawn { space, ticket, all } => pack(17, &[space, ticket, all.into()]),
            Self::Spawned { space, ticket, child } => {
                let child = match child {
                    Spawned::Nobody => 0,
                    Spawned::Somebody => SOMEBODY,
                    Spawned::Process(process) => process.into(),
                };
                pack(18, &[space, ticket, child])
            }
            Self::Handed { space, file } => pack(19, &[space, file.into()]),
            Self::Listen => pack(20, &[]),
        }
    }

    /// From bytes of which nothing is known.
    ///
    /// # Errors
    /// A [`Refusal`] if they are no request of this version with every field in its bounds.
    pub fn decode(bytes: &[u8]) -> Result<Self, Refusal> {
        let (kind, [a, b, c, d, e, f, _]) = unpack(bytes)?;
        let place = |start, end| Place::checked(start, end).ok_or(Refusal::Malformed);
        match kind {
            1 => Ok(Self::Hello { from: a, late: flag(b)? }),
            2 => Ok(Self::Ask { hasty: flag(a)? }),
            3 => Ok(Self::Board { file: file_of(a)? }),
            4 => {
                let place = place(c, d)?;
                let inside = e.is_multiple_of(PAGE) && e < BYTES && place.bytes() < BYTES;
                if !inside || f > 7 {
                    return Err(Refusal::Malformed);
                }
                let (writable, replaced, late) = (f & 1 != 0, f & 2 != 0, f & 4 != 0);
                let file = file_of(b)?;
                Ok(Self::Map { space: a, file, place, at: e, writable, replaced, late })
            }
            5 => Ok(Self::Unmap { space: a, place: place(b, c)? }),
            6 => Ok(Self::Harvest { space: a, place: place(b, c)? }),
            7 => Ok(Self::Writable { space: a, place: place(b, c)? }),
            8 => Ok(Self::Cover { file: file_of(a)?, at: b, len: c }),
            9 => Ok(Self::Stream { space: a, file: file_of(b)?, begins: flag(c)? }),
            10 => Ok(Self::Exec { space: a, stays: flag(b)? }),
            11 => Ok(Self::Anchored { space: a, process: process_of(b)? }),
            12 => {
                let file = b.checked_sub(1).map(file_of).transpose()?;
                Ok(Self::Ready { space: a, file })
            }
            13 if c < BYTES / PAGE => {
                Ok(Self::Heal { space: a, file: file_of(b)?, page: c, memory: flag(d)? })
            }
            14 => Ok(Self::Unfollowed { space: a }),
            15 => Ok(Self::Named { space: a }),
            16 => Ok(Self::Joined { space: a }),
            17 => Ok(Self::Spawn { space: a, ticket: b, all: flag(c)? }),
            18 => {
                let child = match c {
                    0 => Spawned::Nobody,
                    SOMEBODY => Spawned::Somebody,
                    process => Spawned::Process(process_of(process)?),
                };
                Ok(Self::Spawned { space: a, ticket: b, child })
            }
            19 => Ok(Self::Handed { space: a, file: file_of(b)? }),
            20 => Ok(Self::Listen),
            _ => Err(Refusal::Malformed),
        }
    }
}

impl Answer {
    /// As it travels.
    #[must_use]
    pub fn encode(&self) -> [u8; MESSAGE] {
        match *self {
            Self::Done => pack(101, &[]),
            Self::Welcome { space, process } => pack(102, &[space, process.into()]),
            Self::Guarded { file } => pack(103, &[file.into()]),
            Self::Unguarded => pack(104, &[]),
            Self::Refused(why) => pack(105, &[why as u64]),
            Self::Healed => pack(106, &[]),
            Self::Taken { file } => pack(107, &[file.into()]),
        }
    }

    /// From bytes of which nothing is known.
    ///
    /// # Errors
    /// As [`Request::decode`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Refusal> {
        let (kind, [a, b, ..]) = unpack(bytes)?;
        match kind {
            101 => Ok(Self::Done),
            102 => {
                let process = u32::try_from(b).map_err(|_| Refusal::Malformed)?;
                Ok(Self::Welcome { space: a, process })
            }
            103 => Ok(Self::Guarded { file: file_of(a)? }),
            104 => Ok(Self::Unguarded),
            105 => {
                let why = Refusal::ALL.into_iter().find(|why| *why as u64 == a);
                why.map(Self::Refused).ok_or(Refusal::Malformed)
            }
            106 => Ok(Self::Healed),
            107 => Ok(Self::Taken { file: file_of(a)? }),
            _ => Err(Refusal::Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests() -> Vec<Request> {
        let place = Place { start: 0x7000, end: 0x9000 };
        vec![
            Request::Hello { from: 7, late: false },
            Request::Hello { from: 0, late: true },
            Request::Ready { space: 3, file: None },
            Request::Ready { space: 3, file: Some(0) },
            Request::Heal { space: 3, file: 2, page: 77, memory: false },
            Request::Heal { space: 3, file: 2, page: 77, memory: true },
            Request::Ask { hasty: false },
            Request::Ask { hasty: true },
            Request::Listen,
            Request::Board { file: 511 },
            Request::Map {
                space: 3,
                file: 1,
                place,
                at: 4096,
                writable: true,
                replaced: false,
                late: true,
            },
            Request::Unmap { space: 3, place },
            Request::Harvest { space: 3, place },
            Request::Writable { space: 3, place },
            Request::Cover { file: 2, at: 9, len: u64::MAX },
            Request::Stream { space: 3, file: 0, begins: true },
            Request::Exec { space: 3, stays: false },
            Request::Anchored { space: 3, process: 77 },
            Request::Unfollowed { space: 3 },
            Request::Named { space: 3 },
            Request::Joined { space: 3 },
            Request::Spawn { space: 3, ticket: 9, all: true },
            Request::Spawned { space: 3, ticket: 9, child: Spawned::Nobody },
            Request::Spawned { space: 3, ticket: 9, child: Spawned::Somebody },
            Request::Spawned { space: 3, ticket: 9, child: Spawned::Process(77) },
            Request::Handed { space: 3, file: 2 },
        ]
    }

    #[test]
    fn every_request_and_answer_travels() {
        for request in requests() {
            assert_eq!(Request::decode(&request.encode()), Ok(request));
        }
        for why in Refusal::ALL {
            let answer = Answer::Refused(why);
            assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
        }
        for answer in [
            Answer::Done,
            Answer::Welcome { space: 9, process: 77 },
            Answer::Guarded { file: 3 },
            Answer::Unguarded,
            Answer::Healed,
            Answer::Taken { file: 511 },
        ] {
            assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
        }
    }

    #[test]
    fn hostile_bytes_are_refused() {
        for request in requests() {
            let bytes = request.encode();
            for cut in 0..MESSAGE {
                assert_eq!(Request::decode(&bytes[..cut]), Err(Refusal::Malformed));
            }
            let mut other = bytes;
            other[4] ^= 1;
            assert_eq!(Request::decode(&other), Err(Refusal::Version));
            // Any word may be anything: an answer or an error, and every bound holds.
            for word in 1..8 {
                for value in [u64::MAX, 1, 4096, 1 << 47, 1 << 62, MOST_FILES.into()] {
                    let mut other = bytes;
                    other[word * 8..word * 8 + 8].copy_from_slice(&value.to_le_bytes());
                    match Request::decode(&other) {
                        Ok(Request::Map { file, place, at, .. }) => {
                            assert!(file < MOST_FILES && at < BYTES && at.is_multiple_of(PAGE));
                            assert!(place.start < place.end && place.end <= ADDRESSES);
                        }
                        Ok(Request::Heal { file, page, .. }) => {
                            assert!(file < MOST_FILES && page < BYTES / PAGE);
                        }
                        Ok(
                            Request::Board { file }
                            | Request::Cover { file, .. }
                            | Request::Handed { file, .. }
                            | Request::Ready { file: Some(file), .. },
                        ) => {
                            assert!(file < MOST_FILES);
                        }
                        Ok(_) | Err(Refusal::Malformed) => {}
                        Err(why) => panic!("{why}"),
                    }
                }
            }
        }
        assert_eq!(Answer::decode(&Request::Listen.encode()), Err(Refusal::Malformed));
    }

    #[test]
    fn places_are_cut_at_pages() {
        let place = |start, end| Place { start, end };
        assert_eq!(Place::new(0x1001, 1), Some(place(0x1000, 0x2000)));
        assert_eq!(Place::new(0x1000, 0), None);
        assert_eq!(Place::new(u64::MAX, 2), None);
        let whole = place(0x1000, 0x9000);
        let hole = place(0x3000, 0x4000);
        assert_eq!(whole.without(hole), [Some(place(0x1000, 0x3000)), Some(place(0x4000, 0x9000))]);
        assert_eq!(hole.without(whole), [None, None]);
        assert_eq!(whole.without(place(0, 0x2000)), [None, Some(place(0x2000, 0x9000))]);
        assert_eq!(whole.and(place(0x8000, 0xa000)), Some(place(0x8000, 0x9000)));
        assert_eq!(whole.and(place(0x9000, 0xa000)), None);
    }
}
