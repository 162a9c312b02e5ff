//! Lies about a pool that a machine left when it was ended, told to its judge: each is planted in a
//! copy of the pool, or in what was said of it, and has to be convicted. The truth is judged first.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use holdfast_layout::{RawPtr, Region, RegionKind};
use holdfast_pmem::PAGE;

use super::super::model::{Object, Objects};
use super::super::promise::{LEFT, examine};
use super::super::raw::{Bytes, Scope, survey};
use super::super::victim::{Said, open};
use super::{all_said, promised};
use crate::tally::{Fault, Judged, Tally, Violation};

/// Pages that are tried for the lie about one.
const PAGES_TRIED: usize = 32;

/// What is said of a lie that was convicted, before its name.
pub const CONVICTED: &str = "life: convicted ";
/// And of one that was not.
pub const MISSED: &str = "life: Violation: nothing was found to be wrong: ";

/// Tells one lie after the other, and says on the console what became of each.
#[must_use]
pub fn tell(lies: &[String], pool: &Path, (said, older): (&Path, &Path)) -> ExitCode {
    let told = Scene::begin(pool, said, older).and_then(|scene| {
        scene.judge(scene.said.clone())?;
        let convicted = |name: &String| scene.tell(name).map(|found| report(name, &found));
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

/// Judges the truth, then tells one lie: what the judge answers to that.
///
/// # Errors
/// The truth was convicted, or the lie cannot be told here.
pub fn judged(lie: &str, pool: &Path, (said, older): (&Path, &Path)) -> Judged<Judged<()>> {
    let scene = Scene::begin(pool, said, older)?;
    scene.judge(scene.said.clone())?;
    scene.tell(lie)
}

/// Says what became of a lie; whether it was convicted.
pub fn report(name: &str, found: &Judged<()>) -> bool {
    match found {
        // A judge that was refused something has not judged what is there.
        Err(violation) if violation.fault.is_wrong_state() => {
            let story: String = violation.story.chars().take(100).collect();
            eprintln!("{CONVICTED}{name}: {story}");
        }
        other => eprintln!("{MISSED}{name}: {other:?}"),
    }
    matches!(found, Err(violation) if violation.fault.is_wrong_state())
}

/// What was left, and what was said.
struct Scene {
    /// The pool as it was left, and as it was left one life before.
    left: Vec<u8>,
    before: Vec<u8>,
    /// Where copies are judged.
    copy: PathBuf,
    said: Vec<Said>,
    older: Vec<Said>,
    objects: Objects,
    anchor: u64,
    zone: Region,
}

impl Scene {
    fn begin(pool: &Path, said: &Path, older: &Path) -> Judged<Self> {
        let read = |path: &Path| std::fs::read(path).map_err(|error| io(path, &error));
        let (left, before) = (read(pool)?, read(&pool.with_file_name(LEFT))?);
        let folder = pool.with_file_name("lies");
        std::fs::create_dir_all(&folder).map_err(|error| io(&folder, &error))?;
        let copy = folder.join("pool");
        std::fs::write(&copy, &left).map_err(|error| io(&copy, &error))?;
        let opened = open(&copy).map_err(|error| Violation::new(Fault::Refused, error))?;
        let found = survey(&Bytes::of(opened.0.medium()), Scope::OBJECTS);
        let found = found.ok_or_else(|| wrong("no superblock verifies"))?;
        let regions = opened.0.regions();
        let zone = regions.into_iter().find(|region| region.kind == RegionKind::Zone);
        Ok(Self {
            left,
            before,
            copy,
            said: all_said(said),
            older: all_said(older),
            objects: found.objects,
            anchor: found.anchor,
            zone: zone.ok_or_else(|| wrong("there is no zone"))?,
        })
    }

    /// Judges what was left by what was said.
    fn judge(&self, said: Vec<Said>) -> Judged<()> {
        self.judge_of(&self.left, said)
    }

    fn judge_of(&self, bytes: &[u8], said: Vec<Said>) -> Judged<()> {
        std::fs::write(&self.copy, bytes).map_err(|error| io(&self.copy, &error))?;
        examine(&self.copy, Some(&promised(said)?), &mut Tally::default()).map(drop)
    }

    /// Tells a lie; what the judge answers. An error if it cannot be told here.
    fn tell(&self, name: &str) -> Judged<Judged<()>> {
        let said = || self.said.clone();
        Ok(match name {
            "an older promise" => self.judge(self.older.clone()),
            "an ack left out" => self.judge(self.ack_left_out()?),
            "an ack too many" => self.judge(self.ack_too_many()),
            "a byte flipped" => self.judge_of(&self.flipped(self.some_object()?), said()),
            "a parity flipped" => self.judge_of(&self.flipped(self.some_parity()?), said()),
            "a page as it was" => self.some_page_as_it_was(said())?,
            "all as it was" => self.judge_of(&self.before, said()),
            _ => return Err(wrong(format!("nobody knows the lie `{name}`"))),
        })
    }

    /// Without the last transaction that was acknowledged, and whose objects nobody changed since.
    fn ack_left_out(&self) -> Judged<Vec<Said>> {
        let mut later: Vec<u64> = Vec::new();
        let mut acked: Vec<(usize, u8)> = Vec::new();
        for (at, said) in self.said.iter().enumerate().rev() {
            match said {
                Said::Ack(thread) => acked.push((at, *thread)),
                Said::Begin(thread, change) => {
                    let words: Vec<u64> = change.iter().map(|(word, _)| *word).collect();
                    let own = acked.iter().position(|(_, other)| other == thread);
                    let ack = own.map(|place| acked.swap_remove(place).0);
                    if let Some(ack) = ack
                        && !words.iter().any(|word| later.contains(word))
                    {
                        return Ok(self.without(*thread, at, ack));
                    }
                    later.extend(words);
                }
                _ => {}
            }
        }
        Err(wrong("the last life acknowledged nothing"))
    }

    /// Without what a thread began at a place and was acknowledged at another; nor what it had
    /// begun before that, which is the same once more.
    fn without(&self, thread: u8, begun: usize, ack: usize) -> Vec<Said> {
        let begins = |said: &Said| match said {
            Said::Begin(other, _) => *other == thread,
            _ => false,
        };
        let ended = |said: &Said| match said {
            Said::Ack(other) | Said::Refused(other) => *other == thread,
            _ => false,
        };
        let before = self.said[..begun].iter().rposition(ended).map_or(0, |at| at + 1);
        let gone =
            |at: usize, said: &Said| at == ack || (before..=begun).contains(&at) && begins(said);
        let kept = self.said.iter().enumerate().filter(|(at, said)| !gone(*at, said));
        kept.map(|(_, said)| said.clone()).collect()
    }

    /// With one more of the first thread, of which the pool knows nothing.
    fn ack_too_many(&self) -> Vec<Said> {
        let mut all = self.said.clone();
        let free = (1..).map(|slot| slot << 6).find(|word| self.objects.get(*word).is_none());
        let object = Object { kind: 1, bytes: Arc::from(vec![7; 24]) };
        all.push(Said::Begin(0, vec![(free.unwrap_or(64), Some(object))]));
        all.push(Said::Ack(0));
        all
    }

    /// First byte of an object that the last life found and left alone: what is in the log is done
    /// once more when the pool is opened, and the anchor is looked at then.
    fn some_object(&self) -> Judged<u64> {
        let mut named: BTreeMap<u64, u64> = BTreeMap::new();
        let mut order = Vec::new();
        for said in &self.said {
            let Said::Begin(_, change) = said else { continue };
            for (word, _) in change {
                *named.entry(*word).or_default() += 1;
                order.push(*word);
            }
        }
        let alone = |word: &&u64| {
            let object = self.objects.get(**word);
            let there = object.is_some_and(|object| !object.bytes.is_empty());
            there && **word != self.anchor && named[*word] == 1
        };
        let first = order.iter().find(alone);
        first
            .map(|word| RawPtr::from_word(*word).offset())
            .ok_or_else(|| wrong("the last life left no object alone"))
    }

    /// First byte of the parity of that object.
    fn some_parity(&self) -> Judged<u64> {
        let (zone, at) = (&self.zone, self.some_object()?);
        let parity = zone.start + u64::from(zone.data_rows) * zone.row_len;
        Ok(parity + (at - zone.start) % zone.row_len)
    }

    fn flipped(&self, at: u64) -> Vec<u8> {
        let mut bytes = self.left.clone();
        bytes[at as usize] ^= 0x10;
        bytes
    }

    /// A page of data that the last life changed is what it was before. What is in the log still is
    /// done once more, and brings back its own: so others are tried, those that changed most first.
    fn some_page_as_it_was(&self, said: Vec<Said>) -> Judged<Judged<()>> {
        let end = self.zone.start + u64::from(self.zone.data_rows) * self.zone.row_len;
        let range = |page: u64| page as usize..(page + PAGE) as usize;
        let changed = |page: u64| {
            let pair = self.left.get(range(page)).zip(self.before.get(range(page)));
            pair.map_or(0, |(now, then)| now.iter().zip(then).filter(|(a, b)| a != b).count())
        };
        let pages = (self.zone.start..end).step_by(PAGE as usize);
        let mut pages: Vec<_> = pages.map(|page| (changed(page), page)).collect();
        pages.retain(|(bytes, _)| *bytes > 0);
        pages.sort_unstable_by(|a, b| b.cmp(a));
        for (_, page) in pages.iter().take(PAGES_TRIED) {
            let mut bytes = self.left.clone();
            bytes[range(*page)].copy_from_slice(&self.before[range(*page)]);
            let judged = self.judge_of(&bytes, said.clone());
            if judged.as_ref().is_err_and(|violation| violation.fault.is_wrong_state()) {
                return Ok(judged);
            }
        }
        if pages.is_empty() { Err(wrong("the last life changed nothing")) } else { Ok(Ok(())) }
    }
}

fn wrong(story: impl Into<String>) -> Violation {
    Violation::new(Fault::Wrong, story)
}

fn io(path: &Path, error: &std::io::Error) -> Violation {
    Violation::new(Fault::Refused, format!("{}: {error}", path.display()))
}
