//! Reducing a failing image to the stores that matter.
//!
//! Two passes over the units, in halves and then smaller parts, as long as the image still fails.
//! The first lets arrive what can arrive: what is left **missing** had to be missing for the
//! failure. The second then takes away what can be taken away: what is left had to have
//! **arrived**. A failure that hangs on order keeps one store of each sort.

use holdfast_faultmem::{Mode, Pick, UnitStates};

use crate::judge::{Bad, Judge, Level};
use crate::ledger::{Model, Seen};
use crate::replay::Crash;

/// Images tried for one crash at most. A failure of more units than this can part is reported as
/// far as it got.
const TRIES: usize = 2_000;
/// States of one unit tried one by one.
const STATES: u32 = 32;

/// A store that matters: the unit it went to, the state of the unit that it completes, and its
/// number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Store {
    pub(crate) at: u64,
    pub(crate) state: u32,
    pub(crate) number: u64,
}

/// A failure, reduced: its crashes, and of the innermost one the stores that matter.
#[derive(Debug, Clone)]
pub(crate) struct Reduced {
    pub(crate) why: String,
    pub(crate) levels: Vec<Level>,
    pub(crate) arrived: Vec<Store>,
    pub(crate) missing: Vec<Store>,
    /// Of one store on each side: whether it fails the other way round as well.
    pub(crate) both_ways: bool,
}

impl Reduced {
    /// A failure that nobody has reduced: all that had not arrived is missing.
    pub(crate) fn as_it_is(bad: Bad) -> Self {
        let mut whole = Self {
            why: bad.why,
            levels: bad.levels,
            arrived: Vec::new(),
            missing: Vec::new(),
            both_ways: false,
        };
        if let Some(last) = whole.levels.last() {
            let units = last.point.unit_states();
            let states = states_of(&units, &last.picks);
            whole.arrived = arrived(&units, &states);
            whole.missing = missing(&units, &states, last.point.mode());
        }
        whole
    }
}

impl<H: 'static, A: Model> Judge<H, A> {
    /// Reduces a failure, outermost crash first.
    pub(crate) fn reduce(&mut self, bad: Bad, seen: &Seen<A>) -> Reduced {
        let mut done: Vec<Level> = Vec::new();
        let mut whole = Reduced::as_it_is(bad);
        let mut rest = core::mem::take(&mut whole.levels);
        while !rest.is_empty() {
            let level = rest.remove(0);
            let left = self.explorer.plan.depth.saturating_sub(done.len() as u32);
            // Nested crashes are looked for only where the failure needs them.
            let left = if rest.is_empty() { 0 } else { left };
            let part = self.reduce_level(level, seen, left);
            done.push(part.level);
            (whole.arrived, whole.missing) = (part.arrived, part.missing);
            whole.both_ways = part.both_ways;
            if let Some(below) = part.below {
                whole.why = below.why;
                rest = below.levels;
            }
        }
        Reduced { levels: done, ..whole }
    }

    /// A failure as a replay line names it, which was reduced when the line was made.
    pub(crate) fn as_named(&mut self, bad: Bad, seen: &Seen<A>, crashes: &[Crash]) -> Reduced {
        let mut whole = Reduced::as_it_is(bad);
        // The line may be about a deeper crash than the one that fails now.
        let named = crashes.last().filter(|_| crashes.len() == whole.levels.len());
        let missing = named.and_then(|crash| crash.missing.as_ref());
        if let (Some(last), Some(missing)) = (whole.levels.last(), missing) {
            let units = last.point.unit_states();
            let stores = missing.iter().filter_map(|&(at, state)| {
                let unit = units.iter().find(|unit| unit.at == at)?;
                store_of(unit, state)
            });
            whole.missing = in_order(stores.collect());
            whole.both_ways =
                self.both_ways(last, &units, (&whole.arrived, &whole.missing), seen, 0);
        }
        whole
    }

    /// Of one store on each side: whether it fails as well with the other one there instead. With
    /// more on one side something else orders them: a record, say, may be missing too.
    fn both_ways(
        &mut self,
        level: &Level,
        units: &[UnitStates],
        (arrived, missing): (&[Store], &[Store]),
        seen: &Seen<A>,
        left: u32,
    ) -> bool {
        if arrived.len() != 1 || missing.len() != 1 {
            return false;
        }
        let swapped =
            units.iter().map(|unit| if unit.at == missing[0].at { unit.newest } else { 0 });
        let picks = picks_of(units, &swapped.collect::<Vec<u32>>());
        let image = level.point.image_of(&picks);
        image.is_some_and(|image| self.judge_afresh(image, seen, left).is_some())
    }

    fn reduce_level(&mut self, level: Level, seen: &Seen<A>, left: u32) -> Part {
        let units = level.point.unit_states();
        let mode = level.point.mode();
        let mut states = states_of(&units, &level.picks);
        let mut tries = 0;
        let mut fails = |states: &[u32]| {
            tries += 1;
            let picks = picks_of(&units, states);
            let image = level.point.image_of(&picks).filter(|_| tries <= TRIES);
            image.and_then(|image| self.judge_afresh(image, seen, left))
        };
        let mut below = fails(&states);
        if below.is_none() {
            // It does not repeat: another thread, or something outside the medium, decides.
            let (arrived, missing) = (arrived(&units, &states), missing(&units, &states, mode));
            return Part { level, arrived, missing, both_ways: false, below };
        }
        let newest = |unit: usize| units[unit].newest;
        move_to(&mut states, newest, &mut fails, &mut below);
        if mode != Mode::Words {
            step_to(&mut states, true, newest, &mut fails, &mut below);
        }
        let missing = missing(&units, &states, mode);
        move_to(&mut states, |_| 0, &mut fails, &mut below);
        if mode != Mode::Words {
            step_to(&mut states, false, |_| 0, &mut fails, &mut below);
        }
        let arrived = arrived(&units, &states);
        let both_ways = self.both_ways(&level, &units, (&arrived, &missing), seen, left);
        let level = Level { picks: picks_of(&units, &states), ..level };
        Part { level, arrived, missing, both_ways, below }
    }
}

/// One crash, reduced.
struct Part {
    level: Level,
    arrived: Vec<Store>,
    missing: Vec<Store>,
    both_ways: bool,
    /// What is wrong with the reduced image.
    below: Option<Bad>,
}

/// Puts as many units as possible into the state wanted, in parts of ever smaller size.
fn move_to(
    states: &mut [u32],
    wanted: impl Fn(usize) -> u32,
    fails: &mut impl FnMut(&[u32]) -> Option<Bad>,
    below: &mut Option<Bad>,
) {
    let mut size = states.len();
    while size > 0 {
        let open: Vec<usize> = (0..states.len()).filter(|&u| states[u] != wanted(u)).collect();
        for part in open.chunks(size) {
            let mut tried = states.to_vec();
            part.iter().for_each(|&unit| tried[unit] = wanted(unit));
            if let Some(bad) = fails(&tried) {
                states.copy_from_slice(&tried);
                *below = Some(bad);
            }
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
}

/// Of units that are prefixes: moves each as far towards the state wanted as it still fails.
fn step_to(
    states: &mut [u32],
    up: bool,
    wanted: impl Fn(usize) -> u32,
    fails: &mut impl FnMut(&[u32]) -> Option<Bad>,
    below: &mut Option<Bad>,
) {
    for unit in 0..states.len() {
        for _ in 0..STATES {
            let now = states[unit];
            if now == wanted(unit) || (!up && now == 0) {
                break;
            }
            let mut tried = states.to_vec();
            tried[unit] = if up { now + 1 } else { now - 1 };
            let Some(bad) = fails(&tried) else { break };
            states[unit] = tried[unit];
            *below = Some(bad);
        }
    }
}

fn states_of(units: &[UnitStates], picks: &[Pick]) -> Vec<u32> {
    let state = |unit: &UnitStates| picks.iter().find(|pick| pick.at == unit.at);
    units.iter().map(|unit| state(unit).map_or(0, |pick| pick.state)).collect()
}

fn picks_of(units: &[UnitStates], states: &[u32]) -> Vec<Pick> {
    let both = units.iter().zip(states).filter(|(_, state)| **state > 0);
    both.map(|(unit, &state)| Pick { at: unit.at, state, of: unit.stores.len() as u32 + 1 })
        .collect()
}

/// The last store of each unit that had arrived in part or whole.
fn arrived(units: &[UnitStates], states: &[u32]) -> Vec<Store> {
    let both = units.iter().zip(states);
    in_order(both.filter_map(|(unit, &state)| store_of(unit, state)).collect())
}

/// The store that completes a state of a unit; there is none for what is persisted.
fn store_of(unit: &UnitStates, state: u32) -> Option<Store> {
    let number = *unit.stores.get(state.checked_sub(1)? as usize)?;
    Some(Store { at: unit.at, state, number })
}

/// The store of each unit that was first missing: of a word its newest, for words hold any of
/// their values; of a prefix the next.
fn missing(units: &[UnitStates], states: &[u32], mode: Mode) -> Vec<Store> {
    let both = units.iter().zip(states).filter(|(unit, state)| unit.newest != **state);
    let store = |(unit, &state): (&UnitStates, &u32)| {
        store_of(unit, if mode == Mode::Words { unit.newest } else { state + 1 })
    };
    in_order(both.filter_map(store).collect())
}

fn in_order(mut stores: Vec<Store>) -> Vec<Store> {
    stores.sort_by_key(|store| store.number);
    stores
}
