//! A medium that several own: whoever maps a file and whoever protects it, say.

use std::sync::Arc;

use crate::medium::{MediaError, Medium, MediumKind, SyncError};
use crate::site::Site;

/// Passes calls on to the medium behind, which is told who called: the faulty twin says where in
/// the source a store stands.
macro_rules! passed_on {
    ($(fn $name:ident(&self $(, $arg:ident: $of:ty)*) $(-> $result:ty)?;)+) => {$(
        #[inline(always)]
        #[track_caller]
        fn $name(&self $(, $arg: $of)*) $(-> $result)? {
            (**self).$name($($arg),*)
        }
    )+};
}

impl<M: Medium + ?Sized> Medium for Arc<M> {
    passed_on! {
        fn len(&self) -> u64;
        fn is_empty(&self) -> bool;
        fn inherited(&self) -> bool;
        fn cut_off(&self) -> bool;
        fn kind(&self) -> MediumKind;
        fn read(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError>;
        fn put(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError>;
        fn put_aside(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError>;
        fn put_is_cached(&self, len: u64) -> bool;
        fn xor(&self, site: Site, at: u64, delta: &[u8]) -> Result<(), MediaError>;
        fn zero(&self, site: Site, at: u64, len: u64) -> Result<(), MediaError>;
        fn drain(&self, site: Site);
        fn enabled(&self, site: Site) -> bool;
        fn locked(&self);
        fn step(&self, site: Site);
        fn begin_write(&self);
        fn end_write(&self);
        fn prepare(&self, at: u64, len: u64);
        fn prefetch(&self, at: u64, len: u64);
        fn append(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), SyncError>;
        fn sync(&self, site: Site) -> Result<(), SyncError>;
        fn sync_through(&self, site: Site) -> Result<(), SyncError>;
        fn view(&self, at: u64, len: u64) -> Option<*const u8>;
        fn grow(&self, len: u64) -> Result<(), SyncError>;
        fn heal(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError>;
        fn remap(&self, at: u64, physical: u64, len: u64) -> Result<(), MediaError>;
        fn stand_in(&self, at: u64, bytes: &[u8]) -> Result<(), MediaError>;
        fn bad_ranges(&self) -> Vec<(u64, u64)>;
        fn storage_from(&self, at: u64) -> Option<u64>;
    }
}
