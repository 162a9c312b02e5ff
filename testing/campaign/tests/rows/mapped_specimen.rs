//! Specimens of side files.

use holdfast_campaign::mapped::machine::Setting;
use holdfast_campaign::mapped::specimen::Specimen;
use holdfast_pmem::Medium;
use holdfast_workloads::Rng;

#[test]
fn what_is_sealed_again_unchanged_is_the_same() {
    for number in [0, 5] {
        let setting = Setting::numbered(number);
        let specimen = Specimen::of(setting, false, &mut Rng::new(7)).expect("a specimen");
        for spot in specimen.spots() {
            let place = Specimen::place(spot.copies[0]);
            let own = specimen.bytes[place..place + spot.len as usize].to_vec();
            let machine = specimen.with(&spot, &own, &spot.copies, true);
            let mut bytes = vec![0; specimen.bytes.len()];
            machine.medium.read(0, &mut bytes).expect("it reads");
            let at = (0..bytes.len()).find(|at| bytes[*at] != specimen.bytes[*at]);
            assert_eq!(at, None, "{}", spot.name);
        }
    }
}
