//! Whose the side file beside a file is, and how it is opened or made.

use std::sync::Arc;

use holdfast_mapped::{Durability, Facts, OpenOptions as OpenSide, ProtectOptions};
use holdfast_pmem::{
    Access, Clock, Durability as Survive, ForeignFile, Making, Options as Mapping, Room,
};

use crate::choose::{Choice, side_of};
use crate::file::Engine;
use crate::names::Beside;
use crate::source::Source;
use crate::summary::FileReport;

/// Bytes a side file begins with; the engine makes it longer.
const SIDE_START: u64 = 128 << 10;
/// Addresses kept free for a side file to grow.
const SIDE_ROOM: u64 = 64 << 30;

/// The parts of an engine, but for the side file.
pub(crate) type Parts = (ForeignFile, Arc<Source>, Arc<dyn Clock>, Arc<dyn Facts>);

/// Has its own side file brought after a file, in place of that of one which had the name before.
pub(crate) fn bring(beside: Beside, (report, inode): (&mut FileReport, u64)) -> Beside {
    let Beside::Elsewhere { mut own, named } = beside else { return beside };
    match own.replace(side_of(&report.path), inode) {
        Ok(()) => {
            report
                .note("the side file of the file that had this name before was removed".to_owned());
            Beside::Own
        }
        // What is there is looked at as if there were no other.
        Err(_) if named => Beside::Perhaps,
        Err(_) => Beside::Own,
    }
}

/// Whether the side file that is there is that of another file, which had the name before.
pub(crate) fn is_of_another(
    (data, source, clock, facts): &Parts,
    choice: &Choice,
    protect: &ProtectOptions,
    beside: Beside,
) -> bool {
    let Choice::Open(side) = choice else { return false };
    if beside != Beside::Perhaps {
        return beside == Beside::Others;
    }
    // Looked at only: whatever is wrong with it is told when it is opened.
    let Ok(side) = holdfast_pmem::Mapped::open(side, Access::ReadOnly, &Mapping::default()) else {
        return false;
    };
    let look = OpenSide { read_only: true, ..protect.open };
    let parts = (data.clone(), Arc::clone(source), Arc::clone(facts), Arc::clone(clock));
    let (data, source, facts, clock) = parts;
    Engine::open(data, side, source, facts, clock, look).is_ok_and(|(_, opened)| opened.other)
}

/// Removes a side file, so that another can be made.
pub(crate) fn anew(choice: &Choice) -> Choice {
    match choice {
        Choice::Open(side) | Choice::Protect(side) => {
            // One that stays is in the way of the new one, which is told then.
            let _ = std::fs::remove_file(side);
            Choice::Protect(side.clone())
        }
        Choice::Leave => Choice::Leave,
    }
}

/// Opens or makes the side file.
pub(crate) fn engine(
    (data, source, clock, facts): Parts,
    choice: &Choice,
    protect: &ProtectOptions,
    report: &mut FileReport,
) -> Result<(Engine, Option<Making>), String> {
    let survive = match protect.open.durability {
        Durability::Process => Survive::Process,
        Durability::Power => Survive::Auto,
    };
    let mapping = Mapping { durability: survive, reserve: Some(SIDE_ROOM), ..Mapping::default() };
    let boot = identifier("/proc/sys/kernel/random/boot_id");
    let open = OpenSide { boot, ..protect.open };
    match choice {
        Choice::Open(side) => {
            let side = holdfast_pmem::Mapped::open(side, Access::Write, &mapping)
                .map_err(|error| error.to_string())?;
            let (engine, opened) = Engine::open(data, side, source, facts, clock, open)
                .map_err(|error| error.to_string())?;
            report.opened = Some(opened);
            Ok((engine, None))
        }
        Choice::Protect(path) => {
            let making = Making::begin(path).map_err(|error| error.to_string())?;
            let side = making.map(SIDE_START, Room::Taken, &mapping);
            let side = side.map_err(|error| error.to_string())?;
            let uuid = identifier("/proc/sys/kernel/random/uuid");
            let options = ProtectOptions { uuid, open, ..protect.clone() };
            let engine = Engine::protect(data, side, source, facts, clock, &options);
            Ok((engine.map_err(|error| error.to_string())?, Some(making)))
        }
        Choice::Leave => Err("it is not chosen".to_owned()),
    }
}

/// The bytes of a UUID that the system tells; zeros if it does not.
fn identifier(path: &str) -> [u8; 16] {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mut digits = text.bytes().filter_map(|byte| char::from(byte).to_digit(16));
    core::array::from_fn(|_| {
        let (high, low) = (digits.next().unwrap_or(0), digits.next().unwrap_or(0));
        (high << 4 | low) as u8
    })
}
