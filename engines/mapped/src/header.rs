//! The header of the side file: which file it belongs to and how it is laid out.

use holdfast_codes::crc32c;
use holdfast_layout::bytes::{get_u32, get_u64, put, put_u32, put_u64};
use holdfast_layout::format::SEQUENCE_MAX;
use holdfast_pmem::{Medium, Site};
use holdfast_redundancy::{Again, Mirror, MirrorSites, PageStripes, Record, Side};

use crate::error::{Error, Result};
use crate::format::{
    FLAG_CONTESTED, FLAG_NO_PREVIOUS, FLAG_NO_SUMS, FLAGS_KNOWN, GROUP_MAX, HEADER_LEN,
    HEADER_PAGE, KIND_HEADER, MAGIC, SIDE_LENS, VERSION,
};
use crate::options::{Durability, Folios, Identity};

const SITES: MirrorSites = MirrorSites {
    b: Site::new("mapped.header.b"),
    drain_b: Site::new("mapped.header.drain-b"),
    a: Site::new("mapped.header.a"),
    drain_a: Site::new("mapped.header.drain-a"),
    clear: Site::new("mapped.header.clear"),
    heal: Site::new("mapped.header.heal"),
};

/// What the side file says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// It was closed: nobody stores. Whether data and side file are on the disk is what is
    /// promised of them.
    Clean,
    /// Somebody may store.
    Open,
    /// The protection was ended.
    Ended,
}

/// The header, decoded and bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) state: State,
    pub(crate) uuid: [u8; 16],
    pub(crate) side_len: u64,
    pub(crate) stripes: PageStripes,
    pub(crate) group: u32,
    pub(crate) identity: Identity,
    pub(crate) generation: u64,
    pub(crate) boot: [u8; 16],
    pub(crate) durability: Durability,
    pub(crate) folios: Folios,
    pub(crate) flags: u32,
}

/// What a side file says of itself to whoever has not opened it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Left {
    /// How it was left.
    pub state: State,
    /// The data file as it was then.
    pub identity: Identity,
}

/// Looks at the header of a side file only; nothing is recovered, and nothing written.
///
/// # Errors
/// No header verifies, or this build cannot read it.
pub fn left<S: Medium>(s: &S) -> Result<Left> {
    let Header { state, identity, .. } = HeaderPage::load(s)?.value;
    Ok(Left { state, identity })
}

/// The header and its owner's handle.
#[derive(Debug)]
pub(crate) struct HeaderPage {
    pub(crate) value: Header,
    stored: Header,
    record: Record,
    /// The side whose copy was damaged when it was read, until that is told: whatever is written
    /// first makes it whole.
    damaged: Option<Side>,
}

/// The inode of the data file that a side file says it belongs to. Nothing is changed.
///
/// # Errors
/// It is no side file, or one that cannot be used.
pub fn inode_of<S: Medium>(side: &S) -> Result<u64> {
    Ok(HeaderPage::load(side)?.value.identity.inode)
}

impl Header {
    /// Seed of all sums of this side file.
    pub(crate) fn seed(&self) -> u32 {
        crc32c(0, &self.uuid)
    }

    pub(crate) const fn sums(&self) -> bool {
        self.flags & FLAG_NO_SUMS == 0
    }

    pub(crate) const fn previous(&self) -> bool {
        self.flags & FLAG_NO_PREVIOUS == 0
    }

    pub(crate) const fn contested(&self) -> bool {
        self.flags & FLAG_CONTESTED != 0
    }

    /// The mirror of all records but the header.
    pub(crate) fn mirror(&self) -> Mirror {
        Mirror { seed: self.seed(), side_len: self.side_len, copies: 2 }
    }

    /// Refused if the protection was ended.
    pub(crate) fn in_force(self) -> Result<Self> {
        if self.state == State::Ended { Err(Error::Ended) } else { Ok(self) }
    }

    fn encode(&self) -> [u8; HEADER_LEN] {
        let mut body = [0; HEADER_LEN];
        put(&mut body, 0, &MAGIC);
        put_u32(&mut body, 8, VERSION);
        let state = match self.state {
            State::Clean => 1,
            State::Open => 2,
            State::Ended => 3,
        };
        put_u32(&mut body, 12, state);
        put(&mut body, 40, &self.uuid);
        put_u64(&mut body, 56, self.side_len);
        put_u32(&mut body, 64, self.stripes.data());
        put_u32(&mut body, 68, self.stripes.parity());
        put_u32(&mut body, 72, self.stripes.stripes());
        put_u32(&mut body, 76, self.group);
        put_u64(&mut body, 80, self.identity.inode);
        put_u64(&mut body, 88, self.identity.size);
        put_u64(&mut body, 96, self.identity.mtime_ns.cast_unsigned());
        put_u64(&mut body, 104, self.generation);
        put(&mut body, 112, &self.boot);
        put_u32(&mut body, 128, if self.durability == Durability::Power { 2 } else { 1 });
        put_u32(&mut body, 132, u32::from(self.folios == Folios::Small));
        put_u32(&mut body, 136, self.flags);
        body
    }

    /// What a body says that was found in a side of `side_len` bytes.
    fn decode(body: &[u8], side_len: u64) -> Result<Self> {
        if body[..8] != MAGIC {
            return Err(Error::NotASideFile);
        }
        let word = |at| get_u32(body, at);
        let impossible = |what, found| Err(Error::Header { what, found });
        match (word(8), get_u64(body, 24) | get_u64(body, 32)) {
            (VERSION, 0) => {}
            (VERSION, mask) => return Err(Error::Features { mask }),
            (version, _) => return Err(Error::Newer { version }),
        }
        let state = match word(12) {
            1 => State::Clean,
            2 => State::Open,
            3 => State::Ended,
            other => return impossible("state", other.into()),
        };
        let Some(stripes) = PageStripes::new(word(64), word(68), word(72)) else {
            return impossible("stripe", word(64).into());
        };
        let group = word(76);
        if group == 0 || group > GROUP_MAX {
            return impossible("group", group.into());
        }
        if get_u64(body, 56) != side_len {
            return impossible("side length", get_u64(body, 56));
        }
        if word(136) & !FLAGS_KNOWN != 0 {
            return impossible("flags", word(136).into());
        }
        if get_u64(body, 104) > SEQUENCE_MAX {
            return impossible("generation", get_u64(body, 104));
        }
        if get_u64(body, 88) > i64::MAX.cast_unsigned() {
            return impossible("file length", get_u64(body, 88));
        }
        let array = |at: usize| core::array::from_fn(|i| body[at + i]);
        Ok(Self {
            state,
            uuid: array(40),
            side_len,
            stripes,
            group,
            identity: Identity {
                inode: get_u64(body, 80),
                size: get_u64(body, 88),
                mtime_ns: get_u64(body, 96).cast_signed(),
            },
            generation: get_u64(body, 104),
            boot: array(112),
            durability: if word(128) == 2 { Durability::Power } else { Durability::Process },
            folios: if word(132) == 1 { Folios::Small } else { Folios::Any },
            flags: word(136),
        })
    }
}

/// The header verifies without knowing the file it belongs to.
const fn mirror(side_len: u64) -> Mirror {
    Mirror { seed: 0, side_len, copies: 2 }
}

impl HeaderPage {
    /// A header that is not on the medium yet: its first [`store`](Self::store) puts it there.
    pub(crate) fn pending(value: Header) -> Self {
        let record = Record::create(mirror(value.side_len), HEADER_PAGE, KIND_HEADER, SITES);
        Self { value, stored: value, record, damaged: None }
    }

    /// Finds the header; copy B is tried in each place where it can be. Writes nothing.
    pub(crate) fn load<S: Medium>(s: &S) -> Result<Self> {
        let mut refused = None;
        for side_len in SIDE_LENS {
            let mirror = mirror(side_len);
            let Ok(record) = Record::load(s, mirror, HEADER_PAGE, KIND_HEADER, SITES) else {
                continue;
            };
            match Header::decode(&record.page().body, side_len) {
                Ok(value) => {
                    let damaged = record.damaged();
                    return Ok(Self { value, stored: value, record, damaged });
                }
                // Found through copy A, which does not say where B is before it is read.
                Err(Error::Header { what: "side length", found }) if found != side_len => {
                    refused.get_or_insert(Error::Header { what: "side length", found });
                }
                Err(error) => return Err(error),
            }
        }
        let mut magic = [0; MAGIC.len()];
        let start = holdfast_layout::format::MIRRORED_LEN as u64;
        let named = s.read(start, &mut magic).is_ok() && magic == MAGIC;
        Err(refused.unwrap_or(if named { Error::Damaged } else { Error::NotASideFile }))
    }

    /// Whether a copy has to be written again from the other.
    pub(crate) fn needs_heal(&self) -> bool {
        self.record.needs_heal()
    }

    /// The side whose copy was damaged when it was read, if one was: once.
    pub(crate) const fn take_damaged(&mut self) -> Option<Side> {
        self.damaged.take()
    }

    pub(crate) fn heal<S: Medium>(&mut self, s: &S) -> Result<()> {
        self.record.heal(s)?;
        Ok(())
    }

    /// What it was when it was last read or stored.
    pub(crate) const fn stored(&self) -> &Header {
        &self.stored
    }

    /// Reads both copies again, and makes one good by the other.
    pub(crate) fn look_again<S: Medium>(&self, s: &S) -> Result<Again> {
        Ok(self.record.look_again(s)?)
    }

    /// Makes the header durable as it is now.
    pub(crate) fn store<S: Medium>(&mut self, s: &S) -> Result<()> {
        self.record.write(s, 1, &self.value.encode())?;
        self.stored = self.value;
        Ok(())
    }

    /// The same against the loss of power, in whatever cache the side file is.
    pub(crate) fn store_through<S: Medium>(&mut self, s: &S) -> Result<()> {
        self.record.write_through(s, 1, &self.value.encode())?;
        self.stored = self.value;
        Ok(())
    }
}
