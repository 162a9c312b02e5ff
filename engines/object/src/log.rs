//! The engine's use of the log: room before numbers, one record, and what its errors mean.

use holdfast_logs::{Lane, LogError, RecordBuilder};
use holdfast_pmem::{Medium, PAGE};
use holdfast_redundancy::events::{Cause, Finder};
use holdfast_txn::{Result, TxError};

use crate::scrub::give_way;
use crate::shared::Shared;

/// Rounds a committer waits for others before it gives the transaction up and runs it again.
const ROUNDS: u32 = 20_000;
/// Of these, those in which it does not sleep.
const YIELDS: u32 = 1_000;

impl<M: Medium> Shared<M> {
    /// Holds log lane `lane`; only a repair of its pages can make this wait.
    pub(crate) fn hold_log(&self, lane: u32) -> Lane<'_> {
        loop {
            if let Some(held) = self.log.acquire_exact(&self.m, lane as usize) {
                return held;
            }
            holdfast_sync::thread::yield_now();
        }
    }

    /// Makes room for a record, before its number is drawn: a lane that waits for room must not
    /// hold the watermark back.
    pub(crate) fn reserve_log(&self, lane: &mut Lane<'_>, record: &RecordBuilder) -> Result<()> {
        let mut rounds = 0;
        let (file, mine) = (self.is_file(), lane.id());
        let wait = || {
            rounds += 1;
            // Once a commit has stayed unstored, no watermark passes it.
            if self.is_read_only() || file && self.reclaim().is_err() {
                return false;
            }
            self.settle_others(mine);
            give_way(rounds, YIELDS);
            rounds < ROUNDS
        };
        let room = lane.reserve(&self.m, &self.numbers, record.len(), wait);
        room.map_err(|error| match error {
            LogError::GaveUp if self.is_read_only() => TxError::ReadOnly,
            error => self.log_error(error),
        })
    }

    /// Writes a record under `number` and makes it durable (F1, or F0 of an intent). `stores` is
    /// where the bytes will go if their drain may be put off.
    pub(crate) fn append(
        &self,
        lane: &mut Lane<'_>,
        number: u64,
        record: &mut RecordBuilder,
        stores: impl Iterator<Item = (u64, u32)>,
    ) -> Result<()> {
        let done = lane.commit_storing(&self.m, &self.numbers, number, record, stores);
        match done {
            Ok(committed) => {
                if let Some(error) = committed.damaged {
                    self.suspect(error.at, PAGE, Cause::MediaError, Finder::Commit);
                }
                Ok(())
            }
            Err(error) => Err(self.log_error(error)),
        }
    }

    fn log_error(&self, error: LogError) -> TxError {
        match error {
            LogError::Media(e) => crate::tx::damaged(e),
            LogError::Stopped(e) => {
                self.stop_writing();
                drop(e);
                TxError::ReadOnly
            }
            LogError::TooBig { len, max } => TxError::TooLarge { wanted: len, limit: max },
            LogError::GaveUp => TxError::Conflict,
            LogError::Empty | LogError::NoRoom | LogError::Geometry { .. } => {
                TxError::Inconsistent("the log refused a record that was reserved for")
            }
        }
    }

    /// Frees log space on a file: syncs what was applied.
    pub(crate) fn reclaim(&self) -> Result<()> {
        match self.log.reclaim(&self.m, &self.numbers) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.log_error(error)),
        }
    }

    /// Waits until a durable watermark covers `number`: recovery will not replay it any more. The
    /// caller holds no number.
    pub(crate) fn cover(&self, lane: &mut Lane<'_>, number: u64) -> Result<()> {
        for round in 0..ROUNDS {
            if self.numbers.durable() >= number {
                return Ok(());
            }
            // Once a commit has stayed unstored, no watermark passes it.
            if self.is_read_only() {
                return Err(TxError::ReadOnly);
            }
            if self.is_file() {
                self.reclaim()?;
                if self.numbers.durable() < number {
                    give_way(round, YIELDS);
                }
            } else if self.numbers.watermark(&self.m) >= number {
                lane.mark(&self.m, &self.numbers).map_err(|e| self.log_error(e))?;
            } else {
                // Another lane's commit is under way; it does not wait for this one.
                self.settle_others(lane.id());
                give_way(round, YIELDS);
            }
        }
        Err(TxError::Conflict)
    }
}
