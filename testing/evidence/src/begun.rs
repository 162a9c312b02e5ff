//! What the source was when a run began.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};

/// A run that has begun, and the source it is of. Whoever runs something makes this first, before
/// anything is built or run, and passes it on to whoever notes what came of it: what is committed
/// in the meantime is not what ran.
#[derive(Debug, Clone)]
pub struct Begun {
    source: String,
    folder: PathBuf,
}

impl Begun {
    /// Begins with the source in the folder this program was started in.
    #[must_use]
    pub fn now() -> Self {
        Self::at(Path::new("."))
    }

    /// Begins with the source in a folder.
    #[must_use]
    pub fn at(folder: &Path) -> Self {
        Self { source: source(folder), folder: folder.to_path_buf() }
    }

    /// Begins with the program that asks: it may have been built long ago, and the source be
    /// another by now. Cargo keeps a list of what a program is made of beside it.
    ///
    /// # Errors
    /// Something that the program is made of was changed since it was built.
    pub fn with_this_program() -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program again")?;
        let newer = changed_since(&program, &program.with_extension("d"))?;
        let newer = newer.map(|file| file.display().to_string());
        ensure!(
            newer.is_none(),
            "{} was changed after this program was built: build it again",
            newer.unwrap_or_default()
        );
        Ok(Self::now())
    }

    /// Begins with a program that somebody else has built, who says of what.
    #[must_use]
    pub fn built_of(commit: String) -> Self {
        Self { source: commit, folder: PathBuf::from(".") }
    }

    /// The commit and the tree of the source: `unknown` without git. The tree is the same for all
    /// commits with the same content.
    #[must_use]
    pub fn commit(&self) -> String {
        self.source.clone()
    }

    /// The same for what is built only now, long after the beginning: marked as changed if the
    /// source is another one by now.
    #[must_use]
    pub fn commit_now(&self) -> String {
        self.against(&source(&self.folder))
    }

    fn against(&self, now: &str) -> String {
        let end = self.source.find(' ').unwrap_or(self.source.len());
        let (commit, rest) = self.source.split_at(end);
        let is_marked = now == self.source || commit.ends_with('+');
        if is_marked { self.commit() } else { format!("{commit}+{rest}") }
    }
}

/// The first of the files in a list of Cargo's that is newer than the program they make, if any is.
fn changed_since(program: &Path, list: &Path) -> Result<Option<PathBuf>> {
    // Who copies a program elsewhere leaves the list behind.
    let Ok(list) = std::fs::read_to_string(list) else { return Ok(None) };
    let time = |path: &Path| std::fs::metadata(path).and_then(|about| about.modified());
    let built: SystemTime =
        time(program).with_context(|| format!("cannot ask for {}", program.display()))?;
    let files = list.lines().next().and_then(|line| line.split_once(": "));
    // Blanks in names are written behind a backslash.
    let names = files.map_or("", |(_, names)| names).replace("\\ ", "\0");
    let mut paths = names.split(' ').map(|name| PathBuf::from(name.replace('\0', " ")));
    // What is gone was made for one build only, or has no part in it any more.
    Ok(paths.find(|path| !path.as_os_str().is_empty() && time(path).is_ok_and(|t| t > built)))
}

/// The source in a folder, as it is now.
fn source(folder: &Path) -> String {
    let git = |words: &[&str]| {
        let mut git = Command::new("git");
        // Set by whoever starts this, it would make words of the paths below.
        git.env_remove("GIT_LITERAL_PATHSPECS");
        let output = git.arg("-C").arg(folder).args(words).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    // All of it, wherever in it this is; but the list itself is changed by being added to, and who
    // commits it has changed nothing else.
    let but = ":(top,exclude)docs/evidence.md";
    let last = git(&["rev-list", "--max-count=1", "HEAD", "--", ":/", but]);
    let last = last.filter(|last| !last.is_empty()).unwrap_or_else(|| "HEAD".to_owned());
    let Some(commit) = git(&["rev-parse", "--short=10", &last]) else {
        return "unknown".to_owned();
    };
    let changed = git(&["status", "--porcelain", "--", ":/", but]);
    // Where the history was cut off, a commit of the list alone looks as if it had changed all.
    let is_cut = git(&["rev-parse", "--is-shallow-repository"]).is_some_and(|said| said == "true")
        && git(&["rev-parse", "--verify", "--quiet", &format!("{last}^")]).is_none();
    let is_known = changed.is_some_and(|changed| changed.is_empty()) && !is_cut;
    let changed = if is_known { "" } else { "+" };
    let tree = git(&["rev-parse", "--short=10", &format!("{last}^{{tree}}")]);
    let tree = tree.map_or_else(String::new, |tree| format!(" tree {tree}"));
    format!("{commit}{changed}{tree}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git(folder: &Path, words: &[&str]) {
        let mut command = Command::new("git");
        for told in ["user.name=nobody", "user.email=nobody@example.org", "commit.gpgsign=false"] {
            command.args(["-c", told]);
        }
        let done = command.arg("-C").arg(folder).args(words).output();
        let done = done.expect("git is there");
        assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    }

    #[test]
    fn a_program_is_older_than_what_was_changed_since_it_was_built() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let at = |name: &str, seconds| {
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            let file = std::fs::File::create(path(name)).unwrap();
            file.set_modified(time).unwrap();
        };
        for (name, seconds) in [("one two.rs", 5), ("b.rs", 9), ("p", 7)] {
            at(name, seconds);
        }
        let newer = || changed_since(&path("p"), &path("p.d")).unwrap();
        assert_eq!(newer(), None, "there is no list");
        let name = |name: &str| path(name).display().to_string().replace(' ', "\\ ");
        let list = format!("{}: {} {}\n", name("p"), name("one two.rs"), name("b.rs"));
        std::fs::write(path("p.d"), list).unwrap();
        assert_eq!(newer(), Some(path("b.rs")));
        at("b.rs", 7);
        assert_eq!(newer(), None);
        at("one two.rs", 8);
        assert_eq!(newer(), Some(path("one two.rs")));
    }

    fn commit(folder: &Path, content: &str) {
        std::fs::write(folder.join("source"), content).unwrap();
        git(folder, &["add", "--all"]);
        git(folder, &["commit", "--quiet", "--message", content]);
    }

    fn repository() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        git(folder.path(), &["init", "--quiet"]);
        folder
    }

    fn begun(folder: &Path) -> Begun {
        Begun::at(folder)
    }

    #[test]
    fn what_is_committed_during_a_run_is_not_what_ran() {
        let folder = repository();
        let folder = folder.path();
        commit(folder, "one");
        let run = begun(folder);
        let first = run.commit();
        assert!(first.contains(" tree ") && !first.contains('+'), "{first}");
        commit(folder, "two");
        assert_eq!(run.commit(), first);
        assert_ne!(begun(folder).commit(), first);
    }

    #[test]
    fn what_is_built_during_a_run_is_marked_if_the_source_has_changed() {
        let folder = repository();
        let folder = folder.path();
        commit(folder, "one");
        let run = begun(folder);
        assert_eq!(run.against(&source(folder)), run.commit());
        commit(folder, "two");
        let marked = run.against(&source(folder));
        assert_eq!(marked, run.commit().replacen(' ', "+ ", 1));
        let changed = Begun::built_of(marked.clone());
        assert_eq!(changed.against(&source(folder)), marked, "once is enough");
    }

    #[test]
    fn a_source_that_differs_from_its_commit_is_marked_and_the_list_is_no_source() {
        let folder = repository();
        let folder = folder.path();
        let docs = folder.join("docs");
        std::fs::create_dir(&docs).unwrap();
        std::fs::write(docs.join("evidence.md"), "rows").unwrap();
        commit(folder, "one");
        std::fs::write(docs.join("evidence.md"), "more rows").unwrap();
        assert!(!source(folder).contains('+'));
        assert!(!source(&docs).contains('+'), "from below as well");
        std::fs::write(folder.join("source"), "another").unwrap();
        assert!(source(folder).contains("+ tree "));
        assert!(source(&docs).contains("+ tree "), "from below as well");
    }

    #[test]
    fn who_commits_the_list_alone_has_no_other_source() {
        let folder = repository();
        let folder = folder.path();
        commit(folder, "one");
        let run = begun(folder);
        std::fs::create_dir(folder.join("docs")).unwrap();
        std::fs::write(folder.join("docs/evidence.md"), "rows").unwrap();
        git(folder, &["add", "--all"]);
        git(folder, &["commit", "--quiet", "--message", "the list"]);
        assert_eq!(begun(folder).commit(), run.commit());
        assert_eq!(run.commit_now(), run.commit());
        commit(folder, "two");
        assert_ne!(begun(folder).commit(), run.commit());
        assert!(run.commit_now().contains('+'), "{}", run.commit_now());
    }

    /// Cut off at a commit of the list, it would be noted as another source that counts again.
    #[test]
    fn where_the_history_is_cut_off_the_source_is_not_known() {
        let whole = repository();
        let whole = whole.path();
        commit(whole, "one");
        std::fs::create_dir(whole.join("docs")).unwrap();
        std::fs::write(whole.join("docs/evidence.md"), "rows").unwrap();
        git(whole, &["add", "--all"]);
        git(whole, &["commit", "--quiet", "--message", "the list"]);
        let of_depth = |depth: &str| {
            let clone = tempfile::tempdir().unwrap();
            let url = format!("file://{}", whole.display());
            git(clone.path(), &["clone", "--quiet", "--depth", depth, &url, "."]);
            source(clone.path())
        };
        let known = source(whole);
        assert!(!known.contains('+'), "{known}");
        assert!(of_depth("1").contains("+ tree "), "{}", of_depth("1"));
        assert_eq!(of_depth("3"), known, "all of it is there");
    }

    #[test]
    fn without_git_nothing_is_known() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(source(&folder.path().join("nowhere")), "unknown");
    }
}
