//! Faults done to a pool's file on purpose, and the lines that tell of them.
//!
//! Every fault is a write to the file by this process, behind the back of whoever has the pool
//! mapped: the same page cache, so it is seen at once, and nothing is told to anybody. Poison is
//! the exception: only the process that has the mapping can be made to meet it.

mod choose;

pub(crate) use choose::Injector;

use core::fmt;

use holdfast::anatomy::Part;
use serde_json::{Value, json};

use crate::args::PartArg;
use crate::out::{hex, unhex};

/// Kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// One bit is turned over.
    Bitflip,
    /// Bytes are overwritten by a store that meant another place.
    Stray,
    /// A page cannot be read.
    Poison,
    /// A write was acknowledged and never arrived: what was there before is there.
    Lost,
    /// A write arrived at another place.
    Misdirect,
    /// Only the beginning of a write arrived.
    Torn,
}

impl Kind {
    /// All kinds.
    pub(crate) const ALL: [Self; 6] =
        [Self::Bitflip, Self::Stray, Self::Poison, Self::Lost, Self::Misdirect, Self::Torn];

    /// The kind as its command is called.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Bitflip => "bitflip",
            Self::Stray => "stray",
            Self::Poison => "poison",
            Self::Lost => "lost",
            Self::Misdirect => "misdirect",
            Self::Torn => "torn",
        }
    }

    /// From its name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl PartArg {
    /// The parts it stands for.
    pub(crate) const fn parts(self) -> &'static [Part] {
        match self {
            Self::Object => &[Part::Object],
            Self::Slot => &[Part::Slot],
            Self::Sums => &[Part::Sums],
            Self::Directory => &[Part::Directory],
            Self::Parity => &[Part::ParityP, Part::ParityQ],
            Self::Metadata => &[Part::Metadata],
            Self::Log => &[Part::Log],
        }
    }
}

/// Bytes that a fault changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hit {
    /// Where, as an offset into the pool.
    pub(crate) at: u64,
    /// Where in the file: elsewhere in relocated frames.
    pub(crate) in_file: u64,
    /// What was there.
    pub(crate) before: Vec<u8>,
    /// What is there now.
    pub(crate) after: Vec<u8>,
}

/// A fault that was done, or is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// What kind.
    pub(crate) kind: Kind,
    /// What it was meant to hit.
    pub(crate) part: Part,
    /// The bytes changed: one place, or two for a misdirected write.
    pub(crate) hits: Vec<Hit>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {} at ", self.kind.name(), self.part.name())?;
        for (number, hit) in self.hits.iter().enumerate() {
            let and = if number > 0 { " and " } else { "" };
            write!(f, "{and}{:#x}+{}", hit.at, hit.before.len())?;
        }
        Ok(())
    }
}

impl Fault {
    /// The fault as an object.
    pub(crate) fn json(&self) -> Value {
        let hit = |hit: &Hit| {
            json!({
                "at": hit.at,
                "in_file": hit.in_file,
                "before": hex(&hit.before),
                "after": hex(&hit.after),
            })
        };
        json!({
            "kind": self.kind.name(),
            "part": self.part.name(),
            "hits": self.hits.iter().map(hit).collect::<Vec<_>>(),
        })
    }

    /// A fault from the line that tells of it.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        let kind = Kind::from_name(value["kind"].as_str()?)?;
        let part = value["part"].as_str()?;
        let part = Part::ALL.into_iter().find(|known| known.name() == part)?;
        let hit = |hit: &Value| {
            Some(Hit {
                at: hit["at"].as_u64()?,
                in_file: hit["in_file"].as_u64()?,
                before: unhex(hit["before"].as_str()?)?,
                after: unhex(hit["after"].as_str()?)?,
            })
        };
        let hits = value["hits"].as_array()?.iter().map(hit).collect::<Option<Vec<_>>>()?;
        Some(Self { kind, part, hits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_brings_the_fault_back() {
        let hit = Hit { at: 4096, in_file: 8192, before: vec![1, 2], after: vec![3, 4] };
        for kind in Kind::ALL {
            let fault = Fault { kind, part: Part::Slot, hits: vec![hit.clone(); 2] };
            assert_eq!(Fault::parse(&fault.json().to_string()), Some(fault));
        }
        for line in ["", "{}", "[1]", r#"{"kind":"torn","part":"slot","hits":[{"at":1}]}"#] {
            assert_eq!(Fault::parse(line), None, "{line}");
        }
    }
}
