//! The process that dies: opens the pool, goes on with the account book, kills itself at a step.
//!
//! It prints `begun N` before transaction N and `done N` after it returned; `done` is a promise
//! that the parent holds the pool to.

use std::io::{self, Write};

use holdfast::Pool;
use holdfast_pmem::{Access, Mapped, Options as MapOptions};

use super::book::Book;
use super::mortal::Mortal;
use crate::args::VictimArgs;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};

/// Runs the victim. If it survives, it prints the steps it met.
pub(crate) fn run(args: &VictimArgs) -> Outcome {
    let mapped = Mapped::open(&args.pool, Access::Write, &MapOptions::default())
        .map_err(holdfast::Error::from)?;
    let fate = args.step.clone().map(|step| (step, args.nth));
    let pool = Pool::options().open_on(Mortal::new(mapped, fate))?;
    let book = Book::of(&pool)?;
    let last = book.last()?;
    for number in last + 1..=last + args.runs {
        say(&format!("begun {number}"))?;
        book.step(args.seed, number)?;
        say(&format!("done {number}"))?;
    }
    for (step, count) in pool.medium().met() {
        say(&format!("step {step} {count}"))?;
    }
    Ok(Exit::CLEAN)
}

fn say(line: &str) -> Outcome<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .map_err(|error| Failure::io("stdout", &error))
}
