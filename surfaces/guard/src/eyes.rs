//! What is known of a file at this moment: what the system says of it, and whether anybody may have
//! written to it unseen. Asked by the engine before it calls a page damaged.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_guard_wire::Ledger;
use holdfast_mapped::{Facts, Identity};
use holdfast_pmem::ForeignFile;
use holdfast_pmem::track::holders::Holder;

use crate::foreign::{Heard, Known, Watch};
use crate::proc;

/// Listens to one guarded file.
#[derive(Debug)]
pub(crate) struct Eyes {
    data: ForeignFile,
    number: u32,
    ledger: Arc<Ledger>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    watch: Watch,
    known: Known,
    heard: Heard,
}

impl Eyes {
    pub(crate) fn new(data: ForeignFile, watch: Watch, number: u32, ledger: Arc<Ledger>) -> Self {
        let state = State { watch, known: Known::default(), heard: Heard::default() };
        Self { data, number, ledger, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks or tells the watch something.
    pub(crate) fn watch<T>(&self, ask: impl FnOnce(&mut Watch) -> T) -> T {
        ask(&mut self.state().watch)
    }

    /// Looks at what happened since the last look, with the processes that are known now. Answers
    /// what this look and earlier ones found that nobody was told of yet.
    pub(crate) fn look(&self, known: &Known) -> Heard {
        let mut state = self.state();
        state.known.clone_from(known);
        self.listen(&mut state);
        core::mem::take(&mut state.heard)
    }

    fn listen(&self, state: &mut State) {
        let State { watch, known, heard } = state;
        let found = watch.look(known, || self.ledger.announced(self.number));
        heard.contested = heard.contested.take().or(found.contested);
        heard.doubted = found.doubted.or(heard.doubted.take());
    }

    /// Whether all that was done is known. Everybody is looked at once more: who is writing is
    /// heard only when that is over, and who was handed a descriptor never opened anything. A
    /// descendant of a guarded process may not have introduced itself yet: as long as that is so,
    /// nothing is sure, and no more.
    pub(crate) fn is_sure(&self) -> bool {
        let mut state = self.state();
        self.listen(&mut state);
        if state.heard.contested.is_none()
            && let Some(holder) = state.watch.holder(&state.known.guarded)
        {
            let young = match holder {
                Holder::Writes(process) | Holder::Hidden(process) => {
                    proc::line(process).any(|id| state.known.guarded.contains(&id))
                }
                Holder::Others => false,
            };
            if young {
                return false;
            }
            state.heard.contested = Some(holder.to_string());
        }
        state.heard.contested.is_none() && state.watch.is_sure()
    }
}

impl Facts for Eyes {
    fn identity(&self) -> Identity {
        self.data.identity()
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
