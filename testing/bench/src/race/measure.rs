//! Slices of work: timed as a whole for medians, or one by one for percentiles.

use std::sync::Barrier;
use std::time::Instant;

use holdfast_workloads::rng::Rng;

use super::Worker;

/// What is done to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    /// Overwrites its first bytes, as many as this.
    Overwrite(u64),
    /// Allocates, initialises and links it.
    Alloc(u64),
    /// Frees and unlinks it.
    Free,
}

/// Which objects, how many, and from which seed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slice {
    pub(crate) op: Op,
    /// Objects of each table that take part.
    pub(crate) slots: u64,
    /// Operations of each thread.
    pub(crate) count: usize,
    pub(crate) seed: u64,
}

impl Slice {
    /// The slots one thread visits, in order: random ones to overwrite; each once to allocate or
    /// free.
    fn order(self, thread: u64) -> Vec<u64> {
        let mut rng = Rng::new(self.seed ^ (thread << 32));
        match self.op {
            Op::Overwrite(_) => (0..self.count).map(|_| rng.below(self.slots)).collect(),
            Op::Alloc(_) | Op::Free => {
                let mut order: Vec<u64> = (0..self.count as u64).collect();
                rng.shuffle(&mut order);
                order
            }
        }
    }

    fn step(self, worker: &mut dyn Worker, slot: u64, bytes: &mut [u8]) -> anyhow::Result<()> {
        // What is stored differs each time, or there would be nothing to log.
        if let Some(byte) = bytes.first_mut() {
            *byte = byte.wrapping_add(1);
        }
        match self.op {
            Op::Overwrite(_) => worker.overwrite(slot, bytes),
            Op::Alloc(_) => worker.alloc(slot, bytes),
            Op::Free => worker.free(slot),
        }
    }

    fn bytes(self) -> Vec<u8> {
        let len = match self.op {
            Op::Overwrite(len) | Op::Alloc(len) => len,
            Op::Free => 0,
        };
        let mut bytes = vec![0; len as usize];
        Rng::new(self.seed).fill(&mut bytes);
        bytes
    }

    /// Nanoseconds per operation and thread: one thread takes the tables in turns, several have
    /// one each.
    pub(crate) fn time(
        self,
        workers: &mut [Box<dyn Worker + '_>],
        threads: usize,
    ) -> anyhow::Result<f64> {
        if threads == 1 {
            let orders: Vec<_> = (0..workers.len() as u64).map(|w| self.order(w)).collect();
            let mut bytes = self.bytes();
            let start = Instant::now();
            for i in 0..self.count {
                for (worker, order) in workers.iter_mut().zip(&orders) {
                    self.step(worker.as_mut(), order[i], &mut bytes)?;
                }
            }
            let count = (self.count * workers.len()) as f64;
            return Ok(start.elapsed().as_secs_f64() * 1e9 / count);
        }
        let ready = Barrier::new(threads);
        let longest = std::thread::scope(|scope| {
            let mut running = Vec::new();
            for (thread, worker) in (0..).zip(workers.iter_mut().take(threads)) {
                let ready = &ready;
                running.push(scope.spawn(move || {
                    let order = self.order(thread);
                    let mut bytes = self.bytes();
                    ready.wait();
                    let start = Instant::now();
                    for slot in order {
                        self.step(worker.as_mut(), slot, &mut bytes)?;
                    }
                    anyhow::Ok(start.elapsed())
                }));
            }
            let mut longest = std::time::Duration::ZERO;
            for one in running {
                let took = one.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
                longest = longest.max(took);
            }
            anyhow::Ok(longest)
        })?;
        Ok(longest.as_secs_f64() * 1e9 / self.count as f64)
    }

    /// Nanoseconds of each operation, one thread; the clock's own 20 to 30 are in them.
    pub(crate) fn each(
        self,
        workers: &mut [Box<dyn Worker + '_>],
        into: &mut Vec<u32>,
    ) -> anyhow::Result<()> {
        let orders: Vec<_> = (0..workers.len() as u64).map(|w| self.order(w)).collect();
        let mut bytes = self.bytes();
        for i in 0..self.count {
            for (worker, order) in workers.iter_mut().zip(&orders) {
                let start = Instant::now();
                self.step(worker.as_mut(), order[i], &mut bytes)?;
                into.push(u32::try_from(start.elapsed().as_nanos()).unwrap_or(u32::MAX));
            }
        }
        Ok(())
    }
}
