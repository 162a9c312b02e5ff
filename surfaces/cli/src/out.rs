//! What a command prints: tables for people, one object or lines of objects for programs.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Table};
use serde_json::{Map, Value, json};

use crate::failure::Failure;

/// Version of everything printed with `--json`.
const SCHEMA: u64 = 1;

/// Where output goes, and how much of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Out {
    /// Print objects.
    pub(crate) json: bool,
    /// Print results only.
    pub(crate) quiet: bool,
    /// Print more: how many times it was asked for.
    pub(crate) verbose: u8,
}

impl Out {
    /// Prints one object, the only one of a command; nothing for people.
    pub(crate) fn object(&self, command: &str, body: Value) {
        if self.json {
            line(&plain(&dressed(command, body)));
        }
    }

    /// Prints one line of a stream: the object, or the words for people.
    pub(crate) fn item(&self, command: &str, body: Value, words: impl FnOnce() -> String) {
        if self.json {
            line(&plain(&dressed(command, body)));
        } else if !self.quiet {
            line(&words());
        }
    }

    /// Prints words for people.
    pub(crate) fn words(&self, text: impl AsRef<str>) {
        if !self.json && !self.quiet {
            line(text.as_ref());
        }
    }

    /// Prints words for people who asked for more.
    pub(crate) fn more(&self, text: impl FnOnce() -> String) {
        if self.verbose > 0 && !self.json && !self.quiet {
            line(&text());
        }
    }

    /// Prints the answer of a command: also when asked to be quiet.
    pub(crate) fn answer(&self, text: impl AsRef<str>) {
        if !self.json {
            line(text.as_ref());
        }
    }

    /// Tells people something on standard error, beside the output.
    pub(crate) fn note(&self, text: impl AsRef<str>) {
        if !self.quiet {
            let _ = writeln!(io::stderr(), "holdfast: {}", tame(text.as_ref()));
        }
    }

    /// Asks people something on standard error; the line is theirs to end.
    pub(crate) fn ask(&self, question: &str) {
        let mut err = io::stderr();
        let _ = write!(err, "{}", tame(question)).and_then(|()| err.flush());
    }

    /// Tells why a command failed.
    pub(crate) fn failure(&self, command: &str, failure: &Failure) {
        self.failure_object(command, failure);
        self.complain(failure);
    }

    /// The same for people only.
    pub(crate) fn complain(&self, failure: &Failure) {
        let _ = writeln!(io::stderr(), "holdfast: {}", tame(&failure.to_string()));
    }

    /// The same for programs only.
    pub(crate) fn failure_object(&self, command: &str, failure: &Failure) {
        let body = json!({ "error": failure.json(), "exit": failure.exit().code() });
        self.object(command, body);
    }

    /// Whether a terminal that obeys signs shows the output to somebody who did not ask for less or
    /// for objects. One that has no name, or is called dumb, would show the signs themselves.
    pub(crate) fn shows_screen(&self) -> bool {
        let obeys = std::env::var_os("TERM").is_some_and(|name| !name.is_empty() && name != "dumb");
        let there = io::stdout().is_terminal() && io::stdin().is_terminal();
        !self.json && !self.quiet && obeys && there
    }

    /// Whether progress is worth showing: somebody is looking at standard error.
    pub(crate) fn shows_progress(&self) -> bool {
        !self.quiet && io::stderr().is_terminal()
    }
}

/// The object with the version of the schema and the command in front.
pub(crate) fn dressed(command: &str, body: Value) -> Value {
    let mut all = Map::new();
    all.insert("schema".to_owned(), SCHEMA.into());
    all.insert("command".to_owned(), command.into());
    match body {
        Value::Object(fields) => all.extend(fields),
        other => {
            all.insert("value".to_owned(), other);
        }
    }
    Value::Object(all)
}

/// One line to standard output.
fn line(text: &str) {
    let mut out = io::stdout().lock();
    if let Err(error) = writeln!(out, "{}", tame(text)).and_then(|()| out.flush()) {
        give_up(&error);
    }
}

/// A value in one line, with nothing in it that a terminal would obey. What JSON lets through is
/// written by its numbers: a reader gets the same value.
pub(crate) fn plain(value: &Value) -> String {
    let text = value.to_string();
    if !text.contains(char::is_control) {
        return text;
    }
    let mut tamed = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        // Outside of strings there is none; inside, all below a blank are escaped already.
        if c.is_control() {
            tamed.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            tamed.push(c);
        }
    }
    tamed
}

/// The text without what a terminal would obey: names and labels come from files, and from anybody.
pub(crate) fn tame(text: &str) -> Cow<'_, str> {
    let wild = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.contains(wild) {
        return text.into();
    }
    let mut tamed = String::with_capacity(text.len());
    for c in text.chars() {
        if wild(c) { tamed.extend(c.escape_unicode()) } else { tamed.push(c) }
    }
    tamed.into()
}

/// Ends the command because its output reaches nobody. Whoever closed a pipe has read enough: that
/// ends it as the signal would that is sent for it, and that programs in Rust ignore. A pool that
/// is open then is recovered when it is opened next.
pub(crate) fn give_up(error: &io::Error) -> ! {
    if error.kind() == io::ErrorKind::BrokenPipe {
        let _ = signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGPIPE);
    } else {
        let failure = Failure::io("standard output", error);
        let _ = writeln!(io::stderr(), "holdfast: {failure}");
    }
    std::process::exit(crate::exit::Exit::OPERATIONAL.code().into())
}

/// So many things: `1 event`, `2 events`.
pub(crate) fn count(number: impl Into<u64>, thing: &str) -> String {
    match number.into() {
        1 => format!("1 {thing}"),
        number => format!("{number} {thing}s"),
    }
}

/// An empty table in the house's style.
pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    if !header.is_empty() {
        table.set_header(header.to_vec());
    }
    table
}

/// A table of two columns: what, and how it is.
pub(crate) fn facts(rows: &[(&str, String)]) -> Table {
    let mut table = table(&[]);
    for (what, how) in rows {
        table.add_row([(*what).to_owned(), how.clone()]);
    }
    table
}

/// Aligns the columns from the second on to the right: numbers.
pub(crate) fn numbers(table: &mut Table) {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

/// Bytes for people: as text if they are some, else as hexadecimal digits.
pub(crate) fn show_bytes(bytes: &[u8]) -> String {
    match core::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(|c| c.is_control() && c != '\t') => text.to_owned(),
        _ => format!("0x{}", hex(bytes)),
    }
}

/// Bytes for programs: a string if they are UTF-8, else an object that says what it is.
pub(crate) fn json_bytes(bytes: &[u8]) -> Value {
    match core::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => json!({ "hex": hex(bytes) }),
    }
}

/// Hexadecimal digits of bytes.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 15)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

/// The bytes of hexadecimal digits.
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_digits_go_both_ways() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(unhex(&hex(&bytes)), Some(bytes));
        assert_eq!(unhex("0"), None);
        assert_eq!(unhex("zz"), None);
        assert_eq!(unhex("\u{e9}"), None);
    }

    #[test]
    fn bytes_are_shown_as_text_or_digits() {
        assert_eq!(show_bytes(b"a b"), "a b");
        assert_eq!(show_bytes(b"\x00\xff"), "0x00ff");
        assert_eq!(json_bytes(b"\xff"), json!({ "hex": "ff" }));
    }

    #[test]
    fn terminals_are_told_nothing_but_text() {
        assert_eq!(tame("a\tb\n\u{e9}"), "a\tb\n\u{e9}");
        assert_eq!(tame("\x1b[31mred\x07\u{9b}"), "\\u{1b}[31mred\\u{7}\\u{9b}");
    }

    #[test]
    fn programs_are_told_everything_in_signs_that_terminals_do_not_obey() {
        let value = json!({ "k\u{9b}": "\u{0}\u{7f}\u{85}\u{1b}\u{e9}\u{1f600}\\\"" });
        let text = plain(&value);
        assert!(!text.contains(char::is_control), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).ok(), Some(value));
    }

    #[test]
    fn one_thing_is_one() {
        assert_eq!([0_u64, 1, 2].map(|n| count(n, "event")), ["0 events", "1 event", "2 events"]);
    }

    #[test]
    fn objects_carry_their_schema() {
        let object = dressed("pool info", json!({ "size": 1 }));
        assert_eq!(object, json!({ "schema": 1, "command": "pool info", "size": 1 }));
    }
}
