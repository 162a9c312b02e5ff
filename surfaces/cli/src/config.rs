//! The configuration file: defaults for options, in TOML.
//!
//! What it says takes the place of the built-in defaults before the command line is read, so that a
//! flag wins over it and help shows what is in force. Every key is looked at, also those of other
//! commands: one that nobody knows is an error that names its line.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::path::Path;

use clap::Command;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::failure::{Failure, Outcome};
use crate::size;

/// Names the file where no flag does.
const VARIABLE: &str = "HOLDFAST_CONFIG";
/// Longest file that is read.
const LONGEST: u64 = 1 << 20;

/// What a value has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Switch,
    Size,
    Time,
    Number,
    /// A number that is not 0.
    Count,
    Text,
    /// One of those the option has.
    Word,
}

/// A key: its table, its name, the command whose option it is the default of (none: of all), and
/// what its value has to be. The option has the key's name.
type Known = (&'static str, &'static str, &'static [&'static str], Form);

const KNOWN: [Known; 17] = [
    ("output", "json", &[], Form::Switch),
    ("output", "quiet", &[], Form::Switch),
    ("output", "verbose", &[], Form::Number),
    ("create", "size", &["pool", "create"], Form::Size),
    ("create", "parity", &["pool", "create"], Form::Word),
    ("create", "sums", &["pool", "create"], Form::Word),
    ("create", "label", &["pool", "create"], Form::Text),
    ("create", "rows", &["pool", "create"], Form::Number),
    ("create", "frame", &["pool", "create"], Form::Size),
    ("create", "chunk", &["pool", "create"], Form::Size),
    ("create", "lanes", &["pool", "create"], Form::Count),
    ("create", "log", &["pool", "create"], Form::Size),
    ("create", "events", &["pool", "create"], Form::Size),
    ("scrub", "rate", &["scrub"], Form::Size),
    ("import", "batch", &["import"], Form::Count),
    ("bench", "pairs", &["bench"], Form::Count),
    ("top", "interval", &["top"], Form::Time),
];

/// What a file says.
#[derive(Debug, Default)]
pub(crate) struct Config {
    /// Print objects.
    pub(crate) json: bool,
    /// Print results only.
    pub(crate) quiet: bool,
    /// Print more.
    pub(crate) verbose: u8,
    /// Defaults of options: the command's words, the option, the value.
    defaults: Vec<(&'static [&'static str], &'static str, String)>,
}

impl Config {
    /// The one that these arguments name, else the one that the environment names, else none.
    pub(crate) fn find(words: impl Iterator<Item = OsString>, command: &Command) -> Outcome<Self> {
        match named(words).or_else(|| std::env::var_os(VARIABLE)) {
            Some(path) if !path.is_empty() => Self::read(Path::new(&path), command),
            _ => Ok(Self::default()),
        }
    }

    fn read(path: &Path, command: &Command) -> Outcome<Self> {
        let remedy = format!("name another file with --config, or in {VARIABLE}");
        let failed = |what: String| {
            Failure::usage(format!("the configuration {}: {what}", path.display()), remedy.clone())
        };
        let found = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?;
        if !found.is_file() && !is_empty_device(path) {
            return Err(failed("is no regular file".to_owned()));
        }
        if found.len() > LONGEST {
            return Err(failed(format!("is longer than {LONGEST} bytes")));
        }
        let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        Self::of_text(&text, command).map_err(|what| {
            Failure::usage(format!("{}, {what}", path.display()), "correct the line")
        })
    }

    /// Reads a text; what is wrong with it names its line.
    pub(crate) fn of_text(text: &str, command: &Command) -> Result<Self, String> {
        Self::parse(text, command).map_err(|Wrong { at, what }| {
            let line = text.get(..at).unwrap_or(text).matches('\n').count() + 1;
            format!("line {line}: {what}")
        })
    }

    /// Reads a file's text.
    fn parse(text: &str, command: &Command) -> Result<Self, Wrong> {
        let whole = DeTable::parse(text).map_err(|error| Wrong {
            at: error.span().map_or(0, |span| span.start),
            what: error.message().to_owned(),
        })?;
        let mut this = Self::default();
        for (name, table) in whole.get_ref() {
            let known = KNOWN.iter().filter(|known| known.0 == name.get_ref().as_ref());
            let keys: Vec<&Known> = known.collect();
            if keys.is_empty() {
                let tables = "output, create, scrub, import, bench, top";
                return Err(wrong(
                    name.span(),
                    format!("no table or key `{}`; there are the tables {tables}", name.get_ref()),
                ));
            }
            let DeValue::Table(entries) = table.get_ref() else {
                return Err(wrong(table.span(), format!("`{}` is a table", name.get_ref())));
            };
            for (key, value) in entries {
                let Some(known) = keys.iter().find(|known| known.1 == key.get_ref().as_ref())
                else {
                    let names: Vec<&str> = keys.iter().map(|known| known.1).collect();
                    let what = format!(
                        "no key `{}` in [{}]; there are {}",
                        key.get_ref(),
                        name.get_ref(),
                        names.join(", ")
                    );
                    return Err(wrong(key.span(), what));
                };
                this.take(known, value, command)?;
            }
        }
        Ok(this)
    }

    fn take(
        &mut self,
        known: &Known,
        value: &Spanned<DeValue<'_>>,
        command: &Command,
    ) -> Result<(), Wrong> {
        let &(table, key, words, form) = known;
        let text = checked(form, value.get_ref(), words, key, command)
            .map_err(|what| wrong(value.span(), format!("`{key}`: {what}")))?;
        match (table, key) {
            ("output", "json") => self.json = text == "true",
            ("output", "quiet") => self.quiet = text == "true",
            ("output", _) => self.verbose = text.parse().unwrap_or(u8::MAX),
            _ => self.defaults.push((words, key, text)),
        }
        Ok(())
    }

    /// The command line with these defaults in place of the built-in ones.
    pub(crate) fn apply(self, mut command: Command) -> Command {
        for (words, key, value) in self.defaults {
            command = with_default(command, words, key, &value);
        }
        command
    }
}

/// What is wrong with a file, and where.
#[derive(Debug)]
struct Wrong {
    at: usize,
    what: String,
}

fn wrong(span: Range<usize>, what: String) -> Wrong {
    Wrong { at: span.start, what }
}

/// The file that a command line names. It is needed before the line can be read.
fn named(words: impl Iterator<Item = OsString>) -> Option<OsString> {
    let mut words = words.skip(1).take_while(|word| word != "--");
    let mut found = None;
    while let Some(word) = words.next() {
        if word == "--config" {
            found = words.next();
        } else if let Some(path) = word.to_str().and_then(|word| word.strip_prefix("--config=")) {
            found = Some(path.into());
        }
    }
    found
}

/// Stands for no configuration.
fn is_empty_device(path: &Path) -> bool {
    path.as_os_str() == OsStr::new("/dev/null")
}

/// The value as an argument would have it.
fn checked(
    form: Form,
    value: &DeValue<'_>,
    words: &[&str],
    key: &str,
    command: &Command,
) -> Result<String, String> {
    let text = match value {
        DeValue::String(text) => text.as_ref().to_owned(),
        DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
        DeValue::Boolean(value) => value.to_string(),
        _ => return Err("has no type that an option has".to_owned()),
    };
    let right = match (form, value) {
        (Form::Switch, DeValue::Boolean(_)) => return Ok(text),
        (Form::Switch, _) => return Err("must be true or false".to_owned()),
        (_, DeValue::Boolean(_)) => return Err("must not be true or false".to_owned()),
        (Form::Size, _) => size::parse(&text).map(drop),
        (Form::Time, _) => size::parse_time(&text).map(drop),
        (Form::Count, DeValue::Integer(_)) if text == "0" => Err("must be at least 1".to_owned()),
        (Form::Number | Form::Count, DeValue::Integer(_)) => match text.parse::<u32>() {
            Ok(_) => Ok(()),
            Err(_) => Err(format!("`{text}` is no number from 0 to {}", u32::MAX)),
        },
        (Form::Number | Form::Count, _) => Err("must be a number, without quotes".to_owned()),
        (Form::Text | Form::Word, DeValue::Integer(_)) => Err("must be text, in quotes".to_owned()),
        (Form::Text, _) => Ok(()),
        (Form::Word, _) => one_of(&possible(command, words, key), &text),
    };
    right.map(|()| text)
}

fn one_of(possible: &[String], text: &str) -> Result<(), String> {
    if possible.iter().any(|word| word == text) {
        return Ok(());
    }
    Err(format!("must be one of {}, not `{text}`", possible.join(", ")))
}

/// The words an option takes.
fn possible(command: &Command, words: &[&str], key: &str) -> Vec<String> {
    let mut at = Some(command);
    for word in words {
        at = at.and_then(|command| command.find_subcommand(word));
    }
    let arg = at.and_then(|command| command.get_arguments().find(|arg| arg.get_id() == key));
    let values = arg.map(clap::Arg::get_possible_values).unwrap_or_default();
    values.iter().map(|value| value.get_name().to_owned()).collect()
}

/// Puts a default into the command that these words name, or into all below it that have the
/// option.
fn with_default(
    command: Command,
    words: &'static [&'static str],
    key: &'static str,
    value: &str,
) -> Command {
    if let Some((first, rest)) = words.split_first() {
        return command.mut_subcommand(first, |below| with_default(below, rest, key, value));
    }
    if command.get_arguments().any(|arg| arg.get_id() == key) {
        return command.mut_arg(key, |arg| arg.default_value(value.to_owned()));
    }
    command.mut_subcommands(|below| {
        if below.get_arguments().any(|arg| arg.get_id() == key) {
            below.mut_arg(key, |arg| arg.default_value(value.to_owned()))
        } else {
            below
        }
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn every_key_is_the_default_of_an_option() {
        let command = Cli::command();
        for (table, key, words, _) in KNOWN.iter().filter(|known| known.0 != "output") {
            let mut at = &command;
            for word in *words {
                at = at.find_subcommand(word).unwrap_or_else(|| panic!("{table}.{key}"));
            }
            let has = |command: &Command| command.get_arguments().any(|arg| arg.get_id() == *key);
            assert!(has(at) || at.get_subcommands().any(has), "{table}.{key}");
        }
    }

    #[test]
    fn the_last_file_named_counts() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let named = |line: &str| named(words(line).into_iter());
        assert_eq!(named("holdfast check a --config b"), Some("b".into()));
        assert_eq!(named("holdfast --config=a check --config b"), Some("b".into()));
        assert_eq!(named("holdfast map get a m -- --config"), None);
        assert_eq!(named("holdfast check a"), None);
    }

    #[test]
    fn wrong_lines_are_placed() {
        let command = Cli::command();
        for (text, at, what) in [
            ("[create]\nsize = \"lots\"\n", 16, "no size"),
            ("[create]\n\nsise = 1\n", 10, "no key `sise`"),
            ("[made]\nsize = 1\n", 1, "no table or key `made`"),
            ("size = 1\n", 0, "no table or key `size`"),
            ("[create\n", 7, ""),
            ("[create]\nsize = 1\nsize = 2\n", 18, "duplicate"),
            ("create = 1\n", 9, "is a table"),
            ("[create]\nparity = \"three\"\n", 18, "one of none, p, pq"),
            ("[create]\nrows = \"8\"\n", 16, "a number"),
            ("[create]\nrows = -1\n", 16, "no number"),
            ("[import]\nbatch = 0\n", 17, "at least 1"),
            ("[create]\nlabel = 7\n", 17, "text, in quotes"),
            ("[create]\nlabel = [1]\n", 17, "no type"),
            ("[output]\njson = 1\n", 16, "true or false"),
            ("[top]\ninterval = \"soon\"\n", 17, "no time"),
        ] {
            let Err(wrong) = Config::parse(text, &command) else { panic!("{text}") };
            assert!(wrong.what.contains(what), "{text}: {}", wrong.what);
            assert_eq!(wrong.at, at, "{text}: {}", wrong.what);
        }
    }
}
