//! The log of acknowledged operations, for tests that kill the program at any instant.
//!
//! The side that survives (the parent of the killed process, or the harness around a crash image)
//! notes every operation before it is asked for and after it was acknowledged. What is recovered
//! must then equal the model after all acknowledged operations, in the order of their
//! acknowledgement, with any subset of those under way applied on top: an operation in flight may
//! have happened or not, but not half.
//!
//! Operations that overlap in time must not touch the same keys: their order of acknowledgement
//! need not be their order in the store. Threads therefore keep to disjoint keys, each with a log
//! of its own.

use std::fmt;

/// A sequential model of what is tested.
pub trait Model: Clone + PartialEq {
    /// One operation.
    type Op;

    /// Applies an operation completely.
    fn apply(&mut self, op: &Self::Op);
}

/// Names an operation under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

impl Ticket {
    /// The number of the operation: 0 for the first one begun.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// Operations that may be in flight at once: every subset of them is tried.
pub const MOST_IN_FLIGHT: usize = 12;

/// The log.
#[derive(Clone, Debug)]
pub struct Acked<M: Model> {
    /// The state after all acknowledged operations.
    model: M,
    in_flight: Vec<(Ticket, M::Op)>,
    begun: u64,
    acked: u64,
}

/// What a recovered state was found to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// Acknowledged operations, all of them there.
    pub acked: u64,
    /// The operations in flight that also happened, in the order they were begun.
    pub happened: Vec<Ticket>,
}

/// Why a recovered state, or a call, is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckedError {
    /// No choice of the operations in flight explains the state.
    Disagrees {
        /// Acknowledged operations.
        acked: u64,
        /// Operations in flight.
        in_flight: usize,
    },
    /// The ticket names no operation in flight.
    NotInFlight(Ticket),
    /// More operations are in flight than subsets can be tried of.
    TooMany {
        /// Operations in flight.
        in_flight: usize,
    },
}

impl<M: Model> Acked<M> {
    /// A log that begins with this state, which must be durable already.
    #[must_use]
    pub const fn new(initial: M) -> Self {
        Self { model: initial, in_flight: Vec::new(), begun: 0, acked: 0 }
    }

    /// Notes that an operation is about to be asked for.
    pub fn begin(&mut self, op: M::Op) -> Ticket {
        let ticket = Ticket(self.begun);
        self.begun += 1;
        self.in_flight.push((ticket, op));
        ticket
    }

    /// Notes that an operation was acknowledged: from now on it must be there.
    ///
    /// # Errors
    ///
    /// `NotInFlight` if it was not begun, or has ended already.
    pub fn ack(&mut self, ticket: Ticket) -> Result<(), AckedError> {
        let op = self.take(ticket)?;
        self.model.apply(&op);
        self.acked += 1;
        Ok(())
    }

    /// Notes that an operation reported failure: from now on it must not be there.
    ///
    /// # Errors
    ///
    /// `NotInFlight` if it was not begun, or has ended already.
    pub fn refuse(&mut self, ticket: Ticket) -> Result<(), AckedError> {
        self.take(ticket).map(drop)
    }

    fn take(&mut self, ticket: Ticket) -> Result<M::Op, AckedError> {
        let at = self.in_flight.iter().position(|&(t, _)| t == ticket);
        at.map(|at| self.in_flight.remove(at).1).ok_or(AckedError::NotInFlight(ticket))
    }

    /// The state after all acknowledged operations.
    #[must_use]
    pub const fn model(&self) -> &M {
        &self.model
    }

    /// Number of operations acknowledged.
    #[must_use]
    pub const fn acked(&self) -> u64 {
        self.acked
    }

    /// The operations in flight, in the order they were begun.
    pub fn under_way(&self) -> impl Iterator<Item = &M::Op> {
        self.in_flight.iter().map(|(_, op)| op)
    }

    /// Number of operations in flight.
    #[must_use]
    pub const fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Checks a recovered state. Where several subsets explain it, the one with the fewest of the
    /// earliest operations is returned.
    ///
    /// # Errors
    ///
    /// `Disagrees` if the state is not one that a crash may leave; `TooMany` if more than
    /// `MOST_IN_FLIGHT` operations are under way.
    pub fn verify(&self, recovered: &M) -> Result<Agreement, AckedError> {
        let in_flight = self.in_flight.len();
        if in_flight > MOST_IN_FLIGHT {
            return Err(AckedError::TooMany { in_flight });
        }
        match self.subset(|state| state == recovered) {
            Some(happened) => Ok(Agreement { acked: self.acked, happened }),
            None => Err(AckedError::Disagrees { acked: self.acked, in_flight }),
        }
    }

    /// Whether a state that a crash may leave is as `is_so` says: where only parts of what was
    /// recovered are known. False if more than `MOST_IN_FLIGHT` operations are under way.
    #[must_use]
    pub fn explains(&self, is_so: impl Fn(&M) -> bool) -> bool {
        self.in_flight.len() <= MOST_IN_FLIGHT && self.subset(is_so).is_some()
    }

    /// The operations in flight that happened, if with some of them the state is so: the fewest of
    /// the earliest.
    fn subset(&self, is_so: impl Fn(&M) -> bool) -> Option<Vec<Ticket>> {
        let in_flight = self.in_flight.len();
        (0..1_u32 << in_flight).find_map(|subset| {
            let chosen = (0..in_flight).filter(|&i| subset >> i & 1 == 1);
            let chosen = chosen.map(|i| &self.in_flight[i]);
            let mut state = self.model.clone();
            chosen.clone().for_each(|(_, op)| state.apply(op));
            is_so(&state).then(|| chosen.map(|&(ticket, _)| ticket).collect())
        })
    }

    /// Goes on after a crash: what was verified is now the acknowledged state, and nothing is in
    /// flight. Tickets keep counting.
    ///
    /// # Errors
    ///
    /// As `verify`; the log is then unchanged.
    pub fn resume(&mut self, recovered: M) -> Result<Agreement, AckedError> {
        let agreement = self.verify(&recovered)?;
        self.acked += agreement.happened.len() as u64;
        self.model = recovered;
        self.in_flight.clear();
        Ok(agreement)
    }
}

impl fmt::Display for AckedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disagrees { acked, in_flight } => write!(
                f,
                "the recovered state is not that of {acked} acknowledged operations with any of \
                 {in_flight} in flight"
            ),
            Self::NotInFlight(ticket) => write!(f, "operation {} is not in flight", ticket.0),
            Self::TooMany { in_flight } => {
                write!(
                    f,
                    "{in_flight} operations in flight, at most {MOST_IN_FLIGHT} can be judged"
                )
            }
        }
    }
}

impl std::error::Error for AckedError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map_model::{MapModel, MapOp};

    fn put(key: &str, value: &str) -> MapOp {
        MapOp::Put { key: key.into(), value: value.into() }
    }

    fn map(pairs: &[(&str, &str)]) -> MapModel {
        pairs.iter().copied().collect()
    }

    /// One operation acknowledged, two in flight.
    fn log() -> (Acked<MapModel>, Ticket, Ticket) {
        let mut log = Acked::new(MapModel::new());
        let first = log.begin(put("a", "1"));
        log.ack(first).expect("the first operation is in flight");
        let (second, third) = (log.begin(put("b", "2")), log.begin(put("c", "3")));
        (log, second, third)
    }

    #[test]
    fn any_subset_in_flight_may_have_happened() {
        let (log, second, third) = log();
        let happened = |pairs: &[(&str, &str)]| log.verify(&map(pairs)).map(|a| a.happened);
        assert_eq!(happened(&[("a", "1")]), Ok(vec![]));
        assert_eq!(happened(&[("a", "1"), ("b", "2")]), Ok(vec![second]));
        assert_eq!(happened(&[("a", "1"), ("c", "3")]), Ok(vec![third]));
        assert_eq!(happened(&[("a", "1"), ("b", "2"), ("c", "3")]), Ok(vec![second, third]));
    }

    #[test]
    fn lost_torn_and_invented_states_disagree() {
        let (log, ..) = log();
        let expect = Err(AckedError::Disagrees { acked: 1, in_flight: 2 });
        assert_eq!(log.verify(&map(&[])), expect);
        assert_eq!(log.verify(&map(&[("b", "2")])), expect);
        assert_eq!(log.verify(&map(&[("a", "1"), ("b", "")])), expect);
        assert_eq!(log.verify(&map(&[("a", "1"), ("x", "2")])), expect);
    }

    #[test]
    fn refused_operations_must_not_be_there() {
        let (mut log, second, _) = log();
        log.refuse(second).expect("the second operation is in flight");
        assert!(log.verify(&map(&[("a", "1"), ("b", "2")])).is_err());
        assert_eq!(log.refuse(second), Err(AckedError::NotInFlight(second)));
        assert_eq!(log.ack(second), Err(AckedError::NotInFlight(second)));
    }

    #[test]
    fn a_log_goes_on_after_a_crash() {
        let (mut log, second, _) = log();
        let recovered = map(&[("a", "1"), ("b", "2")]);
        assert!(log.resume(map(&[])).is_err());
        assert_eq!((log.in_flight(), log.acked()), (2, 1));
        assert_eq!(log.resume(recovered.clone()).map(|a| a.happened), Ok(vec![second]));
        assert_eq!((log.in_flight(), log.acked()), (0, 2));
        assert_eq!(log.model(), &recovered);
        let next = log.begin(MapOp::Delete { key: b"a".to_vec() });
        assert_eq!(next.number(), 3);
        assert!(log.verify(&map(&[("b", "2")])).is_ok());
    }

    #[test]
    fn too_many_in_flight_are_refused_not_guessed() {
        let mut log = Acked::new(MapModel::new());
        for _ in 0..=MOST_IN_FLIGHT {
            log.begin(put("k", "v"));
        }
        assert_eq!(log.verify(&map(&[])), Err(AckedError::TooMany { in_flight: 13 }));
    }
}
