//! `top`: a pool watched from outside, on a terminal, as lines, and in files for other programs.
//!
//! ```text
//!   the pool's file --+                    +-- screen.rs      a terminal
//!                     +-- sample.rs: View -+-- plain.rs       lines, tables, objects
//!   its owner --------+                    +-- prometheus.rs  a file, replaced whole
//!                                          +-- html.rs        a file, replaced whole
//! ```
//!
//! Nothing is locked and nothing written to the pool. An owner that does not listen is waited
//! for at the first look only; one that does not answer then is shown as one that does not.

mod html;
mod plain;
mod prometheus;
mod sample;
mod screen;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::args::TopArgs;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out::Out;
use crate::session;

use sample::Sampler;
use screen::Screen;

/// How often a wait looks whether somebody interrupts.
const LOOK: Duration = Duration::from_millis(50);

/// Watches a pool.
pub(crate) fn top(out: Out, args: &TopArgs) -> Outcome {
    let mut sampler = Sampler::open(&args.pool)?;
    for path in [&args.prometheus, &args.html].into_iter().flatten() {
        session::refuse_pool(path)?;
    }
    let place = |path: &Option<PathBuf>| path.as_deref().map(place);
    if args.prometheus.is_some() && place(&args.prometheus) == place(&args.html) {
        let cause = "--prometheus and --html name the same file";
        return Err(Failure::usage(cause, "give each a file of its own"));
    }
    let mut screen = None;
    loop {
        let view = sampler.sample()?;
        if let Some(path) = &args.prometheus {
            replace(path, &prometheus::page(&args.pool, &view))?;
        }
        if let Some(path) = &args.html {
            let each = (!args.once).then_some(args.interval);
            replace(path, &html::page(&args.pool, &view, each))?;
        }
        if args.once {
            plain::once(out, &args.pool, &view);
            return Ok(Exit::CLEAN);
        }
        if screen.is_none() && out.shows_screen() {
            screen = Some(Screen::open()?);
        }
        let goes_on = match &mut screen {
            Some(screen) => screen.show(&args.pool, &view, args.interval)?,
            None => {
                plain::line(out, &args.pool, &view);
                wait(args.interval)
            }
        };
        if !goes_on {
            return Ok(Exit::CLEAN);
        }
    }
}

/// Waits; whether nobody interrupted.
fn wait(time: Duration) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < time && !crate::interrupt::asked() {
        std::thread::sleep(LOOK.min(time.saturating_sub(begun.elapsed())));
    }
    !crate::interrupt::asked()
}

/// Where a file is that is to be replaced, however its path is written. A link at its end is
/// replaced itself.
fn place(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let known = fs::canonicalize(folder.unwrap_or(Path::new(".")));
    match (known, path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path.to_path_buf(),
    }
}

/// Replaces a file by one with this text: whoever reads it gets the old one or the new one.
fn replace(path: &Path, text: &str) -> Outcome<()> {
    let failed = |error: std::io::Error| Failure::io(path.display(), &error);
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        let cause = format!("{}: is no regular file, and would be replaced by one", path.display());
        return Err(Failure::new("not-a-file", cause, "name a file, or a new one"));
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let new: PathBuf = path.with_file_name(name);
    let written = fs::write(&new, text).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        // Ours, by its name; half a file is of no use to anybody.
        let _ = fs::remove_file(&new);
    }
    written.map_err(failed)
}
