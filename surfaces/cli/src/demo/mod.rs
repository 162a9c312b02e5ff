//! x
use crate::args::*; use crate::out::Out; use crate::failure::Outcome; use crate::exit::Exit;
pub(crate) mod injector { use super::*; pub(crate) fn run(_: &InjectorArgs) -> Outcome { Ok(Exit::CLEAN) } }
pub(crate) mod victim { use super::*; pub(crate) fn run(_: &VictimArgs) -> Outcome { Ok(Exit::CLEAN) } }
pub(crate) fn run(_: Out, _: &DemoArgs) -> Outcome { Ok(Exit::CLEAN) }
