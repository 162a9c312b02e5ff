//! Command lines and configurations: words parted by ends of lines, up to a zero byte, behind which
//! the text of a configuration may follow.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;

use clap::Command;
use holdfast_workloads::Rng;

use crate::lie::lie;
use crate::words;

/// No option.
const STRANGE: &str = "--strange-option";
/// Words of a line at most.
const WORDS: usize = 60;

/// Lines that are understood, each with a configuration.
const LINES: [(&str, &str); 12] = [
    ("pool create a.pool --size 64M --parity pq --label x", "[create]\nsize = \"1G\"\nrows = 8\n"),
    ("pool grow a.pool 2G", ""),
    ("check a.pool --repair --dry-run", "[output]\njson = true\nverbose = 2\n"),
    ("scrub start -w a.pool", "[scrub]\nrate = \"10M\"\n"),
    ("repair book.db --before book.before", ""),
    ("protect book.db", "[top]\ninterval = \"2s\"\n"),
    ("guard --match *.db -- program --size 1", "[import]\nbatch = 10\n"),
    ("events --follow a.pool", "[bench]\npairs = 100\n"),
    ("map put a.pool words key value", "[create]\nparity = \"p\"\nlabel = \"name\"\n"),
    ("export a.pool words --json", ""),
    ("top a.pool", "[top]\ninterval = \"50ms\"\n[output]\nquiet = false\n"),
    ("--config x completions bash", "[create]\nchunk = \"8K\"\nevents = 65536\n"),
];

fn known() -> &'static Command {
    static KNOWN: OnceLock<Command> = OnceLock::new();
    KNOWN.get_or_init(holdfast_cli::known)
}

/// Target `args`.
pub(super) fn run(input: &[u8]) {
    let mut parts = input.splitn(2, |byte| *byte == 0);
    let line = parts.next().unwrap_or_default();
    let config = parts.next().and_then(|text| std::str::from_utf8(text).ok());
    let said = line.split(|byte| *byte == b'\n').take(WORDS);
    let said = said.map(|word| OsString::from_vec(word.to_vec()));
    let words: Vec<OsString> = std::iter::once("holdfast".into()).chain(said).collect();
    let done = holdfast_cli::understand(known().clone(), config, words.clone());
    if let Err(why) = &done {
        let why = lie("reason", why.clone(), |_| String::new());
        assert!(!why.trim().is_empty(), "{words:?}: refused, and nobody knows why");
    }
    // Of every eighth line: most of the time goes into this.
    if !input.len().is_multiple_of(8) {
        return;
    }
    let again = holdfast_cli::understand(known().clone(), config, words.clone());
    let again = lie("again", again, |_| Err("something else".to_owned()));
    let again = lie("again is fine", again, |_| Ok(()));
    assert_eq!(done, again, "the same line is understood in the same way");
    // What follows two hyphens is somebody else's.
    if done.is_ok() && words.iter().all(|word| word != "--") {
        strange(config, words);
    }
}

/// A line that is understood, with an option that there is not: refused, and the option is named.
fn strange(config: Option<&str>, mut words: Vec<OsString>) {
    words.insert(1, STRANGE.into());
    let done = holdfast_cli::understand(known().clone(), config, words.clone());
    let done = lie("strange", done, |_| Ok(()));
    let done = lie("names nothing", done, |_| Err("error".to_owned()));
    let done = lie("names another", done, |_| Err("error: --json".to_owned()));
    let Err(why) = done else { panic!("{words:?}: understood, with an option that there is not") };
    assert!(why.contains(STRANGE), "{words:?}: refused, and the option is not named: {why}");
}

/// Lines that are understood.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let line = |(words, config): &(&str, &str)| {
        let mut input = words.replace(' ', "\n").into_bytes();
        if !config.is_empty() {
            input.push(0);
            input.extend(config.as_bytes());
        }
        input
    };
    LINES.iter().map(line).collect()
}

/// Changes words of the line, or of the configuration.
pub(super) fn mutate(input: &[u8], most: usize, rng: &mut Rng) -> Vec<u8> {
    let cut = input.iter().position(|byte| *byte == 0);
    let (line, config) = input.split_at(cut.unwrap_or(input.len()));
    let mut new = match cut {
        Some(_) if rng.below(2) == 0 => {
            let gap = if rng.below(2) == 0 { b' ' } else { b'\n' };
            [line, &[0], &words::mutate(&config[1..], gap, dictionary(), rng)].concat()
        }
        _ => [&words::mutate(line, b'\n', dictionary(), rng)[..], config].concat(),
    };
    new.truncate(most);
    new
}

/// Every word that means something: commands, options, what options take, keys.
fn dictionary() -> &'static [Vec<u8>] {
    static ALL: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut all = BTreeSet::new();
        collect(known(), &mut all);
        for word in ["--", "=", "64M", "1.5G", "2s", "50ms", "a.pool", "true", "\"p\"", "[create]"]
        {
            all.insert(word.to_owned());
        }
        all.into_iter().map(String::into_bytes).collect()
    })
}

fn collect(command: &Command, all: &mut BTreeSet<String>) {
    all.insert(command.get_name().to_owned());
    for arg in command.get_arguments() {
        all.insert(arg.get_id().to_string());
        all.extend(arg.get_long().map(|long| format!("--{long}")));
        all.extend(arg.get_short().map(|short| format!("-{short}")));
        all.extend(arg.get_possible_values().iter().map(|value| value.get_name().to_owned()));
    }
    for below in command.get_subcommands() {
        collect(below, all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_are_understood() {
        for (number, input) in seeds().iter().enumerate() {
            let line = input.split(|byte| *byte == 0).next().expect("a line");
            let said = line.split(|byte| *byte == b'\n').map(|w| OsString::from_vec(w.to_vec()));
            let words = std::iter::once("holdfast".into()).chain(said);
            let config = Some(LINES[number].1);
            let done = holdfast_cli::understand(known().clone(), config, words);
            assert_eq!(done, Ok(()), "{:?}", LINES[number]);
        }
    }
}
