//! The program behind `cargo xtask campaign`.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    holdfast_campaign::cli::run(&holdfast_campaign::cli::Cli::parse())
}
