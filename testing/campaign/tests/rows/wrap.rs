//! Rings that wrap around.

use holdfast_campaign::object::wrap::world;

#[test]
fn rings_are_as_short_as_they_can_be() {
    for (name, pages) in [("shm-p", 1), ("shm-pq", 1), ("file-p", 2)] {
        let world = world(name);
        let pool = world.create(&world.blank()).expect("a pool of this geometry");
        assert_eq!(pool.superblock().ring_len, pages * 4_096, "{name}");
    }
}
