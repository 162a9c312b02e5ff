//! What the guest finds when it starts: this program as its first process, the scene's program,
//! tools, the libraries of all of them, modules, and what is to be run.

use std::collections::BTreeSet;
use std::fs;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::archive::Archive;
use super::{modules, packages, programs};
use crate::guest::{FOLDER, MODULES, PROGRAM, SCENE};

/// What the guest needs besides the scene's own program: to prepare itself, and what tests start.
const TOOLS: &[&str] = &["ndctl", "mkfs.ext4", "true", "sh", "dd", "cat", "sleep"];

/// Paths in the guest, and what is there.
#[derive(Debug, Clone)]
pub(crate) struct Files(Vec<(String, Vec<u8>)>);

impl Files {
    /// What each start with this program needs, and these tools and modules.
    pub(crate) fn new(
        program: &Path,
        modules: &Path,
        tools: &[&str],
        wanted: &[&str],
    ) -> Result<Self> {
        let own = std::env::current_exe().context("cannot find this program again")?;
        let find = |tool: &&str| packages::find(tool).with_context(|| format!("no {tool} here"));
        let names: Vec<&str> = TOOLS.iter().chain(tools).copied().collect();
        let tools = names.iter().map(find).collect::<Result<Vec<_>>>()?;
        let mut started: Vec<&Path> = vec![&own, program];
        started.extend(tools.iter().map(PathBuf::as_path));
        let libraries = programs::libraries(&started)?;
        let mut files = Self(Vec::new());
        files.copy("/lab", &own)?;
        files.copy(PROGRAM, program)?;
        for (name, file) in names.iter().zip(&tools) {
            files.copy(&format!("/bin/{name}"), file)?;
        }
        // Where cargo has tests put what is to lie on a disk.
        let room = own.ancestors().nth(2).context("this program is not where cargo builds")?;
        files.put(FOLDER, room.join("tmp").to_string_lossy().into_owned().into_bytes());
        for file in &libraries {
            files.copy(&file.to_string_lossy(), file)?;
        }
        // Their names are in the order in which they are to be loaded.
        for (number, (_, content)) in (10..).zip(modules::load(modules, wanted)?) {
            files.put(&format!("{MODULES}/{number}"), content);
        }
        Ok(files)
    }

    /// Adds a file of this machine.
    pub(crate) fn copy(&mut self, path: &str, file: &Path) -> Result<()> {
        let content = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        self.put(path, content);
        Ok(())
    }

    /// Adds a file.
    pub(crate) fn put(&mut self, path: &str, content: Vec<u8>) {
        self.0.push((path.trim_start_matches('/').to_owned(), content));
    }

    /// Says what is to be run: in which folder, where what it writes goes to, and the words for
    /// the program.
    pub(crate) fn scene(&mut self, folder: &str, output: &str, words: &[&str]) {
        let lines: Vec<&str> = [folder, output].iter().chain(words).copied().collect();
        self.put(SCENE, lines.join("\n").into_bytes());
    }

    /// Writes the archive.
    pub(crate) fn write(&self, to: &Path) -> Result<()> {
        let out = fs::File::create(to).with_context(|| format!("cannot make {}", to.display()))?;
        let mut archive = Archive::new(BufWriter::new(out));
        for folder in self.folders() {
            archive.folder(&folder).context("cannot write the archive")?;
        }
        for (path, content) in &self.0 {
            archive.file(path, content).context("cannot write the archive")?;
        }
        archive.finish().context("cannot write the archive")?;
        Ok(())
    }

    /// The folders of all files, those above first: the kernel makes none that it is not told of.
    fn folders(&self) -> BTreeSet<String> {
        let above = self.0.iter().flat_map(|(path, _)| Path::new(path).ancestors().skip(1));
        let names = above.map(|folder| folder.to_string_lossy().into_owned());
        names.filter(|name| !name.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_folder_comes_before_what_is_in_it() {
        let mut files = Files(Vec::new());
        files.put("/lib/x86/libc.so", Vec::new());
        files.put("/bin/true", Vec::new());
        files.put("lab", Vec::new());
        let folders: Vec<_> = files.folders().into_iter().collect();
        assert_eq!(folders, ["bin", "lib", "lib/x86"]);
    }
}
