//! The archive that a kernel unpacks into memory: `cpio` in its format `newc`, not compressed.
//!
//! Each entry is a head of 110 characters in hexadecimal, the name, and the content, both filled up
//! to multiples of four bytes.

use std::io::{self, Write};

/// What an entry is, with its rights.
const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_755;

/// Writes an archive.
#[derive(Debug)]
pub(crate) struct Archive<W> {
    out: W,
    entries: u32,
}

impl<W: Write> Archive<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, entries: 0 }
    }

    /// An empty folder; those above it come before.
    pub(crate) fn folder(&mut self, path: &str) -> io::Result<()> {
        self.entry(path, FOLDER, &[])
    }

    /// A file that everybody may read and start.
    pub(crate) fn file(&mut self, path: &str, content: &[u8]) -> io::Result<()> {
        self.entry(path, FILE, content)
    }

    /// Ends the archive.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.entry("TRAILER!!!", 0, &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        let too_large = |_| io::Error::new(io::ErrorKind::FileTooLarge, path.to_owned());
        let size = u32::try_from(content.len()).map_err(too_large)?;
        let name = u32::try_from(path.len() + 1).map_err(too_large)?;
        self.entries += 1;
        // Inode, mode, owner, group, links, date, size, two devices of two numbers, name, sum.
        let head = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name, 0];
        self.out.write_all(b"070701")?;
        for number in head {
            write!(self.out, "{number:08x}")?;
        }
        self.out.write_all(path.as_bytes())?;
        self.out.write_all(&[0])?;
        self.fill(110 + path.len() + 1)?;
        self.out.write_all(content)?;
        self.fill(content.len())
    }

    fn fill(&mut self, len: usize) -> io::Result<()> {
        self.out.write_all(&[0; 3][..len.next_multiple_of(4) - len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_those_of_the_format() {
        let mut archive = Archive::new(Vec::new());
        archive.folder("bin").unwrap();
        archive.file("bin/a", b"hello").unwrap();
        let bytes = archive.finish().unwrap();
        // 110 and "bin\0" are 114, filled up to 116; then the head of the file.
        assert_eq!(&bytes[..14], b"07070100000001");
        assert_eq!(&bytes[14..22], b"000041ed");
        assert_eq!(&bytes[110..116], b"bin\0\0\0");
        let file = &bytes[116..];
        assert_eq!(&file[54..62], b"00000005");
        assert_eq!(&file[110..116], b"bin/a\0");
        assert_eq!(&file[116..124], b"hello\0\0\0");
        assert_eq!(&file[124..130], b"070701");
        assert_eq!(bytes.len() % 4, 0);
    }
}
