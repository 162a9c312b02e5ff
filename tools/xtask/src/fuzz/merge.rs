//! Which inputs are committed: of all that are kept, that are committed, and that targets begin
//! with, few that reach, put together, nearly as much as all of them.
//!
//! libFuzzer runs each input alone and notes what it reached (`-set_cover_merge=1`); what is chosen
//! from its notes is the one that adds most, again and again. Inputs that broke the law have names
//! of their own, and stay whatever they reach.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::{CORPUS, PLACE, inputs, seeded, told_target};

/// Most inputs of a target that are committed for what they reach, and the longest of them.
const MOST: usize = 100;
const LONGEST: usize = 512;
/// How files begin that are chosen here, and those that targets begin with.
const CHOSEN: &str = "new-";
const FIRST: &str = "seed-";

/// Where libFuzzer notes what each reaches, and where it copies those that it would choose.
const NOTES: &str = "notes";
const OUT: &str = "out";

/// What an input reached: its file, how long that is, and features by number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Reach {
    file: PathBuf,
    len: usize,
    features: BTreeSet<u64>,
}

/// Chooses, and writes what was chosen into the corpus of the target.
pub(super) fn merge(root: &Path, program: &Path, target: &str, kept: &Path) -> Result<()> {
    let place = root.join(PLACE).join("merge").join(target);
    if place.exists() {
        fs::remove_dir_all(&place).with_context(|| format!("cannot remove {}", place.display()))?;
    }
    let (notes, log) = (place.join(NOTES), place.join("log"));
    for folder in [&place.join(OUT), kept] {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let corpus = root.join(CORPUS).join(target);
    let into = fs::File::create(&log).with_context(|| format!("cannot make {}", log.display()))?;
    seeded(root, target)?;
    let status = comparing(told_target(root, program, target), &place, &inputs(root, target, kept))
        .stdout(Stdio::null())
        .stderr(into)
        .status()
        .with_context(|| format!("cannot start {}", program.display()))?;
    if !status.success() {
        bail!("{target}: inputs could not be compared, see {}", log.display());
    }
    let text = fs::read_to_string(&notes).context("libFuzzer left no notes")?;
    let all = read(&text)?;
    let features: BTreeSet<u64> = all.iter().flat_map(|one| &one.features).copied().collect();
    let chosen = choose(&all);
    let reached: BTreeSet<u64> = chosen.iter().flat_map(|one| &one.features).copied().collect();
    let inputs: Vec<Vec<u8>> = chosen
        .iter()
        .map(|one| {
            let mut input = fs::read(&one.file)?;
            input.truncate(LONGEST);
            Ok(input)
        })
        .collect::<Result<_>>()?;
    replace(&corpus, &inputs)?;
    let (count, of) = (inputs.len(), all.len());
    println!(
        "{target:10} {count:>4} of {of:>6} inputs, {} of {} features",
        reached.len(),
        features.len()
    );
    Ok(())
}

/// The program, told to look at each input of these folders alone.
fn comparing(mut program: Command, place: &Path, inputs: &[PathBuf]) -> Command {
    program
        .arg("-set_cover_merge=1")
        .arg(format!("-merge_control_file={}", place.join(NOTES).display()))
        .arg(format!("-max_len={LONGEST}"))
        .arg(place.join(OUT))
        .args(inputs);
    program
}

/// Reads libFuzzer's notes: the number of files, how many of them were there before, their names;
/// then for each `STARTED number length` and `FT number feature..`.
fn read(text: &str) -> Result<Vec<Reach>> {
    let mut lines = text.lines();
    let count = lines.next().and_then(|line| line.trim().parse::<usize>().ok());
    let count = count.context("notes without the number of files")?;
    let mut all: Vec<Reach> = lines
        .by_ref()
        .skip(1)
        .take(count)
        .map(|name| Reach { file: PathBuf::from(name), ..Reach::default() })
        .collect();
    if all.len() < count {
        bail!("notes of {count} files that name {}", all.len());
    }
    for line in lines {
        let mut words = line.split_whitespace();
        let kind = words.next();
        let mut numbers = words.filter_map(|word| word.parse::<u64>().ok());
        let at = numbers.next().and_then(|at| all.get_mut(usize::try_from(at).ok()?));
        match (kind, at) {
            (Some("STARTED"), Some(one)) => one.len = numbers.next().unwrap_or(0) as usize,
            (Some("FT"), Some(one)) => one.features.extend(numbers),
            _ => {}
        }
    }
    Ok(all)
}

/// Up to [`MOST`] inputs: each the one that adds most to those before it, the shortest if several
/// do.
fn choose(all: &[Reach]) -> Vec<&Reach> {
    let mut left: Vec<(&Reach, BTreeSet<u64>)> =
        all.iter().map(|one| (one, one.features.clone())).collect();
    let mut chosen = Vec::new();
    while chosen.len() < MOST {
        let best = left
            .iter()
            .enumerate()
            .max_by_key(|(_, (one, adds))| (adds.len(), std::cmp::Reverse((one.len, &one.file))));
        let Some((at, (one, adds))) = best.filter(|(_, (_, adds))| !adds.is_empty()) else { break };
        chosen.push(*one);
        let adds = adds.clone();
        left.swap_remove(at);
        left.iter_mut().for_each(|(_, rest)| rest.retain(|feature| !adds.contains(feature)));
    }
    chosen
}

/// Puts inputs into a corpus in place of those that were chosen before.
fn replace(corpus: &Path, inputs: &[Vec<u8>]) -> Result<()> {
    for entry in fs::read_dir(corpus).with_context(|| format!("no {}", corpus.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(CHOSEN) || name.starts_with(FIRST) {
            fs::remove_file(entry.path())?;
        }
    }
    for input in inputs {
        let name = corpus.join(format!("{CHOSEN}{:016x}", number(input)));
        fs::write(&name, input).with_context(|| format!("cannot write {}", name.display()))?;
    }
    Ok(())
}

/// A number that is another one for other bytes: names depend on nothing else (FNV-1a).
fn number(bytes: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTES: &str = "4\n0\na\nb\nc\nd\nSTARTED 0 9\nFT 0 1 2\nCOV 0 77\nSTARTED 1 5\n\
                         FT 1 1 2\nSTARTED 2 30\nFT 2 2 3 4\nSTARTED 3 2\nFT 3 3\n";

    #[test]
    fn those_that_add_most_are_chosen_and_of_equals_the_shortest() {
        let all = read(NOTES).unwrap();
        assert_eq!((all.len(), all[0].len, all[2].features.len()), (4, 9, 3));
        let chosen: Vec<_> = choose(&all).iter().map(|one| one.file.clone()).collect();
        assert_eq!(chosen, [PathBuf::from("c"), PathBuf::from("b")]);
        assert!(read("4\n0\na\n").is_err());
        assert!(read("").is_err());
    }

    #[test]
    fn all_inputs_of_a_target_are_compared_and_what_is_copied_goes_elsewhere() {
        let root = Path::new("/root");
        let program = told_target(root, Path::new("/program"), "open");
        let command = comparing(program, Path::new("/p"), &inputs(root, "open", Path::new("/k")));
        let words: Vec<_> = command.get_args().filter_map(|word| word.to_str()).collect();
        let folders: Vec<_> = words.iter().filter(|word| !word.starts_with('-')).collect();
        let corpus = "/root/testing/fuzz/corpus/open";
        assert_eq!(folders, [&"/p/out", &"/k", &corpus, &"/root/target/fuzz/seeds/open"]);
        assert!(words.contains(&"-merge_control_file=/p/notes"), "{words:?}");
        assert!(words.contains(&"-timeout=20"), "{words:?}");
    }

    #[test]
    fn at_most_so_many_are_chosen() {
        let one = |number: u64| Reach {
            file: PathBuf::from(number.to_string()),
            len: 1,
            features: BTreeSet::from([number]),
        };
        let all: Vec<Reach> = (0..2 * MOST as u64).map(one).collect();
        assert_eq!(choose(&all).len(), MOST);
    }

    #[test]
    fn what_broke_the_law_stays() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["seed-000", "new-1", "regression-long"] {
            fs::write(folder.path().join(name), b"x").unwrap();
        }
        replace(folder.path(), &[b"one".to_vec(), b"two".to_vec(), b"one".to_vec()]).unwrap();
        let read = fs::read_dir(folder.path()).unwrap();
        let mut names: Vec<String> =
            read.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names.len(), 3, "{names:?}");
        assert_eq!(names[2], "regression-long");
        assert!(names[..2].iter().all(|name| name.starts_with(CHOSEN)), "{names:?}");
    }
}
