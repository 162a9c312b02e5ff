//! Events: the pool's own history of detections and repairs.

use core::ffi::{c_char, c_int, c_void};

use holdfast::{Cause, Event, Finder, Outcome};

use crate::border::{Fail, Place, border, get_sized, holdfast_code, room};
use crate::pool::{POOLS, holdfast_pool};

/// A detection or repair. Newer builds may add fields at the end.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct holdfast_event {
    /// Number of the event, rising by 1.
    pub sequence: u64,
    /// When, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Where in the pool.
    pub at: u64,
    /// How many bytes.
    pub len: u64,
    /// The object concerned, 0 if none is known.
    pub object: u64,
    /// How long the repair took.
    pub duration_ns: u64,
    /// How it was found: 1 media error, 2 listed as bad, 3 sum, 4 parity, 5 copies differ,
    /// 6 impossible entry.
    pub cause: u32,
    /// Who found it: 1 read, 2 open for change, 3 commit, 4 scrub, 5 open of the pool, 6 check,
    /// 7 repair, 8 load.
    pub finder: u32,
    /// What came of it: 1 detected, 2 repaired, 3 relocated, 4 lost, 5 undecided.
    pub outcome: u32,
    /// CRC-32C of the bytes before, 0 if unreadable.
    pub before_sum: u32,
    /// CRC-32C of the bytes after.
    pub after_sum: u32,
    /// 0.
    pub reserved: u32,
}

/// A function called for each event; anything but 0 ends it.
pub type holdfast_on_event =
    Option<unsafe extern "C" fn(event: *const holdfast_event, argument: *mut c_void) -> c_int>;

fn told(event: &Event) -> holdfast_event {
    holdfast_event {
        sequence: event.sequence,
        time_ns: event.time_ns,
        at: event.at,
        len: event.len,
        object: event.object,
        duration_ns: event.duration_ns,
        cause: event.cause.code().into(),
        finder: event.finder.code().into(),
        outcome: event.outcome.code().into(),
        before_sum: event.before_sum,
        after_sum: event.after_sum,
        reserved: 0,
    }
}

/// Calls `each` for the events in the pool's journal from number `from` on, oldest first. `next`
/// is told where to go on; it may be null. To follow a pool, call it now and then.
///
/// # Safety
/// `each` is null or can be called with `argument`, `next` is null or points to a `uint64_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_events(
    pool: holdfast_pool,
    from: u64,
    each: holdfast_on_event,
    argument: *mut c_void,
    next: *mut u64,
) -> holdfast_code {
    border(|| {
        let each = each.ok_or_else(|| Fail::invalid("the function is null"))?;
        let next = match next.is_null() {
            true => None,
            // SAFETY: as the caller vouches.
            false => Some(unsafe { Place::new(next, "the place for the next number")? }),
        };
        let mut reached = from;
        for event in POOLS.get(pool.id)?.events_from(from) {
            reached = event.sequence.saturating_add(1);
            let event = told(&event);
            // SAFETY: the event lives until the function returns; as the caller vouches.
            if unsafe { each(&raw const event, argument) } != 0 {
                break;
            }
        }
        if let Some(next) = next {
            next.set(reached);
        }
        Ok(())
    })
}

/// Writes an event as one line of text for people, cut off and ended by a zero within `room`.
///
/// # Safety
/// `event` is null or points to a `holdfast_event`, and `size` is its `sizeof`; `into` is null or
/// points to `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_event_text(
    event: *const holdfast_event,
    size: usize,
    into: *mut c_char,
    room: usize,
) -> holdfast_code {
    border(|| {
        // SAFETY: as the caller vouches; an event is all integers. It is copied before the room,
        // which may be where it is, is borrowed.
        let (event, into) = unsafe {
            let event = get_sized(event, size, holdfast_event::default(), "the event")?;
            (event, self::room(into.cast(), room, "the room for the text")?)
        };
        let code = |code: u32| u8::try_from(code).unwrap_or(u8::MAX);
        let line = format!(
            "#{} {} at {:#x}+{:#x}, found by {}: {}",
            event.sequence,
            Cause::from_code(code(event.cause)),
            event.at,
            event.len,
            Finder::from_code(code(event.finder)),
            Outcome::from_code(code(event.outcome)),
        );
        let Some(most) = into.len().checked_sub(1) else {
            return Err(Fail::invalid("there is no room for a text"));
        };
        let count = line.len().min(most);
        into[..count].copy_from_slice(&line.as_bytes()[..count]);
        into[count] = 0;
        Ok(())
    })
}
