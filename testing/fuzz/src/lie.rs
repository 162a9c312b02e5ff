//! False answers: in the crate's own tests, what a target's subject answers can be falsified on its
//! way to the oracle, so that it is seen that each question of the oracle convicts. Elsewhere every
//! answer passes as it is.

/// The answer to a question of this name, or what `falsify` makes of it if a test wants it so.
#[cfg(not(test))]
pub(crate) fn lie<T>(_: &'static str, told: T, _: impl FnOnce(T) -> T) -> T {
    told
}

#[cfg(test)]
pub(crate) use planted::{convicted, lie};

#[cfg(test)]
mod planted {
    use std::cell::Cell;
    use std::collections::BTreeSet;

    use crate::drive::{Broken, input, play};
    use crate::{Target, find};

    thread_local! {
        /// The question that is answered falsely, and whether it was.
        static FALSE: Cell<(&'static str, bool)> = const { Cell::new(("", false)) };
    }

    pub(crate) fn lie<T>(name: &'static str, told: T, falsify: impl FnOnce(T) -> T) -> T {
        if FALSE.get().0 != name {
            return told;
        }
        FALSE.set((name, true));
        falsify(told)
    }

    /// Each of these lies is told by the target within so many runs, and convicted at once: by the
    /// oracle that says `why`, and by nobody else.
    pub(crate) fn convicted(target: &str, runs: u64, lies: &[(&'static str, &str)]) {
        let target: &'static Target = find(target).expect("a target");
        let corpus = (target.seeds)();
        let mut left = BTreeSet::new();
        for (name, why) in lies {
            FALSE.set((name, false));
            let tries = (0..runs).map(|number| input(target, &corpus, 1, number));
            let broken = tries.into_iter().find_map(|input| play(target, &input).err());
            let (_, told) = FALSE.replace(("", false));
            match broken.map(|finding| finding.broken) {
                Some(Broken::Panicked(story)) if story.contains(why) => {}
                other => drop(left.insert(format!("{name}, told {told}: {other:?}"))),
            }
        }
        assert!(left.is_empty(), "not convicted: {left:#?}");
        let sound = input(target, &corpus, 1, runs / 2);
        play(target, &sound).expect("without a lie it holds");
    }
}
