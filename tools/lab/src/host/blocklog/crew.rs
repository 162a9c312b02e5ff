//! Several images are judged at once: most of the time, a mount waits for something.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Scope, ScopedJoinHandle};

use anyhow::{Context, Result, anyhow};
use holdfast_workloads::Rng;

use super::judge::Judge;
use super::mounts::Room;
use super::walk::{Marked, Plan, Shown};

/// What is needed to judge.
#[derive(Debug)]
pub(super) struct Crew<'a> {
    pub(super) program: &'a Path,
    pub(super) campaign: &'a str,
    /// What the pool's threads said.
    pub(super) said: &'a Path,
    /// The pool, on the disk.
    pub(super) pool: &'a str,
    /// Where to, each for one image at a time.
    pub(super) rooms: &'a [Room],
}

/// An image in a room.
#[derive(Debug)]
struct Task {
    number: u64,
    place: String,
    flushed: bool,
    marked: Marked,
}

/// What came of an image.
#[derive(Debug)]
pub(super) struct Verdict {
    /// Which one of the walk's, from 1.
    pub(super) number: u64,
    /// Where it was taken.
    pub(super) place: String,
    /// It is a flush's own.
    pub(super) flushed: bool,
    /// What is wrong with it, if anything.
    pub(super) story: Option<String>,
}

/// Who is done, and with what.
type Done = (usize, Result<Verdict>);

impl Crew<'_> {
    /// Has at most so many images judged, or until that is enough; what the judges counted. Those
    /// under way are judged to their end.
    pub(super) fn judge(
        &self,
        (plan, most): (&Plan<'_>, u64),
        rng: Rng,
        shown: &mut Shown,
        see: &mut dyn FnMut(Verdict) -> bool,
    ) -> Result<BTreeMap<String, u64>> {
        std::thread::scope(|scope| {
            let (send, done) = channel();
            let (tasks, workers): (Vec<_>, Vec<_>) =
                self.rooms.iter().enumerate().map(|it| self.worker(scope, it, &send)).unzip();
            drop(send);
            let went = self.hand_out((plan, most), (rng, shown), tasks, &done, see);
            let mut figures = BTreeMap::new();
            for worker in workers {
                let counted = worker.join().map_err(|_| anyhow!("a thread panicked"))??;
                for (name, count) in counted {
                    *figures.entry(name).or_default() += count;
                }
            }
            went.map(|()| figures)
        })
    }

    /// Puts images into rooms as they become free. Each room gets later ones than it had.
    fn hand_out(
        &self,
        (plan, most): (&Plan<'_>, u64),
        (rng, shown): (Rng, &mut Shown),
        tasks: Vec<Sender<Task>>,
        done: &Receiver<Done>,
        see: &mut dyn FnMut(Verdict) -> bool,
    ) -> Result<()> {
        let mut free: Vec<usize> = (0..tasks.len()).collect();
        let (mut number, mut go_on) = (0, true);
        plan.walk(rng, shown, &mut |image| {
            while let Some((room, verdict)) = done
                .try_recv()
                .ok()
                .or_else(|| if free.is_empty() { done.recv().ok() } else { None })
            {
                free.push(room);
                go_on &= see(verdict?);
            }
            if !go_on {
                return Ok(false);
            }
            let room = free.pop().context("nobody judges any more")?;
            number += 1;
            self.rooms[room].put(image.disk, &image.above)?;
            let (place, flushed, marked) = (image.place, image.flushed, image.marked);
            let task = Task { number, place, flushed, marked };
            tasks[room].send(task).context("nobody judges any more")?;
            Ok(number < most)
        })?;
        drop(tasks);
        for (_, verdict) in done {
            see(verdict?);
        }
        Ok(())
    }

    /// Who judges what is put into a room.
    fn worker<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        (number, room): (usize, &'env Room),
        done: &Sender<Done>,
    ) -> (Sender<Task>, ScopedJoinHandle<'scope, Result<BTreeMap<String, u64>>>) {
        let (send, tasks) = channel::<Task>();
        let done = done.clone();
        let worker = scope.spawn(move || {
            let mut judge = self.new_judge(room)?;
            let mut figures = BTreeMap::new();
            for task in tasks {
                let story = self.verdict(room, &mut judge, &task.marked);
                if matches!(story, Ok(Some(_))) {
                    // It may not be there any more.
                    figures.append(&mut judge.figures);
                    judge = self.new_judge(room)?;
                }
                let Task { number: image, place, flushed, .. } = task;
                let verdict = story.map(|story| Verdict { number: image, place, flushed, story });
                if done.send((number, verdict)).is_err() {
                    break;
                }
            }
            for (name, count) in &judge.figures {
                *figures.entry(name.clone()).or_default() += count;
            }
            Ok(figures)
        });
        (send, worker)
    }

    fn new_judge(&self, room: &Room) -> Result<Judge> {
        Judge::new((self.program, self.campaign), self.said, &room.complaints())
    }

    /// What is wrong with an image, if anything.
    fn verdict(&self, room: &Room, judge: &mut Judge, marked: &Marked) -> Result<Option<String>> {
        match room.mount() {
            Err(error) => Ok(Some(format!("the file system cannot be mounted: {error}"))),
            Ok(mounted) => judge.judge(&mounted.path(self.pool), &marked.ended),
        }
    }
}
