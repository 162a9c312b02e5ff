//! Direct access on a machine that has it: an emulated NVDIMM will do. Run as root with
//! `HOLDFAST_DAX` naming a folder on a file system mounted with `dax=always`, and `--ignored`.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod common;

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

use common::{HERE, filled, numbered, protected};
use holdfast_pmem::inject::handler_count;
use holdfast_pmem::{Access, Mapped, MediaCause, MediaError, Medium, MediumKind, PAGE, Protect};

fn folder() -> tempfile::TempDir {
    let root = std::env::var_os("HOLDFAST_DAX").expect("HOLDFAST_DAX names a dax folder");
    tempfile::tempdir_in(PathBuf::from(root)).unwrap()
}

/// Where the page lies on its device, in sectors, as the file system's own tool says.
fn sector_of(path: &std::path::Path, page: u64) -> u64 {
    let out = Command::new("filefrag").args(["-v", "-b4096"]).arg(path).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    text.lines()
        .find_map(|line| {
            // ext: logical_offset: physical_offset: length: ...
            let fields: Vec<&str> = line.split(':').map(str::trim).collect();
            let first = |field: &str| field.split("..").next()?.trim().parse::<u64>().ok();
            let (logical, physical) = (first(fields.get(1)?)?, first(fields.get(2)?)?);
            let length: u64 = fields.get(3)?.parse().ok()?;
            (logical..logical + length)
                .contains(&page)
                .then(|| (physical + page - logical) * (PAGE / 512))
        })
        .unwrap()
}

#[test]
#[ignore = "needs a file system with direct access"]
fn the_medium_is_dax_and_commits_need_no_system_call() {
    let folder = folder();
    let (path, medium) = numbered(&folder, 600, &protected(Protect::Auto));
    assert_eq!(medium.kind(), MediumKind::Dax);
    let status = medium.status();
    assert_eq!(status.survives(), "power cut");
    println!("{status}\ndomain {}", status.domain);
    medium.append(HERE, PAGE, b"record").unwrap();
    medium.sync(HERE).unwrap();
    assert_eq!(medium.syncs(), 0);
    medium.grow(1200 * PAGE).unwrap();
    medium.put(HERE, 1199 * PAGE, &filled(7)).unwrap();
    drop(medium);
    let observer = Mapped::open(&path, Access::ReadOnly, &protected(Protect::Auto)).unwrap();
    assert_eq!(observer.kind(), MediumKind::Dax);
    let mut found = filled(0);
    observer.read(1199 * PAGE, &mut found).unwrap();
    assert_eq!(found, filled(7));
}

#[test]
#[ignore = "needs a file system with direct access whose device takes bad blocks"]
fn a_bad_block_of_the_device_is_listed_found_and_left_behind() {
    let folder = folder();
    let (path, medium) = numbered(&folder, 64, &protected(Protect::Auto));
    medium.drain(HERE);
    drop(medium);
    let device = std::fs::metadata(&path).unwrap().dev();
    let (major, minor) = (libc::major(device), libc::minor(device));
    let list = format!("/sys/dev/block/{major}:{minor}/badblocks");
    std::fs::write(list, format!("{} 1\n", sector_of(&path, 5))).unwrap();

    let medium = Mapped::open(&path, Access::Write, &protected(Protect::Auto)).unwrap();
    assert_eq!(medium.bad_ranges(), [(5 * PAGE, PAGE)], "before anybody touched it");
    let before = handler_count();
    let bad = medium.read(5 * PAGE, &mut [0]).unwrap_err();
    assert_eq!(bad.cause, MediaCause::Poison);
    assert!(bad.at <= 5 * PAGE && 5 * PAGE < bad.at + bad.len, "{bad}");
    assert!(medium.put(HERE, 5 * PAGE + 64, &[1; 64]).is_err());
    assert_eq!(handler_count() - before, 2);
    let mut found = filled(0);
    medium.read(4 * PAGE, &mut found).unwrap();
    assert_eq!(found, filled(4));
    // Whether a rewrite clears it is the platform's choice; if not, it is said and relocation works.
    match medium.heal(HERE, 5 * PAGE, &filled(5)) {
        Ok(()) => println!("cleared in place"),
        Err(error) => {
            println!("{error}");
            let unclearable =
                MediaError { at: 5 * PAGE, len: PAGE, cause: MediaCause::Unclearable };
            assert_eq!(error, unclearable);
            medium.remap(5 * PAGE, 63 * PAGE, PAGE).unwrap();
            medium.heal(HERE, 5 * PAGE, &filled(5)).unwrap();
        }
    }
    medium.read(5 * PAGE, &mut found).unwrap();
    assert_eq!(found, filled(5));
}
