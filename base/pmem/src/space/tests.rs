//! What the gates keep out, seen from inside: stores that go past them.

use super::*;
use crate::{Access, Mapped, Medium, Options, PAGE, Protect, Site};

/// Stores one word at `address` by the routine itself, past every check and gate.
fn store_past_the_gate(address: usize) -> Outcome {
    // SAFETY: the address lies in a registered mapping, or this test's file is damaged.
    unsafe { asm::put(Stores::Plain, address, [0xff; 8].as_ptr(), 8, 0) }
}

#[test]
fn only_the_alias_takes_stores_and_only_while_its_gate_is_open() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool");
    drop(Mapped::create(&path, PAGE, &Options::default()).unwrap());
    for protection in [Protect::Auto, Protect::Alias, Protect::Mprotect] {
        let options = Options { protection, ..Options::default() };
        let medium = Mapped::open(&path, Access::Write, &options).unwrap();
        let (view, alias) = medium.space_bases();
        assert_eq!(alias == 0, protection == Protect::Mprotect);
        assert!(store_past_the_gate(view).trapped(), "{protection:?}");
        let gated = !matches!(medium.protection(), Protection::Alias);
        let behind = if alias == 0 { view } else { alias };
        assert_eq!(store_past_the_gate(behind).trapped(), gated, "{protection:?}");
        medium.begin_write();
        assert!(!store_past_the_gate(behind).trapped(), "{protection:?}");
        medium.end_write();
        assert_eq!(store_past_the_gate(behind).trapped(), gated, "{protection:?}");
        // A store of the library opens the gate for itself and closes it again.
        medium.put(Site::new("pmem.test"), 8, &[1; 8]).unwrap();
        assert_eq!(store_past_the_gate(behind).trapped(), gated, "{protection:?}");
        // An error inside does not leave it open.
        crate::inject::poison(&medium, 0, PAGE, crate::inject::Poison::Clearable).unwrap();
        assert!(medium.put(Site::new("pmem.test"), 8, &[1; 8]).is_err());
        medium.heal(Site::new("pmem.test"), 0, &[0; PAGE as usize]).unwrap();
        assert_eq!(store_past_the_gate(behind).trapped(), gated, "{protection:?}");
        assert!(store_past_the_gate(view).trapped(), "{protection:?}");
    }
}
