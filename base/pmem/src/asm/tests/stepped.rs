//! The routines, one instruction at a time: every line that is stored through the cache is flushed
//! behind its last store, what must not be flushed is not, and a drain waits behind all of it. No
//! medium for tests can see that: they replace these instructions.

use std::cell::UnsafeCell;
use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

use super::*;
use crate::{Mapped, Medium, Options, Site};

/// Instructions that one call takes at most.
const STEPS: usize = 1 << 15;

/// What was about to be done: registers as the system numbers them.
type State = libc::mcontext_t;

/// The instructions of one thread, in order.
struct Log {
    on: AtomicBool,
    used: AtomicUsize,
    states: UnsafeCell<Vec<State>>,
}

// SAFETY: the one thread that is stepped through has the turn, and nobody else uses the states.
unsafe impl Sync for Log {}

static LOG: Log = Log {
    on: AtomicBool::new(false),
    used: AtomicUsize::new(0),
    states: UnsafeCell::new(Vec::new()),
};
static TURN: Mutex<()> = Mutex::new(());

extern "C" fn on_step(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    if !LOG.on.load(Ordering::Relaxed) {
        return;
    }
    let i = LOG.used.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the context is the kernel's; the states are this thread's for its turn, and room for
    // all of them was made before.
    unsafe {
        let states = &mut *LOG.states.get();
        if let Some(state) = states.get_mut(i) {
            *state = (*context.cast::<libc::ucontext_t>()).uc_mcontext;
        }
    }
}

/// As long as this lives, each instruction of its thread raises the signal; also past a panic.
struct On;

impl On {
    #[inline(never)]
    fn new() -> Self {
        LOG.on.store(true, Ordering::Relaxed);
        // SAFETY: the trap flag changes nothing but that each instruction raises the signal.
        unsafe { asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq") };
        Self
    }
}

impl Drop for On {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { asm!("pushfq", "and qword ptr [rsp], ~0x100", "popfq") };
        LOG.on.store(false, Ordering::Relaxed);
    }
}

/// Every instruction of `work`, with the registers before it.
fn stepped(work: impl FnOnce()) -> Vec<State> {
    let _turn = TURN.lock();
    // SAFETY: a context of zeros is one; nobody else has the turn.
    unsafe {
        *LOG.states.get() = vec![core::mem::zeroed(); STEPS];
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = on_step as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &raw const action, core::ptr::null_mut()), 0);
    }
    LOG.used.store(0, Ordering::Relaxed);
    let on = On::new();
    work();
    drop(on);
    let used = LOG.used.load(Ordering::Relaxed);
    assert!(used > 0 && used <= STEPS, "{used} instructions");
    // SAFETY: still this thread's turn, and nothing is stepped through.
    let mut states = unsafe { core::mem::take(&mut *LOG.states.get()) };
    states.truncate(used);
    states
}

fn register(state: &State, register: Register) -> Option<u64> {
    use Register as R;
    let i = match register {
        R::RAX | R::EAX => libc::REG_RAX,
        R::RCX | R::ECX => libc::REG_RCX,
        R::RDX | R::EDX => libc::REG_RDX,
        R::RSI => libc::REG_RSI,
        R::RDI => libc::REG_RDI,
        R::R8 => libc::REG_R8,
        R::R9 => libc::REG_R9,
        R::R10 => libc::REG_R10,
        R::DS | R::ES | R::SS => return Some(0),
        _ => return None,
    };
    Some(state.gregs[i as usize] as u64)
}

/// What the routines do to a medium.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Deed {
    Store(Range<u64>),
    /// Around the cache.
    Stream(Range<u64>),
    /// Of the line at this address.
    Flush(u64),
    Fence,
}

/// Bytes that an instruction stores.
fn bytes_of(one: &Instruction) -> u64 {
    let name = format!("{:?}", one.memory_size());
    let sizes = [("512", 64), ("128", 16), ("64", 8), ("8", 1)];
    sizes.iter().find(|(part, _)| name.contains(part)).map_or(0, |(_, bytes)| *bytes)
}

/// What an instruction does, if it is one of the routines' or a fence of anybody's.
fn deed(state: &State) -> Option<Deed> {
    let rip = state.gregs[libc::REG_RIP as usize] as usize;
    // SAFETY: the instruction was about to be executed there; none is longer.
    let bytes = unsafe { core::slice::from_raw_parts(rip as *const u8, 15) };
    let one: Instruction = Decoder::with_ip(64, bytes, rip as u64, DecoderOptions::NONE).decode();
    if one.mnemonic() == Mnemonic::Sfence {
        return Some(Deed::Fence);
    }
    let is_ours = error_exit(rip).is_some();
    if !is_ours || one.op_count() == 0 || one.op0_kind() != OpKind::Memory {
        return None;
    }
    let at = one.virtual_address(0, 0, |wanted, _, _| register(state, wanted));
    let at = at.expect("an address of registers that the routines use");
    let stored = at..at + bytes_of(&one);
    match one.mnemonic() {
        Mnemonic::Prefetchw | Mnemonic::Cmp | Mnemonic::Test => None,
        Mnemonic::Clwb | Mnemonic::Clflush | Mnemonic::Clflushopt => Some(Deed::Flush(at / 64)),
        Mnemonic::Movntdq | Mnemonic::Vmovntdq => Some(Deed::Stream(stored)),
        Mnemonic::Mov | Mnemonic::Xor | Mnemonic::Movdqa | Mnemonic::Vmovdqa64 => {
            Some(Deed::Store(stored))
        }
        other => panic!("an instruction that no rule is known for: {other:?}"),
    }
}

fn deeds(work: impl FnOnce()) -> Vec<Deed> {
    stepped(work).iter().filter_map(deed).collect()
}

/// What is wrong with what a routine did to bytes of a medium.
fn wrong(deeds: &[Deed], bytes: Range<u64>, flushes: bool) -> Option<String> {
    let (mut stored, mut unflushed) = (BTreeSet::new(), BTreeSet::new());
    for deed in deeds {
        match deed {
            Deed::Store(range) | Deed::Stream(range) => {
                stored.extend(range.clone());
                if matches!(deed, Deed::Store(_)) {
                    unflushed.extend(range.start / 64..=(range.end - 1) / 64);
                } else if !flushes {
                    return Some(format!("{range:?} goes around the cache"));
                }
            }
            Deed::Flush(line) => {
                if !flushes || !unflushed.remove(line) {
                    return Some(format!("line {line} is flushed for nothing"));
                }
            }
            Deed::Fence => return Some("a routine that stores does not wait".to_owned()),
        }
    }
    if !stored.into_iter().eq(bytes.clone()) {
        return Some(format!("not exactly {bytes:?} was stored"));
    }
    (flushes && !unflushed.is_empty()).then(|| format!("lines {unflushed:?} are not flushed"))
}

/// Starts within a line, at its border, within a word; lengths of parts of a line, of a line, of
/// many.
const RANGES: [(usize, usize); 12] = [
    (0, 1),
    (0, 8),
    (0, 64),
    (3, 5),
    (3, 66),
    (8, 48),
    (8, 64),
    (56, 16),
    (60, 200),
    (61, 448),
    (64, 449),
    (5, 900),
];

#[test]
fn each_line_that_is_stored_through_the_cache_is_flushed_behind_its_last_store() {
    let source = pattern(7);
    let mut lines = pattern(9);
    for stores in flavours() {
        for (at, len) in RANGES {
            let from = source.0.as_ptr();
            let to = lines.0.as_mut_ptr() as usize + at;
            let bytes = to as u64..(to + len) as u64;
            for near in [0, NEAR_ASIDE, 1024] {
                // SAFETY: both ranges lie in the buffers; the flavour was offered by the CPU.
                let done =
                    deeds(|| assert!(!unsafe { put(stores, to, from, len, near) }.trapped()));
                let wrong = wrong(&done, bytes.clone(), stores != Stores::Plain);
                assert_eq!(wrong, None, "put {stores:?} {at}+{len} near {near}: {done:?}");
            }
            // SAFETY: as above.
            let done = deeds(|| assert!(!unsafe { xor(stores, to, from, len) }.trapped()));
            let xor = wrong(&done, bytes.clone(), stores != Stores::Plain);
            assert_eq!(xor, None, "xor {stores:?} {at}+{len}: {done:?}");
            // SAFETY: as above.
            let done = deeds(|| assert!(!unsafe { zero(stores, to, len) }.trapped()));
            let zero = wrong(&done, bytes, stores != Stores::Plain);
            assert_eq!(zero, None, "zero {stores:?} {at}+{len}: {done:?}");
        }
    }
}

#[test]
fn a_drain_waits_behind_what_was_stored_and_so_does_an_append() {
    const HERE: Site = Site::new("test.stepped");
    let folder = tempfile::tempdir_in("/dev/shm").expect("memory for a file");
    let medium = Mapped::create(&folder.path().join("pool"), 1 << 16, &Options::default());
    let medium = medium.expect("a medium");
    assert!(medium.status().flushes, "of memory that is asked to survive a power cut");
    let told = "stored, then waited for";
    let drained = deeds(|| {
        medium.put(HERE, 100, told.as_bytes()).expect("a good page");
        medium.drain(HERE);
    });
    let appended = deeds(|| medium.append(HERE, 300, told.as_bytes()).expect("a good page"));
    for done in [drained, appended] {
        let fences = done.iter().filter(|deed| **deed == Deed::Fence).count();
        let [stores @ .., Deed::Fence] = &done[..] else { panic!("nobody waits: {done:?}") };
        assert!(
            fences == 1 && stores.iter().any(|deed| matches!(deed, Deed::Flush(_))),
            "{done:?}"
        );
    }
}

#[test]
fn what_is_wrong_is_seen() {
    let (store, flush) = (Deed::Store(64..72), Deed::Flush(1));
    assert_eq!(wrong(&[store.clone(), flush.clone()], 64..72, true), None);
    for deeds in [
        vec![store.clone()],
        vec![flush.clone(), store.clone()],
        vec![store.clone(), flush.clone(), store.clone()],
        vec![store.clone(), Deed::Flush(2)],
        vec![store.clone(), flush.clone(), flush.clone()],
        vec![store.clone(), flush.clone(), Deed::Fence],
        vec![Deed::Store(64..71), flush.clone()],
    ] {
        assert!(wrong(&deeds, 64..72, true).is_some(), "{deeds:?}");
    }
    assert!(wrong(&[store.clone(), flush], 64..72, false).is_some());
    assert!(wrong(&[Deed::Stream(64..72)], 64..72, false).is_some());
    assert_eq!(wrong(&[store], 64..72, false), None);
}
