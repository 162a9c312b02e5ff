//! Every error says what went wrong and where, and only those that may pass are transient.

use holdfast_layout::{RawPtr, TypeNumber};
use holdfast_txn::TxError;

#[test]
fn errors_say_what_and_where() {
    let object = RawPtr::new(0x1240, 7);
    let cases = [
        (TxError::Conflict, true, "conflict with another transaction"),
        (TxError::Damaged { at: 0x40, len: 8 }, true, "0x40+0x8"),
        (TxError::Lost { object }, false, "0x1240@7 is lost"),
        (TxError::Dangling { pointer: RawPtr::NULL }, false, "null names no object"),
        (TxError::InDoubt { pointer: object }, false, "0x1240@7 names an object is in doubt"),
        (
            TxError::WrongType { object, wanted: TypeNumber(1), found: TypeNumber(2) },
            false,
            "type 0x00000002, not 0x00000001",
        ),
        (TxError::OutOfBounds { object, end: 9, len: 8 }, false, "ends at 9"),
        (TxError::AlreadyOpen { object }, false, "already open"),
        (TxError::TooManyViews { object }, false, "too many views of object 0x1240@7"),
        (TxError::Overrun { object }, false, "beyond its copy"),
        (TxError::NoSpace { wanted: 64 }, false, "grow the pool"),
        (TxError::TooLarge { wanted: 64, limit: 32 }, false, "limit of 32"),
        (TxError::ReadOnly, false, "read-only"),
        (TxError::Undeclared { object, at: 3 }, false, "byte 3"),
        (TxError::Inconsistent("loop"), false, "loop"),
        (TxError::cancel("no"), false, "cancelled: no"),
    ];
    for (error, transient, text) in cases {
        assert_eq!(error.is_transient(), transient, "{error}");
        assert!(error.to_string().contains(text), "{error} has no {text:?}");
    }
}
