//! How a faulty medium is set up: crash units, reserve, seed.

/// The unit in which a crash tears what no barrier has made durable.
///
/// The mode says only *how finely* unfenced stores come apart. What makes them durable (a drain,
/// an append, a sync) follows from the kind of the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The contract: any subset of the unfenced aligned 8-byte words is there, and each of them
    /// holds any value it had since it was last made durable. Covers caches, write-combining
    /// buffers and weaker machines. The default for Dax and Shm.
    Words,
    /// What an x86 processor can do: each 64-byte line holds a prefix of its own stores, in
    /// program order. Tells whether a hit in [`Mode::Words`] is possible on such hardware. Of long
    /// stores that go past the cache it may say no where the answer is yes: what combines them on
    /// their way may send a line in pieces.
    Lines,
    /// What a page cache can do: each 512-byte sector holds its content as of any instant since
    /// the last barrier, for the kernel writes back when it likes. The default for File.
    Sectors,
}

/// Settings of a [`FaultMedium`](crate::FaultMedium).
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// Crash units; `None` takes the default of the medium's kind.
    pub mode: Option<Mode>,
    /// Bytes of address range kept for growth, counted from the start of the medium. Less than
    /// the length means that the medium cannot grow.
    pub reserve: u64,
    /// Seed of the garbage that poison leaves behind.
    pub seed: u64,
    /// Whether the barrier hook also runs at every `step()`.
    pub crash_at_steps: bool,
    /// Whether every call is recorded, for [`FaultMedium::trace`](crate::FaultMedium::trace).
    pub trace: bool,
}
