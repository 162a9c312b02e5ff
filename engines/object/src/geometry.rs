//! Where the parts of a new pool go.

use holdfast_layout::format::EVENTS_START;
use holdfast_layout::superblock::LABEL_LEN;
use holdfast_layout::{
    Certify, LogPlacement, Region, RegionKind, SumKind, Superblock, SuperblockError, region,
};
use holdfast_pmem::{MediumKind, PAGE};
use holdfast_redundancy::Zone;

use crate::error::Error;
use crate::options::CreateOptions;

/// User lanes of a pool that does not ask for a number.
const LANES: u32 = 16;
/// Smallest pool with ordinary frames.
const SIZE_MIN: u64 = 16 << 20;
/// Longest frame and longest chunk.
const LENGTH_MAX: u64 = 1 << 30;
/// Most user lanes: one more is the engine's own.
const LANES_MAX: u32 = 1023;
/// Fewest pages of the log in each side: batches in a file need so many, and a pool made elsewhere
/// may be copied into one.
const LOG_PAGES_MIN: u64 = 8;
/// Longest ring of one lane.
const RING_MAX: u64 = 1 << 34;
/// Longest journal of events.
const EVENTS_MAX: u64 = 1 << 24;
/// Longest label.
const LABEL_MAX: u64 = LABEL_LEN as u64;
/// One spare frame for each of these bytes.
const SPARE_EACH: u64 = 1 << 30;
/// Longest log chosen for a file, in each side.
const FILE_LOG_MAX: u64 = 32 << 20;

/// The superblock and regions of a new pool.
pub(crate) struct Plan {
    pub(crate) superblock: Superblock,
    pub(crate) regions: Vec<Region>,
}

/// Bytes of a chunk for a pool of `size` bytes: a chunk should be a small part of a zone, and
/// large enough for 4 KiB objects to share one.
fn chunk_for(size: u64) -> u64 {
    match size {
        0..=0x01ff_ffff => 32 << 10,
        0x0200_0000..=0x0fff_ffff => 64 << 10,
        _ => 256 << 10,
    }
}

/// Chooses a geometry.
///
/// # Errors
/// [`Error::Options`] naming the limit that is not met.
pub(crate) fn plan(options: &CreateOptions, kind: MediumKind) -> Result<Plan, Error> {
    let fail = |what, limit| Err(Error::Options { what, limit });
    check_lengths(options)?;
    let frame = options.frame;
    let size = options.size / PAGE * PAGE;
    let lanes = if options.lanes == 0 { LANES } else { options.lanes } + 1;
    let events = options.events.max(PAGE).next_multiple_of(PAGE);
    let log_start = EVENTS_START + events;
    let room = frame.saturating_sub(log_start);
    let wanted = match (options.log, kind) {
        (0, MediumKind::File) => (size / 16).clamp(1 << 20, FILE_LOG_MAX),
        (0, _) => room.max(u64::from(lanes) * PAGE),
        (log, _) => log,
    };
    let least = LOG_PAGES_MIN.div_ceil(lanes.into()) * PAGE;
    let ring = (wanted / u64::from(lanes) / PAGE * PAGE).max(least);
    if ring > RING_MAX {
        return fail(
            "the log can have at most {} bytes; choose a shorter one",
            RING_MAX * u64::from(lanes),
        );
    }
    let side = (log_start + ring * u64::from(lanes)).next_multiple_of(frame);
    let spare = size.div_ceil(SPARE_EACH).max(1) * frame;
    let zone_start = 2 * side + spare;
    if zone_start + 4 * PAGE > size {
        return fail(
            "metadata and log alone need {} bytes; make it larger, or its frame or log smaller",
            zone_start + 4 * PAGE,
        );
    }
    let chunk = if options.chunk == 0 { chunk_for(size) } else { options.chunk };
    let zone = zone_region(zone_start, size - zone_start, options, chunk)?;
    let mut regions = vec![side_region(0, side, RegionKind::SideA)];
    regions.push(side_region(side, side, RegionKind::SideB));
    regions.push(side_region(2 * side, spare, RegionKind::Spare));
    regions.push(zone);
    let superblock = Superblock {
        sequence: 1,
        uuid: options.uuid,
        compatible: 0,
        read_only_compatible: 0,
        incompatible: incompatible(options),
        log_generation: 1,
        clean: false,
        size,
        frame,
        chunk,
        side_len: side,
        events_len: events,
        log_start,
        ring_len: ring,
        lanes,
        log_placement: placement(kind),
        sum_kind: options.sums,
        parity: options.parity.rows(),
        copies: if options.metadata_copies { 2 } else { 1 },
        allow_inject: options.allow_inject,
        anchor: 0,
        rows: options.rows,
        label: options.label.clone(),
    };
    readable(&superblock, &regions)?;
    Ok(Plan { superblock, regions })
}

/// Refuses lengths and counts that no pool has, whatever its size: what `Superblock::decode` would
/// refuse when the pool is opened.
fn check_lengths(options: &CreateOptions) -> Result<(), Error> {
    let fail = |what, limit| Err(Error::Options { what, limit });
    let size = options.size / PAGE * PAGE;
    if options.frame > PAGE && size < SIZE_MIN {
        let what = "with this frame a pool needs at least {} bytes; make it larger, or choose a \
                    smaller frame";
        return fail(what, SIZE_MIN);
    }
    if size > 1 << 47 {
        return fail("a pool can have at most {} bytes; make it smaller", 1 << 47);
    }
    if options.log > size {
        return fail("the log is longer than the pool of {} bytes; choose a shorter one", size);
    }
    let length = |bytes: u64| bytes.is_power_of_two() && (PAGE..=LENGTH_MAX).contains(&bytes);
    if !length(options.frame) {
        return fail("the frame must be a power of two, from {} bytes to 1 GiB", PAGE);
    }
    if options.chunk != 0 && !length(options.chunk) {
        return fail("the chunk must be a power of two, from {} bytes to 1 GiB", PAGE);
    }
    if !(3..=254).contains(&options.rows) {
        return fail("the number of rows must be from 3 to {}", 254);
    }
    if options.lanes > LANES_MAX {
        return fail("there can be at most {} lanes", LANES_MAX.into());
    }
    if options.events > EVENTS_MAX {
        return fail("the journal of events can have at most {} bytes", EVENTS_MAX);
    }
    if options.label.len() as u64 > LABEL_MAX || options.label.contains('\0') {
        return fail("the label must be text without NUL, of at most {} bytes", LABEL_MAX);
    }
    Ok(())
}

/// Refuses what opening would refuse: reads back what is going to be written, before it is.
fn readable(superblock: &Superblock, regions: &[Region]) -> Result<(), Error> {
    // Its sum was made a moment ago and has been nowhere since.
    let again = Superblock::decode(&superblock.encode(), Certify::when(false));
    if let Err(SuperblockError::BadField { field, value }) = again {
        return Err(Error::Options { what: field, limit: value });
    }
    if again.as_ref() != Ok(superblock) {
        return Err(Error::Options { what: "the superblock reads back as another", limit: 0 });
    }
    let (body, count) = (region::encode(regions), regions.len() as u32);
    if let Err(error) = region::decode(&body, count, superblock.size) {
        return Err(Error::Options { what: error.what, limit: superblock.size });
    }
    Ok(())
}

/// How log copies lie on a medium of `kind`.
pub(crate) fn placement(kind: MediumKind) -> LogPlacement {
    match kind {
        MediumKind::File => LogPlacement::Adjacent,
        MediumKind::Dax | MediumKind::Shm => LogPlacement::Apart,
    }
}

/// A zone over `[start, start + len)` with the options' rows and parity.
pub(crate) fn zone_region(
    start: u64,
    len: u64,
    options: &CreateOptions,
    chunk: u64,
) -> Result<Region, Error> {
    let parity = options.parity.rows();
    Ok(Zone::for_size(start, len, options.rows, parity, options.frame, chunk)?)
}

fn side_region(start: u64, len: u64, kind: RegionKind) -> Region {
    Region { start, len, kind, data_rows: 0, parity_rows: 0, row_len: 0, chunk: 0 }
}

fn incompatible(options: &CreateOptions) -> u64 {
    let q = if options.parity.rows() == 2 { holdfast_layout::format::INCOMPATIBLE_Q } else { 0 };
    let adler = match options.sums {
        SumKind::Adler32 => holdfast_layout::format::INCOMPATIBLE_ADLER,
        SumKind::None | SumKind::Crc32c => 0,
    };
    q | adler
}
