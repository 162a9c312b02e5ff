//! The examples do what they say: each is run, twice where it goes on with what it left.

#[path = "../../examples/bank_transfer.rs"]
#[expect(dead_code, reason = "its main is not called")]
mod bank_transfer;
#[path = "../../examples/linked_list.rs"]
#[expect(dead_code, reason = "its main is not called")]
mod linked_list;
#[path = "../../examples/word_index.rs"]
#[expect(dead_code, reason = "its main is not called")]
mod word_index;

#[test]
fn money_is_neither_made_nor_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bank.pool");
    bank_transfer::run(&path).unwrap();
    bank_transfer::run(&path).unwrap();
}

#[test]
fn notes_are_popped_in_the_order_they_were_pushed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.pool");
    for words in [&["push", "one"][..], &["push", "two"], &["list"], &["pop"], &["pop"], &["pop"]] {
        linked_list::run(&path, words).unwrap();
    }
    assert!(linked_list::run(&path, &["shuffle"]).is_err());
}

#[test]
fn words_are_found_in_their_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("words.pool");
    let pool = word_index::open(&path).unwrap();
    assert_eq!(word_index::add(&pool, "a", "The cat, the dog").unwrap(), 3);
    assert_eq!(word_index::add(&pool, "b", "the the they").unwrap(), 2);
    drop(pool);
    let pool = word_index::open(&path).unwrap();
    let found = word_index::find(&pool, "The").unwrap();
    assert_eq!(found, [("a".to_owned(), 2), ("b".to_owned(), 2)]);
    assert!(word_index::find(&pool, "bird").unwrap().is_empty());
}
