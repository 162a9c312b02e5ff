//! Elision: each place switched off in turn. What nobody misses is superfluous, or the check is
//! blind.

use core::fmt;

use holdfast_faultmem::{SiteKind, at_line};

use crate::explorer::Explorer;
use crate::ledger::Model;
use crate::report::{Asked, Failure, Report};

/// One place, switched off.
#[derive(Debug, Clone)]
pub struct Elision {
    /// Name of its site.
    pub site: &'static str,
    /// What is done there.
    pub kind: SiteKind,
    /// File, line and column: of a name that stands for several places, each is tried by itself.
    pub place: String,
    /// What went wrong without it; `None` if nothing did.
    pub failure: Option<Failure>,
}

/// Every place that the exploration passes, switched off one at a time.
#[derive(Debug, Clone)]
pub struct Elisions {
    /// The exploration with everything on. If it fails, no place was tried.
    pub whole: Report,
    /// The places, by name.
    pub tried: Vec<Elision>,
}

impl Elisions {
    /// Places that nothing went wrong without.
    #[must_use]
    pub fn survivors(&self) -> Vec<&'static str> {
        let survived = self.tried.iter().filter(|elision| elision.failure.is_none());
        survived.map(|elision| elision.site).collect()
    }

    /// For tests: there is something to switch off, everything is needed, and its loss is noticed.
    ///
    /// # Panics
    /// With the whole list, if that is not so. While `HOLDFAST_REPLAY` names one crash, no place is
    /// tried: it panics if that one fails again.
    pub fn assert_all_needed(&self) {
        self.whole.assert_clean();
        if self.whole.asked != Asked::All {
            return;
        }
        assert!(!self.tried.is_empty(), "{self}");
        assert!(self.survivors().is_empty(), "{self}");
    }
}

impl fmt::Display for Elisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.whole)?;
        let all = self.whole.asked == Asked::All;
        if all && self.tried.is_empty() && self.whole.is_clean() {
            let what = "the operations pass no place that can be switched off";
            writeln!(f, "  NOTHING was tried: {what}: flush and fence through the medium")?;
        }
        for Elision { site, kind, place, failure } in &self.tried {
            let at = if site == place { String::new() } else { format!(" at {place}") };
            let what = format!("{site} ({kind:?}){at}");
            match failure {
                Some(failure) => writeln!(f, "  needed: {what}: {}", failure.why)?,
                None => writeln!(f, "  SURVIVED: {what}: not needed, or not checked")?,
            }
        }
        Ok(())
    }
}

impl<H: 'static, A: Model> Explorer<H, A> {
    /// Explores with each place switched off in turn, until the first failure of each.
    #[must_use]
    pub fn elisions(&self) -> Elisions {
        let whole = self.run();
        let mut tried = Vec::new();
        // By one crash that is replayed nearly all places would seem not to be needed.
        if whole.is_clean() && whole.asked == Asked::All {
            for &passed in &whole.places {
                let (site, kind, place) = passed;
                let mut without = self.clone();
                without.plan.elided = Some(at_line(passed));
                let (site, failure) = (site.name(), without.explore().failure);
                tried.push(Elision { site, kind, place: place.to_string(), failure });
            }
        }
        Elisions { whole, tried }
    }
}
