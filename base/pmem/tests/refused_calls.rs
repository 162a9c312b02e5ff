//! Whatever call the system refuses, once: the caller is told, nothing is in the way of the next
//! try, and nothing of anybody's is lost.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::folders;
use holdfast_pmem::inject::{Fails, fail_call, fail_no_call};
use holdfast_pmem::{Access, Making, Mapped, Medium, Options, PAGE, PutAside, Room};

const LEN: u64 = 4 * PAGE;
const WHOLE: &[u8] = &[7; LEN as usize];

/// More calls than any deed asks for.
const MOST: u64 = 200;

/// Something that asks the system for calls.
struct Deed {
    name: &'static str,
    before: fn(&Here),
    act: fn(&Here) -> Result<(), String>,
    /// What is there then, whether it was done or not.
    after: fn(&Here, bool),
}

/// The name of a file, and what it is called while it is being made.
struct Here {
    to: PathBuf,
    at: PathBuf,
}

impl Here {
    fn open(&self, access: Access, options: Options) -> Result<Mapped, String> {
        Mapped::open(&self.to, access, &options).map_err(told)
    }

    fn names(&self) -> (bool, bool) {
        (self.to.exists(), self.at.exists())
    }
}

fn told(error: impl std::error::Error) -> String {
    error.to_string()
}

fn make(to: &Path) -> Result<(), String> {
    let mut making = Making::begin(to).map_err(told)?;
    drop(making.map(LEN, Room::Taken, &Options::default()).map_err(told)?);
    making.keep(false).map_err(told)
}

fn whole(here: &Here) {
    fs::write(&here.to, WHOLE).unwrap();
}

fn still_whole(here: &Here) {
    assert_eq!(fs::read(&here.to).unwrap(), WHOLE);
}

const DEEDS: [Deed; 6] = [
    Deed {
        name: "a file is made, where somebody left one",
        before: |here| fs::write(&here.at, b"left").unwrap(),
        act: |here| make(&here.to),
        after: |here, done| {
            // One that has its name is whole, whatever went wrong then.
            match here.names() {
                (true, left) => {
                    assert!(!left);
                    assert_eq!(fs::read(&here.to).unwrap(), [0; LEN as usize]);
                    fs::remove_file(&here.to).unwrap();
                }
                (false, _) => assert!(!done),
            }
        },
    },
    Deed {
        name: "a file is put aside and removed",
        before: whole,
        act: |here| PutAside::begin(&here.to).map(PutAside::remove).map_err(told),
        after: |here, done| {
            // What could not be removed goes with the next that is made.
            let (there, aside) = here.names();
            assert_eq!(there, !done);
            assert!(!(there && aside));
            if there {
                still_whole(here);
            }
        },
    },
    Deed {
        name: "a file is put aside and comes back",
        before: whole,
        act: |here| PutAside::begin(&here.to).and_then(PutAside::back).map_err(told),
        after: |here, done| match here.names() {
            (true, aside) => {
                assert!(!aside);
                still_whole(here);
            }
            (false, aside) => {
                assert!(aside && !done, "it has one of its names");
                assert_eq!(fs::read(&here.at).unwrap(), WHOLE);
            }
        },
    },
    Deed {
        name: "a file is mapped for writing",
        before: whole,
        act: |here| here.open(Access::Write, Options::default()).map(drop),
        after: |here, _| still_whole(here),
    },
    Deed {
        name: "a file is looked at while it is kept still",
        before: whole,
        act: |here| {
            let options = Options { keep_still: true, ..Options::default() };
            here.open(Access::PrivateCopy, options).map(drop)
        },
        after: |here, _| still_whole(here),
    },
    Deed {
        name: "somebody else's file grows",
        before: whole,
        act: |here| {
            let options = Options { foreign: true, ..Options::default() };
            let medium = here.open(Access::Write, options)?;
            medium.grow(2 * LEN).map_err(told)?;
            // Others have made it longer, and stored there.
            fs::OpenOptions::new().write(true).open(&here.to).unwrap().set_len(4 * LEN).unwrap();
            medium.grow(3 * LEN).map_err(told)
        },
        after: |here, done| {
            let found = fs::read(&here.to).unwrap();
            assert_eq!(&found[..LEN as usize], WHOLE);
            let lens = if done { &[4 * LEN][..] } else { &[LEN, 2 * LEN, 4 * LEN] };
            assert!(lens.contains(&(found.len() as u64)), "{}", found.len());
        },
    },
];

/// Does it with each call refused in its turn, and once more with none; how many there were, and
/// how many of them it can do without.
fn play(deed: &Deed, folder: &Path) -> (u64, u64) {
    let mut without = 0;
    for nth in 1..MOST {
        let folder = tempfile::tempdir_in(folder).unwrap();
        let to = folder.path().join("a.holdfast");
        let here = Here { at: Making::name_of(&to), to };
        (deed.before)(&here);
        fail_call(nth, Fails::Once);
        let done = (deed.act)(&here);
        let asked = fail_no_call();
        println!("{}, call {nth}: {:?} refused, {done:?}", deed.name, asked.refused);
        (deed.after)(&here, done.is_ok());
        if asked.refused.is_none() {
            assert_eq!(done, Ok(()), "{}", deed.name);
            return (nth - 1, without);
        }
        without += u64::from(done.is_ok());
        (deed.before)(&here);
        assert_eq!((deed.act)(&here), Ok(()), "{}, after call {nth} was refused", deed.name);
        (deed.after)(&here, true);
    }
    panic!("{} never ends", deed.name);
}

#[test]
fn whatever_is_refused_is_told_and_the_next_try_succeeds() {
    for folder in folders() {
        for deed in &DEEDS {
            let (calls, without) = play(deed, folder.path());
            assert!(calls > without, "{}: {calls} calls, {without} done without", deed.name);
        }
    }
}
