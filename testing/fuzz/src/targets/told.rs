//! What processes say to each other: the answer of a desk, messages of guard and program.

use holdfast_guard_wire::{Answer, MESSAGE, Place, Refusal, Request};
use holdfast_mapped::live::{Keeping, Live, TEXT_MAX, Verdicts};
use holdfast_mapped::trace::{SHARES_KEPT, Share};
use holdfast_mapped::{Counts, Coverage, Folios};
use holdfast_pmem::PAGE;
use holdfast_pmem::track::SourceKind;
use holdfast_redundancy::Unsure;
use holdfast_workloads::Rng;

use crate::lie::lie;
use crate::words;

/// How many numbers are tried, if a row would be none with the first.
const TRIES: usize = 4;
/// Pages of the file that rows to begin with tell of.
const PAGES: u64 = 5000;
/// Where a message has its version, its kind, and the first of its words.
const VERSION: usize = 4;
const KIND: usize = 6;
const FIRST_WORD: usize = 8;
/// First word of a row.
const FIRST: &str = "holdfast-kept-2";

/// Target `answers`: the text of a row.
pub(super) fn answers(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let Some(live) = Live::parse(text) else { return };
    let words = lie("words", live.words(), |words| words.replacen(' ', " 1", 1));
    let words = lie("another", words, |words| swapped(&words, "1", "2"));
    let words = lie("fewer", words, fewer);
    let words = lie("no row", words, |words| swapped(&words, FIRST, "kept"));
    let words = lie("long", words, |words| words + &" 0".repeat(TEXT_MAX));
    assert!(words.len() <= TEXT_MAX, "{} bytes", words.len());
    assert_eq!(Live::parse(&words), Some(live), "said again, it is another: {words}");
}

/// The text with the first of these words replaced.
fn swapped(words: &str, old: &str, new: &str) -> String {
    let mut done = false;
    let other = |word| if word == old && !std::mem::replace(&mut done, true) { new } else { word };
    words.split(' ').map(other).collect::<Vec<_>>().join(" ")
}

/// The text without its last word.
fn fewer(words: String) -> String {
    words.rsplit_once(' ').map_or_else(String::new, |(front, _)| front.to_owned())
}

/// Rows as they are told: of a file that nothing is known of, and of one in use, with lists of one,
/// of some, and of as many as there may be.
pub(super) fn answer_seeds() -> Vec<Vec<u8>> {
    let lists = [(0, 0), (1, 0), (0, 1), (2, 3), (11, SHARES_KEPT)];
    let mut rows: Vec<Live> = lists.into_iter().map(in_use).collect();
    let (coverage, counts, verdicts) = Default::default();
    rows.push(Live { coverage, counts, verdicts, at_ns: 0, found: [0; 4], ..in_use((0, 0)) });
    rows.iter().map(|row| row.words().into_bytes()).collect()
}

/// A file in use, with so many reasons why pages are undecided, and so many windows.
fn in_use((reasons, windows): (u8, usize)) -> Live {
    let now = 1_700_000_000_000_000_000;
    let share = |n: u64| Share { time_ns: n, took_ns: 9, pages: 90, stored: n, in_stripes: n + 9 };
    let why = |code: u8| Some((Unsure::of_code(code, 0)?, code.into()));
    Live {
        at_ns: now,
        keeping: Keeping {
            guards: windows > 0,
            period_ns: 1_000_000_000,
            longest_ns: 30_000_000,
            tracking: SourceKind::AsyncProtect,
        },
        data: 32,
        parity: 1,
        size: PAGES * PAGE,
        file_size: PAGES * PAGE + 7,
        folios: Folios::Any,
        contested: false,
        coverage: Coverage {
            pages: PAGES,
            without_sum: 40,
            without_parity: 800,
            undecided: reasons.into(),
            oldest_ns: 900_000_000,
            histogram: [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89],
            verified_ns: now,
            covered_ns: now,
        },
        counts: Counts { passes: 70, covered: 900, unchanged: 30, corrupt: 1, ..Counts::default() },
        verdicts: Verdicts { pages: PAGES, good: 4900, uncovered: 100, ..Verdicts::default() },
        found: [2, 1, 1, 0],
        damaged: 1,
        unclear: 0,
        undecided: (1..=reasons).filter_map(why).collect(),
        windows: (1..=windows as u64).map(share).collect(),
    }
}

/// Changes numbers of a row. Nearly all that comes of one is one: numbers have to fit each other,
/// and there have to be as many as the row says, which chance would hardly ever come to.
pub(super) fn mutate_answer(input: &[u8], most: usize, rng: &mut Rng) -> Vec<u8> {
    let mut new = match rng.below(16) {
        0 => words::mutate(input, b' ', &[FIRST.into()], rng),
        1 => other_lists(input, rng).unwrap_or_else(|| one_number(input, rng)),
        2 => one_number(input, rng),
        _ => {
            let mut new = one_number(input, rng);
            let is_row = row_of(input).is_some();
            for _ in 1..TRIES {
                if is_row && (new.len() > most || row_of(&new).is_none()) {
                    new = one_number(input, rng);
                }
            }
            new
        }
    };
    new.truncate(most);
    new
}

/// The row that an input is, if it is one.
fn row_of(input: &[u8]) -> Option<Live> {
    Live::parse(std::str::from_utf8(input).ok()?)
}

/// The row with an entry more, or less, in one of its lists.
fn other_lists(input: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
    let mut row = row_of(input)?;
    match rng.below(4) {
        0 => drop(row.undecided.pop()),
        1 => row.undecided.push((Unsure::of_code(1 + rng.below(11) as u8, 0)?, rng.below(9))),
        2 => drop(row.windows.pop()),
        _ => row.windows.push(Share { time_ns: rng.next_u64(), ..Share::default() }),
    }
    Some(row.words().into_bytes())
}

/// The same row with another number in one place: there are as many as before.
fn one_number(input: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut words: Vec<Vec<u8>> = input.split(|byte| *byte == b' ').map(<[u8]>::to_vec).collect();
    let at = 1 + rng.below(words.len().max(2) as u64 - 1) as usize;
    let number = match rng.below(5) {
        0 => rng.below(70).to_string(),
        1 => rng.below(3).to_string(),
        2 => (1_u64 << rng.below(64)).to_string(),
        3 => rng.pick(&words::NUMBERS).map_or_else(String::new, |number| (*number).to_owned()),
        _ => rng.next_u64().to_string(),
    };
    if let Some(word) = words.get_mut(at) {
        *word = number.into_bytes();
    }
    words.join(&b' ')
}

/// Target `messages`: the first byte says who speaks.
pub(super) fn messages(input: &[u8]) {
    let Some((who, bytes)) = input.split_first() else { return };
    if who.is_multiple_of(2) {
        let Ok(request) = Request::decode(bytes) else { return };
        let again = lie("request", request.encode(), |it| spoiled(it, KIND));
        let again = lie("magic", again, |it| spoiled(it, 0));
        let again = lie("version", again, |it| spoiled(it, VERSION));
        let again = lie("word", again, |it| spoiled(it, FIRST_WORD));
        assert_eq!(Request::decode(&again), Ok(request), "said again");
    } else {
        let Ok(answer) = Answer::decode(bytes) else { return };
        let again = lie("answer", answer.encode(), |it| spoiled(it, KIND));
        let again = lie("answer's word", again, |it| spoiled(it, FIRST_WORD));
        assert_eq!(Answer::decode(&again), Ok(answer), "said again");
    }
}

/// A message of which one byte is another.
fn spoiled(mut message: [u8; MESSAGE], at: usize) -> [u8; MESSAGE] {
    message[at] ^= 1;
    message
}

/// One message of many kinds.
pub(super) fn message_seeds() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    if let Some(place) = Place::new(1 << 30, 8192) {
        let request = [
            Request::Hello { from: 1, late: true },
            Request::Ask { hasty: false },
            Request::Board { file: 3 },
            Request::Map {
                space: 2,
                file: 1,
                place,
                at: 4096,
                writable: true,
                replaced: false,
                late: true,
            },
            Request::Unmap { space: 1, place },
            Request::Cover { file: 1, at: 0, len: 9 },
            Request::Ready { space: 1, file: Some(2) },
            Request::Heal { space: 1, file: 2, page: 3, memory: true },
            Request::Listen,
        ];
        all.extend(request.iter().map(|request| [&[0], &request.encode()[..]].concat()));
    }
    let answer = [
        Answer::Done,
        Answer::Welcome { space: 1, process: 2 },
        Answer::Guarded { file: 1 },
        Answer::Refused(Refusal::Failed),
        Answer::Taken { file: 2 },
    ];
    all.extend(answer.iter().map(|answer| [&[1], &answer.encode()[..]].concat()));
    all
}

/// Changes one word of a message; the first, which says what it is, less often.
pub(super) fn mutate_message(input: &[u8], most: usize, rng: &mut Rng) -> Vec<u8> {
    let mut new = input.to_vec();
    if rng.below(16) == 0 {
        words::bytes(&mut new, rng);
        new.truncate(most);
        return new;
    }
    new.resize(1 + MESSAGE, 0);
    let number = match rng.below(4) {
        0 => rng.below(24),
        1 => rng.below(1 << 20) << 12,
        2 => 1 << rng.below(64),
        _ => rng.next_u64(),
    };
    if rng.below(4) == 0 {
        // Its kind, which follows magic and version.
        new[1 + 6..1 + 8].copy_from_slice(&(number as u16 % 120).to_le_bytes());
    } else {
        let word = 9 + 8 * rng.below(7) as usize;
        new[word..word + 8].copy_from_slice(&number.to_le_bytes());
    }
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_rows_and_messages() {
        let rows = answer_seeds();
        let lists = |row: &Vec<u8>| {
            let row = row_of(row).expect("a row");
            (row.undecided.len(), row.windows.len())
        };
        let lists: Vec<_> = rows.iter().map(lists).collect();
        assert_eq!(lists, [(0, 0), (1, 0), (0, 1), (2, 3), (11, SHARES_KEPT), (0, 0)]);
        for input in message_seeds() {
            let bytes = &input[1..];
            let read = Request::decode(bytes).is_ok() || Answer::decode(bytes).is_ok();
            assert!(read, "{input:?}");
        }
    }

    /// What is no row ends before the oracle: most of what is made of the seeds and of what is
    /// committed has to come to it, with lists of many lengths, and some has to be refused.
    #[test]
    fn most_of_what_is_made_of_rows_is_a_row() {
        const INPUTS: u64 = 1000;
        let target = crate::find("answers").expect("a target");
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/answers");
        let mut corpus = crate::drive::corpus(&folder).expect("it can be read");
        corpus.extend(answer_seeds());
        let first = corpus.len() as u64;
        let made = (first..first + INPUTS).map(|n| crate::drive::input(target, &corpus, 1, n));
        let made: Vec<Vec<u8>> = made.collect();
        let rows: Vec<Live> = made.iter().filter_map(|input| row_of(input)).collect();
        let lens: std::collections::BTreeSet<_> =
            rows.iter().map(|row| (row.undecided.len(), row.windows.len())).collect();
        let changed = made.iter().filter(|input| !corpus.contains(input)).count() as u64;
        println!("{} rows, {changed} changed, lists of {} lengths", rows.len(), lens.len());
        assert!(2 * rows.len() as u64 >= INPUTS, "{} rows", rows.len());
        assert!((rows.len() as u64) < INPUTS - INPUTS / 50, "what is no row is tried as well");
        assert!(changed > INPUTS - INPUTS / 20, "{changed} changed");
        assert!(lens.len() >= 10, "lists of other lengths: {lens:?}");
    }
}
