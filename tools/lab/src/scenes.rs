//! What there is to be run.

/// What one or several starts of the guest are for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scene<'a> {
    /// How it is called.
    pub(crate) name: &'a str,
    /// What it shows.
    pub(crate) what: &'a str,
    /// Where it runs, and has its temporary files.
    pub(crate) on: Place,
    /// How long one start may take, in seconds.
    pub(crate) patience: u64,
    /// What is run.
    pub(crate) show: Show<'a>,
}

/// What is run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Show<'a> {
    /// A test program, once.
    Test(Test<'a>),
    /// Lives of a file, each ended by a kill of the emulator or a crash of the kernel.
    Lives(Lives<'a>),
    /// Files whose memory or device fails under them.
    Sick(Sick<'a>),
    /// A file on a disk whose writes are logged, and images made of the log.
    BlockLog(Load),
}

/// Lives of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lives<'a> {
    /// The campaign that lives them, and judges.
    pub(crate) campaign: &'a str,
    /// How often the machine is ended in a brief run.
    pub(crate) brief: u64,
    /// What is planted in what the last of them left, or in what was said of it, one at a time, to
    /// see it convicted.
    pub(crate) lies: &'a [&'a str],
}

/// Files whose memory or device fails under them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sick<'a> {
    pub(crate) parts: &'a [Part<'a>],
}

impl Sick<'_> {
    /// The fewest lives of which one is played.
    pub(crate) fn fewest(&self) -> u64 {
        self.parts.iter().map(|part| part.each).min().unwrap_or(0)
    }
}

/// One sort of files, in one place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part<'a> {
    /// The campaign that knows them.
    pub(crate) campaign: &'a str,
    /// What fails.
    pub(crate) how: &'a str,
    /// Where they are.
    pub(crate) folder: &'a str,
    /// Of so many lives of the scene, one is of this sort; of fewer, none.
    pub(crate) each: u64,
    /// What is left out, one at a time, to see it convicted.
    pub(crate) controls: &'a [&'a str],
    /// A figure that must not be zero, or the machine has not done what the part is about.
    pub(crate) shows: Option<&'a str>,
}

/// What is done to that file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// The campaign that works on it, and judges.
    pub(crate) campaign: &'static str,
    /// Places that are switched off, one at a time, to see that it is found.
    pub(crate) controls: &'static [&'static str],
    /// By how many flushes those come too late that must be found. What is marked was flushed more
    /// than once where a sync has several steps.
    pub(crate) late: usize,
    /// How much less a brief run does.
    pub(crate) brief: Brief,
}

/// How much a brief run does: each start of a machine is dear.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Brief {
    /// Transactions or syncs of each thread, a fourth of them.
    pub(crate) jobs: u64,
    /// Of the places that are switched off, so many, each on another file system.
    pub(crate) controls: usize,
    /// File systems.
    pub(crate) systems: usize,
}

/// A test program, and what it has to say.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Test<'a> {
    /// Package and test.
    pub(crate) program: (&'a str, &'a str),
    /// What the program is told.
    pub(crate) arguments: &'a [&'a str],
    /// What it must have said.
    pub(crate) says: &'a [&'a str],
    /// What it must not have said: that this kernel lacks what it has.
    pub(crate) never: &'a [&'a str],
    /// Machines that lack what it is about: on none of them may it pass.
    pub(crate) lesser: &'a [Lesser<'a>],
}

/// A machine that lacks something.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lesser<'a> {
    /// How it is called.
    pub(crate) name: &'a str,
    /// What the emulator is told for that.
    pub(crate) told: &'a [&'a str],
    /// What the program says there instead.
    pub(crate) instead: &'a str,
}

/// A file system of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Place {
    /// Persistent memory, mapped directly.
    Dax,
    /// A disk, with a page cache.
    Disk,
    /// Another one, whose writes are logged.
    #[value(skip)]
    Logged,
}

/// A file system on a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum FileSystem {
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
}

impl Place {
    /// Where it is mounted.
    pub(crate) fn folder(self) -> &'static str {
        match self {
            Self::Dax => "/dax",
            Self::Disk => "/disk",
            Self::Logged => "/logged",
        }
    }
}

/// The test of the dirty sources.
const TRACK: (&str, &str) = ("holdfast-pmem", "track_conformance");

/// Steps of pools without which what has failed is not made good, or not told.
const OBJECT_STEPS: &[&str] = &[
    "redundancy.events.a+redundancy.events.b",
    "redundancy.remap.copy+redundancy.remap.heal-copy",
    "campaign.live.mapped",
    "campaign.live.heard",
    "campaign.live.given-back",
    // Last. Where the system lists what is bad, what was relocated would be found again by that.
    "redundancy.remap.a+redundancy.remap.b+campaign.live.listed",
];

/// Those without which it is so where the machine reports a failure once: who opens the pool again
/// does not meet it.
const STRUCK_STEPS: &[&str] = OBJECT_STEPS.split_at(OBJECT_STEPS.len() - 1).0;

/// Steps of mapped files, likewise, where memory fails under who loads.
const MAPPED_STEPS: &[&str] = &["heal-loads", "stores", "loads", "cover", "alarm"];

/// Scenes that a brief run has no time for: the stray store of `stray` dies in `strays` too, among
/// transactions, and `track` without persistent memory is what the tests of `base/pmem` do.
pub(crate) const LEFT_OUT: &[&str] = &["stray", "track"];

/// All scenes, in the order they are run: what is worth most comes first, should time run out.
pub(crate) const ALL: &[Scene<'static>] = &[
    Scene {
        name: "cuts",
        what: "a pool on fs-dax under load, while the emulator is killed or the kernel crashes; \
               what was acknowledged must be there after the next start",
        on: Place::Dax,
        patience: 300,
        show: Show::Lives(Lives {
            campaign: "object",
            brief: 2,
            lies: &[
                "an older promise",
                "an ack left out",
                "an ack too many",
                "a byte flipped",
                "a parity flipped",
                "a page as it was",
                "all as it was",
            ],
        }),
    },
    Scene {
        name: "blocklog",
        what: "a pool on ext4 and one on xfs under load, on a disk whose writes are logged; what \
               it may hold after a power cut is made of the log, mounted here, and judged",
        on: Place::Logged,
        patience: 600,
        show: Show::BlockLog(Load {
            campaign: "object",
            controls: &["logs.group.F1", "logs.group.synced"],
            late: 1,
            brief: Brief { jobs: 30, controls: 2, systems: 2 },
        }),
    },
    Scene {
        name: "badblocks",
        what: "pools and protected files on fs-dax under load, while sectors of the persistent \
               memory go bad for good; all that was acknowledged is there, relocated, or told",
        on: Place::Dax,
        patience: 900,
        show: Show::Sick(Sick {
            parts: &[
                Part {
                    campaign: "object",
                    how: "sectors",
                    folder: "/dax",
                    each: 1,
                    controls: OBJECT_STEPS,
                    shows: None,
                },
                Part {
                    campaign: "mapped",
                    how: "sectors",
                    folder: "/dax",
                    each: 4,
                    controls: &["stores", "loads", "verdicts", "alarm", "repair"],
                    shows: None,
                },
            ],
        }),
    },
    Scene {
        name: "hwpoison",
        what: "the same in shared memory and in the page cache, while the kernel gives up the \
               memory of pages; and on fs-dax, while it reports failures to who comes along",
        on: Place::Dax,
        patience: 900,
        show: Show::Sick(Sick {
            parts: &[
                Part {
                    campaign: "object",
                    how: "memory",
                    folder: "/dev/shm",
                    each: 1,
                    controls: OBJECT_STEPS,
                    shows: None,
                },
                Part {
                    campaign: "mapped",
                    how: "memory",
                    folder: "/disk",
                    each: 4,
                    controls: MAPPED_STEPS,
                    shows: None,
                },
                Part {
                    campaign: "object",
                    how: "struck",
                    folder: "/dax",
                    each: 4,
                    controls: STRUCK_STEPS,
                    shows: Some("struck under load, refused, and relocated"),
                },
                Part {
                    campaign: "mapped",
                    how: "struck",
                    folder: "/dax",
                    each: 8,
                    controls: MAPPED_STEPS,
                    shows: Some("struck under load, and given back"),
                },
            ],
        }),
    },
    Scene {
        name: "strays",
        what: "the same of a pool in use by three threads: the program dies of the store, the \
               pool is opened again, and all that was acknowledged is there",
        on: Place::Dax,
        patience: 300,
        show: Show::Sick(Sick {
            parts: &[Part {
                campaign: "object",
                how: "strays",
                folder: "/dax",
                each: 2,
                controls: &[
                    "keys",
                    "an older promise",
                    "an ack left out",
                    "an ack too many",
                    "a byte flipped",
                ],
                shows: Some("stray stores that died"),
            }],
        }),
    },
    Scene {
        name: "cuts-mapped",
        what: "the same of a protected file on fs-dax that a program stores to by address: every \
               store is there, and none is called damage",
        on: Place::Dax,
        patience: 300,
        show: Show::Lives(Lives {
            campaign: "mapped",
            brief: 1,
            lies: &[
                "an older promise",
                "a store too many",
                "a byte flipped",
                "a page as it was",
                "damage that is agreed on",
                "a file cut short",
            ],
        }),
    },
    Scene {
        name: "blocklog-mapped",
        what: "the same of a protected file that is mapped, stored to and synced: what was synced \
               is there, and nothing is called corrupt",
        on: Place::Logged,
        patience: 600,
        show: Show::BlockLog(Load {
            campaign: "mapped",
            controls: &["sync", "sums"],
            late: 16,
            brief: Brief { jobs: 12, controls: 1, systems: 1 },
        }),
    },
    Scene {
        name: "stray",
        what: "a stray store into a pool on fs-dax dies, by the protection keys of the processor",
        on: Place::Dax,
        patience: 300,
        show: Show::Test(Test {
            program: ("holdfast-pmem", "processes"),
            arguments: &[],
            says: &["5 wrong variants convicted", "processes: ok"],
            never: &["skipped:"],
            lesser: &[],
        }),
    },
    Scene {
        name: "keys",
        what: "that those keys are what protects there, for threads of any age",
        on: Place::Dax,
        patience: 300,
        show: Show::Test(Test {
            program: ("holdfast-pmem", "protection"),
            arguments: &["--nocapture"],
            says: &["protected by Keys", "test result: ok."],
            never: &["skipped"],
            lesser: &[Lesser {
                name: "a processor without keys",
                told: &["-cpu", "max,pku=off"],
                instead: "protected by Alias",
            }],
        }),
    },
    Scene {
        name: "track-dax",
        what: "the same on fs-dax, where write protection by the kernel must be refused",
        on: Place::Dax,
        patience: 300,
        show: Show::Test(Test {
            program: TRACK,
            arguments: &["matrix"],
            says: &[
                "soft dirty",
                "async protect is absent:",
                "6 lies convicted",
                "track_conformance: ok",
            ],
            never: &["soft dirty is absent", "first store is absent", "controller is absent"],
            lesser: &[],
        }),
    },
    Scene {
        name: "track",
        what: "every dirty source, with the soft-dirty bits that few kernels have, against every \
               way to write, on a disk and in shared memory",
        on: Place::Disk,
        patience: 900,
        show: Show::Test(Test {
            program: TRACK,
            arguments: &[],
            says: &["soft dirty", "6 lies convicted", "track_conformance: ok"],
            never: &[" is absent:", "skipped:"],
            lesser: &[],
        }),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scene_is_in_the_list_of_what_is_run() {
        let names = ALL.iter().map(|scene| scene.name);
        assert_eq!(holdfast_evidence::unlisted("lab", names), Vec::<String>::new());
    }

    #[test]
    fn each_scene_tries_enough_of_what_is_wrong() {
        const ENOUGH: usize = 5;
        for scene in ALL {
            let fewest = match scene.show {
                // The log's own faults are planted as well: see there.
                Show::BlockLog(load) => load.controls.len() + 4,
                Show::Lives(lives) => lives.lies.len(),
                Show::Sick(sick) => {
                    sick.parts.iter().map(|part| part.controls.len()).min().unwrap_or(0)
                }
                // Besides lies about its end.
                Show::Test(test) => test.says.len() + test.never.len() + test.lesser.len() + 4,
            };
            assert!(fewest >= ENOUGH, "{}: {fewest}", scene.name);
        }
    }
}
