//! The checker against every order there is, on thousands of small histories, right and wrong; and
//! histories with names, each of which shows one rule.

use std::collections::BTreeMap;

use super::specs::{CellAnswer, CellOp, Cells, Entries, MapAnswer, MapOp, Queue, QueueAnswer};
use super::{Call, Crash, History, Spec, Verdict, judge, specs::QueueOp};
use crate::rng::Rng;

const MOST: u64 = 1 << 20;

fn call<O, A>(thread: u32, era: u32, op: O, began: u64, answered: Option<(u64, A)>) -> Call<O, A> {
    Call { thread, era, op, began, answered }
}

fn verdict(calls: Vec<Call<CellOp, CellAnswer>>, crashes: Vec<Crash>) -> Verdict {
    judge::<Cells>(&BTreeMap::new(), &History { calls, crashes }, MOST)
}

fn is_right(calls: Vec<Call<CellOp, CellAnswer>>, crashes: Vec<Crash>) -> bool {
    match verdict(calls, crashes) {
        Verdict::Linearizable { .. } => true,
        Verdict::Violated(_) => false,
        Verdict::Undecided { looked } => panic!("undecided after {looked}"),
    }
}

/// As the rules say it, and slowly: any choice of calls without answer, any order of the chosen.
fn in_any_order<S: Spec>(start: &S::State, history: &History<S::Op, S::Answer>) -> bool {
    struct One<'a, S: Spec> {
        op: &'a S::Op,
        began: u64,
        /// Everything that began later comes after it.
        over: u64,
        heard: Option<&'a S::Answer>,
    }
    let mut all: Vec<One<'_, S>> = Vec::new();
    for call in &history.calls {
        let crash = history.crashes.get(call.era as usize);
        if crash.is_some_and(|crash| call.began > crash.after) {
            continue;
        }
        let heard = call.answered.as_ref();
        let heard = heard.filter(|(at, _)| crash.is_none_or(|crash| *at < crash.before));
        let over = crash.map_or(u64::MAX, |crash| crash.after);
        all.push(One {
            op: &call.op,
            began: call.began,
            over: heard.map_or(over, |(at, _)| *at),
            heard: heard.map(|(_, answer)| answer),
        });
    }
    fn permute<S: Spec>(
        all: &[One<'_, S>],
        chosen: &[usize],
        order: &mut Vec<usize>,
        start: &S::State,
    ) -> bool {
        if order.len() == chosen.len() {
            let mut state = start.clone();
            return order.iter().all(|&index| {
                let answer = S::apply(&mut state, all[index].op);
                all[index].heard.is_none_or(|heard| *heard == answer)
            });
        }
        chosen.iter().any(|&next| {
            let early = |&done: &usize| all[next].over < all[done].began;
            if order.contains(&next) || order.iter().any(early) {
                return false;
            }
            order.push(next);
            let found = permute(all, chosen, order, start);
            order.pop();
            found
        })
    }
    (0..1_u32 << all.len()).any(|set| {
        let chosen: Vec<usize> = (0..all.len()).filter(|&index| set >> index & 1 == 1).collect();
        let left = |index: usize| set >> index & 1 == 0;
        let whole = (0..all.len()).all(|index| !left(index) || all[index].heard.is_none());
        whole && permute(&all, &chosen, &mut Vec::new(), start)
    })
}

/// A history of an atomic object with crashes; then, now and then, one answer is changed.
fn random<S: Spec>(
    rng: &mut Rng,
    mut state: S::State,
    op: impl Fn(&mut Rng) -> S::Op,
    wrong: impl Fn(&mut Rng) -> S::Answer,
) -> History<S::Op, S::Answer> {
    let mut history = History::default();
    // Under way: its place, and what it will answer once it took effect.
    let mut open: Vec<(usize, Option<S::Answer>)> = Vec::new();
    let (mut time, mut era) = (0, 0);
    let mut tick = || {
        time += 1;
        time
    };
    let most = 1 + rng.below(6);
    for _ in 0..40 {
        match rng.below(8) {
            0..3 if history.calls.len() < most && open.len() < 3 => {
                let thread = rng.below(3) as u32;
                open.push((history.calls.len(), None));
                history.calls.push(call(thread, era, op(rng), tick(), None));
            }
            3..5 if !open.is_empty() => {
                let which = rng.below(open.len());
                let (index, answer) = &mut open[which];
                if answer.is_none() {
                    *answer = Some(S::apply(&mut state, &history.calls[*index].op));
                }
            }
            5..7 if !open.is_empty() => {
                let which = rng.below(open.len());
                if open[which].1.is_some() {
                    let (index, answer) = open.remove(which);
                    history.calls[index].answered = answer.map(|answer| (tick(), answer));
                }
            }
            7 if rng.one_in(6) && era < 2 => {
                // Some answer after the crash, on the machine that is no more.
                history.crashes.push(Crash { before: tick(), after: tick() });
                for (index, answer) in open.drain(..) {
                    history.calls[index].answered =
                        answer.filter(|_| rng.one_in(2)).map(|answer| (tick(), answer));
                }
                era += 1;
            }
            _ => {}
        }
    }
    if rng.one_in(2) && !history.calls.is_empty() {
        let which = rng.below(history.calls.len());
        if let Some((_, answer)) = &mut history.calls[which].answered {
            *answer = wrong(rng);
        }
    }
    history
}

/// Compares on many histories; how many were right and how many wrong.
fn compare<S: Spec>(
    start: &S::State,
    op: impl Fn(&mut Rng) -> S::Op,
    wrong: impl Fn(&mut Rng) -> S::Answer,
) -> (u32, u32) {
    let mut counts = (0, 0);
    for seed in 0..4_000 {
        let mut rng = Rng::new(seed);
        let history = random::<S>(&mut rng, start.clone(), &op, &wrong);
        let right = in_any_order::<S>(start, &history);
        match judge::<S>(start, &history, MOST) {
            Verdict::Linearizable { .. } => assert!(right, "seed {seed}: {history:#?}"),
            Verdict::Violated(why) => {
                assert!(!right, "seed {seed}: {history:#?}");
                // What is shown is wrong by itself.
                assert!(!why.calls.is_empty() && !why.starts.is_empty());
                assert!(why.calls.iter().any(|call| call.place.is_none()), "seed {seed}\n{why}");
            }
            Verdict::Undecided { .. } => panic!("seed {seed}"),
        }
        *(if right { &mut counts.0 } else { &mut counts.1 }) += 1;
    }
    counts
}

#[test]
fn agrees_with_all_orders_of_small_histories_of_registers() {
    let cell = |rng: &mut Rng| rng.below(2) as u64;
    let op = |rng: &mut Rng| match rng.below(7) {
        0 => CellOp::Read(cell(rng)),
        1 => CellOp::Write(cell(rng), 1 + rng.below(3) as u64),
        2 => CellOp::Cas(cell(rng), rng.below(3) as u64, rng.below(3) as u64),
        3 => CellOp::Add(cell(rng), 1),
        4 => CellOp::Both(0, 1),
        5 => CellOp::Copy(cell(rng), cell(rng)),
        _ => CellOp::Move { from: cell(rng), to: cell(rng), amount: 1 },
    };
    let wrong = |rng: &mut Rng| match rng.below(3) {
        0 => CellAnswer::Is(rng.below(4) as u64),
        1 => CellAnswer::If(rng.one_in(2)),
        _ => CellAnswer::Are(rng.below(3) as u64, rng.below(3) as u64),
    };
    let (right, bad) = compare::<Cells>(&BTreeMap::from([(0, 1), (1, 1)]), op, wrong);
    assert!(right > 1_000 && bad > 300, "{right} right, {bad} wrong");
}

#[test]
fn agrees_with_all_orders_of_small_histories_of_maps() {
    let key = |rng: &mut Rng| rng.below(2) as u64;
    let op = |rng: &mut Rng| match rng.below(7) {
        0 | 1 => MapOp::Get(key(rng)),
        2 => MapOp::Put(key(rng), rng.below(3) as u64),
        3 => MapOp::Take(key(rng)),
        4 => MapOp::Rename(key(rng), key(rng)),
        5 => MapOp::Len,
        _ => MapOp::All,
    };
    let wrong = |rng: &mut Rng| match rng.below(2) {
        0 => MapAnswer::Value(rng.one_in(2).then(|| rng.below(3) as u64)),
        _ => MapAnswer::Count(rng.below(3) as u64),
    };
    let (right, bad) = compare::<Entries>(&BTreeMap::from([(0, 7)]), op, wrong);
    assert!(right > 1_000 && bad > 300, "{right} right, {bad} wrong");
}

#[test]
fn agrees_with_all_orders_of_small_histories_of_queues() {
    let op = |rng: &mut Rng| match rng.below(5) {
        0 | 1 => QueueOp::Push(rng.below(3) as u64),
        2 | 3 => QueueOp::Pop,
        _ => QueueOp::Front,
    };
    let wrong = |rng: &mut Rng| match rng.below(2) {
        0 => QueueAnswer::Item(rng.one_in(2).then(|| rng.below(3) as u64)),
        _ => QueueAnswer::Count(rng.below(3) as u64),
    };
    let (right, bad) = compare::<Queue>(&[5].into(), op, wrong);
    assert!(right > 1_000 && bad > 300, "{right} right, {bad} wrong");
}

#[test]
fn real_time_counts_and_only_that() {
    let write =
        |began, ended| call(0, 0, CellOp::Write(0, 1), began, Some((ended, CellAnswer::Done)));
    let read =
        |began, ended, is| call(1, 0, CellOp::Read(0), began, Some((ended, CellAnswer::Is(is))));
    assert!(is_right(vec![write(1, 4), read(2, 3, 0)], vec![]), "they overlap");
    assert!(is_right(vec![write(1, 4), read(2, 3, 1)], vec![]), "they overlap");
    assert!(!is_right(vec![write(1, 2), read(3, 4, 0)], vec![]), "a stale read");
    assert!(!is_right(vec![read(1, 2, 1), write(3, 4)], vec![]), "a read of the future");
    assert!(!is_right(vec![write(1, 8), read(2, 3, 1), read(4, 5, 0)], vec![]), "back again");
}

#[test]
fn what_was_answered_before_a_crash_survives_and_what_was_not_may() {
    let crash = vec![Crash { before: 10, after: 11 }];
    let write = |ended| call(0, 0, CellOp::Write(0, 1), 1, ended);
    let read =
        |began, is| call(1, 1, CellOp::Read(0), began, Some((began + 1, CellAnswer::Is(is))));
    let done = Some((2, CellAnswer::Done));
    assert!(is_right(vec![write(done), read(12, 1)], crash.clone()));
    assert!(!is_right(vec![write(done), read(12, 0)], crash.clone()), "it was acknowledged");
    for ended in [None, Some((20, CellAnswer::Done))] {
        assert!(is_right(vec![write(ended), read(12, 0)], crash.clone()), "it need not be there");
        assert!(is_right(vec![write(ended), read(12, 1)], crash.clone()), "it may be there");
        let late = vec![write(ended), read(12, 0), read(14, 1)];
        assert!(!is_right(late, crash.clone()), "it takes effect before the crash or never");
    }
}

#[test]
fn what_began_after_a_crash_on_the_machine_that_is_no_more_never_was() {
    let crash = vec![Crash { before: 10, after: 11 }];
    let ghost = call(0, 0, CellOp::Write(0, 1), 12, Some((13, CellAnswer::Done)));
    let read = |is| call(1, 1, CellOp::Read(0), 14, Some((15, CellAnswer::Is(is))));
    assert!(is_right(vec![ghost.clone(), read(0)], crash.clone()));
    let history = History { calls: vec![ghost.clone(), read(0)], crashes: crash.clone() };
    assert_eq!(history.spans().len(), 1);
    let Verdict::Violated(why) = verdict(vec![ghost, read(1)], crash) else { panic!("a ghost") };
    assert_eq!(why.calls.len(), 1, "it is not shown either: {why}");
}

#[test]
fn calls_that_share_nothing_are_judged_apart() {
    // All at once on each of two registers: together, every mixture would be looked at.
    let mut calls = Vec::new();
    for of in 0..2 {
        for n in 0..8 {
            let began = 1 + n;
            let op = CellOp::Add(of, 1);
            calls.push(call(n as u32, 0, op, began, Some((100 + n, CellAnswer::Is(n + 1)))));
        }
    }
    let Verdict::Linearizable { looked } = verdict(calls, vec![]) else { panic!("it is right") };
    assert!(looked < 600, "{looked}");
}

#[test]
fn what_cannot_be_explained_is_cut_short_and_shown() {
    let mut calls = Vec::new();
    for n in 0..30 {
        let op = CellOp::Write(0, n);
        calls.push(call(0, 0, op, 10 * n, Some((10 * n + 5, CellAnswer::Done))));
    }
    calls.push(call(1, 0, CellOp::Read(0), 146, Some((148, CellAnswer::Is(13)))));
    let Verdict::Violated(why) = verdict(calls, vec![]) else { panic!("a stale read") };
    assert_eq!(why.starts, ["{0: 14}"]);
    assert_eq!(why.calls.len(), 1, "{why}");
    let text = why.to_string();
    assert!(text.contains("Read(0) = Is(13)") && text.contains("thread 1"), "{text}");
}

#[test]
fn what_is_shown_has_times_and_the_longest_order() {
    let add = call(2, 0, CellOp::Add(0, 1), 1, Some((6, CellAnswer::Is(1))));
    let write = call(3, 0, CellOp::Write(1, 7), 2, None);
    let both = call(0, 0, CellOp::Both(0, 1), 7, Some((8, CellAnswer::Are(0, 7))));
    let Verdict::Violated(why) = verdict(vec![add, write, both], vec![]) else { panic!("wrong") };
    let shown = "\
no order explains these calls, begun in {}
    1. thread 2 [------------------]                     Add(0, 1) = Is(1)
    2. thread 3          [-----------------------------> Write(1, 7) = no answer that counts
    -. thread 0                              [---------] Both(0, 1) = Are(0, 7)
  numbers: the longest order that explains its answers; X: a crash";
    assert_eq!(why.to_string(), shown, "\n{why}");
}

#[test]
fn a_search_has_a_bound() {
    let mut calls = Vec::new();
    for n in 0..24 {
        let add = CellOp::Add(0, 1 << n);
        calls.push(call(n as u32, 0, add, 1 + n, None));
    }
    // No sum is the last answer, and every set of additions makes another.
    calls.push(call(30, 0, CellOp::Read(0), 200, Some((201, CellAnswer::Is(u64::MAX)))));
    let history = History { calls, crashes: vec![] };
    let found = judge::<Cells>(&BTreeMap::new(), &history, 1_000);
    assert_eq!(found, Verdict::Undecided { looked: 1_000 });
}
