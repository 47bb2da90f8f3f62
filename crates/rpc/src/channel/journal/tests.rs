use super::*;

#[test]
fn record_after_torn_record_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let journal = Journal::open(&path).unwrap();
    journal.opened("A", IdLog { number: 7, server: 9 }).unwrap();
    // The disk becomes full in the middle of a record.
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let file = std::mem::replace(&mut journal.lock().file, full);
    assert!(matches!(journal.begin("A", b"torn", 7), Err(JournalError::Io { .. })));
    journal.lock().file = file;
    journal.lock().file.write_all(&record(BEGUN, "A", 7, b"torn")[..5]).unwrap();
    journal.begin("A", b"later", 7).unwrap();
    journal.done("A", b"later").unwrap();
    drop(journal);
    let journal = Journal::open(&path).unwrap();
    assert_eq!((journal.claim("A", b"later"), journal.claim("A", b"torn")), (CallStatus::Done, CallStatus::New));
}

#[test]
fn ids_of_failed_attempt_are_sent_again() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(&folder.path().join("journal")).unwrap();
    journal.opened("A", IdLog { number: 7, server: 9 }).unwrap();
    for id in [b"one", b"two"] {
        journal.begin("A", id, 7).unwrap();
    }
    journal.applied("A", b"one").unwrap();
    journal.done("A", b"two").unwrap();
    let unheard = journal.send("A", 7);
    assert_eq!(unheard.forgettable, [b"one", b"two"]);
    journal.done("A", b"one").unwrap();
    assert!(journal.send("A", 7).forgettable.is_empty(), "each id is sent once");
    drop(unheard);
    assert!(journal.send("A", 6).forgettable.is_empty(), "other log: no ids");
    let mut heard = journal.send("A", 7);
    assert_eq!(heard.forgettable, [b"one", b"two"]);
    let told = std::mem::take(&mut heard.forgettable);
    drop(heard);
    assert!(journal.send("A", 7).forgettable.is_empty());
    let mut unheard = journal.send("A", 7);
    unheard.forgettable = told;
    journal.opened("A", IdLog { number: 8, server: 9 }).unwrap();
    drop(unheard);
    assert!(journal.send("A", 8).forgettable.is_empty(), "the new log has no ids");
}

#[test]
fn attempt_lists_stragglers_and_forgettable_ids() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let journal = Journal::open(&path).unwrap();
    journal.opened("A", IdLog { number: 7, server: 9 }).unwrap();
    journal.begin("A", b"one", 7).unwrap();
    journal.begin("A", b"two", 7).unwrap();
    // One attempt hangs; the other ends.
    let one = journal.send("A", 7);
    let two = journal.send("A", 7);
    assert_eq!((two.attempt.number, two.attempt.pending_from), (one.attempt.number + 1, one.attempt.number + 1));
    assert_eq!(
        (&one.attempt.earlier_pending[..], &two.attempt.earlier_pending[..]),
        (&[][..], &[one.attempt.number][..])
    );
    drop(two);
    journal.done("A", b"two").unwrap();
    let mut next = journal.send("A", 7);
    assert_eq!(
        (&next.forgettable[..], &next.attempt.earlier_pending[..]),
        (&[b"two".to_vec()][..], &[one.attempt.number][..])
    );
    next.forgettable.clear();
    drop(next);

    // The maximum of attempts that are listed one by one: completed ids are sent once their number is below those.
    let many: Vec<_> = (0..EARLIER_PENDING_MAX).map(|_| journal.send("A", 7)).collect();
    journal.begin("A", b"three", 7).unwrap();
    let three = journal.send("A", 7);
    assert_eq!(three.attempt.earlier_pending.len(), EARLIER_PENDING_MAX);
    assert_eq!(three.attempt.pending_from, many[EARLIER_PENDING_MAX - 1].attempt.number);
    drop(three);
    journal.done("A", b"three").unwrap();
    assert!(journal.send("A", 7).forgettable.is_empty());
    drop(many);
    let last = journal.send("A", 7);
    assert_eq!(
        (&last.forgettable[..], &last.attempt.earlier_pending[..]),
        (&[b"three".to_vec()][..], &[one.attempt.number][..])
    );
    let before = last.attempt.number;
    drop((one, last));
    drop(journal);

    // Attempts of an earlier process are late, even if the journal is lost.
    for gone_back in [false, true] {
        if gone_back {
            std::fs::remove_file(&path).unwrap();
        }
        let journal = Journal::open(&path).unwrap();
        let first = journal.send("A", 7).attempt.clone();
        assert!(first.number > before && first.pending_from == first.number && first.earlier_pending.is_empty());
    }
}

#[test]
fn one_attempt_sends_at_most_ids_max_ids() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(&folder.path().join("journal")).unwrap();
    journal.opened("A", IdLog { number: 7, server: 9 }).unwrap();
    let done = |i: usize| {
        let id = i.to_string().into_bytes();
        journal.begin("A", &id, 7).unwrap();
        journal.done("A", &id).unwrap();
    };
    (0..CALL_IDS_MAX).for_each(done);
    let unheard = journal.send("A", 7);
    assert_eq!(unheard.forgettable.len(), CALL_IDS_MAX);
    done(CALL_IDS_MAX);
    drop(unheard);
    let mut told = journal.send("A", 7);
    assert_eq!(told.forgettable.len(), CALL_IDS_MAX);
    told.forgettable.clear();
    drop(told);
    assert_eq!(journal.send("A", 7).forgettable.len(), 1);
}

#[test]
fn applied_call_without_handler_answer_survives_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let journal = Journal::open(&path).unwrap();
    journal.begin("A", b"one", 7).unwrap();
    journal.applied("A", b"one").unwrap();
    drop(journal);
    let journal = Journal::open(&path).unwrap();
    assert_eq!(journal.claim("A", b"one"), CallStatus::Applied);
    journal.done("A", b"one").unwrap();
    journal.release_id("A", b"one");
    drop(journal);
    assert_eq!(Journal::open(&path).unwrap().claim("A", b"one"), CallStatus::Done);
}

#[test]
fn journal_replays_records_and_cuts_off_torn_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let log = IdLog { number: 7, server: 9 };
    let journal = Journal::open(&path).unwrap();
    assert!(matches!(Journal::open(&path), Err(JournalError::InUse { .. })));
    journal.opened("A", log).unwrap();
    for id in [b"one", b"two"] {
        assert_eq!(journal.claim("A", id), CallStatus::New);
        journal.begin("A", id, 7).unwrap();
    }
    assert_eq!(journal.claim("A", b"one"), CallStatus::InProgress);
    journal.done("A", b"one").unwrap();
    drop(journal);

    let whole = std::fs::read(&path).unwrap();
    for cut in 0..whole.len() {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let journal = Journal::open(&path).unwrap();
        let one = journal.claim("A", b"one");
        assert!(matches!(one, CallStatus::New | CallStatus::Begun(7)), "{one:?} of the first {cut} bytes");
        // The next record follows the complete ones.
        journal.begin("A", b"three", 7).unwrap();
        drop(journal);
        assert_eq!(Journal::open(&path).unwrap().claim("A", b"three"), CallStatus::Begun(7));
    }
    std::fs::write(&path, &whole).unwrap();
    let journal = Journal::open(&path).unwrap();
    assert_eq!((journal.id_log("A"), journal.id_log("B")), (Some(log), None));
    assert_eq!((journal.claim("A", b"one"), journal.claim("A", b"two")), (CallStatus::Done, CallStatus::Begun(7)));
    assert_eq!(journal.claim("B", b"one"), CallStatus::New);
    let told = journal.send("A", 7);
    assert_eq!(told.forgettable, [b"one"]);
    assert!(journal.send("A", 7).forgettable.is_empty());
    drop(told);
    drop(journal);

    std::fs::write(&path, "something else that a user has written").unwrap();
    assert!(matches!(Journal::open(&path), Err(JournalError::Foreign { .. })));
}
