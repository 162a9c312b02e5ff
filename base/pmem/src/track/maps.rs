//! What is mapped where: `/proc/PID/maps`, read with care.

use std::io;

use super::error::TrackError;

/// One mapping of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vma {
    /// First address.
    pub start: usize,
    /// Address after the last.
    pub end: usize,
    /// Whether its process may store to it now.
    pub writable: bool,
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
    let path = match process {
        None => "/proc/self/maps".to_owned(),
        Some(id) => format!("/proc/{id}/maps"),
    };
    let text = std::fs::read(&path).map_err(|source| match source.kind() {
        io::ErrorKind::PermissionDenied => TrackError::NoPermission {
            what: "reading the list of another process' mappings",
            remedy: "run as its user, and let it be traced (ptrace scope, set-uid)",
        },
        _ => TrackError::Io { call: "reading /proc/PID/maps", source },
    })?;
    for line in text.split(|byte| *byte == b'\n') {
        if let Some(vma) = parse(line) {
            each(&vma);
        }
    }
    Ok(())
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
            shared: true,
            at: 0x2000,
            device: (0xfe, 1),
            inode: 1311,
        };
        assert_eq!(parse(line), Some(expected));
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
