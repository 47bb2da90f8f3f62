use super::*;
use crate::pb::Member;

const LATER: Duration = Duration::from_secs(1);

fn view(number: u64, ids: &[u32]) -> View {
    View { number, members: ids.iter().map(|id| Member { id: *id, ..Member::default() }).collect() }
}

fn append(client: u64, seq: u64, text: &str) -> Update {
    Update { client, seq, key: "k".to_owned(), effect: Some(Effect::Append(text.to_owned())) }
}

fn chain() -> [Replica; 3] {
    [0, 1, 2].map(|id| {
        let mut replica = Replica::new(id);
        replica.adopt(view(1, &[0, 1, 2]), LATER);
        replica
    })
}

fn passed(next: Result<NextStep, Refusal>) -> PassRequest {
    match next {
        Ok(NextStep::Pass(_, request)) => request,
        other => panic!("{other:?}"),
    }
}

fn read(replica: &Replica) -> Result<Option<String>, Refusal> {
    replica.read(Duration::ZERO, "k")
}

#[test]
fn write_propagates_to_tail_and_is_readable() {
    let [mut head, mut middle, mut tail] = chain();
    let request = passed(head.write(append(7, 1, "a")));
    let request = passed(middle.pass(request));
    assert_eq!(read(&tail), Ok(None), "an update that the tail lacks is invisible");
    assert_eq!(tail.pass(request), Ok(NextStep::Reply("a".to_owned())));
    assert_eq!(read(&tail), Ok(Some("a".to_owned())));
    assert_eq!(tail.read(LATER, "k"), Err(Refusal::NotTail(2)), "the lease of the tail is over");
    assert_eq!(read(&middle), Err(Refusal::NotTail(1)));
    assert_eq!(middle.write(append(7, 2, "b")), Err(Refusal::NotHead(1)));
    assert_eq!(Replica::new(9).write(append(7, 2, "b")), Err(Refusal::NotMember(9)));
}

#[test]
fn repeated_write_propagates_without_effect() {
    let [mut head, mut middle, mut tail] = chain();
    for _ in 0..3 {
        let request = passed(head.write(append(7, 1, "a")));
        let request = passed(middle.pass(request));
        assert_eq!(tail.pass(request), Ok(NextStep::Reply("a".to_owned())));
    }
    passed(head.write(append(7, 2, "b")));
    assert_eq!(head.write(append(7, 1, "a")), Err(Refusal::Superseded { client: 7, seq: 1 }));
    assert_eq!(head.applied(), 2);
}

#[test]
fn repeat_with_other_content_returns_first_result() {
    let [mut head, mut middle, mut tail] = chain();
    passed(head.write(append(7, 1, "a")));
    let request = passed(head.write(append(7, 1, "other")));
    assert_eq!(middle.pass(request.clone()), Ok(NextStep::Missing { from: 0, after: 0 }));
    middle.learn(1, head.history(1, 0).unwrap()).unwrap();
    let request = passed(middle.pass(request));
    tail.learn(1, middle.history(1, 0).unwrap()).unwrap();
    assert_eq!(tail.pass(request), Ok(NextStep::Reply("a".to_owned())));
}

#[test]
fn early_update_waits_for_missing_updates() {
    let [mut head, mut middle, _] = chain();
    passed(head.write(append(1, 1, "a")));
    let second = passed(head.write(append(2, 1, "b")));
    assert_eq!(middle.pass(second.clone()), Ok(NextStep::Missing { from: 0, after: 0 }));
    middle.learn(1, head.history(1, 0).unwrap()).unwrap();
    assert_eq!(middle.applied(), 2);
    passed(middle.pass(second));
}

#[test]
fn successor_far_behind_receives_whole_state() {
    let [mut head, mut middle, mut tail] = chain();
    for seq in 1..=LOG_MAX as u64 + 5 {
        passed(head.write(append(1, seq, "x")));
    }
    let history = head.history(1, 3).unwrap();
    assert!(history.state.is_some() && history.entries.is_empty());
    middle.learn(1, history).unwrap();
    assert_eq!((&middle.values, &middle.done, &middle.by_number), (&head.values, &head.done, &head.by_number));
    assert_eq!(middle.applied(), head.applied());
    // The successor can pass the state on, and process further updates.
    tail.learn(1, middle.history(1, 0).unwrap()).unwrap();
    let request = passed(middle.pass(passed(head.write(append(2, 1, "y")))));
    assert!(matches!(tail.pass(request), Ok(NextStep::Reply(value)) if value.ends_with("xy")));
    let kept = head.history(1, 10).unwrap();
    assert_eq!((kept.state, kept.entries.len()), (None, LOG_MAX + 5 + 1 - 10));
}

#[test]
fn update_of_another_view_is_rejected() {
    let [mut head, mut middle, mut tail] = chain();
    let request = passed(head.write(append(1, 1, "a")));
    middle.adopt(view(2, &[1, 2]), LATER);
    let refusal = Refusal::View { node: 1, ours: 2, theirs: 1 };
    assert_eq!(middle.pass(request.clone()), Err(refusal));
    assert_eq!(middle.history(1, 0), Err(refusal));
    // The new head continues from its state, and rejects an old view.
    middle.adopt(view(1, &[0, 1, 2]), LATER);
    tail.adopt(view(2, &[1, 2]), LATER);
    let other = passed(middle.write(append(2, 1, "b")));
    assert_eq!(tail.pass(other), Ok(NextStep::Reply("b".to_owned())));
    assert!(tail.pass(request).is_err());
}

#[test]
fn oldest_client_is_forgotten_beyond_limit() {
    let mut only = Replica::new(0);
    only.adopt(view(1, &[0]), LATER);
    for client in 0..=CLIENTS_MAX as u64 {
        only.write(append(client, 1, "")).unwrap();
    }
    assert_eq!((only.done.len(), only.by_number.len()), (CLIENTS_MAX, CLIENTS_MAX));
    assert!(!only.done.contains_key(&0) && only.done.contains_key(&1));
}

#[test]
fn incomplete_requests_are_rejected() {
    let [mut head, mut middle, _] = chain();
    assert_eq!(middle.pass(PassRequest { view: 1, ..PassRequest::default() }), Err(Refusal::MissingField("entry")));
    let entry = Some(Entry { number: 1, update: None });
    let request = PassRequest { view: 1, entry, ..PassRequest::default() };
    assert_eq!(middle.pass(request), Err(Refusal::MissingField("update")));
    let update = Update { effect: None, ..append(1, 1, "") };
    assert_eq!(head.write(update), Err(Refusal::MissingField("effect")));
}
