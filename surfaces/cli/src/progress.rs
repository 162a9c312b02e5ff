//! A progress bar where somebody looks at it, and nothing where nobody does.

use indicatif::{ProgressBar, ProgressStyle};

use crate::out::Out;

const BYTES: &str = "{msg} [{bar:32}] {bytes}/{total_bytes} {bytes_per_sec} {eta}";
const THINGS: &str = "{msg} [{bar:32}] {pos}/{len} {eta}";

/// Progress of one thing.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Of bytes.
    pub(crate) fn bytes(out: Out, what: &str) -> Self {
        Self::new(out, what, 0, BYTES)
    }

    /// Of `all` things.
    pub(crate) fn things(out: Out, what: &str, all: u64) -> Self {
        Self::new(out, what, all, THINGS)
    }

    fn new(out: Out, what: &str, all: u64, template: &str) -> Self {
        if !out.shows_progress() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::new(all);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(what.to_owned());
        Self(bar)
    }

    /// So much is done, of so much.
    pub(crate) fn set(&self, done: u64, all: u64) {
        self.0.set_length(all);
        self.0.set_position(done.min(all));
    }

    /// Shows how far something is, and has it go on until somebody asks the command to stop.
    pub(crate) fn until_asked(&self) -> impl FnMut(u64, u64) -> bool + '_ {
        |done, all| {
            if all > 0 {
                self.set(done, all);
            }
            !crate::interrupt::asked()
        }
    }

    /// So much is done.
    pub(crate) fn at(&self, done: u64) {
        self.0.set_position(done);
    }

    /// Takes the bar away.
    pub(crate) fn done(&self) {
        self.0.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
