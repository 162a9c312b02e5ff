//! The processes that a row kills.

use std::process::ExitCode;

/// Does what the orders say.
#[must_use]
pub fn run(orders: &str) -> ExitCode {
    eprintln!("campaign: no such orders: {orders}");
    ExitCode::from(2)
}
