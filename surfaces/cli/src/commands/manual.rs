//! `completions` and `man`: what shells and the system's manual want to know of this command.

use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use serde_json::json;

use crate::args::Cli;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out::{Out, count};

/// Prints a shell's script.
pub(crate) fn completions(out: Out, shell: Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "holdfast", &mut script);
    let script = String::from_utf8_lossy(&script);
    out.object("completions", json!({ "shell": shell.to_string(), "script": script }));
    out.answer(script.trim_end());
    Ok(Exit::CLEAN)
}

/// Prints the first page, or writes all.
pub(crate) fn man(out: Out, folder: Option<&Path>) -> Outcome {
    let pages = pages().map_err(|error| Failure::io("a page", &error))?;
    let Some(folder) = folder else {
        let (name, text) = &pages[0];
        out.object("man", json!({ "name": name, "page": text }));
        out.answer(text.trim_end());
        return Ok(Exit::CLEAN);
    };
    std::fs::create_dir_all(folder).map_err(|error| Failure::io(folder.display(), &error))?;
    for (name, text) in &pages {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(|error| Failure::io(path.display(), &error))?;
    }
    let names: Vec<&String> = pages.iter().map(|(name, _)| name).collect();
    out.object("man", json!({ "folder": folder.display().to_string(), "pages": names }));
    let pages = count(pages.len() as u64, "page");
    out.words(format!("{pages} written; `man -l {}/holdfast.1` shows the first", folder.display()));
    Ok(Exit::CLEAN)
}

/// The pages of all commands that people use: name of the file, text.
fn pages() -> std::io::Result<Vec<(String, String)>> {
    let mut all = Cli::command().disable_help_subcommand(true);
    all.build();
    let mut pages = Vec::new();
    collect(&all, &mut pages)?;
    Ok(pages)
}

fn collect(command: &Command, pages: &mut Vec<(String, String)>) -> std::io::Result<()> {
    let page = clap_mangen::Man::new(command.clone()).manual("Holdfast");
    let mut text = Vec::new();
    page.render(&mut text)?;
    pages.push((page.get_filename(), String::from_utf8_lossy(&text).into_owned()));
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        collect(below, pages)?;
    }
    Ok(())
}
