//! What row `fields` is made of: the fields there are, pools that have them all, where they lie,
//! how they are damaged and sealed again.

pub mod each;
pub mod formats;
pub mod meet;
pub mod seal;
pub mod specimen;
pub mod spots;
pub mod verbs;
