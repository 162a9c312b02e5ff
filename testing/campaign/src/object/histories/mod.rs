//! Histories of calls by threads on one pool, recorded and judged by the oracle.
//!
//! A history is some calls of each of a few threads, begun together, on one subject: registers, a
//! map or a queue. Each call is one transaction, or a read, through the functions that programs
//! use. Its times come from one counter. Meanwhile a crash may be taken, at a barrier of whichever
//! thread: what is left of the machine is opened and the history goes on there, in its next *era*.
//! Or places are damaged and scrubbed while the threads work. At the end somebody asks for all
//! there is.
//!
//! A seed decides what each thread calls, where crashes fall by number of barriers, and what
//! they leave; schedules are left to chance, and shaken by pauses (`shake.rs`).
//!
//! - `subject.rs` what calls are made on; `cells.rs`, `maps.rs`, `queue.rs` the three
//! - `play.rs` one history; `fuse.rs` its crashes; `harm.rs` damage
//! - `wrong.rs` what must be convicted: engines and callers with something left out

pub mod cells;
pub mod fuse;
pub mod harm;
pub mod maps;
pub mod play;
pub mod queue;
pub mod shake;
pub mod subject;
pub mod wrong;
