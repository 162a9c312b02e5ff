//! The library that is loaded into guarded programs: where it is.

use std::path::{Path, PathBuf};

use crate::commands::guard::beside;
use crate::failure::{Failure, Outcome};

/// Its file.
const NAME: &str = "libholdfast_preload.so";
/// Names it where no flag does.
const VARIABLE: &str = "HOLDFAST_PRELOAD";
/// Where it is looked for from the folder of this command: installed beside it, built with it,
/// installed below a prefix.
const PLACES: [&str; 4] = ["", "deps", "../lib/holdfast", "../lib"];

/// The one that was named, else the one that belongs to this command.
pub(crate) fn preload(named: Option<&Path>) -> Outcome<PathBuf> {
    let variable = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    if let Some(path) = named.map(Path::to_path_buf).or_else(|| variable.map(PathBuf::from)) {
        let found = path.metadata();
        let found = found.map_err(|error| Failure::io(path.display(), &error))?;
        if !found.is_file() {
            let cause = format!("{}: is no library", path.display());
            return Err(Failure::new("not-a-file", cause, format!("name {NAME}")));
        }
        return checked(path);
    }
    let folder = beside()?;
    let places = PLACES.map(|place| folder.join(place).join(NAME));
    match places.into_iter().find(|path| path.is_file()) {
        Some(path) => checked(path),
        None => {
            let cause = format!("{NAME}, which guarded programs load, is not with this command");
            let remedy = format!(
                "build it with `cargo build --release`, put it beside {}, or name it with \
                 --preload or {VARIABLE}",
                folder.join("holdfast").display()
            );
            Err(Failure::new("not-found", cause, remedy))
        }
    }
}

/// The dynamic linker takes these signs for the end of a name.
fn checked(path: PathBuf) -> Outcome<PathBuf> {
    let path = path.canonicalize().map_err(|error| Failure::io(path.display(), &error))?;
    let wrong = |byte: &u8| matches!(byte, b':' | b' ');
    if std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).iter().any(|byte| wrong(byte)) {
        let cause = format!("{}: a path with a colon or a blank cannot be loaded", path.display());
        return Err(Failure::new(
            "invalid",
            cause,
            "put the library elsewhere, or rename a folder",
        ));
    }
    Ok(path)
}
