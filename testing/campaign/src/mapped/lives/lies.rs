//! Lies about a protected file that a machine left when it was ended, told to its judge: each is
//! planted in the file, or in what was said of it, and has to be convicted. The truth is judged
//! first, and before each lie both files are again what they were.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use holdfast::protect::side_path;
use holdfast_pmem::PAGE;

use super::super::judge::refused;
use super::{Heard, PAGES, WORDS, heard, judge, whole, wrong};
use crate::object::lives::lies::report;
use crate::tally::{Judged, Violation};

/// Tells one lie after the other, and says on the console what became of each.
#[must_use]
pub(super) fn tell(lies: &[String], file: &Path, (said, older): (&Path, &Path)) -> ExitCode {
    let told = Scene::begin(file, said, older).and_then(|scene| {
        scene.judge(|_, _| Ok(()))?;
        let convicted = |name: &String| Ok(report(name, &scene.tell(name)?));
        lies.iter().map(convicted).collect::<Judged<Vec<bool>>>()
    });
    match told {
        Ok(all) if all.iter().all(|convicted| *convicted) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(violation) => {
            eprintln!("life: {violation:?}");
            ExitCode::FAILURE
        }
    }
}

/// What was left, and what was said.
struct Scene<'a> {
    said: &'a Path,
    older: &'a Path,
    /// The file, and what it is protected by, as they were left.
    file: (PathBuf, Vec<u8>),
    side: (PathBuf, Vec<u8>),
}

/// What was said and what is there, to be changed.
type Plant<'a> = &'a dyn Fn(&mut Heard, &mut Vec<u8>) -> Judged<()>;

impl<'a> Scene<'a> {
    fn begin(file: &Path, said: &'a Path, older: &'a Path) -> Judged<Self> {
        let kept = |path: PathBuf| match std::fs::read(&path) {
            Ok(bytes) => Ok((path, bytes)),
            Err(error) => Err(refused(&path.display().to_string(), &error)),
        };
        Ok(Self { said, older, file: kept(file.to_path_buf())?, side: kept(side_path(file))? })
    }

    /// Judges what was left with something planted.
    fn judge(&self, plant: impl Fn(&mut Heard, &mut Vec<u8>) -> Judged<()>) -> Judged<()> {
        self.judge_by(self.said, &plant)
    }

    fn judge_by(&self, said: &Path, plant: Plant<'_>) -> Judged<()> {
        let mut heard = heard(said)?.ok_or_else(|| wrong("the last life said nothing"))?;
        let mut bytes = self.file.1.clone();
        plant(&mut heard, &mut bytes)?;
        for (path, bytes) in [(&self.file.0, &bytes), (&self.side.0, &self.side.1)] {
            put(path, bytes)?;
        }
        judge(&self.file.0, &heard).map(drop)
    }

    /// Tells a lie; what the judge answers. An error if it cannot be told here.
    fn tell(&self, name: &str) -> Judged<Judged<()>> {
        let heard = heard(self.said)?.ok_or_else(|| wrong("the last life said nothing"))?;
        // A page that is covered, and whose first word nobody was about to store to.
        let covered = |page: &u64| !heard.open.contains_key(page);
        let idle = |page: &u64| heard.last.get(page).is_none_or(|(word, _)| *word != page * WORDS);
        let calm = (0..PAGES).find(|page| covered(page) && idle(page));
        let calm = calm.ok_or_else(|| wrong("no page is covered"))?;
        let word = (calm * WORDS) as usize;
        let at = (calm * PAGE) as usize;
        Ok(match name {
            "an older promise" => {
                // Else it is said below that nothing was said, and nothing is judged.
                let told = self::heard(self.older)?.is_some();
                told.then_some(()).ok_or_else(|| wrong("the life before the last said nothing"))?;
                self.judge_by(self.older, &|_, _| Ok(()))
            }
            "a store too many" => self.judge(|heard, _| {
                heard.words[word] ^= 1;
                Ok(())
            }),
            "a byte flipped" => self.judge(|_, bytes| {
                bytes[at + 100] ^= 0x10;
                Ok(())
            }),
            "a page as it was" => {
                let before = whole(self.said)?;
                let range = |page: u64| (page * PAGE) as usize..((page + 1) * PAGE) as usize;
                let now = &self.file.1;
                let changed = |page: &u64| {
                    let pair = now[range(*page)].iter().zip(&before[range(*page)]);
                    pair.filter(|(a, b)| a != b).count()
                };
                // More than the one store of it that may not have been made.
                let most = (0..PAGES).max_by_key(changed).filter(|page| changed(page) > 16);
                let most = most.ok_or_else(|| wrong("the last life stored too little"))?;
                self.judge(|_, bytes| {
                    bytes[range(most)].copy_from_slice(&before[range(most)]);
                    Ok(())
                })
            }
            // Whoever stored around the engine says that all is as it should be.
            "damage that is agreed on" => self.judge(|heard, bytes| {
                bytes[at] ^= 0x10;
                heard.words[word] ^= 0x10;
                Ok(())
            }),
            "a file cut short" => self.judge(|_, bytes| {
                bytes.truncate(bytes.len() - PAGE as usize);
                Ok(())
            }),
            _ => return Err(wrong(format!("nobody knows the lie `{name}`"))),
        })
    }
}

/// The same file, of these bytes.
fn put(path: &Path, bytes: &[u8]) -> Judged<()> {
    let told =
        |error: std::io::Error| -> Violation { refused(&path.display().to_string(), &error) };
    std::fs::write(path, bytes).map_err(told)
}
