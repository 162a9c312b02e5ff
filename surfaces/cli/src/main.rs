//! The program: everything is in the library, so that tests reach it without starting a process.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    holdfast_cli::main()
}
