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
    let unheard = journal.send("A", 7);
    assert_eq!(unheard.telling, [b"one", b"two"]);
    journal.done("A", b"one").unwrap();
    assert!(journal.send("A", 7).telling.is_empty(), "once is enough");
    drop(unheard);
    assert!(journal.send("A", 6).telling.is_empty(), "another book knows nothing of them");
    let mut heard = journal.send("A", 7);
    assert_eq!(heard.telling, [b"one", b"two"]);
    let told = std::mem::take(&mut heard.telling);
    drop(heard);
    assert!(journal.send("A", 7).telling.is_empty());
    let mut unheard = journal.send("A", 7);
    unheard.telling = told;
    journal.opened("A", Book { number: 8, server: 9 }).unwrap();
    drop(unheard);
    assert!(journal.send("A", 8).telling.is_empty(), "the new book has nothing of them");
}

#[test]
fn a_try_says_which_ones_are_under_way_and_what_they_are_not_of_is_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let journal = Journal::open(&path).unwrap();
    journal.opened("A", Book { number: 7, server: 9 }).unwrap();
    journal.begin("A", b"one", 7).unwrap();
    journal.begin("A", b"two", 7).unwrap();
    // One hangs; the other is done.
    let one = journal.send("A", 7);
    let two = journal.send("A", 7);
    assert_eq!((two.nth.number, two.nth.under_way_from), (one.nth.number + 1, one.nth.number + 1));
    assert_eq!((&one.nth.stragglers[..], &two.nth.stragglers[..]), (&[][..], &[one.nth.number][..]));
    drop(two);
    journal.done("A", b"two").unwrap();
    let mut next = journal.send("A", 7);
    assert_eq!((&next.telling[..], &next.nth.stragglers[..]), (&[b"two".to_vec()][..], &[one.nth.number][..]));
    next.telling.clear();
    drop(next);

    // As many as are not named one by one: what is done is told when it is below those.
    let many: Vec<_> = (0..STRAGGLERS_MAX).map(|_| journal.send("A", 7)).collect();
    journal.begin("A", b"three", 7).unwrap();
    let three = journal.send("A", 7);
    assert_eq!(three.nth.stragglers.len(), STRAGGLERS_MAX);
    assert_eq!(three.nth.under_way_from, many[STRAGGLERS_MAX - 1].nth.number);
    drop(three);
    journal.done("A", b"three").unwrap();
    assert!(journal.send("A", 7).telling.is_empty());
    drop(many);
    let last = journal.send("A", 7);
    assert_eq!((&last.telling[..], &last.nth.stragglers[..]), (&[b"three".to_vec()][..], &[one.nth.number][..]));
    let before = last.nth.number;
    drop((one, last));
    drop(journal);

    // Whatever a process before has left on its way is late; also if nothing of it is known.
    for gone_back in [false, true] {
        if gone_back {
            std::fs::remove_file(&path).unwrap();
        }
        let journal = Journal::open(&path).unwrap();
        let first = journal.send("A", 7).nth.clone();
        assert!(first.number > before && first.under_way_from == first.number && first.stragglers.is_empty());
    }
}

#[test]
fn no_more_is_told_at_once_than_the_server_takes() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(&folder.path().join("journal")).unwrap();
    journal.opened("A", Book { number: 7, server: 9 }).unwrap();
    let done = |i: usize| {
        let id = i.to_string().into_bytes();
        journal.begin("A", &id, 7).unwrap();
        journal.done("A", &id).unwrap();
    };
    (0..IDS_MAX).for_each(done);
    let unheard = journal.send("A", 7);
    assert_eq!(unheard.telling.len(), IDS_MAX);
    done(IDS_MAX);
    drop(unheard);
    let mut told = journal.send("A", 7);
    assert_eq!(told.telling.len(), IDS_MAX);
    told.telling.clear();
    drop(told);
    assert_eq!(journal.send("A", 7).telling.len(), 1);
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
    let told = journal.send("A", 7);
    assert_eq!(told.telling, [b"one"]);
    assert!(journal.send("A", 7).telling.is_empty());
    drop(told);
    drop(journal);

    std::fs::write(&path, "something else that a user has written").unwrap();
    assert!(matches!(Journal::open(&path), Err(JournalError::Foreign { .. })));
}
