//! Random histories against a naive model of the rules: the images listed are exactly those the
//! model allows, no more and no fewer.

use crate::common::*;
use holdfast_faultmem::{Budget, FaultMedium, Mode};
use holdfast_pmem::{LINE, Medium, MediumKind, Site};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc;

/// Words in use: three of one line, one of the next line, one of the next sector.
const WORDS: [u64; 5] = [0, 8, 16, 64, 512];
const UNFLUSHED: Site = Site::new("test.unflushed");
const SECTOR: u64 = 512;

#[derive(Debug, Clone, Copy)]
enum Step {
    Put { thread: usize, word: usize, value: u8, flush: bool },
    Xor { thread: usize, word: usize, value: u8 },
    Drain { thread: usize },
    Append { word: usize, value: u8 },
    Sync,
}

fn step() -> impl Strategy<Value = Step> {
    let place = || (0..2_usize, 0..WORDS.len(), 0..3_u8);
    prop_oneof![
        6 => (place(), any::<bool>())
            .prop_map(|((thread, word, value), flush)| Step::Put { thread, word, value, flush }),
        2 => place().prop_map(|(thread, word, value)| Step::Xor { thread, word, value }),
        2 => (0..2_usize).prop_map(|thread| Step::Drain { thread }),
        1 => place().prop_map(|(_, word, value)| Step::Append { word, value }),
        1 => Just(Step::Sync),
    ]
}

/// The rules, written down as directly as possible: all stores ever made, and for each word the
/// number of the store that is persisted.
#[derive(Debug, Default)]
struct Model {
    /// (address, value) of store number index + 1.
    stores: Vec<(u64, u64)>,
    persisted: BTreeMap<u64, usize>,
    /// Per thread, lines flushed with the number of stores made by then.
    flushed: [Vec<(u64, usize)>; 2],
}

impl Model {
    fn now(&self, at: u64) -> u64 {
        self.stores.iter().rev().find(|store| store.0 == at).map_or(0, |store| store.1)
    }

    fn persisted(&self, at: u64) -> usize {
        self.persisted.get(&at).copied().unwrap_or(0)
    }

    /// Persists a word as it was when `upto` stores were made; never moves it back.
    fn persist(&mut self, at: u64, upto: usize) {
        let newest = self.stores[..upto].iter().rposition(|store| store.0 == at);
        let number = newest.map_or(0, |index| index + 1).max(self.persisted(at));
        self.persisted.insert(at, number);
    }

    fn persist_where(&mut self, upto: usize, covered: impl Fn(u64) -> bool) {
        WORDS.into_iter().filter(|&at| covered(at)).for_each(|at| self.persist(at, upto));
    }

    /// Stores not persisted, oldest first, of the words that `covered` selects.
    fn open(&self, covered: impl Fn(u64) -> bool) -> Vec<(u64, u64)> {
        let numbered = self.stores.iter().enumerate();
        let open = numbered
            .filter(|(index, store)| covered(store.0) && *index + 1 > self.persisted(store.0));
        open.map(|(_, &store)| store).collect()
    }

    /// What each independent piece of the medium may hold.
    fn pieces(&self, mode: Mode) -> Vec<BTreeSet<BTreeMap<u64, u64>>> {
        let size = match mode {
            Mode::Words => 8,
            Mode::Lines => LINE,
            Mode::Sectors => SECTOR,
        };
        let pieces: BTreeSet<u64> = WORDS.iter().map(|at| at / size).collect();
        let states = |piece: u64| {
            let mut now: BTreeMap<u64, u64> = WORDS
                .into_iter()
                .filter(|at| at / size == piece)
                .map(|at| (at, self.persisted(at).checked_sub(1).map_or(0, |i| self.stores[i].1)))
                .collect();
            let mut states = BTreeSet::from([now.clone()]);
            for (at, value) in self.open(|at| at / size == piece) {
                now.insert(at, value);
                states.insert(now.clone());
            }
            states
        };
        pieces.into_iter().map(states).collect()
    }

    fn images(&self, mode: Mode) -> BTreeSet<[u64; 5]> {
        let mut images = vec![BTreeMap::new()];
        for piece in self.pieces(mode) {
            images = images
                .iter()
                .flat_map(|image| {
                    piece.iter().map(|state| {
                        let mut image = image.clone();
                        image.extend(state.clone());
                        image
                    })
                })
                .collect();
        }
        images.into_iter().map(|image| WORDS.map(|at| image[&at])).collect()
    }

    fn apply(&mut self, kind: MediumKind, step: Step) {
        let memory = kind != MediumKind::File;
        let flush = |model: &mut Self, thread: usize, at: u64| {
            let number = model.stores.len();
            model.flushed[thread].push((at / LINE, number));
        };
        match step {
            Step::Put { thread, word, value, flush: flushed } => {
                self.stores.push((WORDS[word], value.into()));
                if flushed {
                    flush(self, thread, WORDS[word]);
                }
            }
            Step::Xor { thread, word, value } => {
                let value = self.now(WORDS[word]) ^ u64::from(value);
                self.stores.push((WORDS[word], value));
                flush(self, thread, WORDS[word]);
            }
            Step::Drain { thread } if memory => {
                for (line, upto) in std::mem::take(&mut self.flushed[thread]) {
                    self.persist_where(upto, |at| at / LINE == line);
                }
            }
            Step::Drain { .. } => {}
            Step::Append { word, value } => {
                self.stores.push((WORDS[word], value.into()));
                if memory {
                    flush(self, 0, WORDS[word]);
                    self.apply(kind, Step::Drain { thread: 0 });
                } else {
                    self.persist(WORDS[word], self.stores.len());
                }
            }
            Step::Sync if memory => self.apply(kind, Step::Drain { thread: 0 }),
            Step::Sync => self.persist_where(self.stores.len(), |_| true),
        }
    }
}

fn perform(m: &FaultMedium, step: Step) {
    match step {
        Step::Put { word, value, flush, .. } => {
            let site = if flush { S } else { UNFLUSHED };
            m.put(site, WORDS[word], &u64::from(value).to_le_bytes()).expect("it works");
        }
        Step::Xor { word, value, .. } => m.xor(S, WORDS[word], &[value]).expect("it works"),
        Step::Drain { .. } => m.drain(D),
        Step::Append { word, value } => {
            m.append(S, WORDS[word], &u64::from(value).to_le_bytes()).expect("it works");
        }
        Step::Sync => m.sync(D).expect("it works"),
    }
}

fn check(kind: MediumKind, mode: Mode, steps: &[Step]) {
    let m = in_mode(kind, mode);
    m.elide(UNFLUSHED);
    let mut model = Model::default();
    // Thread 1 of the history is a thread of its own; thread 0 is this one.
    let (orders, inbox) = mpsc::channel::<Step>();
    let (report, done) = mpsc::channel();
    std::thread::scope(|scope| {
        let worker = &m;
        scope.spawn(move || {
            for step in inbox {
                perform(worker, step);
                report.send(()).expect("it works");
            }
        });
        for &step in steps {
            let thread = match step {
                Step::Put { thread, .. } | Step::Xor { thread, .. } | Step::Drain { thread } => {
                    thread
                }
                Step::Append { .. } | Step::Sync => 0,
            };
            if thread == 1 {
                orders.send(step).expect("it works");
                done.recv().expect("it works");
            } else {
                perform(&m, step);
            }
            model.apply(kind, step);
            for at in WORDS {
                assert_eq!(get(&m, at), model.now(at), "view of {at} after {step:?}");
            }
            let point = m.crash_point();
            let budget = Budget { exhaustive: u64::MAX, ..Budget::default() };
            let found: BTreeSet<[u64; 5]> =
                point.images(&budget).map(|i| WORDS.map(|at| word(i.bytes(), at))).collect();
            assert_eq!(found, model.images(mode), "images after {step:?}");
            assert_eq!(
                WORDS.map(|at| word(point.newest().bytes(), at)),
                WORDS.map(|at| get(&m, at))
            );
        }
        drop(orders);
    });
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn words_of_memory(steps in prop::collection::vec(step(), 1..24)) {
        check(MediumKind::Dax, Mode::Words, &steps);
    }

    #[test]
    fn lines_of_memory(steps in prop::collection::vec(step(), 1..24)) {
        check(MediumKind::Shm, Mode::Lines, &steps);
    }

    #[test]
    fn sectors_of_a_file(steps in prop::collection::vec(step(), 1..24)) {
        check(MediumKind::File, Mode::Sectors, &steps);
    }

    #[test]
    fn words_of_a_file(steps in prop::collection::vec(step(), 1..24)) {
        check(MediumKind::File, Mode::Words, &steps);
    }
}
