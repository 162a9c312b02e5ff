//! What the rule about sums refuses and what it leaves alone.

use super::super::at;
use super::*;

const SCAN: &str = "core/logs/src/scan.rs";

fn lines(files: &[(&str, &str)]) -> Vec<(String, usize)> {
    let sources: Vec<_> = files.iter().map(|(path, text)| at(path, text)).collect();
    check(&sources).into_iter().map(|finding| (finding.path, finding.line)).collect()
}

fn found(text: &str) -> Vec<usize> {
    lines(&[(SCAN, text)]).into_iter().map(|(_, line)| line).collect()
}

#[test]
fn a_sum_compared_in_place_is_refused() {
    for comparison in [
        "crc32c(0, bytes) == stored",
        "stored != crc32c(0, &bytes[4..])",
        "x && get(bytes, 0) == adler32(1, bytes) || y",
        "crc32c_combine(a, crc32c(0, b), 3).eq(&stored)",
        "Some(crc32c(0, bytes)) == stored",
    ] {
        let text = format!("fn f() -> bool {{\n let x = 1;\n {comparison}\n}}");
        assert_eq!(found(&text), [3], "{comparison}");
    }
}

#[test]
fn a_sum_with_a_name_is_one_too() {
    assert_eq!(found("fn f() {\n let sum = crc32c(0, b);\n if sum != get(b) {\n g();\n }\n}"), [3]);
    assert_eq!(
        found("fn f() -> bool {\n let mut s: u32 = 0;\n s = crc32c(s, b);\n\n s == t\n}"),
        [5]
    );
    assert_eq!(found("fn f() {\n let (a, n) = (crc32c(0, b), 1);\n g(a == t);\n}"), [3]);
}

#[test]
fn functions_made_of_sums_are_known_over_all_crates() {
    let sums = "impl Sums {\n pub fn page(&self, at: u64, b: &[u8]) -> u32 {\n \
                mix(crc32c(self.seed, b), at)\n }\n pub fn both(&self, b: &[u8]) -> u32 {\n \
                self.page(1, b) ^ self.page(2, b)\n }\n}";
    let user = "fn f() -> bool {\n sums.both(b) == stored\n}";
    let files = [("core/heap/src/sums.rs", sums), ("engines/object/src/x.rs", user)];
    assert_eq!(lines(&files), [("engines/object/src/x.rs".to_owned(), 2)]);
    // Another function of that name, with as many arguments, is not mistaken for it.
    let other = "fn both(b: &[u8]) -> Option<u8> {\n None\n}";
    assert_eq!(lines(&[files[0], files[1], ("core/txn/src/x.rs", other)]), []);
    // With more arguments it is another one, and this one stays what it is.
    let longer = "fn both(b: &[u8], n: u8) -> Option<u8> {\n None\n}";
    assert_eq!(lines(&[files[0], files[1], ("core/txn/src/x.rs", longer)]).len(), 1);
}

#[test]
fn what_certify_decides_passes() {
    let text = "const VERIFY: Site = Site::new(\"logs.scan.verify\");\n\
                fn f(m: &M, b: &[u8]) -> bool {\n let sum = crc32c(0, b);\n \
                let good = Certify::when(m.enabled(VERIFY)).agrees(get(b), sum);\n \
                good == true && b.len() == 4\n}\n\
                fn g(certify: Certify, b: &[u8]) -> bool {\n \
                certify.agrees(get(b), crc32c(0, b))\n}\n\
                fn h(b: &mut [u8]) {\n let sum = crc32c(0, b);\n put(b, sum);\n}";
    assert_eq!(found(text), [0usize; 0]);
}

#[test]
fn other_comparisons_beside_a_sum_pass() {
    for code in [
        "if n == 4 { put(b, crc32c(0, b)); }",
        "let sum = if n == 4 { crc32c(0, b) } else { 0 };",
        "put(n == 4, crc32c(0, b));",
        "let sum = crc32c(0, b); if self.sum == other { g(sum); }",
    ] {
        assert_eq!(found(&format!("fn f() {{\n {code}\n}}")), [0usize; 0], "{code}");
    }
}

#[test]
fn a_certify_names_a_site_or_verifies_nothing() {
    for text in [
        "fn f() {\n g(Certify::when(true));\n}",
        "fn f(on: bool) {\n g(Certify::when(on));\n}",
        "fn f() {\n g(Certify::when(m.enabled(whatever)));\n}",
    ] {
        assert_eq!(found(text), [2], "{text}");
    }
    let text = "fn f(from: &S, site: Site) {\n g(Certify::when(from.enabled(site)));\n \
                g(Certify::when(false));\n}";
    assert_eq!(found(text), [0usize; 0]);
}

#[test]
fn tests_and_other_groups_compare_as_they_like() {
    let text = "fn f() -> bool { crc32c(0, b) == stored }";
    for path in ["base/codes/src/crc.rs", "core/logs/tests/x.rs", "testing/campaign/src/raw.rs"] {
        assert_eq!(lines(&[(path, text)]), []);
    }
    assert_eq!(found(&format!("#[cfg(test)]\nmod tests {{ {text} }}")), [0usize; 0]);
}
