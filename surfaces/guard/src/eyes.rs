//! What is known of a file at this moment: what the system says of it, and whether anybody may have
//! written to it unseen. Asked by the engine before it calls a page damaged.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_guard_wire::Ledger;
use holdfast_mapped::{Facts, Identity};
use holdfast_pmem::ForeignFile;
use holdfast_pmem::track::Board;
use holdfast_pmem::track::holders::Holder;

use crate::foreign::{Announced, Heard, Known, Watch};
use crate::proc;

/// Listens to one guarded file.
#[derive(Debug)]
pub(crate) struct Eyes {
    data: ForeignFile,
    number: u32,
    ledger: Arc<Ledger>,
    board: Arc<Board>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    watch: Watch,
    known: Known,
    heard: Heard,
    /// It is about to be let go of: guarded programs live that nobody stops.
    leaves: bool,
}

impl Eyes {
    pub(crate) fn new(
        data: ForeignFile,
        watch: Watch,
        number: u32,
        (ledger, board): (Arc<Ledger>, Arc<Board>),
    ) -> Self {
        let state =
            State { watch, known: Known::default(), heard: Heard::default(), leaves: false };
        Self { data, number, ledger, board, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks or tells the watch something.
    pub(crate) fn watch<T>(&self, ask: impl FnOnce(&mut Watch) -> T) -> T {
        ask(&mut self.state().watch)
    }

    /// Looks at what happened since the last look, with the processes that are known. Answers what
    /// this look and earlier ones found that nobody was told of yet.
    pub(crate) fn look(&self) -> Heard {
        let mut state = self.state();
        self.listen(&mut state);
        core::mem::take(&mut state.heard)
    }

    /// Others are known from now on: what is heard later is judged by that.
    pub(crate) fn know(&self, known: &Known) {
        self.state().known.clone_from(known);
    }

    fn listen(&self, state: &mut State) {
        let State { watch, known, heard, .. } = state;
        let found = watch.look(known, || {
            // In this order: what is not under way any more was counted before.
            let busy = self.board.is_busy();
            let (began, ended) = self.ledger.announced(self.number);
            Announced { busy, began, ended }
        });
        heard.contested = heard.contested.take().or(found.contested);
        heard.doubted = found.doubted.or(heard.doubted.take());
    }

    /// It is about to be let go of, or is not after all. Nobody has it who is known, so whoever
    /// comes to have it may store to it unseen, known or not; and nobody is stopped for a repair.
    pub(crate) fn let_go(&self, leaves: bool) -> Option<u32> {
        let mut state = self.state();
        state.leaves = leaves;
        state.watch.let_go(leaves)
    }

    /// Whether a guarded program has used it since it was about to be let go of, or has it: what it
    /// does with it is to be covered.
    pub(crate) fn is_used(&self) -> bool {
        let mut state = self.state();
        self.listen(&mut state);
        let has = holder(&state).is_some_and(|found| is_young(&state, found));
        has || state.watch.is_used()
    }

    /// Whether all that was done is known. Everybody is looked at once more: who is writing is
    /// heard only when that is over, and who was handed a descriptor never opened anything. A
    /// descendant of a guarded process may not have introduced itself yet, or may not be set up: as
    /// long as that is so, nothing is sure, and no more.
    pub(crate) fn is_sure(&self) -> bool {
        let mut state = self.state();
        self.listen(&mut state);
        if state.heard.contested.is_none()
            && let Some(holder) = holder(&state)
        {
            if is_young(&state, holder) {
                return false;
            }
            state.heard.contested = Some(holder.to_string());
        }
        let handed = state.watch.is_handed(&state.known);
        state.heard.contested.is_none() && !handed && state.watch.is_sure()
    }

    /// Who may change the file at this moment, and neither is guarded nor comes of one that is.
    pub(crate) fn stranger(&self) -> Option<String> {
        let state = self.state();
        let found = holder(&state).filter(|found| !state.leaves || !is_young(&state, *found));
        found.map(|holder| holder.to_string())
    }
}

/// Who may change the file at this moment, of those whose writes would not be known.
fn holder(state: &State) -> Option<Holder> {
    match state.leaves {
        true => state.watch.holder(&BTreeSet::new()),
        false => state.watch.holder(&state.known.guarded),
    }
}

/// Whether somebody is guarded or about to be, or descends from one that is.
fn is_young(state: &State, holder: Holder) -> bool {
    match holder {
        Holder::Writes(process) | Holder::Hidden(process) => {
            let Known { guarded, coming, .. } = &state.known;
            proc::line(process).any(|id| guarded.contains(&id) || coming.contains(&id))
        }
        Holder::Others | Holder::Unlisted => false,
    }
}

impl Facts for Eyes {
    fn identity(&self) -> std::io::Result<Identity> {
        self.data.identity()
    }

    fn sync_identity(&self, site: holdfast_pmem::Site) -> std::io::Result<()> {
        self.data.sync_identity(site)
    }

    fn dates_stores(&self) -> bool {
        self.data.dates_stores()
    }

    fn allocated(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) {
        self.data.parts(at, len, each);
    }

    fn vouches(&self) -> bool {
        self.is_sure()
    }
}
