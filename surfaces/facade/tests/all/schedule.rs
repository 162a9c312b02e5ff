//! Scrubs that start by themselves: after a time, after so many transactions; and that do not keep
//! a pool open which nobody uses any more.

use std::time::{Duration, Instant};

use holdfast::{Pool, ScrubState};

/// Longest a test waits for something that takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "still not: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_pass_starts_after_so_many_transactions() {
    let folder = tempfile::tempdir().unwrap();
    let options = Pool::options().size(32 << 20).scrub_after_transactions(Some(50));
    let pool = options.create(folder.path().join("t.pool")).unwrap();
    let map = pool.map::<str, [u8]>("m").unwrap();
    for i in 0..20 {
        map.put(&format!("{i}"), b"x").unwrap();
    }
    // Far fewer than the limit: however long one waits, nothing happens.
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(pool.scrub_progress().pass, 0);
    for i in 0..60 {
        map.put(&format!("{i}"), b"y").unwrap();
    }
    until("a pass has ended", || {
        let progress = pool.scrub_progress();
        progress.pass == 1 && progress.state == ScrubState::Idle
    });
}

#[test]
fn passes_start_again_and_again_as_time_goes_by() {
    let folder = tempfile::tempdir().unwrap();
    let options = Pool::options().size(32 << 20).scrub_every(Some(Duration::from_millis(60)));
    let pool = options.create(folder.path().join("t.pool")).unwrap();
    until("three passes", || pool.scrub_progress().pass >= 3);
}

#[test]
fn a_pass_does_not_keep_a_pool_open_that_nobody_uses() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.pool");
    let options = Pool::options().size(32 << 20).scrub_after_transactions(Some(1));
    // So slow that the pass would take an hour.
    let pool = options.scrub_rate(Some(256 << 10)).create(&path).unwrap();
    pool.map::<str, [u8]>("m").unwrap().put("k", b"v").unwrap();
    until("a pass runs", || pool.scrub_progress().state == ScrubState::Running);
    drop(pool);
    until("the file is free", || Pool::options().open(&path).is_ok());
    let pool = Pool::options().open(&path).unwrap();
    assert!(pool.opened().clean);
    assert_eq!(pool.scrub_progress().state, ScrubState::Paused);
}
