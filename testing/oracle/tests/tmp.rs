//! x
use holdfast_oracle::commit_model::*;
#[test]
fn tmp() {
    for (lanes, ring, rot) in [(2,1,0),(3,1,0)] {
        for mu in [Mutant::MarkInPlace] {
        for m in [MediumKind::Flushed, MediumKind::File] {
            let t = std::time::Instant::now();
            let mut c = Config::new(m, Some(mu), 20000);
            c.lanes = lanes; c.ring = ring; c.rot_percent = rot;
            let r = run(&c);
            println!("{mu:?} {m:?} {lanes} {ring} {} of {} {:?} {:?} marks {}", r.violated, r.trials, r.violations.first(), t.elapsed(), r.tally.marks);
        }}
    }
    for mu in [Mutant::MirrorUnverified; 0] {
        for m in [MediumKind::Flushed, MediumKind::File] {
            let t = std::time::Instant::now();
            let mut c = Config::new(m, Some(mu), 20000);
            c.rot_percent = 100; 
            let r = run(&c);
            println!("{mu:?} {m:?} {} of {} {:?} {:?}", r.violated, r.trials, r.violations.first(), t.elapsed());
        }
    }
}
