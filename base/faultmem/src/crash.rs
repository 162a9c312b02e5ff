//! An instant at which the machine may stop, and the images it may leave.

use core::fmt;
use std::sync::Arc;

use holdfast_pmem::Site;

use crate::config::Mode;
use crate::durable::Durable;
use crate::faults::Clear;
use crate::images::{Budget, Images, choose_sample};
use crate::rng::share;
use crate::sites::SiteKind;
use crate::trace::UnitStates;
use crate::units::Units;

/// The state of the medium at one instant: what is persisted and what is on its way.
///
/// Taking one is cheap: the persisted image is shared with the medium until either changes.
#[derive(Clone)]
pub struct CrashPoint {
    pub(crate) durable: Arc<Durable>,
    pub(crate) mode: Mode,
    /// The barrier about to take effect.
    pub(crate) barrier: Option<(Site, SiteKind)>,
    pub(crate) ordinal: u64,
    /// Calls recorded so far.
    pub(crate) calls: usize,
}

impl CrashPoint {
    /// The barrier about to take effect, or `None` if the point was taken by hand.
    #[must_use]
    pub fn barrier(&self) -> Option<(Site, SiteKind)> {
        self.barrier
    }

    /// Barriers that the medium had passed before.
    #[must_use]
    pub fn ordinal(&self) -> u64 {
        self.ordinal
    }

    /// How finely a crash here tears.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Calls in the record of the medium by then, the barrier about to take effect included: see
    /// [`FaultMedium::trace`](crate::FaultMedium::trace).
    #[must_use]
    pub fn calls(&self) -> usize {
        self.calls
    }

    /// The units with their states, ascending.
    #[must_use]
    pub fn unit_states(&self) -> Vec<UnitStates> {
        Units::new(&self.durable, self.mode).list()
    }

    /// The image in which exactly these units are in these states, all others as persisted.
    /// `None` if there is no such unit, or it has no such state.
    #[must_use]
    pub fn image_of(&self, picks: &[Pick]) -> Option<Image> {
        let units = Units::new(&self.durable, self.mode);
        let mut choice = vec![0; units.len()];
        for pick in picks {
            let unit = (0..units.len()).find(|&unit| units.at(unit) == pick.at)?;
            if pick.state >= units.states(unit) {
                return None;
            }
            choice[unit] = pick.state;
        }
        Some(Image::new(&self.durable, &units, &choice, 0))
    }

    /// Units (words, lines or sectors, by mode) whose state a crash decides.
    #[must_use]
    pub fn units(&self) -> usize {
        Units::new(&self.durable, self.mode).len()
    }

    /// Images a crash here may leave, without regard to equal ones; saturates.
    #[must_use]
    pub fn possibilities(&self) -> u64 {
        let units = Units::new(&self.durable, self.mode);
        (0..units.len()).fold(1, |all, unit| all.saturating_mul(units.states(unit).into()))
    }

    /// Distinct images a crash here may leave: all of them if they fit the budget, else a
    /// selection. The order and the selection depend on the budget alone.
    #[must_use]
    pub fn images(&self, budget: &Budget) -> Images {
        let units = Units::new(&self.durable, self.mode);
        Images::new(Arc::clone(&self.durable), units, *budget)
    }

    /// One of the possible images, drawn from `seed`; samples of different numbers differ in how
    /// much has arrived. Costs one image, whatever their number: for those who look at few.
    #[must_use]
    pub fn sample(&self, seed: u64, number: u64) -> Image {
        let units = Units::new(&self.durable, self.mode);
        let choice = choose_sample(&units, seed, number);
        Image::new(&self.durable, &units, &choice, number)
    }

    /// The image in which nothing unfenced has arrived.
    #[must_use]
    pub fn persisted(&self) -> Image {
        self.by(|_, _| 0)
    }

    /// The fingerprint of [`persisted`](Self::persisted), without building it.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let bad = self.durable.bad_after(core::iter::empty());
        with_bad(self.durable.known_fingerprint(), bad.into_iter())
    }

    /// The image in which everything stored has arrived: what a killed process leaves.
    #[must_use]
    pub fn newest(&self) -> Image {
        self.by(Units::newest)
    }

    fn by(&self, state: impl Fn(&Units, usize) -> u32) -> Image {
        let units = Units::new(&self.durable, self.mode);
        let choice: Vec<u32> = (0..units.len()).map(|unit| state(&units, unit)).collect();
        Image::new(&self.durable, &units, &choice, 0)
    }
}

impl fmt::Debug for CrashPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CrashPoint")
            .field("ordinal", &self.ordinal)
            .field("barrier", &self.barrier)
            .field("mode", &self.mode)
            .field("dirty_lines", &self.durable.pending().len())
            .finish_non_exhaustive()
    }
}

/// A fingerprint of bytes, and of the pages that cannot be read.
fn with_bad(content: u64, bad: impl Iterator<Item = (u64, Clear)>) -> u64 {
    bad.fold(content, |sum, (page, clear)| {
        sum ^ share(!page, if clear == Clear::Able { 1 } else { 2 })
    })
}

/// State of one unit in an image that differs from the persisted one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pick {
    /// First byte of the unit in the file.
    pub at: u64,
    /// Which of its states, counted in the order they came about; 0 would be the persisted one.
    pub state: u32,
    /// States it could be in, the persisted one included.
    pub of: u32,
}

/// What a crash left: the bytes of the file and its bad pages.
///
/// Bytes lie where the file has them. A relocation table that the program had installed must be
/// installed again by the program that opens the image, as after any restart.
#[derive(Clone, PartialEq, Eq)]
pub struct Image {
    bytes: Vec<u8>,
    bad: Vec<(u64, Clear)>,
    content: u64,
    index: u64,
    picks: Vec<Pick>,
}

impl Image {
    pub(crate) fn new(durable: &Durable, units: &Units, choice: &[u32], index: u64) -> Self {
        let mut bytes = durable.image().to_vec();
        let mut content = durable.known_fingerprint();
        let mut picks = Vec::new();
        for (unit, &state) in choice.iter().enumerate().filter(|&(_, &state)| state > 0) {
            for patch in units.patches(unit, state) {
                let at = (patch.word * 8) as usize;
                // A medium need not end at a word: what lies behind its end is dropped.
                let room = bytes.len().saturating_sub(at).min(8);
                bytes[at..at + room].copy_from_slice(&patch.value.to_le_bytes()[..room]);
            }
            content ^= units.change(unit, state);
            picks.push(Pick { at: units.at(unit), state, of: units.states(unit) });
        }
        let bad = durable.bad_after(picks.iter().map(|pick| pick.at)).into_iter().collect();
        Self { bytes, bad, content, index, picks }
    }

    /// The bytes of the file.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes of the file, without a copy.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Numbers of the bad pages in the file, ascending, and whether a rewrite clears them.
    #[must_use]
    pub fn bad_pages(&self) -> &[(u64, Clear)] {
        &self.bad
    }

    /// Equal for equal images, also of different instants and media; unequal for unequal ones
    /// but for a chance of 1 in 2^64 per pair.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        with_bad(self.content, self.bad.iter().copied())
    }

    pub(crate) fn content_fingerprint(&self) -> u64 {
        self.content
    }

    /// Place of the image in its enumeration: the same budget gives the same image again.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.index
    }

    /// The units that differ from the persisted image, ascending.
    #[must_use]
    pub fn picks(&self) -> &[Pick] {
        &self.picks
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image")
            .field("len", &self.bytes.len())
            .field("index", &self.index)
            .field("fingerprint", &format_args!("{:#018x}", self.fingerprint()))
            .field("bad", &self.bad)
            .field("picks", &self.picks)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use holdfast_pmem::{Medium, MediumKind};

    use super::*;
    use crate::{Config, FaultMedium};

    #[test]
    fn the_fingerprint_of_what_is_persisted_needs_no_image() {
        let medium = FaultMedium::new(8192, MediumKind::Dax, &Config::default());
        medium.put(Site::new("test.put"), 64, &[7; 8]).unwrap();
        let point = medium.crash_point();
        assert_eq!(point.fingerprint(), point.persisted().fingerprint());
        assert_ne!(point.fingerprint(), point.newest().fingerprint());
        let before = point.fingerprint();
        medium.poison(4096, 1, Clear::Unable).unwrap();
        let point = medium.crash_point();
        assert_eq!(point.fingerprint(), point.persisted().fingerprint());
        assert_ne!(point.fingerprint(), before);
    }
}
