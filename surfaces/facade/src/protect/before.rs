//! What a protected file was when it was last covered, beside it: a new file, as far as parity can
//! tell. The file itself is not changed.

use std::io;
use std::path::Path;

use holdfast_pmem::{Making, Medium, OpenError, PAGE, Site, call};
use holdfast_redundancy::PageVerdict;

use crate::error::{Error, Result};
use crate::protect::file;
use crate::protect::rest::ProtectedFile;

/// What an image before was made of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Before {
    /// Pages that differ from what was covered, and were given back in the image.
    pub given_back: Vec<u64>,
    /// Pages that parity cannot give back: in the image they are as they are in the file.
    pub missing: Vec<u64>,
    /// Pages that were covered and lie behind the end of the file now, from the stripe on in which
    /// it ends: nothing is left of them, and the image ends before them.
    pub gone: u64,
}

impl ProtectedFile {
    /// Writes what the file was when it was last covered to the new file `to`, as far as parity
    /// can tell. The file itself is not changed. Nobody can read the new one who may not read it,
    /// and it has its name once it is whole. `None` if it was stopped: there is no new file then.
    ///
    /// # Errors
    /// `to` is there already, or cannot be written.
    pub fn before(
        &self,
        to: &Path,
        mut progress: impl FnMut(u64, u64) -> bool,
    ) -> Result<Option<Before>> {
        if to.symlink_metadata().is_ok() {
            return Err(file::failed(to, &io::ErrorKind::AlreadyExists.into()));
        }
        let refused = |error: OpenError| Error::from(error).at(to);
        let mut making = Making::begin(to).map_err(refused)?;
        making.like(self.data.file()).map_err(refused)?;
        let failed = |error: io::Error| file::failed(to, &error);
        let (size, gone) = self.end_of_before()?;
        let end = size.div_ceil(PAGE);
        call::set_len(making.file(), size).map_err(failed)?;
        let mut before = Before { gone, ..Before::default() };
        let mut bytes = vec![0; PAGE as usize];
        for (looked, page) in self.engine.to_look_at(end).into_iter().flatten().enumerate() {
            if looked % 64 == 0 && !progress(page, end) {
                return Ok(None);
            }
            let at = page * PAGE;
            let here = size.saturating_sub(at).min(PAGE) as usize;
            self.page_before(page, &mut bytes[..here], &mut before)?;
            if bytes[..here].iter().any(|byte| *byte != 0) {
                call::write_all_at(making.file(), &bytes[..here], at).map_err(failed)?;
            }
        }
        call::sync_all(Site::new("facade.before.written"), making.file()).map_err(failed)?;
        if !progress(end, end) {
            return Ok(None);
        }
        making.keep(false).map_err(refused)?;
        Ok(Some(before))
    }

    /// How many bytes an image before has, and how many pages the file had beyond them. Parity may
    /// give back those of the stripe in which the file ends now; of what lies behind it nothing is
    /// left, and only the side file says that it ever was there. What somebody has added since to
    /// the page in which the file ended is not of it.
    fn end_of_before(&self) -> Result<(u64, u64)> {
        let size = self.engine.covered_size().map_err(|error| self.failed(&error))?;
        let (all, there) = (size.div_ceil(PAGE), self.data.size().div_ceil(PAGE));
        let stripe = u64::from(self.engine.stripes().data());
        let end = all.min(there.next_multiple_of(stripe));
        Ok((size.min(end * PAGE), all - end))
    }

    /// What a page was, into `bytes`, which are those of it that the file has.
    fn page_before(&self, page: u64, bytes: &mut [u8], before: &mut Before) -> Result<()> {
        let judged = self.engine.verify(page).map_err(|error| self.failed(&error))?;
        if self.data.read(page * PAGE, bytes).is_err() {
            bytes.fill(0);
        }
        if judged.verdict == PageVerdict::Good {
            return Ok(());
        }
        let image = self.engine.before_image(page);
        match image.map_err(|error| self.failed(&error))? {
            Some(image) => {
                let len = image.len().min(bytes.len());
                bytes[..len].copy_from_slice(&image[..len]);
                before.given_back.push(page);
            }
            None => before.missing.push(page),
        }
        Ok(())
    }

    /// What one page was when it was last covered, or the time before that, if parity can tell.
    ///
    /// # Errors
    /// The side file cannot be read.
    pub fn before_image(&self, page: u64) -> Result<Option<Vec<u8>>> {
        self.engine.before_image(page).map_err(|error| self.failed(&error))
    }
}
