//! Scrub: a pass over the whole pool that repairs what it finds. Paced, pausable, resumable.

use holdfast_sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use holdfast_heap::Unit;
use holdfast_heap::verify::Direct;
use holdfast_layout::Certify;
use holdfast_pmem::{MediaCause, Medium, PAGE, Site};
use holdfast_redundancy::events::{Cause, Finder};
use holdfast_redundancy::parity::{self, ParitySites, Scratch, Suspect};
use holdfast_redundancy::progress::ScrubState;
use holdfast_redundancy::{ColumnId, Pace, Progress, Verdict, Wrong, Zone, verdict::Reason, zone};

use crate::anew::Differ;
use crate::blame::Doubt;
use crate::bring_back::Known;
use crate::error::Error;
use crate::located::Blamed;
use crate::mend_unit::is_there;
use crate::pool::Pool;
use crate::repair::{Asked, BAD_PAGES_MAX, Mended};
use crate::shared::{Repairer, Shared};
use crate::sweep::{CheckReport, Finding, Position};

/// Storing recomputed parity.
const PARITY: ParitySites =
    ParitySites { p: Site::new("object.scrub.parity-p"), q: Site::new("object.scrub.parity-q") };
/// Making it durable.
const PARITY_DRAIN: Site = Site::new("object.scrub.parity-drain");
/// The same on a file.
const PARITY_SYNC: Site = Site::new("object.scrub.parity-sync");
/// Verifying all rows of a column before parity is made from them.
const VERIFY_ROWS: Site = Site::new("object.scrub.verify-rows");
/// Columns that do not add up are held, and nothing over them was judged yet.
const STEP_SETTLE: Site = Site::new("object.scrub.step-settle");
/// All rows verify, and parity is about to be made from them.
const STEP_REMAKE: Site = Site::new("object.scrub.step-remake");
/// Looking whether they are what was judged, now that they were read for it.
const AS_JUDGED: Site = Site::new("object.scrub.as-judged");
/// How often columns are looked at again since something else was mended that they are judged by.
const AGAIN_MAX: u32 = 256;
/// How often columns are looked at that others keep from being settled.
pub(crate) const HELD_TRIES: u32 = 1_000;
/// Of these, how often they are looked at again at once.
pub(crate) const HELD_YIELDS: u32 = 50;
/// Nanoseconds between the others.
const HELD_PAUSE: u64 = 100_000;
/// Steps between two stores of the progress: what a crash makes a scrub do again.
const STEPS_PER_STORE: u32 = 256;
/// Nanoseconds of a pause for the pace after which it looks whether the scrub is to stop.
const WAIT_PART: u64 = 50_000_000;

/// How a scrub runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct ScrubOptions {
    /// Bytes per second it may read; unlimited if `None`.
    pub rate: Option<u64>,
    /// Whether to go on where an earlier pass was interrupted.
    pub resume: bool,
}

/// Stops, pauses or cancels a scrub from another thread.
#[derive(Debug, Default)]
pub struct ScrubControl(AtomicU8);

impl ScrubControl {
    /// Lets the scrub run, or go on.
    pub fn run(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Makes the scrub stop where it is, its position kept for a later `resume`.
    pub fn pause(&self) {
        self.0.store(1, Ordering::Release);
    }

    /// Makes the scrub stop and forget its position.
    pub fn cancel(&self) {
        self.0.store(2, Ordering::Release);
    }
}

/// What a scrub did: all of its pass, whichever processes worked at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scrubbed {
    /// What it saw. The findings themselves are those of this call only.
    pub report: CheckReport,
    /// Findings repaired.
    pub repaired: u64,
    /// Findings beyond the redundancy.
    pub lost: u64,
    /// Findings that nothing kept can judge, left as they were; and pages that stay bad and are
    /// served from memory.
    pub undecided: u64,
    /// How it ended.
    pub state: ScrubState,
}

impl Scrubbed {
    /// What was done before, of a pass that goes on.
    fn so_far(pass: &Progress) -> Self {
        let report = CheckReport {
            objects: pass.objects,
            object_bytes: pass.object_bytes,
            column_bytes: pass.scanned.saturating_sub(pass.object_bytes),
            found: pass.found,
            findings: Vec::new(),
        };
        let Progress { repaired, lost, undecided, state, .. } = *pass;
        Self { report, repaired, lost, undecided, state }
    }

    /// Counts what became of a finding.
    fn count(&mut self, mended: Mended) {
        match mended {
            Mended::Repaired(_) | Mended::Relocated(_) => self.repaired += 1,
            Mended::Lost(_) => self.lost += 1,
            Mended::Undecided(_) | Mended::StoodIn(_) => self.undecided += 1,
            // Another finding's repair settled it, or a writer did.
            Mended::Nothing => {}
        }
    }
}

/// What is known of columns before they are settled.
#[derive(Clone, Copy)]
struct Before<'a> {
    /// Pages to be looked at beside them.
    beside: &'a [u64],
    /// Whether anything over them is lost.
    lost: bool,
    /// Pages that cannot be read and stay so.
    given_up: &'a [u64],
}

/// What became of columns that do not add up.
enum Settled {
    Done(Mended),
    /// As far as it can be now: somebody holds what else there is to be brought back.
    Held(Mended),
    /// What lies over them is to be mended first: a page cannot be read, or a row has gone bad
    /// since it was verified.
    Anew,
    /// A page elsewhere that they are judged by was mended, or given up; or what lay in several
    /// rows was brought back.
    Again(Mended),
    /// These pages have to be held as well.
    Wider(Vec<u64>),
}

/// Some columns but for others, which ascend.
fn beside((from, len): (u64, u64), others: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let (mut from, end, mut rest) = (from, from + len, Vec::new());
    for (col, n) in others.iter().copied().chain([(end, 0)]) {
        let to = col.min(end);
        if to > from {
            rest.push((from, to - from));
        }
        from = from.max(col + n);
    }
    rest
}

/// Lets others go on who hold what is to be looked at again, or do what is waited for: by sleeping,
/// but for the first tries. To give way alone costs no time where nobody wants it, and a time slice
/// where somebody does.
pub(crate) fn give_way(tries: u32, at_once: u32) {
    if tries <= at_once {
        holdfast_sync::thread::yield_now();
    } else {
        holdfast_sync::thread::sleep(Duration::from_nanos(HELD_PAUSE));
    }
}

/// Sleeps a little at a time, as long as nobody wants anything of the scrub.
fn sit_out(mut wait: u64, control: &ScrubControl, mut awake: impl FnMut()) {
    while wait > 0 && control.0.load(Ordering::Acquire) == 0 {
        let part = wait.min(WAIT_PART);
        holdfast_sync::thread::sleep(Duration::from_nanos(part));
        wait -= part;
        awake();
    }
}

impl<M: Medium> Pool<M> {
    /// Checks the whole pool and changes nothing. `progress` is told how far it is (bytes looked
    /// at, bytes in all).
    ///
    /// # Errors
    /// Something other than damage stopped the check.
    pub fn check(&self, mut progress: impl FnMut(u64, u64)) -> Result<CheckReport, Error> {
        let shared = &*self.shared;
        let mut scratch = Scratch::new();
        let mut report = CheckReport::default();
        let mut position = Position::FRONT;
        let all = shared.m.len();
        while position != Position::End {
            position = shared.sweep_step(position, &mut scratch, &mut report)?;
            shared.refuse_cut_off()?;
            progress(shared.offset_of(position), all);
        }
        Ok(report)
    }

    /// Checks the whole pool and repairs what can be. Commits go on meanwhile.
    ///
    /// # Errors
    /// Something other than damage stopped the scrub.
    pub fn scrub(
        &self,
        options: ScrubOptions,
        control: &ScrubControl,
        progress: impl FnMut(&Progress, u64),
    ) -> Result<Scrubbed, Error> {
        self.shared.or_stop(self.scrub_pass(options, control, progress))
    }

    fn scrub_pass(
        &self,
        options: ScrubOptions,
        control: &ScrubControl,
        mut progress: impl FnMut(&Progress, u64),
    ) -> Result<Scrubbed, Error> {
        let shared = &*self.shared;
        let mut pace = Pace::new(options.rate);
        let mut scratch = Scratch::new();
        let mut state = shared.begin_pass(options.resume)?;
        let mut position = shared.position_of(state.next);
        let awake = || progress(&state, shared.m.len());
        let back = shared.look_at_directories(position, &mut pace, control, awake)?;
        (state.found, state.repaired) = (state.found + back, state.repaired + back);
        let mut done = Scrubbed::so_far(&state);
        let mut steps = 0_u32;
        while position != Position::End {
            match control.0.load(Ordering::Acquire) {
                0 => {}
                1 => {
                    state.state = ScrubState::Paused;
                    break;
                }
                _ => {
                    state.state = ScrubState::Cancelled;
                    break;
                }
            }
            let before = done.report.column_bytes + done.report.object_bytes;
            let known = done.report.findings.len();
            position = shared.sweep_step(position, &mut scratch, &mut done.report)?;
            shared.refuse_cut_off()?;
            for finding in done.report.findings.split_off(known) {
                done.count(shared.mend_finding(&finding)?);
                done.report.findings.push(finding);
            }
            let bytes = done.report.column_bytes + done.report.object_bytes - before;
            state.next = shared.offset_of(position);
            state.scanned = done.report.column_bytes + done.report.object_bytes;
            (state.objects, state.object_bytes) = (done.report.objects, done.report.object_bytes);
            state.found = done.report.found;
            state.repaired = done.repaired;
            state.lost = done.lost;
            state.undecided = done.undecided;
            steps += 1;
            if steps.is_multiple_of(STEPS_PER_STORE) {
                shared.store_progress(&state)?;
            }
            progress(&state, shared.m.len());
            let wait = pace.wait_after(shared.clock.now(), bytes);
            sit_out(wait, control, || progress(&state, shared.m.len()));
        }
        if position == Position::End {
            state.state = ScrubState::Idle;
            shared.end_withholding();
            shared.believe_what_adds_up(None);
            shared.heal_journal();
            // A record may be rotten in one copy, which nobody sees before it is needed. Once a
            // watermark covers all that is complete, none of them is needed.
            shared.spread_watermark().map_err(Error::Tx)?;
        }
        done.state = state.state;
        shared.store_progress(&state)?;
        progress(&state, shared.m.len());
        Ok(done)
    }

    /// Where the last scrub is or was.
    #[must_use]
    pub fn scrub_progress(&self) -> Progress {
        self.shared.repairer().scrubbed
    }

    /// Repairs whatever is damaged in `[at, at + len)`; for loads that met a media error. True if
    /// the bytes can be read again.
    pub fn heal_load(&self, at: u64, len: u64) -> bool {
        let asked = Asked { cause: Cause::MediaError, finder: Finder::Load };
        let mended = matches!(self.shared.mend(at, len, asked), Ok(None));
        // What is known of this damage now is known to this process only.
        self.shared.mend_suspects();
        mended
    }
}

impl<M: Medium> Shared<M> {
    fn begin_pass(&self, resume: bool) -> Result<Progress, Error> {
        self.unsettled.lock().unwrap_or_else(holdfast_sync::PoisonError::into_inner).clear();
        self.believe_what_adds_up(None);
        let last = {
            let mut repairer = self.repairer();
            repairer.hopeless.forget();
            repairer.scrubbed
        };
        let interrupted = matches!(last.state, ScrubState::Paused | ScrubState::Running);
        let state = if resume && interrupted {
            let all_again = self.position_of(last.next) == Position::FRONT;
            let counts = if all_again { Progress::default() } else { last };
            let Progress { pass, started_ns, .. } = last;
            Progress { pass, started_ns, state: ScrubState::Running, ..counts }
        } else {
            Progress {
                pass: last.pass.saturating_add(1),
                started_ns: self.clock.now(),
                state: ScrubState::Running,
                ..Progress::default()
            }
        };
        self.store_progress(&state)?;
        Ok(state)
    }

    /// The entries of all chunks, before anything else of a pass and at its pace. Not again each
    /// time a pass is taken up that got beyond them.
    fn look_at_directories(
        &self,
        position: Position,
        pace: &mut Pace,
        control: &ScrubControl,
        mut awake: impl FnMut(),
    ) -> Result<u64, Error> {
        if position != Position::FRONT && self.directories_seen.load(Ordering::Acquire) {
            return Ok(0);
        }
        // What is in doubt is told of again by who looks at all of them, or at their columns.
        self.withheld_now().iter_mut().for_each(|(_, seen)| *seen = false);
        self.restore_directories(Finder::Scrub, |bytes| {
            awake();
            sit_out(pace.wait_after(self.clock.now(), bytes), control, &mut awake);
            control.0.load(Ordering::Acquire) == 0
        })
    }

    fn store_progress(&self, state: &Progress) -> Result<(), Error> {
        let mut repairer = self.repairer();
        repairer.scrubbed = *state;
        if self.is_read_only() {
            return Ok(());
        }
        match repairer.progress.store(&self.m, state) {
            // A page of it stays bad. The pass goes on; after a crash it starts from the front.
            Err(holdfast_redundancy::Error::Media(_)) => {}
            other => other?,
        }
        self.report_cleared(&mut repairer);
        Ok(())
    }

    /// Repairs one finding of a sweep.
    fn mend_finding(&self, finding: &Finding) -> Result<Mended, Error> {
        let asked = Asked { cause: Cause::Sum, finder: Finder::Scrub };
        match finding.verdict {
            Verdict::Good => Ok(Mended::Nothing),
            Verdict::Corrupt(Wrong::FreeOrParity | Wrong::ParityP | Wrong::ParityQ) => {
                self.mend_columns(finding.at, finding.len, Finder::Scrub)
            }
            Verdict::Corrupt(wrong @ Wrong::Mirror { .. }) => self.mend_copies(finding, wrong),
            Verdict::Corrupt(wrong) => {
                let lost = self.mend_through(finding.at, finding.len, asked)?;
                Ok(lost.map_or(Mended::Repaired(wrong), |_| Mended::Lost(wrong)))
            }
            Verdict::Undecided(Reason::Media(e)) => {
                let asked = Asked { cause: Cause::MediaError, ..asked };
                let page = e.at / PAGE * PAGE;
                let lost = self.mend_through(page, PAGE, asked)?.is_some();
                // Its columns were not compared: more pages over them may be bad, or differ. Who
                // stores over other rows needs their parity, also if something is lost there.
                let rest = self.mend_columns(page, PAGE, Finder::Scrub)?;
                Ok(match rest {
                    _ if lost => Mended::Lost(Wrong::Data),
                    Mended::Lost(_) | Mended::Undecided(_) => rest,
                    _ if self.stands_in(e.at, 1) => Mended::StoodIn(Wrong::Data),
                    _ => Mended::Repaired(Wrong::Data),
                })
            }
            Verdict::Undecided(Reason::Unlocated | Reason::Older) => {
                self.mend_columns(finding.at, finding.len, Finder::Scrub)
            }
        }
    }

    /// Columns that may not add up: the bad units over them are repaired first; if all verify, a
    /// lost write is brought back, or else their parity is recomputed from them.
    pub(crate) fn mend_columns(&self, at: u64, len: u64, finder: Finder) -> Result<Mended, Error> {
        self.settle_over(at, len, finder).map(|(mended, _)| mended)
    }

    /// The same, and whether it is left only because somebody holds what it is about.
    pub(crate) fn settle_over(
        &self,
        at: u64,
        len: u64,
        finder: Finder,
    ) -> Result<(Mended, bool), Error> {
        let Some((zone, _, col)) = self.zone_unit(at).filter(|(zone, ..)| zone.has_p()) else {
            return Ok((Mended::Nothing, false));
        };
        let len = len.min(zone.row_len() - col);
        let columns = self.columns_of(&[(zone.at(0, col), len)]);
        if self.add_up(&zone, (col, len), &columns) {
            return Ok((Mended::Nothing, false));
        }
        // Whole pages: an object and its slot may lie at different bytes of one that was lost.
        let end = (col + len).next_multiple_of(PAGE);
        let col = col / PAGE * PAGE;
        // To try costs as much as all that lies over them, and who asks for what is lost there may
        // ask again and again: until the next scrub it is lost.
        let parity = (col..end).step_by(PAGE as usize).map(|page| zone.p_at(page));
        if finder != Finder::Scrub && parity.clone().any(|at| self.is_unsettled(at)) {
            return Ok((Mended::Lost(Wrong::FreeOrParity), false));
        }
        // What entries call free that cannot be had is nobody's to say.
        let known = self.restore_called_free(&zone, (col, end - col), finder)?;
        if !known && finder != Finder::Scrub {
            return Ok((Mended::Undecided(Wrong::FreeOrParity), false));
        }
        let settled = self.settle_pages(&zone, (col, end - col), columns, finder)?;
        if matches!(settled, (Mended::Lost(_), _)) {
            for at in parity {
                self.leave_unsettled(at);
            }
        }
        Ok(settled)
    }

    /// The same of whole pages that do not add up.
    fn settle_pages(
        &self,
        zone: &Zone,
        (col, len): (u64, u64),
        mut columns: Vec<ColumnId>,
        finder: Finder,
    ) -> Result<(Mended, bool), Error> {
        let asked = Asked { cause: Cause::Parity, finder };
        let (mut beside, mut given_up, mut held, mut again) = (Vec::new(), Vec::new(), 0, 0);
        let mut back = Mended::Nothing;
        for _ in 0..BAD_PAGES_MAX {
            let mut lost = false;
            for row in 0..zone.data_rows() {
                lost |= self.mend_through(zone.at(row, col), len, asked)?.is_some();
            }
            // Parity that cannot be read is mended like any page; only then can it be judged.
            for parity in [Some(zone.p_at(col)), zone.has_q().then(|| zone.q_at(col))] {
                lost |= parity.map_or(Ok(None), |at| self.mend_through(at, len, asked))?.is_some();
            }
            loop {
                let settled = self.undisturbed(|| {
                    let mut repairer = self.repairer();
                    self.columns.lock_all(&self.m, &columns);
                    self.m.step(STEP_SETTLE);
                    let known = Before { beside: &beside, lost, given_up: &given_up };
                    let settled = self.may_judge().and_then(|()| {
                        self.settle_columns(&mut repairer, zone, (col, len), known, asked)
                    });
                    self.believe_what_adds_up(Some(&columns));
                    self.columns.unlock_all(&columns);
                    settled
                });
                let of_columns = |at| {
                    let unit = zone.unit(at);
                    unit.is_some_and(|(_, of)| (col..col + len).contains(&(of / PAGE * PAGE)))
                };
                match self.or_stop(self.or_mend(settled, &mut given_up, of_columns, finder))? {
                    Settled::Again(mended) if again < AGAIN_MAX => {
                        again += 1;
                        back = if mended == Mended::Nothing { back } else { mended };
                    }
                    // Who holds it lets go of it in a moment, or has a view.
                    Settled::Held(_) if held < HELD_TRIES => {
                        held += 1;
                        give_way(held, HELD_YIELDS);
                    }
                    Settled::Done(Mended::Nothing) => return Ok((back, false)),
                    Settled::Done(mended) => return Ok((mended, false)),
                    Settled::Held(mended) => return Ok((mended, true)),
                    Settled::Anew | Settled::Again(_) => break,
                    Settled::Wider(pages) => {
                        let ranges = Vec::from_iter(pages.iter().map(|page| (*page, PAGE)));
                        columns.extend(self.columns_of(&ranges));
                        columns.sort_unstable();
                        columns.dedup();
                        beside.extend(pages);
                    }
                }
            }
            if lost {
                break;
            }
            // Another page turned bad in between.
        }
        let event = self.event(asked.cause, asked.finder, zone.p_at(col), len);
        let lost = Mended::Lost(Wrong::FreeOrParity);
        self.report_mended(event, lost);
        Ok((lost, false))
    }

    /// What became of columns. A page that has turned bad since they were compared, over them or
    /// over those of what they are judged by, is mended first. If it stays bad, it is given up.
    fn or_mend(
        &self,
        settled: Result<Settled, Error>,
        given_up: &mut Vec<u64>,
        of_columns: impl Fn(u64) -> bool,
        finder: Finder,
    ) -> Result<Settled, Error> {
        match settled {
            Err(Error::Media(e)) if e.cause == MediaCause::Poison => {
                let (page, asked) =
                    (e.at / PAGE * PAGE, Asked { cause: Cause::MediaError, finder });
                self.mend_through(page, PAGE, asked)?;
                if self.is_bad(page) {
                    given_up.push(page);
                }
                let again = Settled::Again(Mended::Nothing);
                Ok(if of_columns(page) { Settled::Anew } else { again })
            }
            settled => settled,
        }
    }

    /// Whether columns, which are held meanwhile, can be read and add up.
    fn add_up(&self, zone: &Zone, (col, len): (u64, u64), columns: &[ColumnId]) -> bool {
        let mut repairer = self.repairer();
        self.columns.lock_all(&self.m, columns);
        let scratch = &mut repairer.scratch;
        let left = parity::check(&self.m, zone, col, len, &self.exempt(), scratch);
        self.columns.unlock_all(columns);
        left.is_ok_and(|left| left.is_empty())
    }

    /// Settles what differs over columns that are held, a page column at a time: damage in one must
    /// not blur what is found in the next.
    fn settle_columns(
        &self,
        repairer: &mut Repairer,
        zone: &Zone,
        (col, len): (u64, u64),
        known: Before<'_>,
        asked: Asked,
    ) -> Result<Settled, Error> {
        let (mut mended, mut held) = (Mended::Nothing, None);
        for page in (col..col + len).step_by(PAGE as usize) {
            let (exempt, scratch) = (self.exempt(), &mut repairer.scratch);
            // First of all: what comes about from here on was not judged.
            let by = parity::syndromes(&self.m, zone, page, PAGE, &exempt, scratch);
            let Ok(by) = by else { return Ok(Settled::Anew) };
            let differ = Differ { col: page, by };
            let all = self.blamed(zone, &differ);
            for blamed in &all {
                match self.settle_mismatch(repairer, zone, (blamed, &all, &differ), known, asked)? {
                    Settled::Done(settled @ Mended::Lost(_)) => return Ok(Settled::Done(settled)),
                    Settled::Done(_) if matches!(mended, Mended::Undecided(_)) => {}
                    Settled::Done(settled) => mended = settled,
                    Settled::Held(left) => held = Some(left),
                    other => return Ok(other),
                }
            }
        }
        // A true doubt is none of those that pass.
        let held = held.filter(|_| !matches!(mended, Mended::Undecided(_)));
        Ok(held.map_or(Settled::Done(mended), Settled::Held))
    }

    fn settle_mismatch(
        &self,
        repairer: &mut Repairer,
        zone: &Zone,
        (blamed, all, differ): (&Blamed, &[Blamed], &Differ),
        Before { beside, lost, given_up }: Before<'_>,
        asked: Asked,
    ) -> Result<Settled, Error> {
        let (col, len) = (blamed.col, blamed.by.len() as u64);
        let certify = Certify::when(self.m.enabled(VERIFY_ROWS));
        let Some(bad) = self.bad_rows(zone, col, len, certify) else {
            return Ok(Settled::Held(Mended::Undecided(Wrong::FreeOrParity)));
        };
        let all_verify = bad == 0;
        if !all_verify && !lost {
            // It turned bad after the rows were mended, and can be mended as they were.
            return Ok(Settled::Anew);
        }
        let known = Known { all_verify, beside: Some(beside), given_up };
        let brought = self.bring_back(repairer, zone, (blamed, all), known, asked)?;
        if !brought.wider.is_empty() {
            return Ok(Settled::Wider(brought.wider));
        }
        let back = brought.back.map_or(Mended::Nothing, Mended::Repaired);
        if brought.across && brought.back.is_some() {
            return Ok(Settled::Again(back));
        }
        let (unit, wrong) = match blamed.suspect {
            Suspect::Unit(zone::Unit::Q) => (zone::Unit::Q, Wrong::ParityQ),
            Suspect::Unit(zone::Unit::P) => (zone::Unit::P, Wrong::ParityP),
            _ => (zone::Unit::P, Wrong::FreeOrParity),
        };
        let undecided = || brought.doubts.iter().chain(&brought.left);
        let doubtful = undecided().next().map(|doubt| Mended::Undecided(doubt.wrong));
        brought.doubts.iter().for_each(|doubt| self.report_doubt(doubt, asked));
        let kept = undecided().flat_map(Doubt::ranges).collect();
        let rest = self.differ_beside(repairer, zone, &blamed.ranges, kept)?;
        let only_held = brought.doubts.is_empty() && !brought.left.is_empty();
        if rest.is_empty() {
            let settled = if only_held { Settled::Held } else { Settled::Done };
            return Ok(settled(doubtful.unwrap_or(back)));
        }
        let event = self.event(asked.cause, asked.finder, zone.unit_at(unit, col), len);
        let mended = if brought.cut || self.cannot_tell(zone, col, blamed.suspect) {
            Mended::Undecided(wrong)
        } else if !all_verify {
            // A unit over the column is lost. Parity stays as it is: it may be what is right.
            Mended::Lost(wrong)
        } else {
            match self.remake_parity(zone, &rest, differ)? {
                true => Mended::Repaired(wrong),
                false => return Ok(Settled::Held(Mended::Undecided(wrong))),
            }
        };
        self.report_mended(event, mended);
        let wait = only_held && matches!(mended, Mended::Repaired(_));
        let settled = if wait { Settled::Held } else { Settled::Done };
        Ok(settled(doubtful.unwrap_or(mended)))
    }

    /// Makes parity of columns anew, whose rows verify. False if a row is not what it was when
    /// that was seen, and what differs from parity was judged: it went bad, or a write of it was
    /// lost. Then parity stays as it is.
    fn remake_parity(
        &self,
        zone: &Zone,
        columns: &[(u64, u64)],
        differ: &Differ,
    ) -> Result<bool, Error> {
        let mut judged = true;
        for columns in columns.iter().copied() {
            self.m.step(STEP_REMAKE);
            let sums = self.sum_columns(&Direct(&self.m), zone, columns, &self.exempt())?;
            judged = !self.m.enabled(AS_JUDGED) || sums.differ_as(&self.m, zone, differ)?;
            if !judged {
                break;
            }
            self.put_sums(zone, &sums, PARITY)?;
        }
        // Until this, a crash would bring the wrong parity back.
        if self.is_file() {
            self.m.sync(PARITY_SYNC)?;
        } else {
            self.m.drain(PARITY_DRAIN);
        }
        Ok(judged)
    }

    /// Number of units that are bad over `[col, col + len)`, in all rows. `None` if somebody was at
    /// work on all that seem so: not everything of them lies over the columns that are held.
    fn bad_rows(&self, zone: &Zone, col: u64, len: u64, certify: Certify) -> Option<usize> {
        let (mut bad, mut disturbed) = (0, false);
        self.units_of_columns(zone, (col, len), &mut |unit| {
            let word = match unit {
                Unit::Granule { spot, .. } => Some(self.versions.index(spot.object)),
                Unit::Entry { .. } => None,
            };
            let before = word.and_then(|word| self.versions.now(word));
            let found = unit.check(&Direct(&self.m), self.heap.sums(), certify);
            if found.is_ok_and(|found| !found.is_bad()) {
                return;
            }
            let there = is_there(self, &unit);
            // A committer holds its word from before its first store until what it changed is
            // known to all.
            let unchanged = |word| before.is_some_and(|v| self.versions.unchanged(word, v));
            let calm = word.is_none_or(unchanged);
            disturbed |= !calm;
            bad += usize::from(calm && there);
        });
        (bad > 0 || !disturbed).then_some(bad)
    }

    /// Those of some columns, beside those to be `kept`, that do not add up.
    fn differ_beside(
        &self,
        repairer: &mut Repairer,
        zone: &Zone,
        columns: &[(u64, u64)],
        mut kept: Vec<(u64, u64)>,
    ) -> Result<Vec<(u64, u64)>, Error> {
        kept.sort_unstable();
        let mut differ = Vec::new();
        for (col, len) in columns.iter().flat_map(|columns| beside(*columns, &kept)) {
            let scratch = &mut repairer.scratch;
            if !parity::check(&self.m, zone, col, len, &self.exempt(), scratch)?.is_empty() {
                differ.push((col, len));
            }
        }
        Ok(differ)
    }

    /// A copy of a mirrored record that does not verify is written again.
    fn mend_copies(&self, finding: &Finding, wrong: Wrong) -> Result<Mended, Error> {
        let side_len = self.superblock().side_len;
        let place = if finding.at < side_len { finding.at } else { finding.at - side_len };
        let event = self.event(Cause::Copies, Finder::Scrub, finding.at, finding.len);
        let mut repairer = self.repairer();
        let still = {
            let _regions =
                self.regions.lock().unwrap_or_else(holdfast_sync::PoisonError::into_inner);
            let superblock = self.superblock();
            crate::copies::damaged_copies(&self.m, &superblock)
        };
        if !still.iter().any(|(p, _)| *p == place) {
            return Ok(Mended::Nothing);
        }
        let mended = match self.rewrite_record(&mut repairer, place) {
            Ok(true) => Mended::Repaired(wrong),
            Ok(false) => return Ok(Mended::Nothing),
            // Its page stays bad, and pages of records do not move: the other copy goes on alone.
            Err(Error::Media(_)) => Mended::Lost(wrong),
            Err(error) => return Err(error),
        };
        drop(repairer);
        self.report_mended(event, mended);
        Ok(mended)
    }
}
