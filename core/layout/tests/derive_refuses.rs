//! What cannot be stored does not compile, and the message says why and what to do instead.
//!
//! The expected messages are beside the programs in `tests/refuse/`.

#[test]
fn what_is_not_plain_data_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/refuse/*.rs");
}
