//! One connection for one request: nothing in the program is kept open between two, so nothing can
//! be closed under us, and no two threads share anything.
//!
//! Packets keep their borders. Nothing here allocates, waits for a lock or touches `errno`. Nobody
//! waits for ever: a supervisor that stands still is not to have its programs stand still.

use core::mem::MaybeUninit;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    bind, connect, listen, recvmsg, sendmsg, socket_with,
};

use crate::message::{Answer, MESSAGE, Refusal, Request};

/// How long an answer is waited for: longer than the first look at all but the largest files.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// How long it is waited for after others that did not come in so long.
#[must_use]
pub fn hasty(patience: Duration) -> Duration {
    patience / 20
}

/// Longest name of a supervisor.
pub const MOST_NAME: usize = 64;

/// Opens the socket behind the name `name`, for requests to arrive at. The name is abstract: it
/// lies in no folder, and ends with the socket.
///
/// # Errors
/// What the system said; the name may be taken, or too long.
pub fn serve(name: &[u8]) -> Result<OwnedFd, Errno> {
    let socket = open(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    bind(&socket, &address(name)?)?;
    listen(&socket, 256)?;
    Ok(socket)
}

/// Connects to the supervisor of that name. It may take so long to make room.
///
/// # Errors
/// What the system said.
pub fn reach(name: &[u8], patience: Duration) -> Result<OwnedFd, Errno> {
    let socket = open(SocketFlags::CLOEXEC)?;
    // A queue that is full keeps both who connects and who sends.
    set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    let address = address(name)?;
    let until = Instant::now() + patience;
    loop {
        match connect(&socket, &address) {
            Err(Errno::INTR) if Instant::now() < until => {}
            done => return done.map(|()| socket),
        }
    }
}

fn open(flags: SocketFlags) -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

fn address(name: &[u8]) -> Result<SocketAddrUnix, Errno> {
    if name.len() > MOST_NAME {
        return Err(Errno::NAMETOOLONG);
    }
    SocketAddrUnix::new_abstract_name(name)
}

/// Signals interrupt; nothing else does.
fn again<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

/// Sends one message, and a descriptor with it.
///
/// # Errors
/// What the system said: the other end is gone, or its queue is full.
pub fn send(
    socket: impl AsFd,
    message: &[u8; MESSAGE],
    with: Option<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = with.map(|fd| [fd]);
    if let Some(descriptors) = &descriptors
        && !control.push(SendAncillaryMessage::ScmRights(descriptors))
    {
        return Err(Errno::NOBUFS);
    }
    let bytes = [IoSlice::new(message)];
    let sent = again(|| sendmsg(&socket, &bytes, &mut control, SendFlags::NOSIGNAL))?;
    if sent == MESSAGE { Ok(()) } else { Err(Errno::MSGSIZE) }
}

/// Receives one message and at most one descriptor. `None` if the other end is gone; a packet of
/// another length is told as such.
///
/// # Errors
/// What the system said.
pub fn receive(
    socket: impl AsFd,
    into: &mut [u8; MESSAGE],
) -> Result<Option<(usize, Option<OwnedFd>)>, Errno> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [IoSliceMut::new(into)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = again(|| recvmsg(&socket, &mut bytes, &mut control, flags))?;
    let mut with = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            // Others that a hostile end sent along are closed here.
            for descriptor in descriptors {
                with.get_or_insert(descriptor);
            }
        }
    }
    if got.bytes == 0 && !got.flags.contains(ReturnFlags::TRUNC) {
        return Ok(None);
    }
    let len = if got.flags.contains(ReturnFlags::TRUNC) { MESSAGE + 1 } else { got.bytes };
    Ok(Some((len, with)))
}

/// Whether something can be received before `until`; signals do not make the wait any longer.
fn comes(socket: BorrowedFd<'_>, until: Instant) -> bool {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let Ok(left) = Timespec::try_from(left) else { return false };
        match poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::IN)], Some(&left)) {
            Err(Errno::INTR) => {}
            found => return found.is_ok_and(|ready| ready > 0),
        }
    }
}

/// Asks on an open connection and waits for the answer.
///
/// # Errors
/// A [`Refusal`]; `Failed` if the supervisor is gone, `Late` if it does not answer in time.
pub fn ask_on(
    socket: impl AsFd,
    request: &Request,
    with: Option<BorrowedFd<'_>>,
    patience: Duration,
) -> Result<(Answer, Option<OwnedFd>), Refusal> {
    let until = Instant::now() + patience;
    send(&socket, &request.encode(), with).map_err(|error| match error {
        Errno::AGAIN => Refusal::Late,
        _ => Refusal::Failed,
    })?;
    if !comes(socket.as_fd(), until) {
        return Err(Refusal::Late);
    }
    let mut bytes = [0; MESSAGE];
    let got = receive(&socket, &mut bytes).map_err(|_| Refusal::Failed)?;
    let (len, with) = got.ok_or(Refusal::Failed)?;
    match Answer::decode(bytes.get(..len).ok_or(Refusal::Malformed)?)? {
        Answer::Refused(why) => Err(why),
        answer => Ok((answer, with)),
    }
}

/// Connects, asks, and hangs up.
///
/// # Errors
/// As [`ask_on`].
pub fn ask(
    name: &[u8],
    request: &Request,
    with: Option<BorrowedFd<'_>>,
    patience: Duration,
) -> Result<(Answer, Option<OwnedFd>), Refusal> {
    let socket = reach(name, patience).map_err(|error| match error {
        Errno::AGAIN | Errno::INTR => Refusal::Late,
        _ => Refusal::Failed,
    })?;
    ask_on(socket, request, with, patience)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{Shutdown, acceptfrom, shutdown, socketpair};

    #[test]
    fn a_question_and_its_descriptor_arrive() {
        let name = format!("hf-link-test-{}", std::process::id());
        let name = name.as_bytes();
        let server = serve(name).unwrap();
        assert!(serve(name).is_err(), "the name is taken");
        let asking = std::thread::spawn({
            let name = name.to_vec();
            move || {
                let with = std::io::stdin();
                ask(&name, &Request::Listen, Some(with.as_fd()), PATIENCE).unwrap().0
            }
        });
        let peer = loop {
            match acceptfrom(&server) {
                Ok((peer, _)) => break peer,
                Err(_) => std::thread::yield_now(),
            }
        };
        let mut bytes = [0; MESSAGE];
        let (len, with) = receive(&peer, &mut bytes).unwrap().unwrap();
        assert_eq!(Request::decode(&bytes[..len]), Ok(Request::Listen));
        assert!(with.is_some());
        send(&peer, &Answer::Guarded { file: 4 }.encode(), None).unwrap();
        assert_eq!(asking.join().unwrap(), Answer::Guarded { file: 4 });
        let nobody = ask(b"hf-nobody", &Request::Listen, None, PATIENCE);
        assert!(nobody.is_err_and(|why| why == Refusal::Failed));
    }

    #[test]
    fn nobody_waits_for_ever() {
        let name = format!("hf-late-test-{}", std::process::id());
        let _server = serve(name.as_bytes()).unwrap();
        let short = Duration::from_millis(30);
        let began = Instant::now();
        let late = ask(name.as_bytes(), &Request::Listen, None, short);
        assert!(late.is_err_and(|why| why == Refusal::Late) && began.elapsed() >= short);
        // Until nobody can connect any more.
        let waiting: Vec<_> = (0..600).map_while(|_| reach(name.as_bytes(), short).ok()).collect();
        assert!(waiting.len() < 600);
        let late = ask(name.as_bytes(), &Request::Listen, None, short);
        assert!(late.is_err_and(|why| why == Refusal::Late));
    }

    #[test]
    fn packets_of_other_lengths_are_told() {
        let (one, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        rustix::net::send(&one, &[1; MESSAGE + 9], SendFlags::empty()).unwrap();
        rustix::net::send(&one, &[1; 3], SendFlags::empty()).unwrap();
        let mut bytes = [0; MESSAGE];
        assert_eq!(receive(&other, &mut bytes).unwrap().unwrap().0, MESSAGE + 1);
        assert_eq!(receive(&other, &mut bytes).unwrap().unwrap().0, 3);
        drop(one);
        assert!(receive(&other, &mut bytes).unwrap().is_none());
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        let ask = |answer: &dyn Fn(&OwnedFd)| {
            let flags = SocketFlags::CLOEXEC;
            let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
            let (ours, theirs) = pair.unwrap();
            answer(&theirs);
            ask_on(&ours, &Request::Listen, None, PATIENCE).map(|(answer, _)| answer)
        };
        let says = |bytes: &[u8]| {
            ask(&|theirs| {
                rustix::net::send(theirs, bytes, SendFlags::empty()).unwrap();
            })
        };
        assert_eq!(says(&Answer::Done.encode()), Ok(Answer::Done));
        let refused = Answer::Refused(Refusal::NoFile).encode();
        assert_eq!(says(&refused), Err(Refusal::NoFile));
        // Never travels: only who waits knows.
        assert_eq!(says(&Answer::Refused(Refusal::Late).encode()), Err(Refusal::Malformed));
        assert_eq!(says(&[1; MESSAGE + 1]), Err(Refusal::Malformed));
        assert_eq!(says(&refused[..MESSAGE - 1]), Err(Refusal::Malformed));
        assert_eq!(ask(&|theirs| shutdown(theirs, Shutdown::Write).unwrap()), Err(Refusal::Failed));
        assert_eq!(ask(&|theirs| shutdown(theirs, Shutdown::Read).unwrap()), Err(Refusal::Failed));
    }

    #[test]
    fn a_name_that_is_too_long_is_nobodys() {
        let long = [b'n'; MOST_NAME + 1];
        assert_eq!(serve(&long).err(), Some(Errno::NAMETOOLONG));
        assert_eq!(reach(&long, PATIENCE).err(), Some(Errno::NAMETOOLONG));
        let asked = ask(&long, &Request::Listen, None, PATIENCE);
        assert!(asked.is_err_and(|why| why == Refusal::Failed));
    }
}
