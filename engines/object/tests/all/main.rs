//! The object store, tried in one program: linking one for each file takes minutes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod begun;
mod beyond;
mod blessed;
mod borders;
mod common;
mod counts;
mod crashes;
mod damage;
mod disk_waits;
mod erased;
mod first_steps;
mod gone;
mod hot_path;
mod leaks;
mod lost;
mod meanwhile;
mod modes;
mod moving;
mod named;
mod no_spare;
mod older;
mod parts;
mod passed_on;
mod ranges;
mod refused;
mod resumed;
mod returning;
mod stale;
mod strays;
mod told_apart;
mod trials;
mod views;
mod whole;
mod within;
mod without_sums;
