//! Which programs can be guarded: those that load what `LD_PRELOAD` names.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::error::Error;

/// Bytes of a file header that are looked at.
const HEADER: usize = 64;
/// Bytes of one program header.
const SEGMENT: usize = 56;
/// Most program headers that are looked at.
const MOST_SEGMENTS: u64 = 256;
/// Program header that names the dynamic linker.
const INTERPRETER: u32 = 3;
/// x86, 64 bits.
const MACHINE: u16 = 62;
/// Longest first line of a script, and most scripts that interpret each other.
const LINE: usize = 256;
const MOST_SCRIPTS: u32 = 4;

/// Finds a program as the shell would.
///
/// # Errors
/// [`Error::NotFound`], [`Error::NotExecutable`].
pub(crate) fn find(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, Error> {
    let executable = |path: &Path| {
        path.metadata().is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0)
    };
    let direct = Path::new(name);
    if name.as_bytes().contains(&b'/') {
        return match executable(direct) {
            true => Ok(direct.to_owned()),
            false if direct.exists() => Err(Error::NotExecutable { program: direct.to_owned() }),
            false => Err(Error::NotFound { program: direct.to_owned() }),
        };
    }
    path.into_iter()
        .flat_map(std::env::split_paths)
        .map(|folder| folder.join(name))
        .find(|path| executable(path))
        .ok_or_else(|| Error::NotFound { program: direct.to_owned() })
}

/// Whether a program can be observed.
///
/// # Errors
/// [`Error::Unobservable`] with the reason.
pub(crate) fn check(program: &Path) -> Result<(), Error> {
    let mut path = program.to_owned();
    for _ in 0..MOST_SCRIPTS {
        let refuse = |why| Error::Unobservable { program: path.clone(), why };
        let open = || -> std::io::Result<(File, std::fs::Metadata)> {
            let file = File::open(&path)?;
            let found = file.metadata()?;
            Ok((file, found))
        };
        let (mut file, found) =
            open().map_err(|_| refuse("it cannot be read, so not looked at"))?;
        if found.permissions().mode() & 0o6000 != 0 {
            return Err(refuse("it is set-uid or set-gid, so it ignores what is preloaded"));
        }
        if has_capabilities(&path) {
            return Err(refuse("it has capabilities, so it ignores what is preloaded"));
        }
        let mut line = Vec::new();
        let read = (&mut file).take(LINE as u64).read_to_end(&mut line);
        read.map_err(|_| refuse("it cannot be read, so not looked at"))?;
        match line.strip_prefix(b"#!") {
            Some(rest) => {
                path = interpreter(rest)
                    .ok_or_else(|| refuse("its first line names no interpreter"))?
            }
            None => return elf(&file, &line).map_err(refuse),
        }
    }
    Err(Error::Unobservable { program: path, why: "scripts that interpret scripts, too many" })
}

/// The interpreter that a script's first line names.
fn interpreter(rest: &[u8]) -> Option<PathBuf> {
    let line = rest.split(|byte| *byte == b'\n').next()?;
    let word = line.split(|byte| byte.is_ascii_whitespace()).find(|word| !word.is_empty())?;
    Some(PathBuf::from(OsString::from_vec(word.to_vec())))
}

fn has_capabilities(path: &Path) -> bool {
    let mut value = [0_u8; 64];
    rustix::fs::getxattr(path, "security.capability", &mut value).is_ok_and(|len| len > 0)
}

fn word(bytes: &[u8], at: usize, len: usize) -> u64 {
    let part = bytes.get(at..at + len).unwrap_or_default();
    part.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Looks for a dynamic linker.
fn elf(file: &File, head: &[u8]) -> Result<(), &'static str> {
    let head = head.get(..HEADER).filter(|head| head.starts_with(b"\x7fELF"));
    let head = head.ok_or("it is neither a program nor a script")?;
    if head[4] != 2 || head[5] != 1 || word(head, 18, 2) != u64::from(MACHINE) {
        return Err("it is built for another machine than this supervisor");
    }
    let (from, each, count) = (word(head, 32, 8), word(head, 54, 2), word(head, 56, 2));
    if each < SEGMENT as u64 || count > MOST_SEGMENTS {
        return Err("its headers make no sense");
    }
    for index in 0..count {
        let mut segment = [0; SEGMENT];
        let at = from.saturating_add(index * each);
        if file.read_exact_at(&mut segment, at).is_err() {
            return Err("its headers make no sense");
        }
        if word(&segment, 0, 4) == u64::from(INTERPRETER) {
            return Ok(());
        }
    }
    Err("it is linked statically, so nothing can be preloaded")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions, write};

    fn why(path: &Path) -> String {
        check(path).unwrap_err().to_string()
    }

    #[test]
    fn what_cannot_be_observed_is_refused_before_it_starts() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("program");
        let mut program = std::fs::read("/proc/self/exe").unwrap();
        program.truncate(4096);
        write(&file, &program).unwrap();
        check(&file).unwrap();
        let headers = word(&program, 32, 8) as usize;
        let count = word(&program, 56, 2) as usize;
        let mut fixed = program.clone();
        for index in 0..count {
            let at = headers + index * SEGMENT;
            if word(&fixed, at, 4) == u64::from(INTERPRETER) {
                fixed[at] = 4;
            }
        }
        write(&file, &fixed).unwrap();
        assert!(why(&file).contains("statically"));
        let mut other = program.clone();
        other[18] = 183;
        write(&file, &other).unwrap();
        assert!(why(&file).contains("another machine"));
        write(&file, &program[..40]).unwrap();
        assert!(why(&file).contains("neither"));
        let mut wild = program.clone();
        wild[32..40].fill(0xff);
        write(&file, &wild).unwrap();
        assert!(why(&file).contains("no sense"));
        write(&file, &program).unwrap();
        set_permissions(&file, Permissions::from_mode(0o4755)).unwrap();
        assert!(why(&file).contains("set-uid"));
        set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
        let script = folder.path().join("script");
        write(&script, b"#! /proc/self/exe -x\n").unwrap();
        check(&script).unwrap();
        let mut name = b"#!".to_vec();
        name.extend_from_slice(script.as_os_str().as_bytes());
        write(&script, name).unwrap();
        assert!(why(&script).contains("too many"));
    }

    #[test]
    fn programs_are_found_in_the_path() {
        let found = find(OsStr::new("sh"), Some(OsStr::new("/nowhere:/bin"))).unwrap();
        assert_eq!(found, Path::new("/bin/sh"));
        assert!(find(OsStr::new("sh"), Some(OsStr::new("/nowhere"))).is_err());
        assert!(find(OsStr::new("/etc/passwd"), None).is_err());
    }
}
