//! x
use holdfast_oracle::commit_model::*;
#[test]
fn right() {
    for m in [MediumKind::Flushed, MediumKind::File] {
        let t = std::time::Instant::now();
        let r = run(&Config::new(m, None, 3000));
        println!("{m:?} {r}\n{:?}", t.elapsed());
    }
}
#[test]
fn mutants() {
    for mu in Mutant::ALL {
        for &m in mu.media() {
            let t = std::time::Instant::now();
            let mut c = Config::new(m, Some(mu), 300);
            c.stop_at_first = false;
            let r = run(&c);
            println!(
                "{mu:?} {m:?} {} of {} {:?} {:?}",
                r.violated,
                r.trials,
                r.violations.first(),
                t.elapsed()
            );
        }
    }
}
