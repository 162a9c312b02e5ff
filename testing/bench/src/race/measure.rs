//! Slices of work: timed as a whole for medians, or one by one for percentiles.

use std::sync::Barrier;
use std::time::Instant;

use holdfast_workloads::rng::Rng;
use rustix::thread::CpuSet;

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

/// Random bytes to store: every word differs from what was stored before, or there would be less to
/// log. A window slides over a buffer that stays in the caches.
struct Noise {
    bytes: Vec<u8>,
    at: usize,
}

impl Noise {
    /// Places the window may start at.
    const STARTS: usize = 16 << 10;
    /// Bytes the window slides at a time.
    const STEP: usize = 8;
    /// The longest window.
    const LONGEST: usize = 4096;

    fn new(seed: u64) -> Self {
        let mut bytes = vec![0; Self::STARTS + Self::LONGEST];
        Rng::new(seed).fill(&mut bytes);
        Self { bytes, at: 0 }
    }

    fn next(&mut self, len: u64) -> &[u8] {
        self.at = (self.at + Self::STEP) % Self::STARTS;
        &self.bytes[self.at..self.at + len as usize]
    }
}

/// Keeps this thread on a processor of its own, if there are enough: a slice is over before the
/// system would have moved one of two threads that it woke on the same.
fn pin(thread: u64) {
    let Ok(all) = rustix::thread::sched_getaffinity(None) else { return };
    let own = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)).nth(thread as usize);
    if let Some(cpu) = own {
        let mut only = CpuSet::new();
        only.set(cpu);
        // Refused, it runs where the system puts it.
        let _ = rustix::thread::sched_setaffinity(None, &only);
    }
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

    /// [`order`](Self::order), and objects to overwrite lined up in it.
    fn prepare(self, worker: &mut dyn Worker, thread: u64) -> anyhow::Result<Vec<u64>> {
        let order = self.order(thread);
        if let Op::Overwrite(_) = self.op {
            worker.line_up(&order)?;
        }
        Ok(order)
    }

    /// [`prepare`](Self::prepare) for the tables of one thread, which takes them in turns.
    fn prepare_all(self, workers: &mut [Box<dyn Worker + '_>]) -> anyhow::Result<Vec<Vec<u64>>> {
        (0..).zip(workers).map(|(number, worker)| self.prepare(worker.as_mut(), number)).collect()
    }

    /// Operation number `i`.
    fn step(
        self,
        worker: &mut dyn Worker,
        order: &[u64],
        i: usize,
        noise: &mut Noise,
    ) -> anyhow::Result<()> {
        match self.op {
            Op::Overwrite(len) => worker.overwrite(i, noise.next(len)),
            Op::Alloc(len) => worker.alloc(order[i], noise.next(len)),
            Op::Free => worker.free(order[i]),
        }
    }

    /// Before the clock starts, on the thread that is timed: what the others did to the caches is
    /// made up for, and what a thread of its own needs is there. Allocating has no need of it.
    fn warm_up(self, worker: &mut dyn Worker, thread: u64) -> anyhow::Result<()> {
        let Op::Overwrite(_) = self.op else { return Ok(()) };
        let before = Slice { seed: !self.seed, count: self.count / 4, ..self };
        let order = before.prepare(worker, thread)?;
        let mut noise = Noise::new(before.seed);
        (0..order.len()).try_for_each(|i| before.step(worker, &order, i, &mut noise))
    }

    /// Nanoseconds per operation and thread: one thread takes the tables in turns, several have
    /// one each.
    pub(crate) fn time(
        self,
        workers: &mut [Box<dyn Worker + '_>],
        threads: usize,
    ) -> anyhow::Result<f64> {
        if threads == 1 {
            for (number, worker) in (0..).zip(workers.iter_mut()) {
                self.warm_up(worker.as_mut(), number)?;
            }
            let orders = self.prepare_all(workers)?;
            let mut noise = Noise::new(self.seed);
            let start = Instant::now();
            for i in 0..self.count {
                for (worker, order) in workers.iter_mut().zip(&orders) {
                    self.step(worker.as_mut(), order, i, &mut noise)?;
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
                    pin(thread);
                    let worker = worker.as_mut();
                    let warm = self.warm_up(worker, thread);
                    let order = warm.and_then(|()| self.prepare(worker, thread));
                    let mut noise = Noise::new(self.seed);
                    // All come here, also one that failed: the others wait for it.
                    ready.wait();
                    let order = order?;
                    let start = Instant::now();
                    for i in 0..order.len() {
                        self.step(worker, &order, i, &mut noise)?;
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
        for (number, worker) in (0..).zip(workers.iter_mut()) {
            self.warm_up(worker.as_mut(), number)?;
        }
        let orders = self.prepare_all(workers)?;
        let mut noise = Noise::new(self.seed);
        for i in 0..self.count {
            for (worker, order) in workers.iter_mut().zip(&orders) {
                let start = Instant::now();
                self.step(worker.as_mut(), order, i, &mut noise)?;
                into.push(u32::try_from(start.elapsed().as_nanos()).unwrap_or(u32::MAX));
            }
        }
        Ok(())
    }
}
