//! Other people's libraries: fetched, built and loaded by the benchmark itself, when it runs.
//!
//! Nothing of the project needs them, so they are no dependencies of it. They are Debian's
//! packages, unpacked below the target folder, never installed. Without a network, a Debian or a C
//! compiler the benchmark says so and runs what it can.
//!
//! All functions of the libraries are declared by hand, only those used. Each file here is one
//! library: a table of its functions, looked up once, and safe functions on top that check what
//! they pass on.

pub(crate) mod fetch;
pub(crate) mod lmdb;
pub(crate) mod pmemobj;
pub(crate) mod pmempool;
pub(crate) mod sqlite;

use std::path::Path;

use libloading::Library;

/// Loads a library for good: what is loaded is used until the process ends, and functions looked
/// up must not outlive it.
fn load(path: &Path) -> anyhow::Result<&'static Library> {
    // SAFETY: loading runs the library's own initialisers. `path` is a library that `fetch` took
    // from a signed package or built from the source in this crate; their initialisers set up
    // the library's own state and expect nothing of the program.
    let library = unsafe { Library::new(path) };
    match library {
        Ok(library) => Ok(Box::leak(Box::new(library))),
        Err(error) => anyhow::bail!("cannot load {}: {error}", path.display()),
    }
}

/// Looks a function up. `F` must be its type, and a plain function pointer.
///
/// # Safety
/// `F` is an `extern "C"` function pointer with the arguments and the result the library's own
/// header gives the function called `name`.
unsafe fn function<F: Copy>(library: &'static Library, name: &str) -> anyhow::Result<F> {
    // SAFETY: the caller vouches for the type; the library is never unloaded (see `load`), so the
    // pointer copied out stays good.
    let found = unsafe { library.get::<F>(name.as_bytes()) };
    match found {
        Ok(symbol) => Ok(*symbol),
        Err(error) => anyhow::bail!("{name} is missing from the library: {error}"),
    }
}
