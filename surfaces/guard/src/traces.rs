//! A trace of each guarded file, in a folder: which pages each pass found stored to.
//!
//! A file that is guarded again goes on with its trace. Nothing that is there is overwritten, be it
//! of an earlier run, of another guard, or of a file of the same name in another folder: a trace
//! takes the next free name, which is told.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use holdfast_mapped::trace::title;

/// Files of one name that get traces of their own.
const MOST: u32 = 1000;

/// The traces of one run.
#[derive(Debug, Default)]
pub(crate) struct Traces {
    folder: Option<PathBuf>,
    /// By device and inode, which another file may have later, and by name.
    names: BTreeMap<(u64, u64, PathBuf), PathBuf>,
}

impl Traces {
    /// In this folder, or none.
    pub(crate) fn new(folder: Option<&Path>) -> Self {
        Self { folder: folder.map(Path::to_path_buf), names: BTreeMap::new() }
    }

    /// The trace of a file, to be added to, and what is to be told of it; `None` if there are to be
    /// none.
    ///
    /// # Errors
    /// Why it has none.
    pub(crate) fn of(
        &mut self,
        (device, inode): (u64, u64),
        path: &Path,
    ) -> Option<Result<(File, Option<String>), String>> {
        let folder = self.folder.clone()?;
        let key = (device, inode, path.to_path_buf());
        if let Some(name) = self.names.get(&key) {
            let mut options = OpenOptions::new();
            let file = options.append(true).custom_flags(libc::O_NOFOLLOW).open(name);
            let file = file.map(|file| (file, None));
            return Some(file.map_err(|error| format!("{}: {error}", name.display())));
        }
        let name = path.file_name().unwrap_or_default();
        for number in 1..=MOST {
            let free = folder.join(named(name, number));
            match begin(&free) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Some(Err(format!("{}: {error}", free.display()))),
                Ok(file) => {
                    let note = format!("its trace is {}: others are there", free.display());
                    self.names.insert(key, free);
                    return Some(Ok((file, (number > 1).then_some(note))));
                }
            }
        }
        let folder = folder.display();
        Some(Err(format!("{folder}: there are {MOST} traces of files of its name; remove some")))
    }
}

fn named(name: &std::ffi::OsStr, number: u32) -> OsString {
    let mut all = OsString::from(name);
    all.push(if number > 1 { format!(".{number}.trace") } else { ".trace".to_owned() });
    all
}

/// An empty trace, under a name that nobody has.
fn begin(path: &Path) -> io::Result<File> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(title().as_bytes())?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_traces_of_their_own_and_nothing_else_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        assert!(Traces::new(None).of((1, 2), Path::new("/x/a.db")).is_none());
        let mut traces = Traces::new(Some(folder.path()));
        let of = |traces: &mut Traces, inode, path: &str, line: &str| {
            let (mut file, note) = traces.of((1, inode), Path::new(path)).unwrap().unwrap();
            file.write_all(line.as_bytes()).unwrap();
            note.unwrap_or_default()
        };
        assert_eq!(of(&mut traces, 2, "/x/a.db", "1\n"), "");
        assert!(of(&mut traces, 3, "/y/a.db", "2\n").contains("a.db.2.trace"));
        assert_eq!(of(&mut traces, 2, "/x/a.db", "3\n"), "");
        let read = |name: &str| std::fs::read_to_string(at(name)).unwrap();
        // Another guard, at the same time or later, of the same files or others.
        let mut others = Traces::new(Some(folder.path()));
        assert!(of(&mut others, 3, "/y/a.db", "4\n").contains("a.db.3.trace"));
        of(&mut traces, 3, "/y/a.db", "5\n");
        of(&mut others, 3, "/y/a.db", "6\n");
        assert_eq!(read("a.db.trace"), format!("{}1\n3\n", title()));
        assert_eq!(read("a.db.2.trace"), format!("{}2\n5\n", title()));
        assert_eq!(read("a.db.3.trace"), format!("{}4\n6\n", title()));
        // What is no trace stays: a file, and what a link leads to.
        std::fs::write(at("b.db.trace"), "mine").unwrap();
        std::os::unix::fs::symlink(at("a.db.trace"), at("b.db.2.trace")).unwrap();
        assert!(of(&mut traces, 4, "/x/b.db", "").contains("b.db.3.trace"));
        assert_eq!((read("b.db.trace"), read("b.db.3.trace")), ("mine".to_owned(), title()));
        assert_eq!(read("a.db.trace"), format!("{}1\n3\n", title()));
        // Not for ever.
        (1..=MOST).for_each(|it| drop(File::create(at(named("c".as_ref(), it).to_str().unwrap()))));
        let why = traces.of((1, 5), Path::new("/x/c")).unwrap().unwrap_err();
        assert!(why.contains("remove some"), "{why}");
    }
}
