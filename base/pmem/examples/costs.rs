//! Prints what the medium's calls cost on this machine, in nanoseconds.
//!
//! `cargo run --release -p holdfast-pmem --example costs [FOLDER]`; the folder is `/dev/shm` unless
//! given. Each figure is the median of 15 rounds. Places are spread over the whole pool, so that
//! neither the cache nor the page-table cache hold them all ("cold"), or over 64 KiB ("hot").

use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

use holdfast_pmem::{Mapped, MediaError, Medium, Options, PAGE, Protect, Site};

const HERE: Site = Site::new("pmem.costs");
const POOL: u64 = 256 << 20;
const HOT: u64 = 64 << 10;
const CALLS: u64 = 20_000;
const ROUNDS: usize = 15;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).map_or_else(|| PathBuf::from("/dev/shm"), PathBuf::from);
    for protection in [Protect::Alias, Protect::None] {
        let path = folder.join(format!("holdfast-costs-{}", std::process::id()));
        let options = Options { protection, ..Options::default() };
        let medium = Mapped::create(&path, POOL, &options)?;
        // The file goes with its last mapping, however this ends.
        std::fs::remove_file(&path)?;
        for at in (0..POOL).step_by(PAGE as usize) {
            medium.zero(HERE, at, PAGE)?;
        }
        println!("{}\n", medium.status());
        table(&medium)?;
        println!();
    }
    Ok(())
}

fn table(medium: &Mapped) -> Result<(), Box<dyn std::error::Error>> {
    let source = vec![0x5a_u8; 4096];
    let mut into = vec![0_u8; 4096];
    println!("{:28}{:>8}{:>8}", "call", "hot", "cold");
    for len in [16, 64, 256, 1024, 4096_usize] {
        let bytes = &source[..len];
        row(&format!("put {len}"), medium, |at| medium.put(HERE, at, bytes))?;
        row(&format!("put {len}, drain"), medium, |at| {
            medium.put(HERE, at, bytes)?;
            medium.drain(HERE);
            Ok(())
        })?;
        row(&format!("xor {len}"), medium, |at| medium.xor(HERE, at, bytes))?;
        row(&format!("xor {len}, drain"), medium, |at| {
            medium.xor(HERE, at, bytes)?;
            medium.drain(HERE);
            Ok(())
        })?;
        row(&format!("read {len}"), medium, |at| {
            let result = medium.read(at, &mut into[..len]);
            black_box(&into);
            result
        })?;
        row(&format!("copy {len} from the view"), medium, |at| {
            if let Some(from) = medium.view(at, len as u64) {
                // SAFETY: `view` has checked the range; this thread alone stores to the pool.
                unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), black_box(len)) };
                black_box(&into);
            }
            Ok(())
        })?;
    }
    row("drain", medium, |_| {
        medium.drain(HERE);
        Ok(())
    })?;
    Ok(())
}

fn row(
    name: &str,
    medium: &Mapped,
    mut call: impl FnMut(u64) -> Result<(), MediaError>,
) -> Result<(), MediaError> {
    let hot = median(HOT, &mut call)?;
    let cold = median(medium.len(), &mut call)?;
    println!("{name:28}{hot:8.1}{cold:8.1}");
    Ok(())
}

/// Nanoseconds per call, at places below `bound` that begin a line.
fn median(
    bound: u64,
    call: &mut impl FnMut(u64) -> Result<(), MediaError>,
) -> Result<f64, MediaError> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut rounds = [0.0; ROUNDS];
    for round in &mut rounds {
        let begin = Instant::now();
        for _ in 0..CALLS {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            call((state % (bound - PAGE)) & !63)?;
        }
        *round = begin.elapsed().as_nanos() as f64 / CALLS as f64;
    }
    rounds.sort_by(f64::total_cmp);
    Ok(rounds[ROUNDS / 2])
}
