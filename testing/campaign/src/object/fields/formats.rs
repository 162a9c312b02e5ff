//! Which structures and fields there are, by the sources that define them: a field added there and
//! damaged nowhere makes the row fail.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Structures of the collections, as their source has them.
const COLLECTIONS: &str = include_str!("../../../../../surfaces/collections/src/format.rs");
/// Groups of crates whose `format.rs` list fields; of the engines only one is tried here.
const GROUPS: [(&str, &[&str]); 2] = [("core", &[]), ("engines", &["object"])];

/// A field of a structure: its name, first byte, bytes, and type if it is a part of a Rust struct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Name.
    pub name: String,
    /// Offset in the structure.
    pub at: u64,
    /// Bytes.
    pub len: u64,
    /// Type as written; empty for listed fields.
    pub kind: String,
}

/// What a field is called in reports and counts: names alone need not be unique.
#[must_use]
pub fn key(structure: &str, field: &str, at: u64) -> String {
    format!("{structure}.{field}@{at}")
}

/// Keys of all fields that the sources define.
///
/// # Errors
/// The sources are not where this program was built, or cannot be understood.
pub fn all() -> Result<Vec<String>, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut keys = Vec::new();
    for (group, only) in GROUPS {
        let formats = formats(&root.join(group))?.into_iter();
        for (name, file) in formats.filter(|(name, _)| only.is_empty() || only.contains(&&**name)) {
            let text = std::fs::read_to_string(&file)
                .map_err(|error| format!("{}: {error}", file.display()))?;
            keys.extend(listed(&name, &text));
        }
    }
    let structs = Structs::parse(COLLECTIONS);
    keys.push(key(&structure("HashDirectory"), "words", 0));
    for (name, parts) in &structs.all {
        keys.extend(parts.iter().map(|part| key(&structure(name), &part.name, part.at)));
    }
    Ok(keys)
}

/// What a struct of the collections is called here.
#[must_use]
pub fn structure(name: &str) -> String {
    format!("collections {name}")
}

/// Crates of a group that have a `format.rs`.
fn formats(group: &Path) -> Result<Vec<(String, PathBuf)>, String> {
    let failed = |error| format!("{}: {error}", group.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(group).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let file = entry.path().join("src/format.rs");
        if file.is_file() {
            found.push((entry.file_name().to_string_lossy().into_owned(), file));
        }
    }
    found.sort();
    Ok(found)
}

/// Keys of the fields that `FIELDS_*` lists name.
fn listed(crate_name: &str, text: &str) -> Vec<String> {
    let mut keys = Vec::new();
    for list in text.split("pub const FIELDS_").skip(1) {
        let name = list.split(':').next().unwrap_or_default();
        let body = list.split("];").next().unwrap_or_default();
        for field in body.split("Field::new(").skip(1) {
            let mut words = field.split(')').next().unwrap_or_default().split(',');
            let field = words.next().unwrap_or_default().trim().trim_matches('"');
            let at = words.next().and_then(|at| at.trim().parse().ok()).unwrap_or(u64::MAX);
            keys.push(key(&format!("{crate_name} {name}"), field, at));
        }
    }
    keys
}

/// Structs of a source file, without padding as they are stored.
#[derive(Debug, Default)]
pub struct Structs {
    all: BTreeMap<String, Vec<Part>>,
    numbers: BTreeMap<String, u64>,
}

impl Structs {
    /// The structs of the collections.
    #[must_use]
    pub fn collections() -> Self {
        Self::parse(COLLECTIONS)
    }

    /// Parts of a struct, in order.
    #[must_use]
    pub fn parts(&self, name: &str) -> &[Part] {
        self.all.get(name).map_or(&[], Vec::as_slice)
    }

    fn parse(text: &str) -> Self {
        let mut this = Self::default();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some((name, value)) = constant(line) {
                let value = this.value(value);
                this.numbers.insert(name.to_owned(), value);
            }
            let Some((_, head)) = line.split_once("struct ") else { continue };
            let Some(name) = head.strip_suffix(" {") else { continue };
            let (mut parts, mut at) = (Vec::new(), 0);
            for line in lines.by_ref().map(str::trim).take_while(|line| *line != "}") {
                let line = line.strip_prefix("pub(crate) ").or(line.strip_prefix("pub "));
                let Some((field, kind)) = line.and_then(|line| line.split_once(": ")) else {
                    continue;
                };
                let kind = kind.trim_end_matches(',');
                let len = this.size(kind);
                parts.push(Part { name: field.to_owned(), at, len, kind: kind.to_owned() });
                at += len;
            }
            this.all.insert(name.to_owned(), parts);
        }
        this
    }

    fn value(&self, text: &str) -> u64 {
        let text = text.trim();
        match text.split_once("<<") {
            Some((left, right)) => self.value(left) << self.value(right),
            None => match text.split_once('+') {
                Some((left, right)) => self.value(left) + self.value(right),
                None => text.parse().ok().or(self.numbers.get(text).copied()).unwrap_or(0),
            },
        }
    }

    /// Bytes of a type.
    #[must_use]
    pub fn size(&self, kind: &str) -> u64 {
        if let Some((element, count)) = self.array(kind) {
            return count * self.size(element);
        }
        match kind {
            "u8" => 1,
            "u16" => 2,
            "u32" => 4,
            "u64" | "RawPtr" => 8,
            _ if kind.starts_with("Ptr<") => 8,
            _ => self.parts(kind).iter().map(|part| part.len).sum(),
        }
    }

    /// Element and length of an array type.
    #[must_use]
    pub fn array<'a>(&self, kind: &'a str) -> Option<(&'a str, u64)> {
        let (element, count) = kind.strip_prefix('[')?.strip_suffix(']')?.rsplit_once(';')?;
        Some((element, self.value(count)))
    }
}

/// Name and value of a constant that is a number.
fn constant(line: &str) -> Option<(&str, &str)> {
    let (_, rest) = line.split_once("const ")?;
    let (name, rest) = rest.split_once(": ")?;
    let (kind, value) = rest.split_once(" = ")?;
    matches!(kind, "usize" | "u32").then(|| (name, value.trim_end_matches(';')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structs_have_the_sizes_their_source_asserts() {
        let structs = Structs::collections();
        assert_eq!(structs.size("Bucket"), 1024);
        assert_eq!(structs.size("HashHeader"), 2064);
        assert_eq!(structs.size("BTreeNode"), 1000);
        assert_eq!(structs.size("SkipTall"), 256);
        assert_eq!(structs.size("MapHeader"), 24);
    }

    #[test]
    fn listed_fields_are_found_with_their_places() {
        let keys = all().expect("the sources are here");
        for wanted in ["layout SUPERBLOCK.anchor@160", "heap SLOT.len@12", "object ANCHOR.maps@8"] {
            assert!(keys.iter().any(|key| key == wanted), "{wanted}");
        }
        assert!(keys.len() > 140, "{}", keys.len());
    }
}
