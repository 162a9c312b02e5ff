//! The sources and the ways to write. Each pair runs in a forked child; what it finds comes back as
//! its exit code, and what must outlive it is looked for by the parent.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use holdfast_pmem::track::{
    AsyncProtect, Board, Controller, DirtySource, FirstStore, Forks, Freeze, MediumRecord,
    Notified, Observed, Record, RecordPlaces, SoftDirty, Span, TrackError, WriteWay,
};
use holdfast_pmem::{Access, Mapped, Medium, Options, PAGE, Protect};

use crate::common::{HERE, protected};

/// Pages of a file, and the one that is written to.
pub(crate) const PAGES: u64 = 16;
const VICTIM: u64 = 5;
pub(crate) const LEN: u64 = PAGES * PAGE;
const OLD: u8 = 0x11;
const NEW: u8 = 0x77;

/// A dirty source with what it was told at its making.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    AsyncProtect(Forks),
    SoftDirty,
    FirstStore(Forks),
    NotifiedWrites,
    NotifiedStores,
    Controller,
}

impl Subject {
    pub(crate) const ALL: [Self; 8] = [
        Self::AsyncProtect(Forks::Excluded),
        Self::AsyncProtect(Forks::Inherit),
        Self::SoftDirty,
        Self::FirstStore(Forks::Excluded),
        Self::FirstStore(Forks::Inherit),
        Self::NotifiedWrites,
        Self::NotifiedStores,
        Self::Controller,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AsyncProtect(Forks::Excluded) => "async protect",
            Self::AsyncProtect(Forks::Inherit) => "same, forks inherit",
            Self::SoftDirty => "soft dirty",
            Self::FirstStore(Forks::Excluded) => "first store",
            Self::FirstStore(Forks::Inherit) => "same, forks inherit",
            Self::NotifiedWrites => "notified of writes",
            Self::NotifiedStores => "notified of all",
            Self::Controller => "controller",
        }
    }

    /// What the program of this row announces.
    fn announced(self) -> &'static [WriteWay] {
        const ALL: &[WriteWay] = &[
            WriteWay::Pwrite,
            WriteWay::DirectPwrite,
            WriteWay::Truncate,
            WriteWay::Punch,
            WriteWay::Exec,
            WriteWay::Kill,
            WriteWay::Store,
            WriteWay::SecondMapping,
            WriteWay::ForkedChild,
        ];
        match self {
            Self::NotifiedWrites => &ALL[..4],
            Self::NotifiedStores => ALL,
            _ => &[],
        }
    }
}

/// What each source claims of each way, in the order of [`Subject::ALL`]: `s`een, `r`efused,
/// `u`ndecided.
const CLAIMS: [(WriteWay, &[u8; 8]); 11] = [
    // async, inherits; soft; first, inherits; notified of writes, of all; controller
    (WriteWay::Store, b"sssssuss"),
    (WriteWay::Pwrite, b"uuuuussu"),
    (WriteWay::DirectPwrite, b"uuuuussu"),
    (WriteWay::Truncate, b"uuuuussu"),
    (WriteWay::Punch, b"uuuuussu"),
    (WriteWay::SecondMapping, b"uuuuuusu"),
    (WriteWay::ForkedChild, b"rurruusr"),
    (WriteWay::Mremap, b"uuuuuuuu"),
    (WriteWay::Exec, b"uuussuss"),
    (WriteWay::Kill, b"uuussuss"),
    (WriteWay::ForeignProcess, b"uuuuuuuu"),
];

/// The claim that a source is to make of a way to write.
pub(crate) fn expected(subject: Subject, way: WriteWay) -> Observed {
    let column = Subject::ALL.iter().position(|it| *it == subject).unwrap();
    let (_, claims) = CLAIMS.iter().find(|(of, _)| *of == way).unwrap();
    match claims[column] {
        b's' => Observed::Seen,
        b'r' => Observed::Refused,
        b'u' => Observed::Undecided,
        other => panic!("{other} is no claim"),
    }
}

/// What came of a way to write.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Outcome {
    /// The file system knows this way.
    pub(crate) offered: bool,
    pub(crate) changed: bool,
    pub(crate) told: bool,
    pub(crate) intact: bool,
    pub(crate) refused: bool,
}

/// No other thread exists, so nothing has to be stopped.
#[derive(Debug)]
struct Alone;

impl Freeze for Alone {
    fn frozen(&self, work: &mut dyn FnMut()) -> std::io::Result<()> {
        assert_eq!(std::fs::read_dir("/proc/self/task")?.count(), 1);
        work();
        Ok(())
    }
}

/// Where one pair keeps its files.
struct Files {
    data: PathBuf,
    record: PathBuf,
}

impl Files {
    fn new(folder: &Path) -> Self {
        let files = Self { data: folder.join("data"), record: folder.join("record") };
        let _ = std::fs::remove_file(&files.record);
        std::fs::write(&files.data, [OLD; LEN as usize]).unwrap();
        // The controller keeps its bits behind.
        let file = File::options().write(true).open(&files.data).unwrap();
        file.set_len(Controller::<Mapped>::room_for(LEN)).unwrap();
        file.sync_all().unwrap();
        files
    }

    fn open(&self) -> File {
        File::options().read(true).write(true).open(&self.data).unwrap()
    }

    fn changed(&self) -> bool {
        let mut found = [0; PAGE as usize];
        self.open().read_exact_at(&mut found, VICTIM * PAGE).unwrap();
        found != [OLD; PAGE as usize]
    }
}

/// A source at work in a child.
struct Rig {
    files: Files,
    file: File,
    base: *mut u8,
    source: Box<dyn DirtySource>,
    /// The controller once more, as a medium.
    medium: Option<Arc<Controller<Mapped>>>,
    board: Arc<Board>,
}

/// Maps all pages of a file, shared.
pub(crate) fn map(file: &File, len: u64) -> *mut u8 {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping wherever the kernel likes.
    let base = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            len as usize,
            rights,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    assert_ne!(base, libc::MAP_FAILED);
    base.cast()
}

/// Stores a byte, where nobody optimises it away.
pub(crate) fn store(base: *mut u8, at: u64, byte: u8) {
    // SAFETY: the tests map what they store to, or mean the store to fail.
    unsafe { base.add(at as usize).write_volatile(byte) };
}

fn make(subject: Subject, files: Files, board: &Arc<Board>) -> Result<Rig, TrackError> {
    let file = files.open();
    let board = Arc::clone(board);
    let mut base = core::ptr::null_mut();
    let mut medium = None;
    let mut span = |file: &File| {
        base = map(file, LEN);
        Span::new(base as usize, LEN, 0).unwrap()
    };
    let source: Box<dyn DirtySource> = match subject {
        Subject::AsyncProtect(forks) => {
            Box::new(AsyncProtect::new(span(&file), file.as_fd(), forks)?)
        }
        Subject::SoftDirty => Box::new(SoftDirty::new(span(&file), Forks::Excluded, Alone)?),
        Subject::FirstStore(forks) => {
            let options = protected(Protect::None);
            let record = Arc::new(Mapped::create(&files.record, PAGE, &options).unwrap());
            let record = Arc::new(MediumRecord::new(record, RecordPlaces::in_a_row(0), 0, LEN)?);
            // SAFETY: this process maps the file for good, and nothing else changes its rights.
            Box::new(unsafe { FirstStore::over(span(&file), forks, record)? })
        }
        Subject::NotifiedWrites | Subject::NotifiedStores => {
            span(&file);
            Box::new(Notified::new(Arc::clone(&board), subject.announced()))
        }
        Subject::Controller => {
            let options = protected(Protect::None);
            let mapped = Mapped::open(&files.data, Access::Write, &options).unwrap();
            let controller = Arc::new(Controller::create(mapped, LEN)?);
            base = controller.view(0, LEN).unwrap().cast_mut();
            medium = Some(Arc::clone(&controller));
            Box::new(controller)
        }
    };
    Ok(Rig { files, file, base, source, medium, board })
}

/// Why this machine has no such source, if it has none.
pub(crate) fn absent(subject: Subject, folder: &Path) -> Option<String> {
    let board = Arc::new(Board::create(LEN, 4).unwrap());
    // In a child: the parent must go on without threads, handlers and mappings of ours.
    let (reader, writer) = std::io::pipe().unwrap();
    let files = Files::new(folder);
    let child = fork(|| {
        use std::io::Write;
        match make(subject, files, &board) {
            Err(error) => match crate::absence(&error) {
                Some(why) => {
                    write!(&writer, "{why}").unwrap();
                    0
                }
                None => 1,
            },
            Ok(_) => 0,
        }
    });
    drop(writer);
    let why = std::io::read_to_string(reader).unwrap();
    assert_eq!(wait(child), Ended::Code(0), "{subject:?} cannot be made");
    (!why.is_empty()).then_some(why)
}

/// Runs one pair: what the source claims, and what happened.
pub(crate) fn run(subject: Subject, way: WriteWay, folder: &Path) -> (Observed, Outcome) {
    let files = Files::new(folder);
    let (data, record) = (files.data.clone(), files.record.clone());
    let board = Arc::new(Board::create(LEN, 4).unwrap());
    let (mut claims, claim) = std::io::pipe().unwrap();
    let child = fork(|| {
        use std::io::Write;
        let rig = make(subject, files, &board).unwrap();
        (&claim).write_all(&[rig.source.coverage(way) as u8]).unwrap();
        code_of(rig.run(way))
    });
    drop(claim);
    let mut told = [0];
    std::io::Read::read_exact(&mut claims, &mut told).unwrap();
    let all = [Observed::Seen, Observed::Refused, Observed::Undecided];
    let claim = *all.iter().find(|claim| **claim as u8 == told[0]).unwrap();
    let ended = wait(child);
    let files = Files { data, record };
    let outcome = match ended {
        Ended::Code(code) if !matches!(way, WriteWay::Exec | WriteWay::Kill) => outcome_of(code),
        // The store itself was what it died of.
        Ended::Signal(libc::SIGSEGV) => {
            Outcome { offered: true, refused: !files.changed(), ..Outcome::default() }
        }
        Ended::Code(0) | Ended::Signal(libc::SIGKILL) => Outcome {
            offered: true,
            changed: files.changed(),
            told: survived(subject, &files, &board),
            intact: true,
            refused: false,
        },
        ended => panic!("{subject:?} under {way}: ended with {ended:?}"),
    };
    (claim, outcome)
}

/// Whether what outlives the process tells the page.
fn survived(subject: Subject, files: &Files, board: &Arc<Board>) -> bool {
    let at = VICTIM * PAGE;
    let open = |path: &Path| Mapped::open(path, Access::ReadOnly, &Options::default()).unwrap();
    match subject {
        Subject::AsyncProtect(_) | Subject::SoftDirty => false,
        Subject::FirstStore(_) => {
            let record =
                MediumRecord::new(Arc::new(open(&files.record)), RecordPlaces::in_a_row(0), 0, LEN)
                    .unwrap();
            assert!(!record.is_set(at + PAGE), "only the page that was stored to");
            record.is_set(at)
        }
        Subject::NotifiedWrites | Subject::NotifiedStores => {
            tells(&Notified::new(Arc::clone(board), &[]))
        }
        Subject::Controller => tells(&Controller::open(open(&files.data), LEN).unwrap()),
    }
}

fn tells(source: &dyn DirtySource) -> bool {
    let mut told = false;
    source
        .peek(0, LEN, &mut |at, len| {
            assert_eq!((at, len), (VICTIM * PAGE, PAGE), "only the page that was stored to");
            told = true;
        })
        .unwrap();
    told
}

impl Rig {
    fn run(&self, way: WriteWay) -> Outcome {
        let source = &*self.source;
        source.arm(0, LEN).unwrap();
        let mut pages = 0;
        source.take(0, LEN, &mut |_, len| pages += len / PAGE).unwrap();
        assert_eq!(pages, PAGES, "the first take after arming tells everything");
        source.peek(0, LEN, &mut |at, len| panic!("{at}+{len} before any store")).unwrap();
        assert!(source.intact(0, LEN));
        let Some(done) = self.write(way) else {
            return Outcome { intact: true, ..Outcome::default() };
        };
        let at = VICTIM * PAGE;
        let covers = |from: u64, len: u64| (from..from + len).contains(&at);
        let mut told = [false; 3];
        source.peek(0, LEN, &mut |at, len| told[0] |= covers(at, len)).unwrap();
        source.take(0, LEN, &mut |at, len| told[1] |= covers(at, len)).unwrap();
        let intact = source.intact(0, LEN);
        source.peek(0, LEN, &mut |at, len| told[2] |= covers(at, len)).unwrap();
        assert_eq!(told[0], told[1], "peek and take agree");
        assert!(!told[2] || !intact, "what was taken is not told again");
        let changed = self.files.changed();
        Outcome { offered: true, changed, told: told[1], intact, refused: !done }
    }

    /// Writes to the page this way, announced if that is the program's promise. Whether it was
    /// done; nothing if the file system does not know it.
    fn write(&self, way: WriteWay) -> Option<bool> {
        let at = VICTIM * PAGE;
        let announced = self.source.coverage(way) == Observed::Seen;
        let len = if way == WriteWay::Truncate { u64::MAX } else { PAGE };
        let _open = announced.then(|| self.board.open(at, len));
        let result = match way {
            WriteWay::Store => self.store(),
            WriteWay::Pwrite => self.file.write_all_at(&[NEW; 64], at + 9).is_ok(),
            WriteWay::DirectPwrite => return self.direct(),
            WriteWay::Truncate => {
                let len = self.file.metadata().unwrap().len();
                self.file.set_len(at).is_ok() && self.file.set_len(len).is_ok()
            }
            WriteWay::Punch => {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                // SAFETY: takes numbers only.
                unsafe { libc::fallocate(self.file.as_raw_fd(), mode, at as i64, PAGE as i64) == 0 }
            }
            WriteWay::SecondMapping => {
                store(map(&self.file, LEN), at, NEW);
                true
            }
            WriteWay::ForkedChild => wait(fork(|| i32::from(!self.store()))) == Ended::Code(0),
            WriteWay::Mremap => self.moved(),
            WriteWay::Exec => {
                assert!(self.store());
                let mut program = Command::new("/bin/true");
                panic!("{}", std::os::unix::process::CommandExt::exec(&mut program));
            }
            WriteWay::Kill => {
                assert!(self.store());
                // SAFETY: ends this process, as is meant.
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
                false
            }
            WriteWay::ForeignProcess => {
                let program = std::env::current_exe().unwrap();
                let mut foreign = Command::new(program);
                foreign.arg("--foreign").arg(&self.files.data).status().unwrap().success()
            }
        };
        Some(result)
    }

    fn store(&self) -> bool {
        match &self.medium {
            Some(medium) => {
                let stored = medium.put(HERE, VICTIM * PAGE + 9, &[NEW; 64]);
                medium.drain(HERE);
                stored.is_ok()
            }
            None => {
                store(self.base, VICTIM * PAGE + 9, NEW);
                true
            }
        }
    }

    fn direct(&self) -> Option<bool> {
        #[repr(align(4096))]
        struct Buffer([u8; PAGE as usize]);
        let mut options = File::options();
        let file = options.write(true).custom_flags(libc::O_DIRECT).open(&self.files.data).ok()?;
        match file.write_at(&Buffer([NEW; PAGE as usize]).0, VICTIM * PAGE) {
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => None,
            written => Some(written.is_ok()),
        }
    }

    fn moved(&self) -> bool {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let (len, elsewhere) = (LEN as usize, map(&self.file, LEN));
        // SAFETY: both ranges are mappings of this test's, of this length.
        let new = unsafe { libc::mremap(self.base.cast(), len, len, flags, elsewhere) };
        assert_ne!(new, libc::MAP_FAILED);
        store(new.cast(), VICTIM * PAGE, NEW);
        true
    }
}

/// What a process that knows nothing of us does to the file.
pub(crate) fn foreign(path: &Path) {
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(&[NEW; 64], VICTIM * PAGE).unwrap();
}

fn code_of(outcome: Outcome) -> i32 {
    let Outcome { offered, changed, told, intact, refused } = outcome;
    let bits = [offered, changed, told, intact, refused];
    bits.iter().enumerate().map(|(at, bit)| i32::from(*bit) << at).sum::<i32>() | 64
}

fn outcome_of(code: i32) -> Outcome {
    assert_eq!(code & !31, 64, "the child came to its end: {code}");
    let bit = |at: i32| code >> at & 1 == 1;
    Outcome { offered: bit(0), changed: bit(1), told: bit(2), intact: bit(3), refused: bit(4) }
}

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Code(i32),
    Signal(i32),
}

/// Runs a piece of this program in a forked child; the number is its exit code. A panic is 101.
pub(crate) fn fork(run: impl FnOnce() -> i32) -> i32 {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    // SAFETY: this program has no other threads when it forks, so the child may do anything.
    match unsafe { libc::fork() } {
        0 => {
            let code = catch_unwind(AssertUnwindSafe(run)).unwrap_or(101);
            // SAFETY: ends the child without what belongs to the parent.
            unsafe { libc::_exit(code) }
        }
        child => {
            assert!(child > 0);
            child
        }
    }
}

/// Waits for a child's end.
pub(crate) fn wait(child: i32) -> Ended {
    let mut status = 0;
    // SAFETY: writes one local number.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    if libc::WIFSIGNALED(status) {
        Ended::Signal(libc::WTERMSIG(status))
    } else {
        Ended::Code(libc::WEXITSTATUS(status))
    }
}
