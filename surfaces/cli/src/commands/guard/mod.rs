//! `guard`: a program of any kind runs, and its files get sums and parity meanwhile.
//!
//! Standard input, output and errors are the program's. What is to be told of the guard goes to
//! standard error when the program is gone, or to a file; files that are refused are told at once.

mod find;
mod report;
mod signals;

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use holdfast::protect::{Durability, Folios};
use holdfast_guard::{Drill, Error, Guard, Options, Placement};

use crate::args::{DurabilityArg, GuardArgs};
use crate::failure::{Failure, Outcome};
use crate::out::{Out, tame};
use crate::size;

/// Runs a program under guard.
pub(crate) fn guard(out: Out, args: &GuardArgs) -> Outcome {
    let mut options = options(out, args)?;
    // Before the program is there, so that no signal falls between.
    options.signals = signals::catch().map_err(|error| Failure::io("signals", &error))?;
    if let Some(to) = args.serve {
        return serve(out, args, options, to);
    }
    let (program, words) = args.program.split_first().ok_or_else(|| {
        Failure::usage("no program is named", "name it behind `--`, with its arguments")
    })?;
    let summary = report::Summary::prepare(args.summary.as_deref())?;
    let done = Guard::launch(program, words, options).and_then(Guard::run).map_err(failed)?;
    summary.tell(out, &done)?;
    Ok(report::exit(&done))
}

/// Guards a program that started this command and attaches itself.
fn serve(out: Out, args: &GuardArgs, options: Options, to: u32) -> Outcome {
    let summary = report::Summary::prepare(args.summary.as_deref())?;
    let (guard, name) = Guard::serve_late(options).map_err(failed)?;
    let told = std::fs::OpenOptions::new().write(true).open(format!("/proc/self/fd/{to}"));
    told.and_then(|mut pipe| pipe.write_all(format!("{name}\n").as_bytes()))
        .map_err(|error| Failure::io("the program that attaches itself", &error))?;
    let done = guard.run().map_err(failed)?;
    summary.tell(out, &done)?;
    Ok(report::exit(&done))
}

fn options(out: Out, args: &GuardArgs) -> Outcome<Options> {
    let preload = match args.serve {
        // The program has it already.
        Some(_) => std::path::PathBuf::new(),
        None => find::preload(args.preload.as_deref())?,
    };
    let mut options = Options::new(preload);
    options.only_guards = true;
    options.period = args.period;
    for text in &args.globs {
        let (glob, period) = pattern(text)?;
        if let Some(period) = period {
            options.periods.push((glob.clone(), period));
        }
        options.globs.push(glob);
    }
    options.protect.open.durability = match args.durability {
        DurabilityArg::Process => Durability::Process,
        DurabilityArg::Power => Durability::Power,
    };
    options.protect.folios = Folios::Small;
    options.protect.data = args.stripe.data;
    options.protect.keep.parity = args.stripe.parity;
    if args.pace == Some(0) {
        let remedy = "leave out --pace for no limit";
        return Err(Failure::usage("a pace of zero covers nothing", remedy));
    }
    options.pace = args.pace;
    options.cover_on_sync = !args.no_cover_on_sync;
    options.strict = args.strict;
    options.trusted.extend(args.trust.iter().cloned());
    let seed = args.drill_seed;
    options.drill = args.drill.map(|pages| Drill { pages, seed: seed.unwrap_or_else(chance) });
    if let Some(folder) = &args.trace {
        std::fs::create_dir_all(folder).map_err(|error| Failure::io(folder.display(), &error))?;
        // Programs under guard may go elsewhere, and so might we.
        let real = folder.canonicalize().map_err(|error| Failure::io(folder.display(), &error))?;
        options.trace = Some(real);
    }
    options.placement = match (args.own_core, args.same_core) {
        (Some(number), _) => Placement::Own(number),
        (None, true) => Placement::Same,
        (None, false) => Placement::Anywhere,
    };
    if !out.quiet {
        options.told = |path, why| {
            let text = format!("holdfast: {}: not guarded: {why}", path.display());
            // Nobody may listen any more; the summary has it, too.
            let _ = writeln!(std::io::stderr(), "{}", tame(&text));
        };
    }
    Ok(options)
}

/// A seed where none is given: told in the summary, so that a drill can be had again.
fn chance() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| now.as_micros() as u64)
}

/// A pattern, and the period behind its last colon if there is one.
fn pattern(text: &str) -> Outcome<(String, Option<Duration>)> {
    let split = text.rsplit_once(':').and_then(|(glob, end)| {
        let starts = end.starts_with(|c: char| c.is_ascii_digit());
        // What begins like a number is meant as a time, and has to be one.
        starts.then(|| (glob, size::parse_time(end)))
    });
    let (glob, period) = match split {
        Some((glob, Ok(period))) => (glob, Some(period)),
        Some((_, Err(why))) => return Err(Failure::usage(why, "write GLOB:PERIOD, as *.db:10s")),
        None => (text, None),
    };
    let wrong = |what: &str, remedy: &str| {
        Err(Failure::usage(format!("`{text}` is no pattern for files: {what}"), remedy))
    };
    if glob.is_empty() {
        return wrong("it is empty", "write * for any characters, ? for any one");
    }
    if let Some(sign) = glob.chars().find(|c| matches!(c, '[' | ']' | '{' | '}' | '\\')) {
        let what = format!("`{sign}` has no meaning in it");
        return wrong(&what, "write * for any characters, ? for any one; --match can be repeated");
    }
    if glob.ends_with('/') {
        return wrong("it names a folder", "write FOLDER/* for what is in it, however deep");
    }
    if glob.contains('/') && !glob.starts_with(['/', '*', '?']) {
        let what = "with a slash it is held against whole paths, which begin with one";
        return wrong(what, "write /FOLDER/NAME, or */FOLDER/NAME");
    }
    Ok((glob.to_owned(), period))
}

fn failed(error: Error) -> Failure {
    let kind = match &error {
        Error::NotFound { .. } | Error::NoPreload { .. } => "not-found",
        Error::NotExecutable { .. } => "permission",
        Error::Unobservable { .. } => "unobservable",
        Error::Processor { .. } | Error::Stripes { .. } => "invalid",
        Error::Track(_) => "unsupported",
        _ => "system",
    };
    let text = error.to_string();
    let (cause, remedy) = text.split_once("; ").unwrap_or((&text, "nothing was changed"));
    let more = match &error {
        Error::NotFound { .. } => "; check the name",
        Error::NotExecutable { .. } => "; check its mode, or name its interpreter",
        Error::Processor { .. } => "; choose another, or leave out --own-core",
        _ => "",
    };
    Failure::new(kind, cause, format!("{remedy}{more}"))
}

/// The folder of the running command.
fn beside() -> Outcome<std::path::PathBuf> {
    let me = std::env::current_exe().and_then(std::fs::canonicalize);
    let me = me.map_err(|error| Failure::io("/proc/self/exe", &error))?;
    Ok(me.parent().unwrap_or(Path::new("/")).to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_may_have_periods() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (text, glob, period) in [
            ("*.db", "*.db", None),
            ("*.db:10s", "*.db", seconds(10)),
            ("a:b", "a:b", None),
            ("a:b:2min", "a:b", seconds(120)),
            ("/srv/*", "/srv/*", None),
            ("*/x/y:3", "*/x/y", seconds(3)),
        ] {
            assert_eq!(pattern(text).unwrap(), (glob.to_owned(), period), "{text}");
        }
        for (text, what) in [
            ("", "empty"),
            (":1s", "empty"),
            ("*.db:0s", "no time"),
            ("*.db:9x", "no time"),
            ("*.[ab]", "`[`"),
            ("/srv/", "folder"),
            ("srv/*.db", "whole paths"),
        ] {
            let failure = pattern(text).unwrap_err();
            assert!(failure.to_string().contains(what), "{text}: {failure}");
            assert_eq!(failure.exit(), crate::exit::Exit::USAGE);
        }
    }
}
