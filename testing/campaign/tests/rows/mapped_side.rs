//! Parts of a side file.

use holdfast_campaign::mapped::machine::{Machine, Setting};
use holdfast_campaign::mapped::side::{Area, Layout};
use holdfast_pmem::{Medium, PAGE};
use holdfast_workloads::Rng;

#[test]
fn the_parts_are_where_the_engine_puts_them() {
    for parity in 1..=2 {
        let setting = Setting { parity, ..Setting::numbered(0) };
        let machine = Machine::new(&setting, 24 * PAGE, &mut Rng::new(1), None);
        machine.protect(&setting).expect("it protects");
        let layout = Layout { parity: parity.into(), pages: 24 };
        let read = |at: u64, len: u64| {
            let mut bytes = vec![0; len as usize];
            machine.side.read(at, &mut bytes).expect("it reads");
            bytes
        };
        assert_eq!(&read(layout.place(Area::Header(1)).0 + 32, 8), b"HOLDSIDE");
        let states = [0, 1].map(|copy| layout.place(Area::States(1, copy)));
        // The generation differs: the copies are written one after the other.
        assert_eq!(read(states[0].0 + 16, 8), read(states[1].0 + 16, 8));
        assert!(read(states[0].0, 128).iter().any(|byte| *byte != 0));
        let (at, len) = layout.place(Area::Entries(1));
        let entries = read(at, len);
        assert!(entries[..64].chunks(8).all(|entry| entry != [0; 8]));
        assert!(entries[64..].iter().all(|byte| *byte == 0), "there is no region 3");
        let rows: Vec<Vec<u8>> =
            (12..16).map(|page| machine.page(page).expect("it reads")).collect();
        let p: Vec<u8> = (0..4096).map(|i| rows.iter().fold(0, |x, row| x ^ row[i])).collect();
        assert_eq!(read(layout.place(Area::Parity(3)).0, PAGE), p);
    }
}
