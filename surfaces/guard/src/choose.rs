//! Which files are guarded.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Ending of a side file's name.
const SIDE: &str = ".holdfast";

/// What is to be done with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Choice {
    /// It has a side file.
    Open(PathBuf),
    /// It is to get one.
    Protect(PathBuf),
    /// It is not our business.
    Leave,
}

/// The side file of a data file.
#[must_use]
pub fn side_of(data: &Path) -> PathBuf {
    let mut name = data.as_os_str().to_owned();
    name.push(SIDE);
    PathBuf::from(name)
}

/// Whether a pattern fits a file: its name, or its whole path if the pattern has a slash.
pub(crate) fn fits(glob: &str, path: &Path) -> bool {
    let whole = path.as_os_str().as_bytes();
    let name = path.file_name().map_or(&b""[..], OsStrExt::as_bytes);
    matches(glob.as_bytes(), if glob.contains('/') { whole } else { name })
}

/// Decides about a regular file that a program opened for writing.
pub(crate) fn choose(path: &Path, globs: &[String]) -> Choice {
    let whole = path.as_os_str().as_bytes();
    let name = path.file_name().map_or(&b""[..], OsStrExt::as_bytes);
    let memory = whole.starts_with(b"/memfd:") || whole.starts_with(b"/dev/");
    let shared = path.starts_with("/dev/shm");
    if memory && !shared || name.ends_with(SIDE.as_bytes()) {
        return Choice::Leave;
    }
    let side = side_of(path);
    // Somebody protected it by name.
    if side.exists() {
        return Choice::Open(side);
    }
    let named = |glob: &&String| glob.as_bytes() == name || glob.as_bytes() == whole;
    let locks = name == b"lock.mdb" || name.ends_with(b"-shm") || name.ends_with(b".lock");
    if locks && !globs.iter().any(|glob| named(&glob)) {
        return Choice::Leave;
    }
    let wanted = globs.iter().any(|glob| fits(glob, path));
    if wanted { Choice::Protect(side) } else { Choice::Leave }
}

/// Whether a pattern fits a text. Takes time in proportion to the product of their lengths.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    let mut star = None;
    while from < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, from));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == text[from] => {
                at += 1;
                from += 1;
            }
            _ => {
                // The last star takes one more.
                let Some((behind, taken)) = star else { return false };
                star = Some((behind, taken + 1));
                at = behind + 1;
                from = taken + 1;
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, text, fits) in [
            ("*.mdb", "data.mdb", true),
            ("*.mdb", "data.mdb2", false),
            ("d?ta*", "data", true),
            ("*a*b*c", "xxaxxbxxbc", true),
            ("*a*b*c", "xxaxxcb", false),
            ("", "", true),
            ("", "a", false),
            ("**", "anything", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), fits, "{pattern} {text}");
        }
    }

    #[test]
    fn locks_and_what_is_ours_are_left_alone() {
        let all = ["*".to_owned()];
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["lock.mdb", "x.db-shm", "y.lock", "x.db.holdfast"] {
            assert_eq!(choose(&path(name), &all), Choice::Leave, "{name}");
        }
        assert_eq!(choose(Path::new("/memfd:x (deleted)"), &all), Choice::Leave);
        assert_eq!(choose(Path::new("/dev/zero"), &all), Choice::Leave);
        let side = path("x.db.holdfast");
        assert_eq!(choose(&path("x.db"), &all), Choice::Protect(side.clone()));
        assert_eq!(choose(&path("x.db"), &[]), Choice::Leave);
        std::fs::write(&side, b"").unwrap();
        assert_eq!(choose(&path("x.db"), &[]), Choice::Open(side));
        let named = ["*".to_owned(), "y.lock".to_owned()];
        assert_eq!(choose(&path("y.lock"), &named), Choice::Protect(path("y.lock.holdfast")));
    }
}
