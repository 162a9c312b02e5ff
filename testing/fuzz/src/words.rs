//! Mutators of text: words are taken out, put in, doubled, changed, by a list of those that mean
//! something.

use holdfast_workloads::Rng;

/// Numbers at which readers of text go wrong.
pub(crate) const NUMBERS: [&str; 14] = [
    "0",
    "1",
    "-1",
    "255",
    "4096",
    "65536",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "00000000000000000000000000001",
    "1e9",
    "+1",
];

/// Changes a text whose words are parted by `gap`.
pub(crate) fn mutate(input: &[u8], gap: u8, known: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut words: Vec<Vec<u8>> = input.split(|byte| *byte == gap).map(<[u8]>::to_vec).collect();
    for _ in 0..=rng.below(3) {
        let at = rng.below(words.len() as u64 + 1) as usize;
        match rng.below(8) {
            0 | 1 => words.insert(at, any(known, rng)),
            2 if at < words.len() => drop(words.remove(at)),
            3 if at < words.len() => words.insert(at, words[at].clone()),
            4 if at > 0 && at < words.len() => words.swap(at, at - 1),
            5 if at < words.len() => words[at] = any(known, rng),
            _ if at < words.len() => bytes(&mut words[at], rng),
            _ => words.push(any(known, rng)),
        }
    }
    words.join(&gap)
}

fn any(known: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    match rng.below(4) {
        0 => rng.pick(&NUMBERS).map_or_else(Vec::new, |word| word.as_bytes().to_vec()),
        1 => rng.next_u64().to_string().into_bytes(),
        _ => rng.pick(known).cloned().unwrap_or_default(),
    }
}

/// Changes bytes of one word, whatever they are.
pub(crate) fn bytes(word: &mut Vec<u8>, rng: &mut Rng) {
    let at = rng.below(word.len() as u64 + 1) as usize;
    match rng.below(4) {
        0 => word.insert(at, rng.next_u64() as u8),
        1 if at < word.len() => drop(word.remove(at)),
        2 if at < word.len() => word[at] ^= 1 << rng.below(8),
        _ if at < word.len() => word[at] = b"0123456789-=.KMG \n\"[]"[rng.below(21) as usize],
        _ => word.push(b'0' + rng.below(10) as u8),
    }
}
