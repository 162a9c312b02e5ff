//! What rows do and judge, with the engines at work. It stands here because the library is then
//! built once: tests within it are built with all that they reach.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod convicted;
mod fields;
mod histories;
mod mapped_fields;
mod mapped_mutants;
mod mapped_pointers;
mod mapped_sequences;
mod mapped_side;
mod mapped_specimen;
mod maps;
mod mutants;
mod owned;
mod sequences;
mod storm;
mod tables;
mod wrap;

use holdfast_campaign::runner::Row;

/// The row of that name.
fn row(campaign: &str, name: &str) -> &'static Row {
    let rows = match campaign {
        "object" => holdfast_campaign::object::rows::ROWS,
        _ => holdfast_campaign::mapped::rows::ROWS,
    };
    rows.iter().find(|row| row.name == name).unwrap()
}
