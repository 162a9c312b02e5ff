//! Programs that tell what they have of a file that is guarded since now, or, if they attached
//! themselves, of all files. Nothing is judged meanwhile, of that file or of all.
//!
//! One that does not come to its end, by dying or by taking too long, leaves nobody who knows what
//! it stored before its mappings were told: what it was about is contested.

use std::time::Instant;

use holdfast_guard_wire::Answer;

use crate::serve::{Guard, LATEST};

/// A program that tells what it has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settling {
    pub(crate) space: u64,
    pub(crate) process: u32,
    since: Instant,
    /// The file; `None` if it attached itself: of all that it has nothing is known.
    of: Option<usize>,
}

impl Settling {
    pub(crate) fn new(space: u64, process: u32, of: Option<usize>) -> Self {
        Self { space, process, since: Instant::now(), of }
    }

    /// Whether it attached itself.
    pub(crate) fn is_late(&self) -> bool {
        self.of.is_none()
    }
}

impl Guard {
    /// Whether a program is still telling what it has of a file.
    pub(crate) fn settles(&self, index: usize) -> bool {
        self.settling.iter().any(|it| it.of.is_none_or(|file| file == index))
    }

    /// Whether a program that attached itself is still telling what it has.
    pub(crate) fn attaches(&self) -> bool {
        self.settling.iter().any(Settling::is_late)
    }

    /// Those that take too long are not believed.
    pub(crate) fn expire_settling(&mut self) {
        let (left, over): (Vec<_>, Vec<_>) =
            self.settling.iter().partition(|it| it.since.elapsed() < LATEST);
        self.settling = left;
        for it in over {
            self.doubt_settling(it, "did not come to an end telling what it has");
        }
    }

    /// A space ends; what it was about to tell, nobody will.
    pub(crate) fn end_settling(&mut self, space: u64) {
        let (over, left): (Vec<_>, Vec<_>) = self.settling.iter().partition(|it| it.space == space);
        self.settling = left;
        for it in over {
            self.doubt_settling(it, "ended before it had told what it has");
        }
    }

    fn doubt_settling(&mut self, it: Settling, what: &str) {
        let why = format!("process {} {what}", it.process);
        let of = it.of;
        for (_, file) in
            self.files.iter_mut().filter(|(index, _)| of.is_none_or(|of| of == **index))
        {
            file.contest(why.clone());
        }
    }

    /// A program has told what it has, of a file or of all. What nobody knows of is told apart from
    /// what it does once it goes on.
    pub(crate) fn settle(&mut self, space: u64, of: Option<usize>) -> Answer {
        let found = self.settling.iter().position(|it| it.space == space && it.of == of);
        if let Some(at) = found {
            self.settling.remove(at);
            let all = self.files.keys().copied().filter(|index| of.is_none_or(|of| of == *index));
            for index in all.collect::<Vec<_>>() {
                self.pass_soon(index);
            }
        }
        Answer::Done
    }
}
