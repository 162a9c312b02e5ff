//! The command line, tried as a user would; in one program, for linking each takes minutes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod attach;
mod bad_input;
mod common;
mod configuration;
mod corrupt;
mod cut_off;
mod damage;
mod demo;
mod every_command;
mod figures;
mod grow;
mod guard;
mod housekeeping;
mod in_pool;
mod live;
mod no_room;
mod pointers;
mod pools_and_maps;
mod protected;
mod scrubs;
mod together;
mod top;
mod transfer;
mod unreadable;
mod words;
