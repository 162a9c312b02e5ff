//! Step 2 of a pass: asking the source. The steps are in `commit.rs`.

use holdfast_pmem::Medium;
use holdfast_pmem::track::{DirtySource, TrackError};

use crate::bits::Bits;
use crate::commit::{Ask, Work};
use crate::engine::Mapped;
use crate::error::Result;

impl<F: Medium, S: Medium, D: DirtySource> Mapped<F, S, D> {
    /// Regions that lie side by side are asked about in one call.
    pub(crate) fn take(&self, works: &mut [Work], ask: Ask, first: bool) -> Result<()> {
        for work in &mut *works {
            let region = &work.region;
            // What is doubted, or told for the first time, has to be settled; and of a part of a
            // region it says little that all of it was stored to.
            let settled = region.admitted && !region.fresh && region.doubt.is_none();
            let whole = region.record.pages == self.stripes.pages();
            work.open = ask == Ask::Skim && settled && whole && region.busy.may_stay_open();
        }
        let mut rest = works;
        while !rest.is_empty() {
            let count = self.side_by_side(rest);
            let (run, after) = rest.split_at_mut(count);
            self.take_run(run, first)?;
            run.iter_mut().for_each(|work| work.leave_out_ours(first));
            rest = after;
        }
        Ok(())
    }

    /// How many of the first regions are tracked without a gap between them; at least one.
    fn side_by_side(&self, works: &[Work]) -> usize {
        let end = |work: &Work| {
            let (at, len) = self.span(work.number, work.region.record.pages);
            at + len
        };
        let joined = works.windows(2).take_while(|pair| {
            let (at, _) = self.range(pair[1].number);
            let admitted = pair[0].region.admitted && pair[1].region.admitted;
            admitted && pair[0].open == pair[1].open && end(&pair[0]) == at
        });
        1 + joined.count()
    }

    fn take_run(&self, run: &mut [Work], first: bool) -> Result<()> {
        let Some((number, last)) = run.first().map(|work| work.number).zip(run.last()) else {
            return Ok(());
        };
        if !last.region.admitted {
            return Ok(());
        }
        let (at, _) = self.range(number);
        let (from, len) = self.span(last.number, last.region.record.pages);
        let len = from + len - at;
        if !self.d.intact(at, len) {
            if run.len() > 1 {
                // Only those that are not are in doubt.
                return run.chunks_mut(1).try_for_each(|one| self.take_run(one, first));
            }
            // From here on stores are seen again; what was stored before, nobody knows.
            self.d.arm(at, len)?;
            (run[0].lost, run[0].open) = (true, false);
        }
        let open = run[0].open;
        self.ask_run(run, (at, len), |at, len, each| match (open, first) {
            (false, true) => self.d.take(at, len, each),
            _ => self.d.peek(at, len, each),
        })?;
        if open {
            return run.iter_mut().try_for_each(|work| self.leave_open(work, first));
        }
        let now = self.clock.now();
        run.iter_mut().for_each(|work| work.region.taken_ns = work.region.busy.asked(false, now));
        Ok(())
    }

    /// A region that was told in full is left open, any other one taken.
    fn leave_open(&self, work: &mut Work, first: bool) -> Result<()> {
        let span = self.span(work.number, work.region.record.pages);
        let all = Bits::first(work.region.record.pages);
        work.open = work.taken.and(all) == all;
        let open = work.open;
        self.ask_run(core::slice::from_mut(work), span, |at, len, each| match (open, first) {
            (true, _) => self.d.skim(at, len, each),
            (false, true) => self.d.take(at, len, each),
            (false, false) => self.d.peek(at, len, each),
        })?;
        work.region.taken_ns = work.region.busy.asked(open, self.clock.now());
        Ok(())
    }

    /// Notes what the source tells of regions that lie side by side.
    fn ask_run(
        &self,
        run: &mut [Work],
        (at, len): (u64, u64),
        ask: impl Fn(u64, u64, &mut dyn FnMut(u64, u64)) -> Result<(), TrackError>,
    ) -> Result<()> {
        let Some(number) = run.first().map(|work| work.number) else { return Ok(()) };
        let region = self.stripes.region_len();
        let mut each = |from: u64, len: u64| {
            for inside in (from / region).max(number)..from.saturating_add(len).div_ceil(region) {
                if let Some(work) = run.get_mut((inside - number) as usize) {
                    self.note(inside, &mut work.taken, from, len);
                }
            }
        };
        Ok(ask(at, len, &mut each)?)
    }
}
