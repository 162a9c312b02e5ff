//! Files whose side files are kept in a pool.

use holdfast::Pool;
use holdfast::protect::side_path;
use holdfast_campaign::mapped::rows::pointers::kept::{Kept, seal};
use holdfast_layout::Field;
use holdfast_layout::format::PAGE_LEN;
use holdfast_workloads::Rng;

/// The sum that is computed there is the one that pointers have: else nothing would be hostile.
#[test]
fn a_pointer_that_is_sealed_as_it_was_is_the_same() {
    let kept = Kept::new(&mut Rng::new(1)).expect("two files");
    let pointer = std::fs::read(side_path(&kept.data)).expect("it reads");
    for copy in pointer.chunks(PAGE_LEN) {
        assert_eq!(copy[..4], seal(copy));
    }
    let left = kept.rot_extent(&Field::new("len", 0, 8), &mut Rng::new(1), |own, _, _| {
        assert_eq!(own.len(), 8);
        own.to_vec()
    });
    assert!(!left.expect("it is there"));
    kept.pointer_is_whole().expect("nothing was damaged");
}

#[test]
fn what_rots_of_a_region_is_found_in_the_pool() {
    let kept = Kept::new(&mut Rng::new(1)).expect("two files");
    let is_clean = || {
        let pool = Pool::open(&kept.pool).expect("it opens");
        pool.check(|_, _| {}).expect("it can be looked at").is_clean()
    };
    assert!(is_clean());
    kept.restore().expect("it can be put back");
    let verb = |own: &[u8], _: &[u8], _: &mut Rng| own.iter().map(|byte| !byte).collect();
    let field = Field::new("inode", 24, 8);
    assert!(kept.rot_extent(&field, &mut Rng::new(1), verb).expect("it is there"));
    assert!(!is_clean());
}
