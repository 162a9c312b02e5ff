//! Mapped files, tried in one program: linking one for each file takes minutes.

mod common;
mod crashes;
mod errors_between;
mod first_steps;
mod lengths;
mod mutants;
mod second_faults;
mod switches;
mod writers;
