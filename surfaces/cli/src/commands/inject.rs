//! `inject`: damage done to live bytes of a pool that was made for it, and taken back.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use holdfast::Observer;
use holdfast::anatomy::Part;
use serde_json::{Value, json};

use crate::args::{InjectArgs, InjectCommand, RestoreArgs};
use crate::commands::lines::{Form, Lines};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::faults::{Fault, Injector, Kind};
use crate::out::{Out, count};
use crate::session;

/// What is damaged unless a part is named: everything whose damage anybody reads before it is
/// overwritten.
const PARTS: [Part; 7] = [
    Part::Object,
    Part::Slot,
    Part::Sums,
    Part::Directory,
    Part::ParityP,
    Part::ParityQ,
    Part::Metadata,
];

/// What lines of a record may be: a fault changes a page or two.
const LINES: Form = Form {
    longest: 1 << 20,
    ahead: 64,
    remedy: "give the file that `holdfast inject --record` wrote; nothing was changed",
};

/// Does the damage asked for.
pub(crate) fn inject(out: Out, command: &InjectCommand) -> Outcome {
    let (kind, args) = match command {
        InjectCommand::Bitflip(args) => (Kind::Bitflip, args),
        InjectCommand::Stray(args) => (Kind::Stray, args),
        InjectCommand::Poison(args) => (Kind::Poison, args),
        InjectCommand::Lost(args) => (Kind::Lost, args),
        InjectCommand::Misdirect(args) => (Kind::Misdirect, args),
        InjectCommand::Torn(args) => (Kind::Torn, args),
        InjectCommand::Restore(args) => return restore(out, args),
    };
    let observer = Observer::open(&args.pool)?;
    refuse_others(&observer)?;
    // Poison is met by whoever has the mapping.
    let mut owner = match kind {
        Kind::Poison => session::reach(&observer)?,
        _ => None,
    };
    let file = writable(&args.pool)?;
    let mut injector = Injector::new(file, observer.anatomy()?, args.seed);
    let mut record = args.record.as_deref().map(append_to).transpose()?;
    let parts = args.part.map_or(&PARTS[..], crate::args::PartArg::parts);
    let failed = |error: &std::io::Error| Failure::io(args.pool.display(), error);
    let mut done = 0;
    while done < args.count && !crate::interrupt::asked() {
        let chosen = injector.choose(kind, parts).map_err(|error| failed(&error))?;
        let Some(fault) = chosen else {
            return Err(nothing_left(args, done));
        };
        if let (Some(record), Some(path)) = (&mut record, &args.record) {
            // Written first: damage nobody knows of could not be taken back.
            writeln!(record, "{}", fault.json())
                .map_err(|error| Failure::io(path.display(), &error))?;
        }
        match &mut owner {
            Some(owner) => owner.poison(fault.hits[0].at, true)?,
            None => injector.apply(&fault).map_err(|error| failed(&error))?,
        }
        done += 1;
        out.item("inject", fault_json(&fault, done), || fault.to_string());
    }
    if kind == Kind::Poison && owner.is_none() {
        out.note(
            "a file cannot hold a media error: the pages were destroyed instead; in a pool that \
             is open, poison is real",
        );
    }
    out.words(format!(
        "{} injected; `holdfast scrub start -w {}` repairs{}",
        count(done, "fault"),
        args.pool.display(),
        match &args.record {
            Some(path) => format!(", `holdfast inject restore` with {} undoes", path.display()),
            None => String::new(),
        }
    ));
    Ok(if done < args.count { Exit::CANCELLED } else { Exit::CLEAN })
}

/// Takes damage back: the last first.
pub(crate) fn restore(out: Out, args: &RestoreArgs) -> Outcome {
    let observer = Observer::open(&args.pool)?;
    refuse_others(&observer)?;
    let faults = recorded(&args.record)?;
    let size = observer.superblock()?.size;
    let file = writable(&args.pool)?;
    let hits = || faults.iter().rev().flat_map(|fault| fault.hits.iter().rev());
    let inside = |at: u64, len: usize| at.checked_add(len as u64).is_some_and(|end| end <= size);
    if let Some(hit) = hits().find(|hit| !inside(hit.in_file, hit.before.len())) {
        return Err(Failure::new(
            "invalid",
            format!("{}: {:#x} lies outside of the pool", args.record.display(), hit.in_file),
            "give the record of this pool; nothing was changed",
        ));
    }
    for hit in hits() {
        file.write_all_at(&hit.before, hit.in_file)
            .map_err(|error| Failure::io(args.pool.display(), &error))?;
    }
    out.object("inject", json!({ "restored": faults.len() }));
    out.words(format!("{} taken back", count(faults.len() as u64, "fault")));
    Ok(Exit::CLEAN)
}

/// The faults that a file tells of. It may be any file, or none that ends.
fn recorded(path: &Path) -> Outcome<Vec<Fault>> {
    let lines = Lines::of(path, LINES)?;
    let mut faults = Vec::new();
    while let Some(line) = lines.next()? {
        let number = faults.len() + 1;
        let fault = line
            .text
            .and_then(|text| Fault::parse(&text).ok_or_else(|| "tells of no fault".to_owned()));
        faults.push(fault.map_err(|what| {
            let cause = format!("{}, line {number}: {what}", path.display());
            Failure::new("invalid", cause, LINES.remedy)
        })?);
    }
    if crate::interrupt::asked() {
        return Err(Failure::interrupted("nothing was changed"));
    }
    Ok(faults)
}

/// Pools are damaged only if they were made for it.
pub(crate) fn refuse_others(observer: &Observer) -> Outcome<()> {
    if observer.superblock()?.allow_inject {
        return Ok(());
    }
    Err(Failure::new(
        "refused",
        format!("{}: does not allow faults to be injected", observer.path().display()),
        "make a pool for it with `holdfast pool create --allow-inject`; this one was not changed",
    ))
}

fn writable(path: &Path) -> Outcome<File> {
    let opened = OpenOptions::new().read(true).write(true).open(path);
    opened.map_err(|error| Failure::io(path.display(), &error))
}

fn append_to(path: &Path) -> Outcome<File> {
    session::refuse_pool(path)?;
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened.map_err(|error| Failure::io(path.display(), &error))
}

fn nothing_left(args: &InjectArgs, done: u64) -> Failure {
    Failure::new(
        "invalid",
        format!(
            "{}: after {} there is no place left where another would not add up",
            args.pool.display(),
            count(done, "fault")
        ),
        "put more into the pool, repair it first, or ask for fewer",
    )
}

fn fault_json(fault: &Fault, number: u64) -> Value {
    let mut body = fault.json();
    body["number"] = number.into();
    body
}
