//! Lies of what the engine says of pages, and of what it does to them: what judges must convict
//! (`wrong.rs` of the rows on pools).

use holdfast_mapped::Report;
use holdfast_pmem::PAGE;
use holdfast_redundancy::events::Event;
use holdfast_redundancy::{PageVerdict, Unsure};

use super::machine::Machine;
use super::model::repaired;
use crate::object::wrong::{Lie, made_up, told};

/// A page of which lies are told.
const OF: u64 = 2;

/// What was said of a page, or a lie about it.
///
/// # Panics
/// If that lie is told.
#[must_use]
pub fn said_as_told(page: u64, said: PageVerdict) -> PageVerdict {
    assert!(!told(Lie::Panics), "a look that panics, as somebody wanted");
    match said {
        _ if told(Lie::Accuses) && page == OF => PageVerdict::Corrupt,
        PageVerdict::Good if told(Lie::Neighbour) && page == OF => {
            PageVerdict::Undecided(Unsure::Uncovered)
        }
        PageVerdict::Corrupt if told(Lie::Silent) => PageVerdict::Good,
        said => said,
    }
}

/// What the journal says, or as if it spoke of sound bytes too, or of half of what came back.
pub fn events_as_told(mut events: Vec<Event>) -> Vec<Event> {
    if told(Lie::OneOfTwo) {
        events.retain(|event| repaired(event).is_none_or(|page| page % 2 == 0));
    }
    if told(Lie::Elsewhere) {
        events.push(made_up((OF * PAGE, PAGE)));
    }
    events
}

/// Puts a page in doubt of which a scrub or a repair has left none, if that lie is told.
pub fn leave_as_told(report: &mut Report) {
    if told(Lie::Forgets) {
        report.undecided.push((OF, Unsure::TrackingLost));
    }
}

/// Changes a page, if this lie is told.
pub fn change_as_told(lie: Lie, machine: &Machine) {
    if told(lie) {
        // Whether it could be done is seen by who looks for it.
        let _ = machine.medium.flip_bit(OF * PAGE, 0);
    }
}
