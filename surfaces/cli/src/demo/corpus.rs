//! The text files of a folder, their words, and the index of them that is kept in plain memory:
//! the truth every answer of the pool is held against.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Outcome};

/// Longest file read.
const FILE_MAX: u64 = 1 << 20;
/// Deepest folder looked into.
const DEPTH_MAX: u32 = 64;
/// Longest word, in bytes; longer runs of letters are data.
const WORD_MAX: usize = 64;
/// Folders that hold no text of people.
const SKIPPED: [&str; 2] = ["target", "node_modules"];

/// Where a word is: number of the file to positions in it, counted in words.
pub(crate) type Postings = BTreeMap<u32, Vec<u32>>;

/// The files, and the index of them.
#[derive(Debug, Default)]
pub(crate) struct Corpus {
    /// Names of the files, by number.
    pub(crate) names: Vec<String>,
    /// For each file its words and where they are.
    pub(crate) files: Vec<BTreeMap<String, Vec<u32>>>,
    /// The index.
    pub(crate) index: BTreeMap<String, Postings>,
    /// Bytes of text.
    pub(crate) bytes: u64,
    /// Words, repeated ones counted each time.
    pub(crate) words: u64,
    /// Whether there was more text than was asked for.
    pub(crate) cut: bool,
}

impl Corpus {
    /// Reads the text files under `root`, in order of their names, up to `limit` bytes.
    pub(crate) fn read(root: &Path, limit: u64) -> Outcome<Self> {
        let found = fs::metadata(root).map_err(|error| Failure::io(root.display(), &error))?;
        let mut paths = Vec::new();
        if found.is_dir() {
            collect(root, 0, &mut paths)?;
        } else {
            paths.push(root.to_path_buf());
        }
        let mut this = Self::default();
        for path in paths {
            let Some(text) = read_text(&path) else { continue };
            if this.bytes + text.len() as u64 > limit && this.bytes > 0 {
                this.cut = true;
                break;
            }
            let name = path.strip_prefix(root).unwrap_or(&path);
            this.add(name.display().to_string(), &text);
        }
        if this.index.is_empty() {
            return Err(Failure::new(
                "not-found",
                format!("{}: no text files", root.display()),
                "name a folder with some",
            ));
        }
        Ok(this)
    }

    fn add(&mut self, name: String, text: &str) {
        let number = self.names.len() as u32;
        let mut words: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        let mut position = 0;
        for word in text.split(|c: char| !c.is_alphanumeric() && c != '_') {
            if word.is_empty() || word.len() > WORD_MAX {
                continue;
            }
            words.entry(word.to_lowercase()).or_default().push(position);
            position += 1;
        }
        for (word, positions) in &words {
            self.index.entry(word.clone()).or_default().insert(number, positions.clone());
        }
        self.bytes += text.len() as u64;
        self.words += u64::from(position);
        self.names.push(name);
        self.files.push(words);
    }

    /// Entries of the index: pairs of a word and a file it is in.
    pub(crate) fn entries(&self) -> u64 {
        self.files.iter().map(|words| words.len() as u64).sum()
    }
}

/// Files under a folder in order of their names. What cannot be read is left out, and symbolic
/// links are not followed.
fn collect(folder: &Path, depth: u32, paths: &mut Vec<PathBuf>) -> Outcome<()> {
    let listed = match fs::read_dir(folder) {
        Ok(listed) => listed,
        Err(error) if depth == 0 => return Err(Failure::io(folder.display(), &error)),
        Err(_) => return Ok(()),
    };
    let mut entries: Vec<_> = listed.flatten().collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name();
        let hidden = name.as_encoded_bytes().starts_with(b".");
        let Ok(kind) = entry.file_type() else { continue };
        if hidden || SKIPPED.iter().any(|skipped| name == *skipped) {
            continue;
        }
        if kind.is_dir() && depth < DEPTH_MAX {
            collect(&entry.path(), depth + 1, paths)?;
        } else if kind.is_file() {
            paths.push(entry.path());
        }
    }
    Ok(())
}

/// The contents of a file, if they are text.
fn read_text(path: &Path) -> Option<String> {
    let len = fs::metadata(path).ok()?.len();
    if len == 0 || len > FILE_MAX {
        return None;
    }
    let text = String::from_utf8(fs::read(path).ok()?).ok()?;
    (!text.contains('\0')).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_with_file_and_position() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &[u8]| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("b.txt", b"The cat, the Dog");
        write("a/x.md", b"dog");
        write("a/.hidden", b"dog");
        write("target/y.txt", b"dog");
        write("bin", b"dog\0");
        write("latin", b"d\xf6g");
        let corpus = Corpus::read(folder.path(), u64::MAX).unwrap();
        assert_eq!(corpus.names, ["a/x.md", "b.txt"]);
        assert_eq!(corpus.index["the"], Postings::from([(1, vec![0, 2])]));
        assert_eq!(corpus.index["dog"], Postings::from([(0, vec![0]), (1, vec![3])]));
        assert_eq!((corpus.words, corpus.entries(), corpus.cut), (5, 4, false));
        assert!(Corpus::read(folder.path(), 4).unwrap().cut);
        assert!(Corpus::read(&folder.path().join("target/none"), 4).is_err());
    }
}
