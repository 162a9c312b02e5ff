//! Pools and protected files as programs use them, tried in one program: linking one for each file
//! takes minutes. What starts processes is a program for itself: until they execute theirs they
//! have all files open that others here have, who would be told so.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod age;
mod bad_input;
mod commands;
mod common;
mod examples;
mod protect_pointers;
mod schedule;
mod told;
