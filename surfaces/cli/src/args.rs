//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::size;

/// Durable, self-checking pools in memory-mapped files: make them, check them, repair them.
#[derive(Debug, Parser)]
#[command(name = "holdfast", version, arg_required_else_help = true)]
#[command(after_help = "Exit codes add up, as those of fsck: 0 clean, 1 damage found and all \
    corrected, 2 pages of a protected file that a person has to decide about, 4 damage left, 8 the \
    command could not be done, 16 usage, 32 interrupted.")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Print one JSON object, or one per line where there are many
    #[arg(short = 'j', long, global = true)]
    pub(crate) json: bool,
    /// Print results only
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Print more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Print for people, whatever the configuration says
    #[arg(long, global = true, conflicts_with = "json")]
    pub(crate) no_json: bool,
    /// Print all of it, whatever the configuration says
    #[arg(long, global = true, conflicts_with = "quiet")]
    pub(crate) no_quiet: bool,
    /// A file in TOML with defaults for options; flags win over it [env: HOLDFAST_CONFIG]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make pools, make them longer, list, show and remove them
    #[command(after_help = "Example:\n  holdfast pool create a.pool --size 64M")]
    #[command(subcommand)]
    Pool(PoolCommand),
    /// Check everything in a pool; change nothing unless asked to
    #[command(after_help = "Examples:\n  \
        holdfast check a.pool\n  \
        holdfast check a.pool --repair --dry-run")]
    Check(CheckArgs),
    /// Look for damage and repair it, while the pool is in use or not
    #[command(after_help = "Example:\n  holdfast scrub start -w a.pool")]
    #[command(subcommand)]
    Scrub(ScrubCommand),
    /// Repair all damage: of a pool, recovered first, or of a protected file
    #[command(after_help = "Examples:\n  \
        holdfast repair a.pool\n  \
        holdfast repair book.db\n  \
        holdfast repair book.db --before book.before\n\n\
        Of a protected file, pages are replaced that are known to be damaged. What somebody may\n\
        have written is undecided, and stays; --before shows what it was, --force brings it back.\n\
        A write after which the date of the file was put back (touch -r) counts as damage.")]
    Repair(RepairArgs),
    /// Keep sums and parity of a file, of any program, in a side file beside it
    #[command(after_help = "Examples:\n  \
        holdfast protect book.db\n  \
        holdfast protect book.db --data 8 --parity 2 --again\n  \
        holdfast protect book.db --in keep.pool")]
    Protect(ProtectArgs),
    /// Hold a protected file against what was covered; change nothing
    #[command(after_help = "Example:\n  holdfast verify book.db")]
    Verify(FileArgs),
    /// Show how much of a protected file is covered, and what was found
    #[command(after_help = "Examples:\n  \
        holdfast status book.db --json\n  \
        holdfast status --trace traces/book.db.trace\n\n\
        Of a file in use, whoever keeps it is asked what is covered now.")]
    Status(StatusArgs),
    /// End the protection of a file and remove its side file
    #[command(after_help = "Example:\n  holdfast unprotect book.db")]
    Unprotect(UnprotectArgs),
    /// Run a program; keep sums and parity of its files while it runs
    #[command(after_help = "Examples:\n  \
        holdfast guard --match '*.db' -- python3 book.py\n  \
        holdfast guard --period 10s --match '*.log:1s' --match '*.db' -- server --port 80\n\n\
        Guarded are files with a side file, and those that --match fits; never lock files,\n\
        devices and what lies in memory. The program has its own input, output and errors;\n\
        the summary comes on standard error when it is gone. The exit code is the program's\n\
        if it failed (128 and the signal if one ended it), else that of its files.")]
    Guard(GuardArgs),
    /// Damage live bytes of a pool made with --allow-inject
    #[command(after_help = "Example:\n  holdfast inject stray a.pool --count 5 --seed 7")]
    #[command(subcommand)]
    Inject(InjectCommand),
    /// Show the detections and repairs in the journal of a pool or a protected file
    #[command(after_help = "Examples:\n  \
        holdfast events a.pool --follow --json\n  \
        holdfast events book.db")]
    Events(EventsArgs),
    /// Show where the bytes of a pool are, and what was done since it was opened
    #[command(after_help = "Example:\n  holdfast stats a.pool")]
    Stats(PathArgs),
    /// Write a map as lines of JSON
    #[command(after_help = "Example:\n  holdfast export a.pool users --output users.jsonl\n\n\
        Each line is an object {\"key\":..., \"value\":...}. Bytes that are no UTF-8 text are\n\
        in key_b64 and value_b64, in base 64.")]
    Export(ExportArgs),
    /// Put lines of JSON, as export writes them, into a map
    #[command(after_help = "Example:\n  holdfast import a.pool users users.jsonl\n\n\
        Each batch is a transaction: all of its lines or none. The first batch with a bad line\n\
        ends the import; all bad lines from there on are told, and the line to go on from.")]
    Import(ImportArgs),
    /// Measure put, get and del of a map, in a pool nobody uses or in shared memory
    #[command(after_help = "Examples:\n  \
        holdfast bench --shm --pairs 10000\n  \
        holdfast bench a.pool --pairs 200")]
    Bench(BenchArgs),
    /// Watch a pool: throughput, latency, scrub, events, redundancy, space
    #[command(after_help = "Examples:\n  \
        holdfast top a.pool --interval 1s\n  \
        holdfast top a.pool --once --prometheus a.prom --html a.html\n\n\
        On a terminal q ends it and a key shows the figures of now; elsewhere it prints a line\n\
        for each interval. Files are replaced whole, so that a reader never meets half of one.")]
    Top(TopArgs),
    /// Read and change maps
    #[command(after_help = "Example:\n  holdfast map put a.pool users alice 42")]
    #[command(subcommand)]
    Map(MapCommand),
    /// Index text files in a pool, damage it while it is queried, kill commits, and count
    #[command(after_help = "Examples:\n  \
        holdfast demo\n  \
        holdfast demo ~/texts --seed 7 --faults 2000")]
    Demo(DemoArgs),
    /// Print what lets a shell complete this command's words
    #[command(after_help = "Example:\n  holdfast completions bash")]
    Completions(CompletionsArgs),
    /// Print the manual page, or write those of all commands into a folder
    #[command(after_help = "Examples:\n  holdfast man\n  holdfast man man1")]
    Man(ManArgs),
    /// The process of the demo that damages the pool
    #[command(hide = true)]
    DemoInjector(InjectorArgs),
    /// The process of the demo that dies in its commits
    #[command(hide = true)]
    DemoVictim(VictimArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// Make a pool in a new file
    #[command(after_help = "Examples:\n  \
        holdfast pool create a.pool --size 1G --parity pq --label bank\n  \
        holdfast pool create small.pool --size 4M --frame 4K --log 128K")]
    Create(CreateArgs),
    /// Show what a pool is, what protects it and what is in it
    #[command(after_help = "Example:\n  holdfast pool info a.pool -v")]
    Info(PathArgs),
    /// Make a pool longer, while it is in use or not; nothing in it moves
    #[command(after_help = "Example:\n  holdfast pool grow a.pool 256M")]
    Grow(GrowArgs),
    /// List the pools in a folder; nothing is locked or changed
    #[command(after_help = "Example:\n  holdfast pool list /var/lib/bank")]
    List(ListArgs),
    /// Remove a pool that nobody uses, for good
    #[command(after_help = "Example:\n  holdfast pool rm a.pool --force")]
    Rm(RmArgs),
    /// Show of which files a pool has the redundancy; remove what belongs to none
    #[command(after_help = "Examples:\n  \
        holdfast pool sweep keep.pool\n  \
        holdfast pool sweep keep.pool --drop 6b1f0c52a07e4d389c2ab5d417e9f033\n\n\
        What a killed command left goes. A region whose pointer is not where it was goes only\n\
        if it is asked for: its file may have been moved. `repair` of a moved file says so.")]
    Sweep(SweepArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SweepArgs {
    /// The pool's file
    pub(crate) pool: PathBuf,
    /// Remove this region, too, if no file in its place points to it
    #[arg(long, value_name = "REGION")]
    pub(crate) drop: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// The folder
    #[arg(default_value = ".")]
    pub(crate) dir: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// The pool's file
    pub(crate) pool: PathBuf,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GrowArgs {
    /// The pool's file
    pub(crate) pool: PathBuf,
    /// Bytes it is to have, all its parts included: 256M, 2G
    #[arg(value_parser = size::parse)]
    pub(crate) size: u64,
}

#[derive(Debug, Args)]
pub(crate) struct PathArgs {
    /// The pool's file
    pub(crate) pool: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// The file to make
    pub(crate) pool: PathBuf,
    /// Bytes of the pool: 64M, 1G
    #[arg(short, long, default_value = "64M", value_parser = size::parse)]
    pub(crate) size: u64,
    /// Parity rows: with one, a lost page of each column is rebuilt; with two, two are
    #[arg(short, long, default_value = "p")]
    pub(crate) parity: ParityArg,
    /// Sums of objects
    #[arg(long, default_value = "crc32c")]
    pub(crate) sums: SumsArg,
    /// A name for people
    #[arg(short, long, default_value = "")]
    pub(crate) label: String,
    /// Let `holdfast inject` damage it
    #[arg(long)]
    pub(crate) allow_inject: bool,
    /// Keep metadata and log once only
    #[arg(long)]
    pub(crate) single_copy: bool,
    /// Rows of a zone, parity included
    #[arg(long)]
    pub(crate) rows: Option<u32>,
    /// Largest contiguous loss to survive; pools below 16M need less than the default of 2M
    #[arg(long, value_parser = size::parse)]
    pub(crate) frame: Option<u64>,
    /// Bytes of a heap chunk
    #[arg(long, value_parser = size::parse)]
    pub(crate) chunk: Option<u64>,
    /// Transactions that can run at once
    #[arg(long)]
    pub(crate) lanes: Option<u32>,
    /// Bytes of log in each copy
    #[arg(long, value_parser = size::parse)]
    pub(crate) log: Option<u64>,
    /// Bytes of the events journal in each copy
    #[arg(long, value_parser = size::parse)]
    pub(crate) events: Option<u64>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ParityArg {
    None,
    P,
    Pq,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum SumsArg {
    None,
    Crc32c,
    Adler32,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The pool's file
    pub(crate) pool: PathBuf,
    /// Repair what can be
    #[arg(short, long)]
    pub(crate) repair: bool,
    /// Change nothing: with --repair, tell what a repair would come to
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ScrubCommand {
    /// Scrub the whole pool; a pool in use is scrubbed by its owner
    #[command(after_help = "Example:\n  holdfast scrub start -w a.pool --rate 100M")]
    Start(ScrubArgs),
    /// Show how far the scrub is
    #[command(after_help = "Example:\n  holdfast scrub status a.pool --json")]
    Status(PathArgs),
    /// Stop the scrub of a pool in use, to go on later
    #[command(after_help = "Example:\n  holdfast scrub pause a.pool")]
    Pause(PathArgs),
    /// Go on where a scrub was paused or interrupted
    #[command(after_help = "Example:\n  holdfast scrub resume -w a.pool")]
    Resume(ScrubArgs),
    /// Stop the scrub of a pool in use for good, or give up one that was paused
    #[command(after_help = "Example:\n  holdfast scrub cancel a.pool")]
    Cancel(PathArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ScrubArgs {
    /// The pool's file
    pub(crate) pool: PathBuf,
    /// Wait until the owner is done (a pool not in use is scrubbed by this command, which waits)
    #[arg(short, long)]
    pub(crate) wait: bool,
    /// At most so many bytes a second
    #[arg(long, value_parser = size::parse)]
    pub(crate) rate: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct RepairArgs {
    /// The pool's file, or a protected file
    pub(crate) pool: PathBuf,
    /// Of a protected file: replace undecided pages, too, with what they were when covered
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Of a protected file: change nothing, write what it was when covered to this new file
    #[arg(long, value_name = "OUT", conflicts_with = "force")]
    pub(crate) before: Option<PathBuf>,
    /// The side file of a protected file, unless it is beside it
    #[arg(long, value_name = "FILE")]
    pub(crate) side: Option<PathBuf>,
    /// The pool that has its redundancy, if it is not where it was
    #[arg(long = "in", value_name = "POOL", conflicts_with = "side")]
    pub(crate) pool_of: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct FileArgs {
    /// The file
    pub(crate) file: PathBuf,
    /// Its side file, unless it is beside it
    #[arg(long, value_name = "FILE")]
    pub(crate) side: Option<PathBuf>,
    /// The pool that is to have its redundancy; later, if the pool is not where it was
    #[arg(long = "in", value_name = "POOL", conflicts_with = "side")]
    pub(crate) pool: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// The file
    #[arg(required_unless_present = "trace")]
    pub(crate) file: Option<PathBuf>,
    /// Its side file, unless it is beside it
    #[arg(long, value_name = "FILE")]
    pub(crate) side: Option<PathBuf>,
    /// The pool that has its redundancy, if it is not where it was
    #[arg(long = "in", value_name = "POOL", conflicts_with = "side")]
    pub(crate) pool: Option<PathBuf>,
    /// Reckon from this trace, as `guard --trace` writes it, how much was not covered
    #[arg(long, value_name = "TRACE", conflicts_with_all = ["file", "side", "pool"])]
    pub(crate) trace: Option<PathBuf>,
    /// Pages of a stripe of the file that was traced
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) data: u32,
}

/// How a side file is made; one that is there keeps what it has.
#[derive(Debug, Args)]
pub(crate) struct StripeArgs {
    /// Pages of a stripe of a side file that is made
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) data: u32,
    /// Parity pages of a stripe: so many of its pages are given back; with 0, sums only, and damage
    /// is found and not repaired
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=2))]
    pub(crate) parity: u32,
}

#[derive(Debug, Args)]
pub(crate) struct ProtectArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    #[command(flatten)]
    pub(crate) stripe: StripeArgs,
    /// Read and cover at most so many bytes a second: 100M
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub(crate) pace: Option<u64>,
    /// If it is protected already: take it as it is now; refused while pages are damaged
    #[arg(long)]
    pub(crate) again: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UnprotectArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    /// Also if pages are damaged or undecided, which then stay so, or the side file is unusable
    #[arg(short, long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GuardArgs {
    /// Time between two passes over a file: 500ms, 1s, 1min
    #[arg(long, default_value = "1s", value_parser = size::parse_time)]
    pub(crate) period: std::time::Duration,
    /// Protect files of this name, or path if it has a slash: * any characters, ? any one; with a
    /// period of its own behind a colon
    #[arg(long = "match", value_name = "GLOB[:PERIOD]")]
    pub(crate) globs: Vec<String>,
    #[command(flatten)]
    pub(crate) stripe: StripeArgs,
    /// Cover at most so many bytes in a second, of all files together: 20M, 1G. Nobody who syncs
    /// waits for that
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub(crate) pace: Option<u64>,
    /// What redundancy is to survive: the death of processes, or a power cut, with syncs
    #[arg(long, default_value = "process")]
    pub(crate) durability: DurabilityArg,
    /// Compute on this processor, and keep the program off it
    #[arg(long, value_name = "N")]
    pub(crate) own_core: Option<u32>,
    /// Compute on the processor where the program ran last
    #[arg(long, conflicts_with = "own_core")]
    pub(crate) same_core: bool,
    /// Let syncs of the program return before what they wrote is covered
    #[arg(long)]
    pub(crate) no_cover_on_sync: bool,
    /// Refuse the program rings of the kernel's, `io_uring` and `aio`, by which it writes unseen
    #[arg(long)]
    pub(crate) strict: bool,
    /// Programs and libraries of which you know that they write through the C library only, though
    /// they contain system calls of their own
    #[arg(long, value_name = "GLOB")]
    pub(crate) trust: Vec<String>,
    /// Damage so many covered pages of each guarded file once a period, the program standing still,
    /// and have them repaired: a test of your own set-up
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) drill: Option<u32>,
    /// Choose the pages and bytes of the drill from this seed; the summary tells the one used
    #[arg(long, value_name = "SEED", requires = "drill")]
    pub(crate) drill_seed: Option<u64>,
    /// A folder to write a trace of each guarded file to: which pages each pass found stored to,
    /// in NAME.trace or, where that is there, NAME.2.trace and so on; `status --trace` reckons from
    /// one how much was not covered
    #[arg(long, value_name = "DIR")]
    pub(crate) trace: Option<PathBuf>,
    /// Write the summary to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) summary: Option<PathBuf>,
    /// The library that programs load, unless it is with this command [env: HOLDFAST_PRELOAD]
    #[arg(long, value_name = "FILE")]
    pub(crate) preload: Option<PathBuf>,
    /// A descriptor to write the name to under which a program finds this supervisor by itself
    #[arg(long, hide = true, value_name = "FD", conflicts_with = "program")]
    pub(crate) serve: Option<u32>,
    /// The program and its arguments
    #[arg(last = true, required_unless_present = "serve", value_name = "PROGRAM")]
    pub(crate) program: Vec<std::ffi::OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DurabilityArg {
    Process,
    Power,
}

#[derive(Debug, Subcommand)]
pub(crate) enum InjectCommand {
    /// Turn over one bit
    #[command(after_help = "Example:\n  holdfast inject bitflip a.pool --part object")]
    Bitflip(InjectArgs),
    /// Overwrite bytes with others, as a stray store would
    #[command(after_help = "Example:\n  holdfast inject stray a.pool --seed 7")]
    Stray(InjectArgs),
    /// Make pages unreadable; in a file nobody has open, destroy their contents
    #[command(after_help = "Example:\n  holdfast inject poison a.pool --count 3")]
    Poison(InjectArgs),
    /// Put back what was there before a write, as if it had been lost
    #[command(after_help = "Example:\n  holdfast inject lost a.pool --record damage.jsonl")]
    Lost(InjectArgs),
    /// Put what belongs in one place in another
    #[command(after_help = "Example:\n  holdfast inject misdirect a.pool --seed 2")]
    Misdirect(InjectArgs),
    /// Put back the end of what was there before a write, as if it had been torn
    #[command(after_help = "Example:\n  holdfast inject torn a.pool --part parity")]
    Torn(InjectArgs),
    /// Take damage back, by the lines an injection printed with --json or --record
    #[command(after_help = "Examples:\n  \
        holdfast inject lost a.pool --record damage.jsonl\n  \
        holdfast inject restore a.pool --record damage.jsonl")]
    Restore(RestoreArgs),
}

#[derive(Debug, Args)]
pub(crate) struct InjectArgs {
    /// The pool's file
    pub(crate) pool: PathBuf,
    /// Seed of all choices
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Faults to inject, no two where they could add up
    #[arg(long, default_value_t = 1)]
    pub(crate) count: u64,
    /// Damage this only
    #[arg(long)]
    pub(crate) part: Option<PartArg>,
    /// Add what was done to this file, one JSON object per line, to be taken back with `restore`
    #[arg(long)]
    pub(crate) record: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PartArg {
    Object,
    Slot,
    Sums,
    Directory,
    Parity,
    Metadata,
    Log,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The pool's file
    pub(crate) pool: PathBuf,
    /// File with the lines of the injection
    #[arg(long)]
    pub(crate) record: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    /// The pool's file, or a protected file
    pub(crate) pool: PathBuf,
    /// The side file of a protected file, unless it is beside it
    #[arg(long, value_name = "FILE")]
    pub(crate) side: Option<PathBuf>,
    /// The pool that has its redundancy, if it is not where it was
    #[arg(long = "in", value_name = "POOL", conflicts_with = "side")]
    pub(crate) pool_of: Option<PathBuf>,
    /// Go on with events as they come, until interrupted
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// From this event on
    #[arg(long, default_value_t = 0)]
    pub(crate) from: u64,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MapCommand {
    /// Print the value of a key
    #[command(after_help = "Example:\n  holdfast map get a.pool users alice")]
    Get(KeyArgs),
    /// Give a key a value; makes the map if there is none
    #[command(after_help = "Example:\n  holdfast map put a.pool users alice 42")]
    Put(PutArgs),
    /// Remove a key
    #[command(after_help = "Example:\n  holdfast map del a.pool users alice")]
    Del(KeyArgs),
    /// Print keys and values in order
    #[command(after_help = "Example:\n  holdfast map scan a.pool users --prefix al --limit 10")]
    Scan(ScanArgs),
    /// Put lines of KEY, tab, VALUE from a file (- for standard input)
    #[command(after_help = "Examples:\n  \
        holdfast map load a.pool users users.tsv\n  \
            seq 9 | sed 's/.*/&,x&/' | holdfast map load a.pool users - --separator ,")]
    Load(LoadArgs),
    /// List the maps of a pool
    #[command(after_help = "Example:\n  holdfast map list a.pool")]
    List(PathArgs),
}

#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// The pool's file
    pub(crate) pool: PathBuf,
    /// Name of the map
    pub(crate) map: String,
    /// The key
    pub(crate) key: String,
}

#[derive(Debug, Args)]
pub(crate) struct PutArgs {
    #[command(flatten)]
    pub(crate) place: KeyArgs,
    /// The value
    pub(crate) value: String,
    /// Structure of a map to be made
    #[arg(long, default_value = "btree")]
    pub(crate) kind: KindArg,
}

/// What a map is kept in; the guide to collections says which to choose.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum KindArg {
    /// In order, the best all-round
    Btree,
    /// No order, the fastest
    #[value(alias = "hash")]
    Hashmap,
    /// In order: red-black tree
    Rbtree,
    /// In order: crit-bit tree
    Ctree,
    /// In order: skip list
    Skiplist,
    /// In order: radix tree
    Rtree,
}

#[derive(Debug, Args)]
pub(crate) struct ScanArgs {
    /// The pool's file
    pub(crate) pool: PathBuf,
    /// Name of the map
    pub(crate) map: String,
    /// First key
    #[arg(long)]
    pub(crate) from: Option<String>,
    /// Key to stop before
    #[arg(long)]
    pub(crate) to: Option<String>,
    /// Keys that start with this
    #[arg(long, conflicts_with_all = ["from", "to"])]
    pub(crate) prefix: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = usize::MAX, hide_default_value = true)]
    pub(crate) limit: usize,
}

#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// The pool's file
    pub(crate) pool: PathBuf,
    /// Name of the map
    pub(crate) map: String,
    /// The file with the lines
    pub(crate) file: PathBuf,
    /// What parts key and value
    #[arg(long, default_value = "\t", hide_default_value = true)]
    pub(crate) separator: String,
    /// Lines per transaction
    #[arg(long, default_value_t = 100)]
    pub(crate) batch: usize,
    /// Structure of a map to be made
    #[arg(long, default_value = "btree")]
    pub(crate) kind: KindArg,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The pool's file
    pub(crate) pool: PathBuf,
    /// Name of the map
    pub(crate) map: String,
    /// A file to make; standard output unless given
    #[arg(short, long)]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The pool's file
    pub(crate) pool: PathBuf,
    /// Name of the map
    pub(crate) map: String,
    /// The file with the lines; standard input unless given
    #[arg(default_value = "-", hide_default_value = true)]
    pub(crate) file: PathBuf,
    /// Lines per transaction
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) batch: u64,
    /// Begin at this line
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) from: u64,
    /// Structure of a map to be made
    #[arg(long, default_value = "btree")]
    pub(crate) kind: KindArg,
    /// Keys and values of a map to be made
    #[arg(long, default_value = "text-bytes")]
    pub(crate) types: TypesArg,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TypesArg {
    TextBytes,
    TextText,
    BytesBytes,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// The pool's file
    #[arg(required_unless_present = "shm", conflicts_with = "shm")]
    pub(crate) pool: Option<PathBuf>,
    /// Measure in a pool in shared memory, which is gone afterwards
    #[arg(long)]
    pub(crate) shm: bool,
    /// Pairs to put, get and delete
    #[arg(long, default_value_t = 2000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=50_000_000))]
    pub(crate) pairs: u64,
    /// Bytes of a value
    #[arg(long, default_value = "100", value_parser = size::parse)]
    pub(crate) value: u64,
    /// Structure of the map
    #[arg(long, default_value = "btree")]
    pub(crate) kind: KindArg,
    /// Seed of the keys and their order
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// The pool's file
    pub(crate) pool: PathBuf,
    /// Time between two looks: 500ms, 2s, 1min
    #[arg(short, long, default_value = "2s", value_parser = size::parse_time)]
    pub(crate) interval: std::time::Duration,
    /// Print the figures once and end
    #[arg(long)]
    pub(crate) once: bool,
    /// A file to write the figures to at each look, as Prometheus reads them
    #[arg(long, value_name = "FILE")]
    pub(crate) prometheus: Option<PathBuf>,
    /// A file to write the figures to at each look, as one page of HTML
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Folder whose text files are indexed
    #[arg(default_value = ".")]
    pub(crate) path: PathBuf,
    /// Seed of all choices
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Faults to inject while every read verifies
    #[arg(long, default_value_t = 1100)]
    pub(crate) faults: u64,
    /// Commits to kill, at the least
    #[arg(long, default_value_t = 24)]
    pub(crate) kills: u64,
    /// Bytes of text to index, at the most
    #[arg(long, default_value = "4M", value_parser = size::parse)]
    pub(crate) text: u64,
    /// Folder for the pool; the system's for temporary files unless given
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// Leave the pool there and say where
    #[arg(long)]
    pub(crate) keep: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// A folder for the pages, made if there is none; those there are written again
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct InjectorArgs {
    pub(crate) pool: PathBuf,
    #[arg(long)]
    pub(crate) seed: u64,
}

#[derive(Debug, Args)]
pub(crate) struct VictimArgs {
    pub(crate) pool: PathBuf,
    #[arg(long)]
    pub(crate) seed: u64,
    /// Transactions to run
    #[arg(long)]
    pub(crate) runs: u64,
    /// Step to die at
    #[arg(long)]
    pub(crate) step: Option<String>,
    /// The how-manieth time it is reached
    #[arg(long, default_value_t = 1)]
    pub(crate) nth: u64,
}
