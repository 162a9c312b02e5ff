//! When a scrub starts and how fast it goes: pure logic on times and counts that are passed in.

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

/// Keeps the scrub to a number of bytes per second, with bursts of at most a tenth of a second.
///
/// Time is any monotonic clock in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// `None`: as fast as it can.
    bytes_per_second: Option<u64>,
    /// The time at which everything scrubbed so far is paid for.
    paid_ns: u64,
}

impl Pace {
    /// A pace of `bytes_per_second`; `None` for no limit. Zero counts as one.
    #[must_use]
    pub fn new(bytes_per_second: Option<u64>) -> Self {
        Self { bytes_per_second: bytes_per_second.map(|rate| rate.max(1)), paid_ns: 0 }
    }

    /// Accounts for `bytes` scrubbed at `now_ns` and answers how many nanoseconds to wait before
    /// the next ones.
    pub fn wait_after(&mut self, now_ns: u64, bytes: u64) -> u64 {
        let Some(rate) = self.bytes_per_second else { return 0 };
        let cost = u128::from(bytes) * u128::from(SECOND) / u128::from(rate);
        // What was saved up while nothing was scrubbed is not spent at once later.
        let from = self.paid_ns.max(now_ns.saturating_sub(SECOND / 10));
        self.paid_ns = from.saturating_add(u64::try_from(cost).unwrap_or(u64::MAX));
        self.paid_ns.saturating_sub(now_ns)
    }
}

/// When scrubs start by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Schedule {
    /// At least this long after the start of the last pass, in nanoseconds.
    pub every_ns: Option<u64>,
    /// When so many transactions have committed since the start of the last pass.
    pub every_transactions: Option<u64>,
}

/// Why a scrub is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// Somebody asked.
    Demand,
    /// So much time went by.
    Time,
    /// So many transactions committed.
    Transactions,
}

/// Decides when a pass starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scheduler {
    schedule: Schedule,
    last_ns: u64,
    last_transactions: u64,
    demanded: bool,
}

impl Scheduler {
    /// Starts counting at `now_ns` and `transactions` committed so far.
    #[must_use]
    pub const fn new(schedule: Schedule, now_ns: u64, transactions: u64) -> Self {
        Self { schedule, last_ns: now_ns, last_transactions: transactions, demanded: false }
    }

    /// Replaces the schedule; what was counted stays.
    pub const fn set_schedule(&mut self, schedule: Schedule) {
        self.schedule = schedule;
    }

    /// Makes a pass due now.
    pub const fn demand(&mut self) {
        self.demanded = true;
    }

    /// Whether a pass is due, and why: a demand first, then time, then transactions.
    #[must_use]
    pub fn due(&self, now_ns: u64, transactions: u64) -> Option<Trigger> {
        let reached = |limit: Option<u64>, now: u64, last: u64| {
            limit.is_some_and(|limit| now.saturating_sub(last) >= limit)
        };
        if self.demanded {
            Some(Trigger::Demand)
        } else if reached(self.schedule.every_ns, now_ns, self.last_ns) {
            Some(Trigger::Time)
        } else if reached(self.schedule.every_transactions, transactions, self.last_transactions) {
            Some(Trigger::Transactions)
        } else {
            None
        }
    }

    /// A pass starts now: counting begins anew.
    pub const fn started(&mut self, now_ns: u64, transactions: u64) {
        self.last_ns = now_ns;
        self.last_transactions = transactions;
        self.demanded = false;
    }
}
