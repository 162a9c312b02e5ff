//! Reckons goals and sums of the list anew, after the table of goals has changed:
//! `cargo run -p holdfast-evidence -- docs/evidence.md`. Rows are neither added nor changed.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let (Some(path), None) = (words.next(), words.next()) else {
        eprintln!("evidence: which list? such as docs/evidence.md");
        return ExitCode::from(16);
    };
    if path == "--help" || path == "-h" {
        println!("Usage: holdfast-evidence <LIST>\n\nReckons goals and sums of the list anew.");
        return ExitCode::SUCCESS;
    }
    if !Path::new(&path).is_file() {
        eprintln!("evidence: there is no {}", Path::new(&path).display());
        return ExitCode::from(8);
    }
    match holdfast_evidence::append(Path::new(&path), &[]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("evidence: {error:#}");
            ExitCode::from(8)
        }
    }
}
