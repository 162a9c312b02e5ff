//! The program behind `cargo xtask campaign`.

use std::process::ExitCode;

use clap::Parser;
use holdfast_campaign::cli::{Cli, USAGE, run};

fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => run(&cli),
        Err(error) => {
            let code = if error.use_stderr() { USAGE } else { 0 };
            // Nobody reads it: there is nobody to tell that.
            let _ = error.print();
            ExitCode::from(code)
        }
    }
}
