//! Linked list: a stack of notes that outlives the program.
//!
//!     cargo run --release --example linked_list -- FILE push "buy milk"
//!     cargo run --release --example linked_list -- FILE pop
//!     cargo run --release --example linked_list -- FILE list
//!
//! Shows pointers in objects, objects of any length, allocation and freeing in one transaction,
//! and a pointer to something freed, which is refused instead of followed.

use std::error::Error;
use std::path::Path;

use holdfast::{
    ErrorKind, Persist, Pool, Ptr, RawPtr, Transaction, Tx, TxError, TxResult, TypeNumber,
};

/// One note: where its text is, and the note before it.
#[derive(Debug, Clone, Copy, Persist)]
#[repr(C)]
struct Note {
    text: RawPtr,
    next: Ptr<Note>,
}

/// The root.
#[derive(Debug, Clone, Copy, Persist)]
#[repr(C)]
struct List {
    head: Ptr<Note>,
    len: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [path, rest @ ..] => run(Path::new(path), rest),
        [] => Err("linked_list FILE push TEXT | pop | list".into()),
    }
}

/// Does one command.
pub(crate) fn run(path: &Path, words: &[&str]) -> Result<(), Box<dyn Error>> {
    let pool = open(path)?;
    let list = pool.root::<List>()?;
    match words {
        ["push", text] => {
            let len = pool.run(|tx| push(tx, list, text))?;
            println!("{len} notes");
        }
        ["pop"] => match pool.run(|tx| pop(tx, list))? {
            Some((text, note)) => {
                println!("{text}");
                // The note is gone. Its pointer carries a generation, so it cannot be followed to
                // whatever takes the place next.
                let error = pool.read(note).err();
                assert!(matches!(
                    error.as_ref().and_then(|e| e.as_tx()),
                    Some(TxError::Dangling { .. })
                ));
            }
            None => println!("nothing there"),
        },
        ["list"] => {
            for text in pool.run(|tx| texts(tx, list))? {
                println!("{text}");
            }
        }
        _ => return Err("push TEXT, pop or list".into()),
    }
    Ok(())
}

/// Opens the pool; makes it, with an empty list, if there is none.
fn open(path: &Path) -> Result<Pool, holdfast::Error> {
    match Pool::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let pool = Pool::options().size(16 << 20).create(path)?;
            pool.run(|tx| {
                let list = tx.alloc(List { head: Ptr::null(), len: 0 })?;
                tx.set_root(list)
            })?;
            Ok(pool)
        }
        opened => opened,
    }
}

fn push(tx: &Tx<'_>, list: Ptr<List>, text: &str) -> TxResult<u64> {
    let bytes = tx.alloc_from(TypeNumber::BYTES, text.as_bytes())?;
    let mut list = tx.open_mut(list)?;
    list.head = tx.alloc(Note { text: bytes, next: list.head })?;
    list.len += 1;
    Ok(list.len)
}

fn pop(tx: &Tx<'_>, list: Ptr<List>) -> TxResult<Option<(String, Ptr<Note>)>> {
    let mut list = tx.open_mut(list)?;
    let first = list.head;
    if first.is_null() {
        return Ok(None);
    }
    let note = tx.read(first)?;
    let text = text_of(tx, note.text)?;
    list.head = note.next;
    list.len -= 1;
    tx.free(note.text)?;
    tx.free(first.raw())?;
    Ok(Some((text, first)))
}

fn texts(tx: &Tx<'_>, list: Ptr<List>) -> TxResult<Vec<String>> {
    let mut at = tx.read(list)?.head;
    let mut texts = Vec::new();
    while !at.is_null() {
        let note = tx.read(at)?;
        texts.push(text_of(tx, note.text)?);
        at = note.next;
    }
    Ok(texts)
}

fn text_of(tx: &Tx<'_>, text: RawPtr) -> TxResult<String> {
    let mut bytes = vec![0; tx.len_of(text)? as usize];
    tx.read_bytes(text, 0, &mut bytes)?;
    String::from_utf8(bytes).map_err(|_| TxError::Inconsistent("a note is no text"))
}
