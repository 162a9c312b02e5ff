//! `pool list`: the pools in a folder, seen from outside.

use std::io::ErrorKind as Io;
use std::path::{Path, PathBuf};

use holdfast::{ErrorKind, Observer};
use serde_json::{Value, json};

use crate::commands::pool::{space_json, state};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out::{Out, count, table};
use crate::size::show;

/// A pool of the list: a row for people, an object for programs.
struct Listed {
    row: [String; 6],
    body: Value,
    exit: Exit,
}

/// Lists the pools in a folder.
pub(crate) fn list(out: Out, folder: &Path) -> Outcome {
    let (mut pools, mut others, mut closed) = (Vec::new(), 0_u64, Vec::new());
    for path in files_in(folder)? {
        if crate::interrupt::asked() {
            return Err(Failure::interrupted("nothing was changed; run it again"));
        }
        match look(&path) {
            Ok(listed) => pools.push(listed),
            Err(ErrorKind::Permission) => closed.push(path),
            Err(_) => others += 1,
        }
    }
    let exit = pools.iter().fold(Exit::CLEAN, |exit, pool| exit.and(pool.exit));
    let names: Vec<String> = closed.iter().map(|path| path.display().to_string()).collect();
    let bodies: Vec<&Value> = pools.iter().map(|pool| &pool.body).collect();
    let folder = folder.display().to_string();
    out.object(
        "pool list",
        json!({ "folder": folder, "pools": bodies, "other_files": others, "unreadable": names }),
    );
    for name in &names {
        out.note(format!("{name}: may not be read; it may be a pool or not"));
    }
    if pools.is_empty() {
        out.words(format!("no pools in {folder}; `holdfast pool create` makes one"));
        return Ok(exit);
    }
    let mut shown = table(&["pool", "size", "used", "free", "label", "state"]);
    shown.add_rows(pools.into_iter().map(|pool| pool.row));
    out.words(shown.to_string());
    out.more(|| format!("{} beside them", count(others, "other file")));
    Ok(exit)
}

/// The regular files in a folder, and links to some, by name.
fn files_in(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let failed = |error: std::io::Error| match error.kind() {
        Io::NotADirectory => Failure::new(
            "not-a-folder",
            format!("{}: is no folder", folder.display()),
            "name a folder; `holdfast pool info` shows one pool",
        ),
        _ => Failure::io(folder.display(), &error),
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        // What went away meanwhile is not there.
        if std::fs::metadata(&path).is_ok_and(|found| found.is_file()) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Looks at one file; an error of a kind that says that it is no pool, or that nobody can tell.
fn look(path: &Path) -> Result<Listed, ErrorKind> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let seen = Observer::open(path).and_then(|observer| {
        let superblock = observer.superblock()?;
        let space = observer.space()?;
        Ok((state(observer.holder(), superblock.clean), superblock, space, observer.is_in_use()))
    });
    let (state, superblock, space, in_use) = match seen {
        Ok(seen) => seen,
        Err(error) => match error.kind() {
            kind @ (ErrorKind::Damaged | ErrorKind::Truncated | ErrorKind::NewerVersion) => {
                let left = kind != ErrorKind::NewerVersion;
                return Ok(Listed {
                    row: [name, "-".into(), "-".into(), "-".into(), "-".into(), error.cause()],
                    body: json!({
                        "path": path.display().to_string(),
                        "error": Failure::from(error).json(),
                    }),
                    exit: if left { Exit::LEFT } else { Exit::CLEAN },
                });
            }
            kind => return Err(kind),
        },
    };
    let free = space.free_chunks + space.free_places;
    let body = json!({
        "path": path.display().to_string(),
        "label": superblock.label,
        "size": superblock.size,
        "clean": superblock.clean,
        "in_use": in_use,
        "state": state,
        "space": space_json(&space),
    });
    let (used, free) = (show(space.used), show(free));
    let row = [name, show(superblock.size), used, free, superblock.label, state];
    Ok(Listed { row, body, exit: Exit::CLEAN })
}
