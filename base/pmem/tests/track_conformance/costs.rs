//! What tracking costs here: a scan with re-arming of 64 MiB, and first stores. Printed, not
//! judged, except that a scan of clean pages must not cost what one of dirty pages does.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use holdfast_pmem::track::folios::{self, Folios};
use holdfast_pmem::track::{
    DirtySource, FirstStore, Forks, MediumRecord, RecordPlaces, Span, allocated,
};
use holdfast_pmem::{Durability, Mapped, Options, PAGE};

use crate::Story;
use crate::cells::{map, store};
use crate::common::folders;
use crate::stories::async_protect;

pub(crate) const STORIES: &[Story] = &[("costs", costs)];

const LEN: u64 = 64 << 20;
const PAGES: u64 = LEN / PAGE;
const ROUNDS: usize = 5;

fn costs() {
    println!(
        "{:34}{:>12}{:>12}{:>12}{:>12}{:>12}",
        "64 MiB, us per scan and re-arm", "clean", "10 %", "30 %", "100 %", "1st store"
    );
    for (name, folder) in ["disk", "shared memory"].iter().zip(folders()) {
        let asked: &[Folios] = match *name {
            "disk" => &[Folios::AsFound, Folios::Small],
            _ => &[Folios::AsFound],
        };
        for asked in asked {
            let path = folder.path().join("data");
            std::fs::write(&path, vec![1; LEN as usize]).unwrap();
            let file = File::options().read(true).write(true).open(&path).unwrap();
            file.sync_all().unwrap();
            let report = folios::apply(file.as_fd(), LEN, *asked).unwrap();
            assert!(
                *asked == Folios::AsFound
                    || (report.file_advised && report.kept.is_none_or(|n| n < PAGES / 100)),
                "{report}"
            );
            let base = map(&file, LEN);
            let span = Span::new(base as usize, LEN, 0).unwrap();
            if *asked == Folios::Small {
                folios::advise(span).unwrap();
            }
            if let Some(source) = async_protect(&file, base, LEN) {
                row(&format!("async protect, {name}, {asked:?}"), &source, base);
            }
            println!("    {report}");
        }
        let path = folder.path().join("first");
        let file = File::create_new(&path).unwrap();
        file.set_len(LEN).unwrap();
        drop(file);
        std::fs::write(&path, vec![1; LEN as usize]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let base = map(&file, LEN);
        let options = Options { durability: Durability::Process, ..Options::default() };
        let record = Mapped::create(&folder.path().join("record"), PAGES, &options).unwrap();
        let record = Arc::new(
            MediumRecord::new(Arc::new(record), RecordPlaces::in_a_row(0), 0, LEN).unwrap(),
        );
        let span = Span::new(base as usize, LEN, 0).unwrap();
        // SAFETY: mapped to the end of this process; nothing else changes its rights.
        let source = unsafe { FirstStore::over(span, Forks::Excluded, record).unwrap() };
        row(&format!("first store, {name}"), &source, base);
    }
    sparse();
}

/// A file that is almost all holes is armed, and scanned, where it is not.
fn sparse() {
    const HUGE: u64 = 64 << 30;
    const PARTS: u64 = 64;
    let file = tempfile::tempfile_in("/dev/shm").unwrap();
    file.set_len(HUGE).unwrap();
    let base = map(&file, HUGE);
    for part in 0..PARTS {
        store(base, part * (HUGE / PARTS), 1);
    }
    let Some(source) = async_protect(&file, base, HUGE) else { return };
    let mut armed = 0;
    allocated(file.as_fd(), 0, HUGE, &mut |at, len| {
        source.arm(at, len).unwrap();
        armed += len;
    })
    .unwrap();
    source.take(0, HUGE, &mut |_, _| {}).unwrap();
    let mut rounds = [0.0; 9];
    for round in &mut rounds {
        let begin = Instant::now();
        source.take(0, HUGE, &mut |at, len| panic!("{at}+{len}")).unwrap();
        *round = begin.elapsed().as_secs_f64() * 1e6;
    }
    rounds.sort_by(f64::total_cmp);
    println!("64 GiB, {} KiB armed in {PARTS} parts: {:.1} us per scan", armed >> 10, rounds[4]);
    assert!(armed < 1 << 30, "holes are not armed");
}

fn row(name: &str, source: &dyn DirtySource, base: *mut u8) {
    source.arm(0, LEN).unwrap();
    source.take(0, LEN, &mut |_, _| {}).unwrap();
    let mut figures = [0.0; 4];
    let mut first = Vec::new();
    for (figure, percent) in figures.iter_mut().zip([0, 10, 30, 100]) {
        let mut rounds: Vec<f64> = (0..ROUNDS)
            .map(|_| {
                let wanted = PAGES * percent / 100;
                let begin = Instant::now();
                for n in 0..wanted {
                    // Spread evenly, so that runs are as many as can be.
                    store(base, n * PAGES / wanted * PAGE, n as u8);
                }
                if percent == 100 {
                    first.push(begin.elapsed().as_secs_f64() * 1e6 / wanted as f64);
                }
                let begin = Instant::now();
                let mut told = 0;
                source.take(0, LEN, &mut |_, len| told += len / PAGE).unwrap();
                assert_eq!(told, wanted);
                begin.elapsed().as_secs_f64() * 1e6
            })
            .collect();
        rounds.sort_by(f64::total_cmp);
        *figure = rounds[ROUNDS / 2];
    }
    first.sort_by(f64::total_cmp);
    print!("{name:34}");
    for figure in figures {
        print!("{figure:12.1}");
    }
    println!("{:12.2}", first[ROUNDS / 2]);
    assert!(figures[0] < figures[3], "clean pages are not paid for");
}
