//! The process that damages the pool: takes orders on standard input, answers with what it did.
//!
//! ```text
//! -> remember                     keep the file as it is now, for lost writes
//! <- ok
//! -> inject 40 objects poison     so many, where (live, objects, log), of one kind or any
//! <- {"kind":...}                 one line per fault
//! <- ok
//! ```
//!
//! The pool's owner is told nothing. Poison is the exception in form only: a media error is met by
//! the process that has the mapping, so the injector asks the owner to map a page without bytes
//! there; the engine in that process is not told either.

use std::fs::OpenOptions;
use std::io::{self, BufRead, Write};

use holdfast::anatomy::Part;
use holdfast::{Observer, Owner};

use crate::args::InjectorArgs;
use crate::commands::inject::refuse_others;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::faults::{Fault, Injector, Kind};
use crate::rng::Rng;

/// Everything whose damage somebody reads before it is overwritten; objects the most.
const LIVE: &[Part] = &[
    Part::Object,
    Part::Object,
    Part::Object,
    Part::Object,
    Part::Slot,
    Part::Sums,
    Part::Directory,
    Part::ParityP,
    Part::ParityQ,
    Part::Metadata,
];

/// Runs the injector until its input ends.
pub(crate) fn run(args: &InjectorArgs) -> Outcome {
    let failed = |error: &io::Error| Failure::io(args.pool.display(), error);
    let observer = Observer::open(&args.pool)?;
    refuse_others(&observer)?;
    let file = OpenOptions::new().read(true).write(true).open(&args.pool);
    let file = file.map_err(|error| failed(&error))?;
    let mut injector = Injector::new(file, observer.anatomy()?, args.seed);
    let mut rng = Rng::new(args.seed, 0x0dd);
    drop(observer);
    for order in io::stdin().lock().lines() {
        let order = order.map_err(|error| Failure::io("stdin", &error))?;
        let words: Vec<&str> = order.split(' ').collect();
        match words.as_slice() {
            ["remember"] => injector.remember().map_err(|error| failed(&error))?,
            ["inject", count, parts, kind] => {
                let count = count.parse().unwrap_or(0);
                injector.refresh(Observer::open(&args.pool)?.anatomy()?);
                injector.give_back();
                inject(args, &mut injector, &mut rng, (count, parts, kind))?;
            }
            _ => return Err(Failure::usage(format!("no such order: {order}"), "see the source")),
        }
        say("ok")?;
    }
    Ok(Exit::CLEAN)
}

fn inject(
    args: &InjectorArgs,
    injector: &mut Injector,
    rng: &mut Rng,
    (count, parts, kind): (u64, &str, &str),
) -> Outcome<()> {
    let failed = |error: &io::Error| Failure::io(args.pool.display(), error);
    let parts = match parts {
        "objects" => &[Part::Object],
        "log" => &[Part::Log],
        _ => LIVE,
    };
    for _ in 0..count {
        let clearable = kind != "unclearable";
        let kind = match kind {
            "any" => any_kind(rng),
            "unclearable" => Kind::Poison,
            name => Kind::from_name(name).unwrap_or(Kind::Bitflip),
        };
        let chosen = injector.choose(kind, parts).map_err(|error| failed(&error))?;
        let Some(fault) = chosen else { continue };
        do_it(args, injector, &fault, clearable)?;
        say(&fault.json().to_string())?;
    }
    Ok(())
}

fn do_it(args: &InjectorArgs, injector: &Injector, fault: &Fault, clearable: bool) -> Outcome<()> {
    if fault.kind != Kind::Poison {
        return injector.apply(fault).map_err(|error| Failure::io(args.pool.display(), &error));
    }
    match Owner::reach(&args.pool) {
        Some(mut owner) => Ok(owner.poison(fault.hits[0].at, clearable)?),
        None => Err(Failure::new("not-found", "the pool has no owner to poison", "start the demo")),
    }
}

/// Faults that change little are more frequent, as they are in life.
fn any_kind(rng: &mut Rng) -> Kind {
    match rng.below(12) {
        0..3 => Kind::Bitflip,
        3..6 => Kind::Stray,
        6..8 => Kind::Poison,
        8..9 => Kind::Lost,
        9..11 => Kind::Misdirect,
        _ => Kind::Torn,
    }
}

fn say(line: &str) -> Outcome<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .map_err(|error| Failure::io("stdout", &error))
}
