//! Damage on demand: bit flips, stray writes, poison, faulty writes, failing calls.

use std::sync::Arc;

use holdfast_pmem::{MediaError, PAGE};

use crate::durable::Fate;
use crate::faults::{Clear, Damage, FaultKind, Injected, When};
use crate::gate::FailMode;
use crate::medium::FaultMedium;

/// Damage. Places are offsets into the pool as the program sees it, after relocation. What is
/// damaged directly changes everywhere at once: in the program's view, on the medium, and in
/// every store still on its way, so that no crash hides it.
impl FaultMedium {
    /// Flips one bit (0 is the lowest) of the byte at `at`.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such byte, or the bit is not below 8 (nothing is changed).
    pub fn flip_bit(&self, at: u64, bit: u8) -> Result<(), MediaError> {
        let mut state = self.state();
        state.in_range(at, if bit < 8 { 1 } else { u64::MAX })?;
        let before = self.bytes(at, 1);
        state.damage(&self.view, at, |word| word ^ 1 << (8 * (at % 8) + u64::from(bit)));
        let after = self.bytes(at, 1);
        let entry = direct(state.stores, Damage::BitFlip { bit }, at, before, after);
        state.injected.push(entry);
        Ok(())
    }

    /// Overwrites bytes behind the program's back.
    ///
    /// # Errors
    /// `OutOfRange` if the range ends beyond the medium (nothing is changed).
    pub fn stray(&self, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        let mut state = self.state();
        state.in_range(at, bytes.len() as u64)?;
        let before = self.bytes(at, bytes.len());
        state.overwrite(&self.view, at, bytes);
        let entry = direct(state.stores, Damage::Stray, at, before, bytes.to_vec());
        state.injected.push(entry);
        Ok(())
    }

    /// Makes every page that `[at, at + len)` touches unreadable. The content is lost: loads
    /// through [`view`](holdfast_pmem::Medium::view), which cannot fail here, see garbage. Stores
    /// on their way to the pages are lost too.
    ///
    /// # Errors
    /// `OutOfRange` if the range ends beyond the medium (nothing is changed).
    pub fn poison(&self, at: u64, len: u64, clear: Clear) -> Result<(), MediaError> {
        let mut state = self.state();
        state.in_range(at, len)?;
        if len == 0 {
            return Ok(());
        }
        for page in at / PAGE..=(at + len - 1) / PAGE {
            let physical = state.frames.physical_page(page);
            Arc::make_mut(&mut state.durable).ruin(physical, clear, self.seed);
            state.refresh(&self.view, physical);
        }
        let entry = direct(state.stores, Damage::Poison(clear), at, Vec::new(), Vec::new());
        state.injected.push(Injected { len, ..entry });
        Ok(())
    }

    /// Arms a fault for a write to come. Faults armed first are tried first.
    pub fn arm(&self, kind: FaultKind, when: When) {
        self.state().arsenal.arm(kind, when);
    }

    /// Armed faults that have not met their write yet.
    #[must_use]
    pub fn armed(&self) -> usize {
        self.state().arsenal.len()
    }

    /// Forgets the armed faults that have not met their write yet.
    pub fn disarm(&self) {
        self.state().arsenal.disarm();
    }

    /// Everything injected so far, in order.
    #[must_use]
    pub fn injected(&self) -> Vec<Injected> {
        self.state().injected.clone()
    }

    /// What was injected last.
    #[must_use]
    pub fn last_injected(&self) -> Option<Injected> {
        self.state().injected.last().cloned()
    }

    /// Stores made so far by the program, whole or in part, whatever came of them.
    #[must_use]
    pub fn stores(&self) -> u64 {
        self.state().stores
    }

    /// Writes that an armed fault has hit and whose barrier is still to come: until then the
    /// program sees what it stored, and then what is there.
    #[must_use]
    pub fn on_their_way(&self) -> usize {
        let state = self.state();
        let waits = |number: &usize| state.durable.is_on_its_way(Fate::Lost(*number));
        let unsettled = state.injected.iter().enumerate().filter(|(_, it)| !it.settled);
        unsettled.map(|(number, _)| number).filter(waits).count()
    }

    /// Makes the call that [`calls`](Self::calls) will count as `nth` fail, or it and all after
    /// it. Stores and appends that fail have stored half of their bytes. A failed append or sync
    /// of a File leaves in doubt for good what it covered.
    pub fn fail_nth(&self, nth: u64, mode: FailMode) {
        self.state().gate.set(Some((nth, mode)));
    }

    /// Lets all calls succeed again.
    pub fn fail_none(&self) {
        self.state().gate.set(None);
    }

    /// Calls made so far that can fail: reads, puts, xors, zeroes, appends, syncs, growths,
    /// heals, relocations.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.state().gate.calls()
    }

    fn bytes(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.view.read(at, &mut bytes);
        bytes
    }
}

/// The entry of damage done at once, after so many stores.
fn direct(stores: u64, damage: Damage, at: u64, before: Vec<u8>, after: Vec<u8>) -> Injected {
    Injected {
        damage,
        site: None,
        at,
        len: after.len() as u64,
        intended: before.clone(),
        before,
        after,
        target_before: Vec::new(),
        settled: true,
        fell: Vec::new(),
        landed: Vec::new(),
        stores,
    }
}
