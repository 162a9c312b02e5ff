//! A virtual machine with persistent memory: what this project does on hardware that ordinary
//! machines lack is run in one, and judged.
//!
//! # Guarantee
//!
//! A scene that is said to have passed ran in a kernel of its own, on the memory or the disk that
//! it names, to its end, and its program found nothing wrong. A machine that does not start, a
//! scene that stops in the middle and one that says nothing have failed. Where no machine can be
//! emulated (no packages of Debian's, no network, no right to install, no room), that is printed,
//! and the exit code is 8; with `--smoke`, which is for machines of any sort, it is 0. It is 8 for
//! either where packages can be reached, or were before, and are not what is looked for. A scene
//! that needs more than that, such as loop devices, is left out alone where there is no such thing.
//! No failure is forgotten for what cannot be done.
//!
//! Not covered: times, since the processor is emulated on one thread; races, for the same reason;
//! and stores that never left the cache of a processor: the emulator keeps each that it executed.
//! Those are judged by `base/faultmem`.
//!
//! # Picture
//!
//! ```text
//!   apt-get download --> a kernel of Debian's, its modules --+
//!   cargo build --> programs, with the libraries they name --+--> archive --> emulator
//!   a file of this machine = its persistent memory ------------------------------^ |
//!                                                        console: what a scene says v
//! ```
//!
//! # Vocabulary
//!
//! *host*: this machine. *guest*: the emulated one. *scene*: what one start of the guest is for.
//! *archive*: the files that the guest starts with, which its kernel unpacks into memory.
//!
//! # Life of one scene
//!
//! The host makes the archive and starts the emulator. In the guest this same program is the first
//! process: it mounts what a process expects, loads the modules, makes a name space of the
//! persistent memory and a file system with direct access on it, if there is none yet, and starts
//! the scene. It says `lab: ended` with the exit code, and turns the machine off. The host
//! has read along, and judges that line; no line, no success.
//!
//! # Tour
//!
//! `host/` is this side: `packages.rs` the kernel, `apt.rs` what it means that there is none,
//! `modules.rs` which of its modules in which
//! order, `programs.rs` what is built and the libraries it names, `files.rs` and `archive.rs` what
//! the guest starts with, `machine.rs` the emulator; `turns.rs` scene after scene, on one machine
//! or several, and what all of them come to; `say.rs` whose lines are whose; `test.rs`, `sick.rs`,
//! `lives.rs` and `blocklog.rs` the sorts of scenes. `blocklog/` the log of a disk's writes and
//! the images made of it. `guest.rs` is the other side. `scenes.rs` what there is to be run.

mod guest;
mod host;
mod scenes;

use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;

use clap::Parser;

/// Runs scenes in a virtual machine with persistent memory.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask lab", version)]
struct Cli {
    /// Run only the scenes of these names.
    #[arg(long, value_name = "SCENE")]
    only: Vec<String>,
    /// Run this test of a package instead of the scenes, such as `holdfast-pmem:protection`.
    #[arg(long, value_name = "PACKAGE:TEST", conflicts_with_all = ["only", "ledger"])]
    test: Option<String>,
    /// Where it has its temporary files.
    #[arg(long, value_enum, default_value = "dax", requires = "test")]
    on: scenes::Place,
    /// What it is told.
    #[arg(last = true, requires = "test")]
    words: Vec<String>,
    /// Name the scenes, and run nothing.
    #[arg(long)]
    list: bool,
    /// How often the emulator is killed, or the kernel crashes.
    #[arg(long, value_name = "N", default_value_t = 20,
          value_parser = clap::value_parser!(u64).range(1..))]
    cuts: u64,
    /// How many files live on a machine that fails, in each scene of that sort.
    #[arg(long, value_name = "N", default_value_t = 40,
          value_parser = clap::value_parser!(u64).range(1..))]
    lives: u64,
    /// Each scene once and briefly, but for two that others stand for. Where no machine can be had,
    /// exits with 0 and says why. It is too little to be noted in a list.
    #[arg(long, conflicts_with_all = ["test", "cuts", "lives", "images", "ledger"])]
    smoke: bool,
    /// Seconds of a processor that the emulators of a brief run may take, those of each of the
    /// machines at once for themselves; by the clock all of it may take four times as long.
    #[arg(long, value_name = "SECONDS", default_value_t = 240, requires = "smoke",
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    within: u64,
    /// Scenes played at once, each on a machine of its own [default: 2 of a brief run, else 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16))]
    jobs: Option<u8>,
    /// How many images are made of logged writes, in all.
    #[arg(long, value_name = "N", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(1..))]
    images: u64,
    /// On which file systems; all of them if none is named.
    #[arg(long, value_name = "NAME", value_enum)]
    fs: Vec<scenes::FileSystem>,
    /// Seed of everything random.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Add what was done and found to this list (docs/evidence.md).
    #[arg(long, value_name = "FILE")]
    ledger: Option<std::path::PathBuf>,
    /// Print a JSON object for each scene; what else there is to say goes to the standard error.
    #[arg(long, conflicts_with = "list")]
    json: bool,
    /// Print all that the guest says, also of scenes that pass.
    #[arg(long)]
    verbose: bool,
}

/// The exit code for what cannot be done here.
const OPERATIONAL: u8 = 8;
/// The exit code for what is not understood.
const USAGE: u8 = 16;

fn main() -> ExitCode {
    if std::process::id() == 1 {
        guest::main();
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Nobody reads it: there is nobody to tell that.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
        }
    };
    if let Err(error) = host::known(&cli).and_then(|()| host::is_test(cli.test.as_deref())) {
        eprintln!("lab: {error:#}");
        return ExitCode::from(USAGE);
    }
    if cli.list {
        for scene in scenes::ALL {
            match writeln!(std::io::stdout(), "{:10} {}", scene.name, scene.what) {
                Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                    eprintln!("lab: the standard output cannot be used: {error}");
                    return ExitCode::from(OPERATIONAL);
                }
                // Whoever closed it has read enough.
                _ => {}
            }
        }
        return ExitCode::SUCCESS;
    }
    let answers = match host::Answers::new(cli.json) {
        Ok(answers) => answers,
        Err(error) => {
            eprintln!("lab: the standard output cannot be used: {error}");
            return ExitCode::from(OPERATIONAL);
        }
    };
    holdfast_evidence::stop::end_at_once();
    match host::run(&cli, &answers) {
        Ok(came_to) => ExitCode::from(came_to.code(cli.smoke)),
        // Nothing has run yet: whatever comes later is a scene's.
        Err(error) if cli.smoke && error.is::<host::Impossible>() => {
            println!("skipped: no machine can be emulated here: {error:#}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("lab: {error:#}");
            ExitCode::from(OPERATIONAL)
        }
    }
}
