//! The list of guarded files (`surfaces/guard-wire`): a file that is found under a number had it,
//! in the turn that is answered, and no write counts for another file than its own. And whoever
//! sees what a write did finds it announced, and none that is over and did not begin.
//!
//! Programs find files and write; the supervisor lets go of the file that has the number and gives
//! the number to another.

use holdfast_sync::Access;
use loom::sync::Arc;

use self::entries::{Entry, none_of};
use self::words::{AtomicU32, AtomicU64, Ordering};
use super::{LAW, Model, Wrong, explore, threads};

#[path = "../../../../surfaces/guard-wire/src/ledger/entries.rs"]
mod entries;

/// The words of the model checker.
mod words {
    pub(super) use holdfast_sync::atomic::{AtomicU32, AtomicU64, Ordering};
}

/// The models of this core.
pub(super) const MODELS: &[Model] = &[
    Model {
        name: "ledger",
        run: found,
        wrong: &[
            Wrong::Off("next turn before it is hidden"),
            Wrong::Off("the same turn"),
            Wrong::Off("shown before it is named"),
            Wrong::Off("turn read before alone"),
            Wrong::Off("turn read after alone"),
            Wrong::Off("turn before whether it stays"),
        ],
    },
    Model {
        name: "ledger-counts",
        run: counted,
        wrong: &[
            Wrong::Off("counts of no turn"),
            Wrong::Off("counts of the turn of now"),
            Wrong::Off("counted in two steps"),
            Wrong::Off("entered before counts begin anew"),
        ],
    },
    Model {
        name: "ledger-announced",
        run: announced,
        wrong: &[
            Wrong::Weak("entries.rs", Access::Load),
            Wrong::Off("written before it begins"),
            Wrong::Off("ended before it begins"),
            Wrong::Off("begun read first"),
        ],
    },
];

/// A file, by the numbers that the system has for it.
type File = (u64, u64);
const FIRST: File = (1, 1);
const SECOND: File = (2, 2);

/// The entry of the first file, in turn 1.
fn entered() -> Entry {
    let word = || AtomicU64::new(0);
    let (turn, began, ended) = (word(), word(), word());
    let (device, inode) = (word(), word());
    let entry = Entry { live: AtomicU32::new(0), turn, device, inode, began, ended };
    entry.leave();
    entry.enter(FIRST.0, FIRST.1);
    entry
}

/// The supervisor lets go of the first file, and enters the second.
fn let_go_and_enter(entry: &Entry, off: &str) {
    let (device, inode) = SECOND;
    match off {
        "next turn before it is hidden" => {
            let turn = entry.next_turn();
            entry.hide();
            entry.count_from(turn);
        }
        "the same turn" => {
            entry.hide();
            entry.count_from(entry.turn());
        }
        "counts of no turn" => {
            // Those of the second file begin at 0, and bear the turn of the first.
            entry.hide();
            entry.count_from(entry.turn());
            entry.next_turn();
        }
        "entered before counts begin anew" => {
            entry.hide();
            let turn = entry.next_turn();
            entry.enter(device, inode);
            return entry.count_from(turn);
        }
        _ => entry.leave(),
    }
    if off == "shown before it is named" {
        entry.show();
        entry.name(device, inode);
    } else {
        entry.enter(device, inode);
    }
}

/// The turn in which a program finds a file.
fn find(entry: &Entry, (device, inode): File, off: &str) -> Option<u64> {
    match off {
        "turn read before alone" => {
            let turn = entry.turn();
            entry.is_of(device, inode).then_some(turn)
        }
        "turn read after alone" => entry.is_of(device, inode).then(|| entry.turn()),
        _ => entry.find(device, inode),
    }
}

/// Whether a program that found a file takes it to stay.
fn stays(entry: &Entry, turn: u64, off: &str) -> bool {
    match off {
        "turn before whether it stays" => entry.turn() == turn && entry.is_live(),
        _ => entry.stays(turn),
    }
}

/// The first file is about to be let go of, and two programs look for the files.
fn found(off: &'static str) {
    explore(3, move || {
        let entry = Arc::new(entered());
        entry.leaving();
        let (supervisor, one, other, after) =
            (Arc::clone(&entry), Arc::clone(&entry), Arc::clone(&entry), entry);
        let look_for_first = move || {
            if let Some(turn) = find(&one, FIRST, off) {
                assert_eq!(turn, 1, "{LAW}: a file is found in its turn");
                let stays = stays(&one, turn, off);
                assert!(!stays, "{LAW}: whoever opens what is about to go asks");
            }
        };
        let look_for_second = move || {
            let turn = find(&other, SECOND, off);
            assert!(turn.is_none_or(|turn| turn == 2), "{LAW}: a file is found in its turn");
        };
        threads([
            Box::new(move || let_go_and_enter(&supervisor, off)),
            Box::new(look_for_first),
            Box::new(look_for_second),
        ]);
        assert_eq!(find(&after, FIRST, off), None, "{LAW}: what was let go of is not found");
        assert_eq!(find(&after, SECOND, off), Some(2), "{LAW}: what was entered is found");
        assert!(after.stays(2), "{LAW}: what was entered stays");
    });
}

/// One more write is over, of the file of a turn.
fn end(entry: &Entry, turn: u64, off: &str) {
    match off {
        "counts of the turn of now" => entry.end(entry.turn()),
        "counted in two steps" => {
            let found = entry.ended.load(Ordering::SeqCst);
            if found & none_of(u64::MAX) == none_of(turn) {
                entry.ended.store(found + 1, Ordering::SeqCst);
            }
        }
        _ => entry.end(turn),
    }
}

/// A program writes to the first file, which may be let go of meanwhile, and another to the second
/// if it finds it.
fn counted(off: &'static str) {
    explore(3, move || {
        let entry = Arc::new(entered());
        let (supervisor, first, second, after) =
            (Arc::clone(&entry), Arc::clone(&entry), Arc::clone(&entry), entry);
        let wrote = std::sync::Arc::new(std::sync::Mutex::new(0));
        let told = std::sync::Arc::clone(&wrote);
        let write_to_first = move || {
            first.begin(1);
            end(&first, 1, off);
        };
        let write_to_second = move || {
            if let Some(turn) = second.find(SECOND.0, SECOND.1) {
                second.begin(turn);
                end(&second, turn, off);
                *told.lock().expect("nobody panics with it") = 1;
            }
        };
        threads([
            Box::new(move || let_go_and_enter(&supervisor, off)),
            Box::new(write_to_first),
            Box::new(write_to_second),
        ]);
        let wrote = *wrote.lock().expect("nobody panics with it");
        let both = (wrote, wrote);
        assert_eq!(after.announced(), both, "{LAW}: a write counts for its own file");
        assert_eq!(after.began.load(Ordering::SeqCst), none_of(2) + wrote, "{LAW}: of its turn");
    });
}

/// Two programs write to the same file, each to a place of its own, and the supervisor looks at
/// both, and asks.
fn announced(off: &'static str) {
    explore(3, move || {
        let entry = Arc::new(entered());
        let pages = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let writer = |page: usize| -> Box<dyn FnOnce() + Send> {
            let (entry, pages) = (Arc::clone(&entry), Arc::clone(&pages));
            Box::new(move || {
                let write = || pages[page].store(1, Ordering::Release);
                match off {
                    "written before it begins" => {
                        write();
                        entry.begin(1);
                        entry.end(1);
                    }
                    "ended before it begins" => {
                        entry.end(1);
                        entry.begin(1);
                        write();
                    }
                    _ => {
                        entry.begin(1);
                        write();
                        entry.end(1);
                    }
                }
            })
        };
        let (asked, seen) = (Arc::clone(&entry), Arc::clone(&pages));
        let look = move || {
            let written: u64 = seen.iter().map(|page| page.load(Ordering::Acquire)).sum();
            let (began, ended) = match off {
                "begun read first" => (asked.began(), asked.ended()),
                _ => asked.announced(),
            };
            assert!(written <= began, "{LAW}: whoever sees a write finds it announced");
            assert!(ended <= began, "{LAW}: what is over has begun");
        };
        threads([writer(0), writer(1), Box::new(look)]);
        assert_eq!(entry.announced(), (2, 2), "{LAW}: all that was announced is over");
    });
}
