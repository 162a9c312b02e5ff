//! The command: lists targets, writes what to begin with, runs storms and repeats findings, all on
//! stable Rust. `cargo xtask fuzz` is where people begin.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use holdfast_fuzz::{Target, drive, find, memory, targets};

#[global_allocator]
static MEMORY: memory::Counting = memory::Counting;

/// Runs fuzz targets without libFuzzer.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Names of all targets, with the longest input of each.
    List,
    /// Writes the inputs that a target begins with into a folder.
    Seeds {
        /// The target.
        target: String,
        /// Where to.
        folder: PathBuf,
    },
    /// Runs one input: the bytes of a file, or hexadecimal digits.
    Replay {
        /// The target.
        target: String,
        /// A file, or digits.
        input: String,
    },
    /// Runs mutated inputs, without looking at what they cover.
    Storm {
        /// The target.
        target: String,
        /// Seconds.
        #[arg(long, default_value_t = 30)]
        seconds: u64,
        /// Where chance begins.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// A folder with inputs to begin with, besides those of the target.
        #[arg(long)]
        corpus: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("holdfast-fuzz: {why}");
            ExitCode::from(8)
        }
    }
}

/// Does it; `false` if the law was broken.
fn run(command: Command) -> Result<bool, String> {
    let told = |error: std::io::Error| error.to_string();
    match command {
        Command::List => {
            for Target { name, longest, story, .. } in targets::ALL {
                println!("{name} {longest} {story}");
            }
            Ok(true)
        }
        Command::Seeds { target, folder } => {
            std::fs::create_dir_all(&folder).map_err(told)?;
            for (number, input) in (named(&target)?.seeds)().iter().enumerate() {
                std::fs::write(folder.join(format!("seed-{number:03}")), input).map_err(told)?;
            }
            Ok(true)
        }
        Command::Replay { target, input } => {
            let bytes = match std::fs::read(Path::new(&input)) {
                Ok(bytes) => bytes,
                Err(error) => digits(&input).ok_or_else(|| format!("{input}: {error}"))?,
            };
            match drive::play(named(&target)?, &bytes) {
                Ok((time, most)) => println!("{target}: fine, {time:?}, {most} bytes at once"),
                Err(finding) => {
                    println!("{finding}");
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Command::Storm { target, seconds, seed, corpus } => {
            let target = named(&target)?;
            let mut inputs = (target.seeds)();
            if let Some(folder) = corpus {
                inputs.extend(drive::corpus(&folder).map_err(told)?);
            }
            let done = drive::storm(target, &inputs, Duration::from_secs(seconds), seed);
            println!(
                "{}: {} runs in {seconds} s, the longest {:?}, {} bytes at once",
                target.name, done.runs, done.longest, done.most
            );
            if let Some(finding) = &done.finding {
                println!("{finding}");
            }
            Ok(done.finding.is_none())
        }
    }
}

fn named(name: &str) -> Result<&'static Target, String> {
    find(name).ok_or_else(|| {
        let all: Vec<&str> = targets::ALL.iter().map(|target| target.name).collect();
        format!("no target {name}; there are {}", all.join(", "))
    })
}

/// Bytes of hexadecimal digits.
fn digits(text: &str) -> Option<Vec<u8>> {
    let pair = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok();
    text.len().is_multiple_of(2).then(|| text.as_bytes().chunks(2).map(pair).collect())?
}
