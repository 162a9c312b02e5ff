//! What a failure hinges on: which store, which fence, and what is wrong between them.

use core::fmt;
use core::panic::Location;

use holdfast_faultmem::{Call, GROW, SiteKind};
use holdfast_pmem::{LINE, MediumKind, Site};

use crate::judge::Level;
use crate::reduce::Store;

/// A place in the program that a failure hangs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    /// The name given to the call.
    pub site: Site,
    /// Where in the source it stands.
    pub place: &'static Location<'static>,
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place.to_string();
        if self.site.name() == place {
            f.write_str(&place)
        } else {
            write!(f, "{place} ({})", self.site)
        }
    }
}

/// A store that had to have arrived, or had to be missing, for the failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreAt {
    /// Byte at which its unit begins.
    pub at: u64,
    /// The call.
    pub spot: Spot,
    /// Position of the call in the record of the run.
    call: usize,
    /// Whether its line was flushed between the store and the crash.
    pub flushed: bool,
}

/// What is wrong, as far as the failing image and the record of the run tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hinge {
    /// Nothing between the store and the crash flushed its line.
    NoFlush {
        /// The store.
        store: Spot,
        /// The first fence after it, which does not cover it.
        fence: Option<Spot>,
    },
    /// Both were on their way, and the second arrived before the first.
    NoFence {
        /// The store that was missing.
        first: Spot,
        /// The store that needs it, before which a fence belongs.
        then: Spot,
        /// The first fence after both, which comes too late.
        fence: Option<Spot>,
    },
    /// A store is made before what it needs: no fence between them helps.
    WrongOrder {
        /// The store that arrived.
        early: Spot,
        /// The store that it needs.
        late: Spot,
    },
    /// Neither may arrive without the other: no order of the two helps, only a log or a copy.
    NotAtomic {
        /// One store.
        one: Spot,
        /// The other.
        other: Spot,
    },
    /// A store may arrive before this fence, and what it needs is not even done by then.
    TooEarly {
        /// The store.
        store: Spot,
        /// The fence, or growth, about to take effect; `None` if the operation had returned.
        fence: Option<Spot>,
    },
    /// The operation has returned, and no fence has covered its store.
    NotDurable {
        /// The store.
        store: Spot,
        /// The last fence before the crash, which does not cover it.
        fence: Option<Spot>,
    },
    /// An earlier fence has made durable what needs a store that comes after it.
    FencedTooEarly {
        /// The fence.
        fence: Spot,
        /// The store that it should have covered.
        store: Spot,
    },
    /// Wrong whatever has arrived: what was durable by then, recovery itself, or the operations
    /// without any crash.
    Recovery {
        /// The last fence that took effect before the crash; `None` if none did, or if it fails
        /// without a crash.
        fence: Option<Spot>,
    },
}

impl Hinge {
    /// The call before which a flush and a fence would help, if the hinge is that none is there.
    #[must_use]
    pub fn cure(&self) -> Option<Spot> {
        match *self {
            Self::NoFlush { fence, .. } => fence,
            Self::NoFence { then, .. } => Some(then),
            _ => None,
        }
    }

    /// Every place it names.
    #[must_use]
    pub fn spots(&self) -> Vec<Spot> {
        let of = |all: &[Option<Spot>]| all.iter().flatten().copied().collect();
        match *self {
            Self::NoFlush { store, fence }
            | Self::TooEarly { store, fence }
            | Self::NotDurable { store, fence } => of(&[Some(store), fence]),
            Self::NoFence { first, then, fence } => of(&[Some(first), Some(then), fence]),
            Self::NotAtomic { one, other } => of(&[Some(one), Some(other)]),
            Self::WrongOrder { early, late } => of(&[Some(early), Some(late)]),
            Self::FencedTooEarly { fence, store } => of(&[Some(fence), Some(store)]),
            Self::Recovery { fence } => of(&[fence]),
        }
    }
}

impl fmt::Display for Hinge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |spot: &Option<Spot>| match spot {
            Some(spot) if spot.site == GROW => format!("the growth at {spot}"),
            Some(spot) => format!("the fence at {spot}"),
            None => "the crash".to_owned(),
        };
        match self {
            Self::NoFlush { store, fence } => {
                write!(f, "no flush of the store at {store} before {}", at(fence))
            }
            Self::NoFence { first, then, fence } => write!(
                f,
                "no fence between the store at {first} and the store at {then};\n         \
                 both wait for {}",
                at(fence)
            ),
            Self::WrongOrder { early, late } => {
                write!(f, "the store at {early} comes before the one it needs, at {late}")
            }
            Self::NotAtomic { one, other } => write!(
                f,
                "the store at {one} and the store at {other} have to arrive together; \
                 no order helps"
            ),
            Self::TooEarly { store, fence } => write!(
                f,
                "the store at {store} may arrive before {}, and what it needs comes later",
                at(fence)
            ),
            Self::NotDurable { store, fence } => {
                write!(f, "no fence covers the store at {store} before the operation returns")?;
                fence.map_or(Ok(()), |fence| write!(f, "; the last one is at {fence}"))
            }
            Self::FencedTooEarly { fence, store } => write!(
                f,
                "the fence at {fence} makes durable what needs the store at {store}, which comes \
                 after it"
            ),
            Self::Recovery { fence: Some(fence) } => {
                write!(f, "none: it is wrong whatever has arrived since the fence at {fence}")
            }
            Self::Recovery { fence: None } => f.write_str("none: it is wrong whatever has arrived"),
        }
    }
}

/// The calls behind stores; of those whose call failed nothing is known.
pub(crate) fn stores_at(level: &Level, stores: &[Store], kind: MediumKind) -> Vec<StoreAt> {
    let calls = calls_of(level);
    let find = |store: &Store| {
        let call = calls.iter().position(|call| call.made(store.number))?;
        let spot = spot_of(&calls[call]);
        // A page cache writes back by itself: there is nothing to flush.
        let flushed = kind == MediumKind::File
            || calls[call..].iter().any(|call| {
                let lines = call.at / LINE..(call.at + call.len).div_ceil(LINE);
                call.flushed > 0 && call.after >= store.number && lines.contains(&(store.at / LINE))
            });
        Some(StoreAt { at: store.at, spot, call, flushed })
    };
    stores.iter().filter_map(find).collect()
}

/// What the reduced crash hinges on.
pub(crate) fn hinge(
    level: &Level,
    arrived: &[StoreAt],
    missing: &[StoreAt],
    both_ways: bool,
) -> Hinge {
    let calls = calls_of(level);
    let fence_after =
        |call: usize| calls[call + 1..].iter().find(|call| is_fence(call)).map(spot_of);
    let passing = level.point.barrier().is_some();
    if let Some(store) = missing.iter().find(|store| !store.flushed) {
        return Hinge::NoFlush { store: store.spot, fence: fence_after(store.call) };
    }
    // What came last is what makes the rest count.
    match (arrived.last(), missing.first()) {
        (None, None) => {
            let fence = in_effect(level).iter().rfind(|call| is_fence(call));
            Hinge::Recovery { fence: fence.map(spot_of) }
        }
        (Some(early), None) => Hinge::TooEarly { store: early.spot, fence: barrier_of(level) },
        (Some(one), Some(other)) if both_ways => {
            Hinge::NotAtomic { one: one.spot, other: other.spot }
        }
        (Some(early), Some(late)) if early.call < late.call => {
            Hinge::WrongOrder { early: early.spot, late: late.spot }
        }
        (Some(then), Some(first)) => {
            Hinge::NoFence { first: first.spot, then: then.spot, fence: fence_after(then.call) }
        }
        (None, Some(store)) => {
            let fence = in_effect(level).iter().rposition(is_fence);
            match fence {
                Some(fence) if passing && fence < store.call => {
                    Hinge::FencedTooEarly { fence: spot_of(&calls[fence]), store: store.spot }
                }
                _ => Hinge::NotDurable {
                    store: store.spot,
                    fence: fence.map(|fence| spot_of(&calls[fence])),
                },
            }
        }
    }
}

/// The barrier that the crash came before.
pub(crate) fn barrier_of(level: &Level) -> Option<Spot> {
    let barrier = level.point.barrier()?;
    // Another thread may have stored since it was put on record.
    calls_of(level).iter().rfind(|call| (call.site, call.kind) == barrier).map(spot_of)
}

/// The calls without the barrier about to take effect, which is the last one.
fn in_effect(level: &Level) -> &[Call] {
    let calls = calls_of(level);
    match (level.point.barrier(), calls.split_last()) {
        (Some((site, kind)), Some((last, rest))) if (last.site, last.kind) == (site, kind) => rest,
        _ => calls,
    }
}

fn calls_of(level: &Level) -> &[Call] {
    &level.trace[..level.point.calls().min(level.trace.len())]
}

/// Whether a call waits for stores, which growth does not.
fn is_fence(call: &Call) -> bool {
    call.is_barrier() && call.kind != SiteKind::Grow
}

fn spot_of(call: &Call) -> Spot {
    Spot { site: call.site, place: call.place }
}
