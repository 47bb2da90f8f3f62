use super::*;

#[test]
fn a_record_that_could_not_be_written_in_whole_hides_none_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let journal = Journal::open(&path).unwrap();
    journal.opened("A", Book { number: 7, server: 9 }).unwrap();
    // The disk is full in the middle of a record.
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let file = std::mem::replace(&mut journal.lock().file, full);
    assert!(matches!(journal.begin("A", b"torn", 7), Err(JournalError::Io { .. })));
    journal.lock().file = file;
    journal.lock().file.write_all(&record(BEGUN, "A", 7, b"torn")[..5]).unwrap();
    journal.begin("A", b"later", 7).unwrap();
    journal.done("A", b"later").unwrap();
    drop(journal);
    let journal = Journal::open(&path).unwrap();
    assert_eq!((journal.take("A", b"later"), journal.take("A", b"torn")), (Stands::Done, Stands::New));
}

#[test]
fn what_the_server_may_not_have_heard_is_told_again() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(&folder.path().join("journal")).unwrap();
    journal.opened("A", Book { number: 7, server: 9 }).unwrap();
    for id in [b"one", b"two"] {
        journal.begin("A", id, 7).unwrap();
    }
    journal.applied("A", b"one").unwrap();
    journal.done("A", b"two").unwrap();
    let told = journal.untold("A");
    assert_eq!(told, [b"one", b"two"]);
    journal.done("A", b"one").unwrap();
    assert!(journal.untold("A").is_empty(), "once is enough");
    journal.tell_again("A", 7, told.clone());
    assert_eq!(journal.untold("A"), told);
    journal.opened("A", Book { number: 8, server: 9 }).unwrap();
    journal.tell_again("A", 7, told);
    assert!(journal.untold("A").is_empty(), "the new book has nothing of them");
}

#[test]
fn a_handler_that_has_not_answered_is_known_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let journal = Journal::open(&path).unwrap();
    journal.begin("A", b"one", 7).unwrap();
    journal.applied("A", b"one").unwrap();
    drop(journal);
    let journal = Journal::open(&path).unwrap();
    assert_eq!(journal.take("A", b"one"), Stands::Applied);
    journal.done("A", b"one").unwrap();
    journal.give_back("A", b"one");
    drop(journal);
    assert_eq!(Journal::open(&path).unwrap().take("A", b"one"), Stands::Done);
}

#[test]
fn what_was_written_is_known_again_and_a_torn_end_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let book = Book { number: 7, server: 9 };
    let journal = Journal::open(&path).unwrap();
    assert!(matches!(Journal::open(&path), Err(JournalError::InUse { .. })));
    journal.opened("A", book).unwrap();
    for id in [b"one", b"two"] {
        assert_eq!(journal.take("A", id), Stands::New);
        journal.begin("A", id, 7).unwrap();
    }
    assert_eq!(journal.take("A", b"one"), Stands::UnderWay);
    journal.done("A", b"one").unwrap();
    drop(journal);

    let whole = std::fs::read(&path).unwrap();
    for cut in 0..whole.len() {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let journal = Journal::open(&path).unwrap();
        let one = journal.take("A", b"one");
        assert!(matches!(one, Stands::New | Stands::Begun(7)), "{one:?} of the first {cut} bytes");
        // It goes on where the whole records end.
        journal.begin("A", b"three", 7).unwrap();
        drop(journal);
        assert_eq!(Journal::open(&path).unwrap().take("A", b"three"), Stands::Begun(7));
    }
    std::fs::write(&path, &whole).unwrap();
    let journal = Journal::open(&path).unwrap();
    assert_eq!((journal.book("A"), journal.book("B")), (Some(book), None));
    assert_eq!((journal.take("A", b"one"), journal.take("A", b"two")), (Stands::Done, Stands::Begun(7)));
    assert_eq!(journal.take("B", b"one"), Stands::New);
    assert_eq!(journal.untold("A"), [b"one"]);
    assert!(journal.untold("A").is_empty());
    drop(journal);

    std::fs::write(&path, "something else that a user has written").unwrap();
    assert!(matches!(Journal::open(&path), Err(JournalError::Foreign { .. })));
}
