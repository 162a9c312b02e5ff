//! Whether a program can make system calls without the C library, where nobody announces them.
//!
//! | executable memory | taken as |
//! |---|---|
//! | the C library, its loader, our own library, what the kernel maps | hooked, or not its |
//! | a file in which no `syscall`, `sysenter` or `int 0x80` is ever an instruction | harmless |
//! | a file in which one is, or which cannot be read | calls of its own |
//! | memory without a file, that may be written, or that is shared | makes code: anything |
//!
//! A call whose number is loaded right before it, and that can do nothing to a file, is harmless.
//! The bytes of such an instruction occur by chance, inside others, about once in 16 KiB of code.
//! So the instructions of the function around them are gone through from its start, which the
//! tables for unwinding tell. Where no table covers them, the bytes count.
//!
//! Not seen: code that jumps into the middle of its own instructions, and a file's code changed in
//! memory by a program that makes it executable again afterwards.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use crate::choose::matches;
use holdfast_pmem::track::maps::{self, Vma};
use iced_x86::{Code as Instruction, Decoder, DecoderOptions, Register};

/// Largest executable part of a file that is looked at.
const LARGEST: u64 = 1 << 30;
/// Bytes of program headers.
const HEADER: usize = 64;
const SEGMENT: usize = 56;
const MOST_SEGMENTS: u64 = 256;
const LOADED: u64 = 1;
const UNWINDING: u64 = 0x6474_e550;
const EXECUTABLE: u64 = 1;
/// The one form of the table of functions that linkers make: counted in 4 bytes, sorted, offsets
/// from its start in 4 bytes each.
const FORM: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
/// A function that is longer than this is not gone through.
const LONGEST: u64 = 4 << 20;

/// Calls that neither write to a file, nor read into memory that may be a file's, nor open or map
/// one, nor make a process or a ring.
const HARMLESS: [u32; 11] = [
    libc::SYS_close as u32,
    libc::SYS_sched_yield as u32,
    libc::SYS_nanosleep as u32,
    libc::SYS_getpid as u32,
    libc::SYS_exit as u32,
    libc::SYS_gettid as u32,
    libc::SYS_futex as u32,
    libc::SYS_clock_gettime as u32,
    libc::SYS_exit_group as u32,
    // They need a ring, and that it was asked for is noticed.
    libc::SYS_io_uring_enter as u32,
    libc::SYS_io_uring_register as u32,
];

/// What a program's memory can do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Makes {
    /// All system calls go through the C library.
    #[default]
    Nothing,
    /// It makes code while it runs.
    Code,
    /// It has such instructions: where.
    Calls(String),
}

impl Makes {
    /// Of a program with code that does not find the hooks.
    pub(crate) fn unfollowed() -> Self {
        Self::Calls("a library that was loaded apart".to_owned())
    }
}

/// Numbers of a file, and what tells whether it changed.
type Key = (u64, u64, i64, i64, u64);

/// What was found in files, each looked at once.
#[derive(Debug, Default)]
pub(crate) struct Codes {
    trusted: Vec<(u64, u64)>,
    /// Patterns of names of files that are trusted, too.
    names: Vec<String>,
    found: BTreeMap<Key, bool>,
}

/// The executable mappings of a process, by which a change of them is seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Layout(Vec<(usize, usize, u64, u64, bool)>);

impl Layout {
    /// As they are; `None` if they cannot be looked at.
    pub(crate) fn of(process: u32) -> Option<Self> {
        let mut all = Vec::new();
        maps::walk_code(process, |vma, _| {
            all.push((vma.start, vma.end, vma.inode, vma.at, vma.writable));
        })
        .ok()?;
        Some(Self(all))
    }
}

impl Codes {
    /// Trusts the library that is loaded into programs, and the C library and loader that this
    /// process runs on itself; and files of those names.
    pub(crate) fn new(preload: &Path, names: &[String]) -> Self {
        let mut trusted: Vec<(u64, u64)> = numbers(preload).into_iter().collect();
        // Without them, every program makes calls of its own.
        let _ = maps::walk_code(std::process::id(), |_, path| {
            let path = path_of(path);
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
            let ours = ["libc.so.", "libc-", "ld-linux", "ld-", "libpthread"];
            if ours.iter().any(|start| name.starts_with(start)) {
                trusted.extend(numbers(path));
            }
        });
        Self { trusted, names: names.to_vec(), found: BTreeMap::new() }
    }

    /// What a process can do.
    pub(crate) fn look(&mut self, process: u32) -> Makes {
        let mut makes = Makes::Nothing;
        let listed = maps::walk_code(process, |vma, path| {
            if matches!(makes, Makes::Calls(_)) {
                return;
            }
            match self.look_at(process, vma, path) {
                Makes::Nothing => {}
                found => makes = found,
            }
        });
        match listed {
            Ok(()) => makes,
            Err(_) => Makes::Calls("its memory cannot be looked at".to_owned()),
        }
    }

    fn look_at(&mut self, process: u32, vma: &Vma, path: &[u8]) -> Makes {
        if path == b"[vdso]" || path == b"[vsyscall]" {
            return Makes::Nothing;
        }
        if vma.inode == 0 || vma.writable || vma.shared {
            return Makes::Code;
        }
        let name = path_of(path);
        let calls = || Makes::Calls(name.display().to_string());
        // As the process sees it, which may have another root.
        let there = format!("/proc/{process}/root{}", name.display());
        let Ok(file) = File::open(there) else { return calls() };
        let Ok(found) = file.metadata() else { return calls() };
        if found.ino() != vma.inode {
            // Replaced since: what is mapped cannot be had.
            return calls();
        }
        let id = (found.dev(), found.ino());
        let called = name.file_name().map_or(&b""[..], OsStrExt::as_bytes);
        let named = self.names.iter().any(|glob| matches(glob.as_bytes(), called));
        if self.trusted.contains(&id) || named {
            return Makes::Nothing;
        }
        let key = (id.0, id.1, found.mtime(), found.mtime_nsec(), found.len());
        let has = *self.found.entry(key).or_insert_with(|| has_calls(&file).unwrap_or(true));
        if has { calls() } else { Makes::Nothing }
    }
}

fn path_of(bytes: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}

fn numbers(path: &Path) -> Option<(u64, u64)> {
    let found = path.metadata().ok()?;
    Some((found.dev(), found.ino()))
}

fn word(bytes: &[u8], at: usize, len: usize) -> u64 {
    let part = bytes.get(at..at.saturating_add(len)).unwrap_or_default();
    part.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// A part of a file that is loaded.
#[derive(Debug, Clone, Copy)]
struct Segment {
    kind: u64,
    flags: u64,
    at: u64,
    address: u64,
    len: u64,
}

/// Whether a system call is an instruction anywhere in a file; `None` if it cannot be told.
fn has_calls(file: &File) -> Option<bool> {
    let segments = segments(file)?;
    let loaded = |segment: &&Segment| segment.kind == LOADED && segment.flags & EXECUTABLE != 0;
    let functions = segments
        .iter()
        .find(|segment| segment.kind == UNWINDING)
        .and_then(|table| functions(file, table))
        .unwrap_or_default();
    for segment in segments.iter().filter(loaded) {
        if segment.len > LARGEST {
            return None;
        }
        let mut code = vec![0; usize::try_from(segment.len).ok()?];
        file.read_exact_at(&mut code, segment.at).ok()?;
        if hits(&code).any(|at| is_call(&code, segment.address, at, &functions)) {
            return Some(true);
        }
    }
    Some(false)
}

fn segments(file: &File) -> Option<Vec<Segment>> {
    let mut head = [0; HEADER];
    file.read_exact_at(&mut head, 0).ok()?;
    let (from, each, count) = (word(&head, 32, 8), word(&head, 54, 2), word(&head, 56, 2));
    let is_ours = head.starts_with(b"\x7fELF\x02\x01") && each >= SEGMENT as u64;
    if !is_ours || count > MOST_SEGMENTS {
        return None;
    }
    (0..count)
        .map(|index| {
            let mut bytes = [0; SEGMENT];
            file.read_exact_at(&mut bytes, from.checked_add(index * each)?).ok()?;
            Some(Segment {
                kind: word(&bytes, 0, 4),
                flags: word(&bytes, 4, 4),
                at: word(&bytes, 8, 8),
                address: word(&bytes, 16, 8),
                len: word(&bytes, 32, 8),
            })
        })
        .collect()
}

/// First addresses of functions, ascending.
fn functions(file: &File, table: &Segment) -> Option<Vec<u64>> {
    let mut bytes = vec![0; usize::try_from(table.len).ok().filter(|len| *len < 1 << 28)?];
    file.read_exact_at(&mut bytes, table.at).ok()?;
    if !bytes.starts_with(&FORM) {
        return None;
    }
    let count = usize::try_from(word(&bytes, 8, 4)).ok()?;
    let rows = bytes.get(12..)?.chunks_exact(8).take(count);
    let mut all: Vec<u64> = rows
        .map(|row| table.address.wrapping_add_signed(i64::from(word(row, 0, 4) as u32 as i32)))
        .collect();
    all.sort_unstable();
    Some(all)
}

/// Where the bytes of a system call are.
fn hits(code: &[u8]) -> impl Iterator<Item = usize> {
    code.windows(2)
        .enumerate()
        .filter(|(_, pair)| matches!(pair, [0x0f, 0x05 | 0x34] | [0xcd, 0x80]))
        .map(|(at, _)| at)
}

/// Whether the bytes at `at` are an instruction, going from the start of the function around them.
fn is_call(code: &[u8], address: u64, at: usize, functions: &[u64]) -> bool {
    let place = address.wrapping_add(at as u64);
    let behind = functions.partition_point(|function| *function <= place);
    let Some(start) = behind.checked_sub(1).and_then(|index| functions.get(index)) else {
        return true;
    };
    let Some(from) = start.checked_sub(address).filter(|from| at as u64 - from < LONGEST) else {
        return true;
    };
    let from = from as usize;
    let end = code.len().min(at + 16);
    let mut decoder = Decoder::with_ip(64, &code[from..end], 0, DecoderOptions::NONE);
    let mut number = None;
    while decoder.can_decode() {
        let here = from + decoder.position();
        if here >= at {
            break;
        }
        let step = decoder.decode();
        if step.code() == Instruction::INVALID {
            // Data between functions, or something newer than the decoder.
            return true;
        }
        let loads =
            step.code() == Instruction::Mov_r32_imm32 && step.op0_register() == Register::EAX;
        number = loads.then(|| step.immediate32());
    }
    from + decoder.position() == at && !number.is_some_and(|number| HARMLESS.contains(&number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};

    #[test]
    fn bytes_inside_other_instructions_are_no_call() {
        // mov eax, 0x90050f90; syscall; ret
        let code = [0xb8, 0x90, 0x0f, 0x05, 0x90, 0x0f, 0x05, 0xc3];
        assert_eq!(hits(&code).collect::<Vec<_>>(), [2, 5]);
        let functions = [0x1000];
        assert!(!is_call(&code, 0x1000, 2, &functions));
        assert!(is_call(&code, 0x1000, 5, &functions));
        assert!(is_call(&code, 0x1000, 2, &[]), "no table, so the bytes count");
        assert!(is_call(&code, 0x1000, 2, &[0x1003]), "before the first function");
        // mov eax, 426; syscall, and mov eax, 1; syscall; and one through a register in between.
        let enters = [0xb8, 0xaa, 1, 0, 0, 0x0f, 0x05, 0xb8, 1, 0, 0, 0, 0x0f, 0x05];
        assert!(!is_call(&enters, 0, 5, &[0]) && is_call(&enters, 0, 12, &[0]));
        assert!(is_call(&[0xb8, 0xaa, 1, 0, 0, 0x90, 0x0f, 0x05], 0, 6, &[0]));
        // mov eax, 0; syscall: a read, which may fill a mapping.
        assert!(is_call(&[0xb8, 0, 0, 0, 0, 0x0f, 0x05], 0, 5, &[0]));
        // push es is none on this machine.
        assert!(is_call(&[0x06, 0xb8, 0x0f, 0x05, 0, 0], 0, 2, &[0]));
    }

    /// What is certain: the C library has them; what the workspace guards in its tests has not.
    #[test]
    fn the_c_library_has_calls_and_plain_programs_have_none() {
        let _alone = crate::alone();
        let mut codes = Codes::new(Path::new("/nowhere"), &[]);
        assert!(codes.trusted.len() >= 2, "{codes:?}");
        // It answers a line when its libraries are there.
        let (pipe, end) = (std::process::Stdio::piped, &mut String::new());
        let mut child =
            std::process::Command::new("cat").stdin(pipe()).stdout(pipe()).spawn().unwrap();
        child.stdin.as_mut().unwrap().write_all(b"there\n").unwrap();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(end).unwrap();
        let seen = codes.look(child.id());
        let layout = Layout::of(child.id());
        assert_eq!(layout, Layout::of(child.id()));
        codes.names = vec!["ld-*".to_owned(), "libc.*".to_owned(), "libc-*".to_owned()];
        codes.trusted.clear();
        assert_eq!(codes.look(child.id()), Makes::Nothing, "trusted by their names");
        codes.names.clear();
        let without = codes.look(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(seen, Makes::Nothing);
        assert!(matches!(without, Makes::Calls(_)), "{without:?}");
        assert!(layout.is_some_and(|layout| layout.0.len() > 2));
    }

    #[test]
    fn what_makes_no_sense_is_not_believed() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(has_calls(&file), None);
        let mut program = std::fs::read("/proc/self/exe").unwrap();
        program.truncate(8192);
        for at in (0..512).step_by(3) {
            let mut wild = program.clone();
            wild[at..(at + 8).min(8192)].fill(0xff);
            file.write_all_at(&wild, 0).unwrap();
            let _ = has_calls(&file);
        }
    }
}
