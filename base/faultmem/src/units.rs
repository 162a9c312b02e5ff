//! What a crash at one instant may leave: units, each in one of several states.

use holdfast_pmem::LINE;

use crate::config::Mode;
use crate::durable::{Durable, Event, Fate, SECTOR, WORDS_PER_LINE};
use crate::rng::share;
use crate::trace::UnitStates;
use crate::view::WORD;

/// A word and the value it gets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patch {
    pub(crate) word: u64,
    pub(crate) value: u64,
}

/// One state of a unit: the patches that make it, applied to the persisted image in order.
#[derive(Debug, Clone, Copy)]
struct State {
    first: u32,
    end: u32,
    /// Number of the last store in it.
    number: u64,
    /// What the patches change in the fingerprint of the image.
    change: u64,
}

/// A piece of the medium that a crash leaves in one of several states, independent of the rest.
#[derive(Debug, Clone, Copy)]
struct Unit {
    at: u64,
    first: u32,
    /// States besides the persisted one.
    count: u32,
    /// The state the program sees.
    newest: u32,
}

/// All units of an instant. State 0 of a unit is what the persisted image holds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Units {
    units: Vec<Unit>,
    states: Vec<State>,
    patches: Vec<Patch>,
}

impl Units {
    pub(crate) fn new(durable: &Durable, mode: Mode) -> Self {
        let mut all = Self::default();
        match mode {
            Mode::Words => all.add_words(durable),
            Mode::Lines => all.add_blocks(durable, LINE),
            Mode::Sectors => all.add_blocks(durable, SECTOR),
        }
        all
    }

    pub(crate) fn len(&self) -> usize {
        self.units.len()
    }

    /// First byte of a unit in the file.
    pub(crate) fn at(&self, unit: usize) -> u64 {
        self.units[unit].at
    }

    /// Every unit with the stores that complete its states.
    pub(crate) fn list(&self) -> Vec<UnitStates> {
        let stores = |unit: &Unit| {
            let states = unit.first as usize..(unit.first + unit.count) as usize;
            self.states[states].iter().map(|state| state.number).collect()
        };
        let list = self.units.iter();
        list.map(|unit| UnitStates { at: unit.at, newest: unit.newest, stores: stores(unit) })
            .collect()
    }

    /// Number of states of a unit; at least 2.
    pub(crate) fn states(&self, unit: usize) -> u32 {
        self.units[unit].count + 1
    }

    /// The state of a unit that the program sees.
    pub(crate) fn newest(&self, unit: usize) -> u32 {
        self.units[unit].newest
    }

    fn state(&self, unit: usize, state: u32) -> Option<&State> {
        let unit = &self.units[unit];
        let index = state.checked_sub(1)?;
        Some(&self.states[(unit.first + index) as usize])
    }

    /// What a state changes in the fingerprint.
    pub(crate) fn change(&self, unit: usize, state: u32) -> u64 {
        self.state(unit, state).map_or(0, |state| state.change)
    }

    /// The patches that make a state.
    pub(crate) fn patches(&self, unit: usize, state: u32) -> &[Patch] {
        self.state(unit, state)
            .map_or(&[], |state| &self.patches[state.first as usize..state.end as usize])
    }

    /// One unit per word; its states are the distinct values it had.
    fn add_words(&mut self, durable: &Durable) {
        for (&line, log) in ways(durable) {
            for slot in 0..WORDS_PER_LINE {
                let word = line * WORDS_PER_LINE + slot;
                let log = log.iter().filter(|event| u64::from(event.word) == slot);
                self.add_word(word, durable.persisted(word), log.filter(|event| reaches(event)));
            }
        }
    }

    fn add_word<'a>(&mut self, word: u64, persisted: u64, log: impl Iterator<Item = &'a Event>) {
        let first = self.states.len();
        let mut newest = 0;
        for event in log {
            let known = self.states[first..]
                .iter()
                .position(|state| self.patches[state.first as usize].value == event.value);
            if event.value == persisted {
                newest = 0;
            } else if let Some(known) = known {
                self.states[first + known].number = event.number;
                newest = known + 1;
            } else {
                let patch = self.patches.len() as u32;
                self.patches.push(Patch { word, value: event.value });
                let change = share(word, persisted) ^ share(word, event.value);
                let (end, number) = (patch + 1, event.number);
                self.states.push(State { first: patch, end, number, change });
                newest = self.states.len() - first;
            }
        }
        self.add_unit(word * WORD, first, newest as u32);
    }

    /// One unit per line or sector; its states are the prefixes of its stores.
    fn add_blocks(&mut self, durable: &Durable, size: u64) {
        let lines_per_block = size / LINE;
        let mut lines = ways(durable).peekable();
        while let Some((&line, log)) = lines.next() {
            let block = line / lines_per_block;
            let tagged = |line, log: &[Event]| {
                let stores = log.iter().filter(|event| reaches(event));
                let word = move |event: &Event| line * WORDS_PER_LINE + u64::from(event.word);
                stores.map(|event| (event.number, word(event), event.value)).collect::<Vec<_>>()
            };
            let mut stores = tagged(line, log);
            while let Some((&line, log)) =
                lines.next_if(|(line, _)| **line / lines_per_block == block)
            {
                stores.extend(tagged(line, log));
            }
            // Stable: stores with one number keep their order.
            stores.sort_by_key(|&(number, ..)| number);
            self.add_block(durable, block * size, size, &stores);
        }
    }

    fn add_block(&mut self, durable: &Durable, at: u64, size: u64, stores: &[(u64, u64, u64)]) {
        let first_word = at / WORD;
        let mut now: Vec<u64> =
            (first_word..first_word + size / WORD).map(|word| durable.persisted(word)).collect();
        let (first_state, first_patch) = (self.states.len(), self.patches.len() as u32);
        let mut change = 0;
        for (index, &(number, word, value)) in stores.iter().enumerate() {
            let slot = &mut now[(word - first_word) as usize];
            change ^= share(word, *slot) ^ share(word, value);
            *slot = value;
            self.patches.push(Patch { word, value });
            let last_of_number = stores.get(index + 1).is_none_or(|next| next.0 != number);
            if last_of_number {
                let end = self.patches.len() as u32;
                self.states.push(State { first: first_patch, end, number, change });
            }
        }
        let newest = self.states.len() - first_state;
        self.add_unit(at, first_state, newest as u32);
    }

    fn add_unit(&mut self, at: u64, first: usize, newest: u32) {
        let count = (self.states.len() - first) as u32;
        if count > 0 {
            self.units.push(Unit { at, first: first as u32, count, newest });
        }
    }
}

/// The lines with stores that may arrive: of a page that stays bad nothing is found.
fn ways(durable: &Durable) -> impl Iterator<Item = (&u64, &Vec<Event>)> {
    durable.pending().iter().filter(|(line, _)| !durable.is_in_vain(**line))
}

/// Whether a store may be found on the medium after a crash. What the device drops is never.
fn reaches(event: &Event) -> bool {
    !matches!(event.fate, Fate::Lost(_))
}
