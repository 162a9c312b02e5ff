//! The explorer as its user sees it: what to run, how to recover, how to judge, how much.

use core::fmt;
use core::panic::Location;
use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_faultmem::{Budget, Mode};
use holdfast_pmem::MediumKind;

use crate::ledger::{Ledger, Model, Seen};
use crate::mapping::Shared;
use crate::verdict::Verdict;

/// Crashes within crashes: the one of the workload, one of its recovery, one of that recovery.
pub const DEEPEST: u32 = 2;

type Setup = dyn Fn(Shared) -> Verdict + Send + Sync;
type Recover<H> = dyn Fn(Shared) -> Verdict<H> + Send + Sync;
type Check<H, A> = dyn Fn(&mut H, &Seen<A>) -> Verdict + Send + Sync;
type Step<H, A> = dyn Fn(&mut H, &Ledger<A>) -> Verdict + Send + Sync;

/// One operation: its name in reports and what it does.
pub(crate) struct Op<H, A> {
    pub(crate) name: String,
    pub(crate) run: Arc<Step<H, A>>,
}

impl<H, A> Clone for Op<H, A> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), run: Arc::clone(&self.run) }
    }
}

/// How much is explored.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) name: String,
    pub(crate) len: u64,
    /// Bytes that the medium may grow to.
    pub(crate) reserve: u64,
    pub(crate) kind: MediumKind,
    pub(crate) modes: Vec<Mode>,
    pub(crate) budget: Budget,
    pub(crate) nested: Budget,
    pub(crate) depth: u32,
    pub(crate) longest: usize,
    pub(crate) samples: usize,
    pub(crate) seed: u64,
    pub(crate) off: BTreeSet<String>,
    /// What is switched off besides: to try it, or since a replay line says so.
    pub(crate) elided: Option<String>,
    /// Call before which everything is made durable, to try a cure.
    pub(crate) cure: Option<&'static Location<'static>>,
}

/// Runs a structure of the user's, crashes it in every way its budget allows, and judges what each
/// crash leaves.
///
/// `H` is the structure in use, as `recover` opens it; `A` the model of what was acknowledged.
pub struct Explorer<H, A> {
    pub(crate) plan: Plan,
    pub(crate) setup: Option<Arc<Setup>>,
    pub(crate) recover: Arc<Recover<H>>,
    pub(crate) check: Arc<Check<H, A>>,
    pub(crate) start: A,
    pub(crate) ops: Vec<Op<H, A>>,
}

impl<H, A: Clone> Clone for Explorer<H, A> {
    fn clone(&self) -> Self {
        Self {
            plan: self.plan.clone(),
            setup: self.setup.clone(),
            recover: Arc::clone(&self.recover),
            check: Arc::clone(&self.check),
            start: self.start.clone(),
            ops: self.ops.clone(),
        }
    }
}

impl<H: 'static, A: Model> Explorer<H, A> {
    /// An explorer of media of `len` bytes, all zero at first. `recover` opens what a crash, or a
    /// clean end, has left; `check` says whether that is what it may be. The check may go on using
    /// the structure: the image is its own.
    ///
    /// `name` is what reports and replay lines call it: one word, that no other explorer of the
    /// program has, also not a variant of the same structure. A line is obeyed by whoever has its
    /// name, and one that happens to fit shows a crash that nobody reported.
    #[must_use]
    pub fn new(
        name: &str,
        len: u64,
        kind: MediumKind,
        recover: impl Fn(Shared) -> Verdict<H> + Send + Sync + 'static,
        check: impl Fn(&mut H, &Seen<A>) -> Verdict + Send + Sync + 'static,
    ) -> Self
    where
        A: Default,
    {
        let mode = if kind == MediumKind::File { Mode::Sectors } else { Mode::Words };
        let plan = Plan {
            name: in_a_line(name),
            len,
            reserve: len,
            kind,
            modes: vec![mode],
            budget: Budget::default(),
            nested: Budget { exhaustive: 64, singles: 64, pairs: 64, samples: 32, seed: 0 },
            depth: 1,
            longest: 2,
            samples: 0,
            seed: 0,
            off: BTreeSet::new(),
            elided: None,
            cure: None,
        };
        Self {
            plan,
            setup: None,
            recover: Arc::new(recover),
            check: Arc::new(check),
            start: A::default(),
            ops: Vec::new(),
        }
    }

    /// How the structure is made. What it stores counts as durable: crashes begin after it.
    #[must_use]
    pub fn setup(mut self, setup: impl Fn(Shared) -> Verdict + Send + Sync + 'static) -> Self {
        self.setup = Some(Arc::new(setup));
        self
    }

    /// What the structure holds once it is made; without this, `A::default()`.
    #[must_use]
    pub fn start(mut self, start: A) -> Self {
        self.start = start;
        self
    }

    /// Adds an operation to the namespace: what it does to the structure, and to the model.
    #[must_use]
    pub fn op(
        self,
        name: &str,
        run: impl Fn(&mut H) -> Verdict + Send + Sync + 'static,
        model: impl Fn(&mut A) + Send + Sync + 'static,
    ) -> Self {
        self.step(name, move |structure, ledger| ledger.attempt(&model, || run(structure)))
    }

    /// Adds a step that announces and acknowledges by itself, any number of operations: a whole
    /// workload, say, to be run by itself with `longest(1)`.
    #[must_use]
    pub fn step(
        mut self,
        name: &str,
        run: impl Fn(&mut H, &Ledger<A>) -> Verdict + Send + Sync + 'static,
    ) -> Self {
        self.ops.push(Op { name: name.to_owned(), run: Arc::new(run) });
        self
    }

    /// How long the medium may become, in bytes. Without this it cannot grow. Growth is a barrier:
    /// a crash before it leaves the old length, one after it the new, with zeroes in between.
    #[must_use]
    pub fn reserve(mut self, most: u64) -> Self {
        self.plan.reserve = most;
        self
    }

    /// How finely crashes tear, each in turn. Without this: words, of a file sectors.
    #[must_use]
    pub fn modes(mut self, modes: &[Mode]) -> Self {
        self.plan.modes = modes.to_vec();
        self
    }

    /// Images at each instant of the operations.
    #[must_use]
    pub fn budget(mut self, budget: Budget) -> Self {
        self.plan.budget = budget;
        self
    }

    /// Crashes within recoveries: none, those of the first, or (2, and no more than that if it is
    /// more) also those of the second; and the images at each of their instants. Without this 1,
    /// and up to 64 exhaustively.
    #[must_use]
    pub fn nested(mut self, depth: u32, budget: Budget) -> Self {
        self.plan.depth = depth.min(DEEPEST);
        self.plan.nested = budget;
        self
    }

    /// All sequences of up to `longest` operations; without this 2.
    #[must_use]
    pub fn longest(mut self, longest: usize) -> Self {
        self.plan.longest = longest;
        self
    }

    /// How many sequences of one operation more are drawn, and the seed of everything drawn: also
    /// of the budgets there are by now, so it comes behind [`budget`](Self::budget) and
    /// [`nested`](Self::nested).
    #[must_use]
    pub fn samples(mut self, samples: usize, seed: u64) -> Self {
        self.plan.samples = samples;
        self.plan.seed = seed;
        self.plan.budget.seed = seed;
        self.plan.nested.seed = seed;
        self
    }

    /// The same with a place of this name switched off: its flush or fence is left out, its
    /// `enabled` answers no. If nothing comes by such a place, the report is not clean.
    #[must_use]
    pub fn without(mut self, site: &str) -> Self {
        self.plan.off.insert(site.to_owned());
        self
    }
}

/// A name as a replay line can hold it: without what separates there, and what it is quoted by.
fn in_a_line(name: &str) -> String {
    let name = name.trim().replace([';', '\''], ",");
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

impl<H, A> fmt::Debug for Explorer<H, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.ops.iter().map(|op| &op.name[..]).collect();
        f.debug_struct("Explorer")
            .field("plan", &self.plan)
            .field("ops", &names)
            .finish_non_exhaustive()
    }
}
