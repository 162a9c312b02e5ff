//! The program as users start it, on small workspaces made for the purpose.

mod checks;
mod ci;
mod fuzz;
mod support;
