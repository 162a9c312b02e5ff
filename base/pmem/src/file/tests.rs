//! What the system answers, from the system where it can be had.

use super::*;
use std::os::unix::fs::PermissionsExt;

fn path() -> &'static Path {
    Path::new("/folder/pool")
}

fn os(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

#[test]
fn a_write_the_device_refuses_is_not_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool");
    let mut backing = Backing::create(&path, 2 * PAGE).unwrap();
    backing.write_durably(GROWN, 0, b"kept").unwrap();
    // A descriptor that cannot write takes the place of the file's: the system refuses for real.
    let whole = std::mem::replace(&mut backing.file, File::open(&path).unwrap());
    let first = backing.write_durably(GROWN, 0, b"lost").unwrap_err();
    assert_eq!(first.source.raw_os_error(), Some(libc::EBADF));
    assert!(backing.failed());
    // With the true one back it would succeed, so it must not be asked.
    backing.file = whole;
    let issued = backing.issued();
    let later = backing.write_durably(GROWN, 0, b"late").unwrap_err();
    assert!(later.to_string().contains("an earlier pwritev2 failed"), "{later}");
    assert!(backing.sync(GROWN).is_err());
    assert_eq!(backing.issued(), issued);
    assert_eq!(&std::fs::read(&path).unwrap()[..4], b"kept");
}

#[test]
fn errors_of_the_system_name_cause_and_remedy() {
    for (code, words) in [
        (libc::ENOENT, "no such file"),
        (libc::EEXIST, "exists already"),
        (libc::EISDIR, "directory"),
        (libc::EACCES, "permission denied"),
        (libc::EROFS, "read-only"),
        (libc::EMFILE, "open failed"),
    ] {
        let text = explain(path(), "open", os(code)).to_string();
        assert!(text.contains(words) && text.contains("/folder/pool"), "{text}");
    }
}

#[test]
fn a_file_that_may_only_be_read_is_told_from_one_that_may_not() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pool");
    std::fs::write(&file, vec![0; PAGE as usize]).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o400)).unwrap();
    let refused = |write| explain_open(&file, write, os(libc::EACCES));
    assert!(matches!(refused(true), OpenError::ReadOnlyFile { .. }));
    assert!(matches!(refused(false), OpenError::Permission { .. }));
    let gone = explain_open(path(), true, os(libc::EACCES));
    assert!(matches!(gone, OpenError::Permission { .. }));
    let system = explain_open(&file, true, os(libc::EROFS));
    assert!(matches!(system, OpenError::ReadOnlyFile { .. }));
}

#[test]
fn only_the_file_that_was_made_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool");
    let backing = Backing::create(&path, PAGE).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "another's").unwrap();
    backing.remove();
    assert_eq!(std::fs::read(&path).unwrap(), b"another's");
}
