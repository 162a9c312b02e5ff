//! The heap, tried in one program: linking one for each file takes minutes.

mod chunks;
mod common;
mod loading;
mod reservations;
mod space;
mod sums;
mod units;
mod verify;
