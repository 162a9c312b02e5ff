//! What processes say to each other: the answer of a desk, messages of guard and program.

use holdfast_guard_wire::{Answer, MESSAGE, Place, Refusal, Request};
use holdfast_mapped::live::{Live, TEXT_MAX};
use holdfast_workloads::Rng;

use crate::lie::lie;
use crate::words;

/// Numbers of the longest row to begin with.
const NUMBERS: usize = 120;
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

/// Rows of all lengths that may be one.
pub(super) fn answer_seeds() -> Vec<Vec<u8>> {
    // Data pages of a stripe are the sixth number, and not 0.
    let row = |count: usize, number: &str| {
        let number = |at: usize| if at == 5 { " 1".to_owned() } else { format!(" {number}") };
        format!("{FIRST}{}", (0..count).map(number).collect::<String>()).into_bytes()
    };
    (0..NUMBERS).flat_map(|count| [row(count, "0"), row(count, "1")]).collect()
}

/// Changes numbers of a row.
pub(super) fn mutate_answer(input: &[u8], most: usize, rng: &mut Rng) -> Vec<u8> {
    let mut new = if rng.below(3) == 0 {
        words::mutate(input, b' ', &[FIRST.into()], rng)
    } else {
        one_number(input, rng)
    };
    new.truncate(most);
    new
}

/// The same row with another number in one place: there are as many as before.
fn one_number(input: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut words: Vec<Vec<u8>> = input.split(|byte| *byte == b' ').map(<[u8]>::to_vec).collect();
    let at = 1 + rng.below(words.len() as u64) as usize;
    let number = match rng.below(4) {
        0 => rng.below(70),
        1 => rng.below(3),
        2 => 1 << rng.below(64),
        _ => rng.next_u64(),
    };
    match words.get_mut(at) {
        Some(word) => *word = number.to_string().into_bytes(),
        None => words.push(number.to_string().into_bytes()),
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
        let row = |input: &&Vec<u8>| {
            std::str::from_utf8(input).is_ok_and(|text| Live::parse(text).is_some())
        };
        assert!(answer_seeds().iter().filter(row).count() >= 1);
        for input in message_seeds() {
            let bytes = &input[1..];
            let read = Request::decode(bytes).is_ok() || Answer::decode(bytes).is_ok();
            assert!(read, "{input:?}");
        }
    }
}
