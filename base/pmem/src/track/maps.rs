//! What is mapped where: `/proc/PID/maps`, read with care. Where the first thread of a process is
//! gone, it is empty: the list of any other thread says the same.

use std::io;

use super::error::TrackError;
use super::holders::other_threads;

/// One mapping of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vma {
    /// First address.
    pub start: usize,
    /// Address after the last.
    pub end: usize,
    /// Whether its process may store to it now.
    pub writable: bool,
    /// Whether its process may execute it.
    pub executable: bool,
    /// Whether stores reach the file.
    pub shared: bool,
    /// The file's byte at `start`.
    pub at: u64,
    /// The device of the file, as this list numbers it (some file systems number differently
    /// elsewhere).
    pub device: (u32, u32),
    /// The file; 0 if there is none.
    pub inode: u64,
}

/// Tells every mapping of a process, in order of address; `None` is this process.
///
/// # Errors
/// The list cannot be read: there is no such process, or it is not ours to look at.
pub fn walk(process: Option<u32>, mut each: impl FnMut(&Vma)) -> Result<(), TrackError> {
    for line in read(process, "maps")?.split(|byte| *byte == b'\n') {
        if let Some(vma) = parse(line) {
            each(&vma);
        }
    }
    Ok(())
}

/// Tells the names under which the executable mappings of a process are listed, with them: bytes
/// of a path, or of a word in brackets, or none.
///
/// # Errors
/// As [`walk`].
pub fn walk_code(process: u32, mut each: impl FnMut(&Vma, &[u8])) -> Result<(), TrackError> {
    for line in read(Some(process), "maps")?.split(|byte| *byte == b'\n') {
        if let Some(vma) = parse(line).filter(|vma| vma.executable) {
            each(&vma, path(line));
        }
    }
    Ok(())
}

/// What stands behind the five words of a line.
fn path(mut line: &[u8]) -> &[u8] {
    for _ in 0..5 {
        let blank = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
        line = line[blank..].trim_ascii_start();
    }
    line
}

/// Whether a process may store, now or once it asks for it, to any of its mappings that `which`
/// picks. Walks through the page tables of all.
///
/// # Errors
/// As [`walk`].
pub fn may_write(process: u32, which: impl Fn(&Vma) -> bool) -> Result<bool, TrackError> {
    let text = read(Some(process), "smaps")?;
    let mut picked = false;
    for line in text.split(|byte| *byte == b'\n') {
        if let Some(vma) = parse(line) {
            picked = which(&vma);
        } else if let Some(flags) = line.strip_prefix(b"VmFlags:") {
            let may = flags.split(|byte| *byte == b' ').any(|flag| flag == b"mw");
            if picked && may {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// The list itself.
///
/// # Errors
/// As [`walk`].
pub fn text(process: u32) -> Result<Vec<u8>, TrackError> {
    read(Some(process), "maps")
}

fn read(process: Option<u32>, list: &str) -> Result<Vec<u8>, TrackError> {
    let Some(process) = process else {
        return std::fs::read(format!("/proc/self/{list}")).map_err(failed);
    };
    match std::fs::read(format!("/proc/{process}/{list}")) {
        Ok(text) if !text.is_empty() => Ok(text),
        Err(source) if source.kind() == io::ErrorKind::PermissionDenied => Err(failed(source)),
        first => of_others(process, list)?.map_or_else(|| first.map_err(failed), Ok),
    }
}

/// Times that threads are looked for which come and go.
const LOOKS: u32 = 3;

/// The list of a process whose first thread has none: that one may be gone, and the others live on.
/// `None` if there are no others, as with what belongs to the kernel.
fn of_others(process: u32, list: &str) -> Result<Option<Vec<u8>>, TrackError> {
    for _ in 0..LOOKS {
        let others = other_threads(process).map_err(failed)?;
        if others.is_empty() {
            return Ok(None);
        }
        let read = |thread| std::fs::read(format!("/proc/{process}/task/{thread}/{list}")).ok();
        if let Some(text) = others.into_iter().filter_map(read).find(|text| !text.is_empty()) {
            return Ok(Some(text));
        }
    }
    Err(failed(io::Error::other("it has threads, and none of them tells")))
}

fn failed(source: io::Error) -> TrackError {
    match source.kind() {
        io::ErrorKind::PermissionDenied => TrackError::NoPermission {
            what: "reading the list of another process' mappings",
            remedy: "run as its user, and let it be traced (ptrace scope, set-uid)",
        },
        _ => TrackError::Io { call: "reading /proc/PID/maps", source },
    }
}

/// One line: `start-end perms offset major:minor inode path`. Anything else is no mapping.
fn parse(line: &[u8]) -> Option<Vma> {
    let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let (start, end) = pair(words.next()?, b'-')?;
    let rights = words.next()?;
    let at = hex(words.next()?)?;
    let (major, minor) = pair(words.next()?, b':')?;
    let inode = core::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    Some(Vma {
        start: usize::try_from(start).ok()?,
        end: usize::try_from(end).ok()?,
        writable: rights.get(1) == Some(&b'w'),
        executable: rights.get(2) == Some(&b'x'),
        shared: rights.get(3) == Some(&b's'),
        at,
        device: (u32::try_from(major).ok()?, u32::try_from(minor).ok()?),
        inode,
    })
}

fn pair(word: &[u8], between: u8) -> Option<(u64, u64)> {
    let cut = word.iter().position(|byte| *byte == between)?;
    Some((hex(&word[..cut])?, hex(&word[cut + 1..])?))
}

fn hex(word: &[u8]) -> Option<u64> {
    u64::from_str_radix(core::str::from_utf8(word).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_understood_and_rubbish_is_not() {
        let line = b"7f0a1000-7f0a3000 rw-s 00002000 fe:01 1311 /a file with blanks";
        let expected = Vma {
            start: 0x7f0a_1000,
            end: 0x7f0a_3000,
            writable: true,
            executable: false,
            shared: true,
            at: 0x2000,
            device: (0xfe, 1),
            inode: 1311,
        };
        assert_eq!(parse(line), Some(expected));
        assert_eq!(path(line), b"/a file with blanks");
        assert_eq!(path(b"1-2 r-xp 0 0:0 0 "), b"");
        for cut in 0..line.len() - 27 {
            assert_eq!(parse(&line[..cut]), None, "{cut}");
        }
        assert_eq!(parse(b"ffffffffffffffffff-1 rw-s 0 0:0 0"), None);
    }

    #[test]
    fn this_function_is_mapped() {
        let here = this_function_is_mapped as *const () as usize;
        let mut found = false;
        walk(None, |vma| found |= (vma.start..vma.end).contains(&here) && !vma.writable).unwrap();
        assert!(found);
    }
}
