//! Nothing leaks: what is allocated is what can be reached, each thing from one place only.
//!
//! Two accounts, both taken from the medium by the second reader. In pools in which everything
//! hangs on the root, the walk begins there and follows the pointers in the objects: what it does
//! not come by is lost to the program for good. In every pool the engine's own figures must be
//! those of the medium: a chunk or a place that only the engine's memory takes for used is lost
//! until the next open.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_heap::Space;
use holdfast_oracle::reach::{leaks, reachable};

use super::linked::pointers;
use super::model::name;
use super::raw::{Chunk, ChunkKind, Survey};
use crate::tally::{Fault, Judged, Violation};

/// Something that is in use by one other thing, or by none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    /// The object with this pointer word.
    Object(u64),
    /// The chunk that begins here.
    Chunk(u64),
}

impl std::fmt::Display for Thing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Object(word) => write!(f, "object {}", name(*word)),
            Self::Chunk(at) => write!(f, "chunk {at:#x}"),
        }
    }
}

/// Convicts a pool in which something is allocated that the root does not lead to, or led to and
/// not allocated, or led to twice. Empty runs are the heap's, and log chunks the log's.
///
/// # Errors
/// What leaked, dangles, or has two owners.
pub fn tree(found: &Survey) -> Judged<()> {
    let allocated = allocated(found);
    let mut owners: BTreeMap<Thing, u32> = BTreeMap::new();
    let most = 2 * allocated.len() + 16;
    let reached = reachable([Thing::Object(found.anchor)], most, |thing| {
        let next = owned_by(found, *thing);
        for thing in &next {
            *owners.entry(*thing).or_default() += 1;
        }
        Ok::<_, std::convert::Infallible>(next)
    });
    let wrong = |story| Err(Violation::new(Fault::Wrong, story));
    let reached = match reached {
        Ok(reached) => reached,
        Err(error) => return wrong(format!("walking from the root: {error}")),
    };
    let shared = |thing: &Thing| owners.get(thing).copied().unwrap_or(0) > 1;
    let shared: Vec<Thing> = reached.iter().copied().filter(shared).collect();
    let leaks = leaks(&allocated, &reached);
    if leaks.none() && shared.is_empty() {
        return Ok(());
    }
    let list = |what, things: &[Thing]| {
        let names: Vec<String> = things.iter().take(4).map(ToString::to_string).collect();
        format!("{} {what} ({})", things.len(), names.join(", "))
    };
    let parts = [
        ("leaked: nothing leads there", leaks.leaked),
        ("dangling: led to and not allocated", leaks.dangling),
        ("owned twice", shared),
    ];
    let parts = parts.iter().filter(|(_, things)| !things.is_empty());
    wrong(parts.map(|(what, things)| list(*what, things)).collect::<Vec<_>>().join("; "))
}

/// Everything that has an owner: live objects, and chunks of their own. Runs are the heap's.
fn allocated(found: &Survey) -> BTreeSet<Thing> {
    let objects = found.objects.iter().map(|(word, _)| Thing::Object(word));
    let chunks = found.zones.iter().flat_map(|zone| &zone.chunks).filter(|chunk| {
        matches!(chunk.kind, ChunkKind::Large(_) | ChunkKind::Tail(_) | ChunkKind::Bad)
    });
    objects.chain(chunks.map(|chunk| Thing::Chunk(chunk.at))).collect()
}

/// What a thing leads to: by the pointers in an object, and to the chunks it has for its own.
fn owned_by(found: &Survey, thing: Thing) -> Vec<Thing> {
    let Thing::Object(word) = thing else { return Vec::new() };
    // One that is not there leads nowhere; that something leads to it is told by itself.
    let Some(object) = found.objects.get(word) else { return Vec::new() };
    let mut owned: Vec<Thing> = pointers(object).into_iter().map(Thing::Object).collect();
    let at = word & ((1 << 48) - 1);
    for zone in &found.zones {
        let holds = |chunk: &&Chunk| (chunk.at..chunk.at + zone.chunk_len).contains(&at);
        if let Some(Chunk { kind: ChunkKind::Large(count), at }) = zone.chunks.iter().find(holds) {
            owned.extend((0..*count).map(|index| Thing::Chunk(at + index * zone.chunk_len)));
        }
    }
    owned
}

/// Compares what the engine counts with what the medium says.
///
/// # Errors
/// The first figure that differs.
pub fn counted(found: &Survey, space: &Space) -> Judged<()> {
    let mut medium = Space { objects: found.objects.len() as u64, ..Space::default() };
    medium.object_bytes = found.objects.iter().map(|(_, o)| o.bytes.len() as u64).sum();
    for zone in &found.zones {
        let free = zone.chunks.iter().filter(|chunk| chunk.kind == ChunkKind::Free).count();
        medium.total += zone.chunks.len() as u64 * zone.chunk_len;
        medium.free_chunks += free as u64 * zone.chunk_len;
    }
    for (what, engine, medium) in [
        ("bytes of chunks", space.total, medium.total),
        ("bytes of free chunks", space.free_chunks, medium.free_chunks),
        ("objects", space.objects, medium.objects),
        ("bytes of objects", space.object_bytes, medium.object_bytes),
    ] {
        if engine != medium {
            let story = format!("the engine counts {engine} {what}, the medium says {medium}");
            return Err(Violation::new(Fault::Wrong, story));
        }
    }
    Ok(())
}
