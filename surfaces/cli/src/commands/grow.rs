//! `pool grow`: a longer pool, made by this command or by the process that has it open.

use std::path::Path;

use holdfast::{ErrorKind, Pool, VerifyReads};
use serde_json::json;

use crate::args::GrowArgs;
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::out::{Out, facts};
use crate::session::{self, Access};
use crate::size::show;

/// Makes a pool longer.
pub(crate) fn grow(out: Out, args: &GrowArgs) -> Outcome {
    // Addresses are reserved when a pool is opened, so here for what is asked for.
    let options = Pool::options().verify_reads(VerifyReads::Always).reserve(Some(args.size));
    match session::open_or_reach(&args.pool, |path| options.open(path))? {
        Access::Here(pool) => {
            let before = pool.superblock().size;
            pool.grow(args.size)?;
            let after = pool.superblock().size;
            let exit = session::finish(out, *pool, true)?;
            tell(out, &args.pool, "command", (before, after));
            Ok(exit)
        }
        Access::Owner(mut owner) => {
            let grown = owner.grow(args.size).map_err(|error| match error.kind() {
                ErrorKind::NoSpace if error.cause().contains("address space") => {
                    error.with_remedy("ask for less, or close the pool there and grow it then")
                }
                _ => error,
            })?;
            tell(out, &args.pool, "owner", grown);
            Ok(Exit::CLEAN)
        }
    }
}

fn tell(out: Out, path: &Path, by: &str, (before, after): (u64, u64)) {
    let body = json!({
        "path": path.display().to_string(), "by": by, "before": before, "after": after,
    });
    out.object("pool grow", body);
    let who = if by == "owner" { " by the process that has it open" } else { "" };
    out.words(format!("{}: grown{who}", path.display()));
    out.words(facts(&[("size before", show(before)), ("size now", show(after))]).to_string());
}
