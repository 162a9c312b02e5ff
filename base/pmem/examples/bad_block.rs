//! A bad block on a device with direct access: listed before it is touched, an error value when it
//! is, healed in place or relocated. Real hardware or an emulated NVDIMM; needs root.
//!
//! `cargo run --example bad_block FOLDER`; the folder lies on a file system mounted with
//! `dax=always`. The block stays on the device's list afterwards. Exits with an error if anything
//! is not as it should be. `filefrag` must be installed: it says where the file lies.

use std::error::Error;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use holdfast_pmem::inject::handler_count;
use holdfast_pmem::{Access, Mapped, MediaCause, Medium, MediumKind, Options, PAGE, Site};

const HERE: Site = Site::new("pmem.bad_block");
/// The page that goes bad, and the spare that takes its place.
const BAD: u64 = 5;
const SPARE: u64 = 63;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("name a folder with direct access")?;
    let path = Path::new(&folder).join("bad-block-example");
    let result = tell(&path);
    let _ = std::fs::remove_file(&path);
    result
}

fn tell(path: &Path) -> Result<(), Box<dyn Error>> {
    let medium = Mapped::create(path, (SPARE + 1) * PAGE, &Options::default())?;
    println!("{}\ndomain      {}\n", medium.status(), medium.status().domain);
    expect(medium.kind() == MediumKind::Dax, "the folder offers direct access")?;
    for page in 0..=SPARE {
        medium.put(HERE, page * PAGE, &filled(page))?;
    }
    medium.drain(HERE);
    drop(medium);
    spoil(path)?;

    let medium = Mapped::open(path, Access::Write, &Options::default())?;
    expect(medium.bad_ranges() == [(BAD * PAGE, PAGE)], "the page is listed, untouched as it is")?;
    let before = handler_count();
    let Err(error) = medium.read(BAD * PAGE, &mut [0]) else { return Err("it reads".into()) };
    println!("read: {error}");
    expect(error.cause == MediaCause::Poison, "a load is an error value")?;
    let stored = medium.put(HERE, BAD * PAGE + 64, &[1; 64]);
    expect(stored.is_err_and(|error| error.cause == MediaCause::Poison), "so is a store")?;
    expect(handler_count() == before + 2, "each of them was one signal")?;
    let mut page = filled(0);
    medium.read((BAD - 1) * PAGE, &mut page)?;
    expect(page == filled(BAD - 1), "the neighbour is whole")?;

    match medium.heal(HERE, BAD * PAGE, &filled(BAD)) {
        Ok(()) => println!("heal: cleared in place"),
        Err(error) => {
            println!("heal: {error}; relocating");
            expect(error.cause == MediaCause::Unclearable, "the refusal is named")?;
            medium.remap(BAD * PAGE, SPARE * PAGE, PAGE)?;
            medium.heal(HERE, BAD * PAGE, &filled(BAD))?;
        }
    }
    medium.read(BAD * PAGE, &mut page)?;
    expect(page == filled(BAD), "the page is served again")?;
    println!("all as it should be");
    Ok(())
}

fn expect(holds: bool, what: &str) -> Result<(), Box<dyn Error>> {
    if holds { Ok(()) } else { Err(format!("not so: {what}").into()) }
}

fn filled(byte: u64) -> Vec<u8> {
    vec![byte as u8; PAGE as usize]
}

/// Puts the sector that holds the page on the device's list of bad ones.
fn spoil(path: &Path) -> Result<(), Box<dyn Error>> {
    const SECTOR: u64 = 512;
    let device = std::fs::metadata(path)?.dev();
    let (major, minor) = (libc::major(device), libc::minor(device));
    let out = Command::new("filefrag").args(["-v", "-b4096"]).arg(path).output()?;
    let text = String::from_utf8(out.stdout)?;
    // ext: logical_offset: physical_offset: length: ...
    let block = text.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').map(str::trim).collect();
        let first = |at: usize| fields.get(at)?.split("..").next()?.trim().parse::<u64>().ok();
        let (logical, physical, length) = (first(1)?, first(2)?, first(3)?);
        (logical..logical + length).contains(&BAD).then(|| physical + BAD - logical)
    });
    let sector = block.ok_or("filefrag does not name the block")? * (PAGE / SECTOR);
    let list = format!("/sys/dev/block/{major}:{minor}/badblocks");
    Ok(std::fs::write(list, format!("{sector} 1\n"))?)
}
