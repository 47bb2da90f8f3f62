//! Restart of an acceptor. One that has cast a vote must not cast another in the same slot and ballot, although it is
//! another caller of the network now. One that has promised a ballot must not accept what an older leader has sent.

use paxos::consensus::{
    Accepted, Cast, Effects, Input, Message, Mutant, Record, Replica, ReplicaConfig, ReplicaId, Step, Value,
};

use crate::counting::Counters;

const COUNTERS: u64 = 8;

fn start(id: ReplicaId, mutant: Option<Mutant>, disk: &[Record]) -> Replica {
    Replica::start(ReplicaConfig { id, replicas: 3, counters: COUNTERS, mutant }, disk.to_vec()).0
}

/// Effects of an input, with the records on disk.
fn handle(replica: &mut Replica, disk: &mut Vec<Record>, input: Input) -> Effects {
    let mut effects = Effects::default();
    replica.handle(input, &mut effects);
    disk.extend(effects.records.iter().cloned());
    effects
}

fn message(from: ReplicaId, message: Message) -> Input {
    Input::Message { from, message }
}

/// Messages to a replica, of one that it has sent.
fn to(id: ReplicaId, effects: &Effects) -> Vec<Message> {
    let all = effects.urgent.iter().chain(&effects.messages);
    all.filter(|(to, _)| *to == id).map(|(_, message)| message.clone()).collect()
}

/// Makes a replica leader by its own promise and that of another; returns that promise's effects.
fn elect(
    leader: (ReplicaId, &mut Replica, &mut Vec<Record>),
    other: (ReplicaId, &mut Replica, &mut Vec<Record>),
) -> Effects {
    let asked = handle(leader.1, leader.2, Input::LeaderTimeout);
    let mut last = Effects::default();
    let own = to(leader.0, &asked).into_iter().flat_map(|prepare| {
        let promised = handle(leader.1, leader.2, message(leader.0, prepare));
        to(leader.0, &promised)
    });
    let own: Vec<_> = own.collect();
    own.into_iter().for_each(|promise| drop(handle(leader.1, leader.2, message(leader.0, promise))));
    for prepare in to(other.0, &asked) {
        for promise in to(leader.0, &handle(other.1, other.2, message(leader.0, prepare))) {
            last = handle(leader.1, leader.2, message(other.0, promise));
        }
    }
    assert!(leader.1.is_leading());
    last
}

/// The leader's disk fails before it accepts its own proposal, and acceptor 1 gets the request once before and once
/// after a restart. Returns what acceptor 1 then applies, and what the next leader proposes in the same slot.
fn double_request(mutant: Option<Mutant>) -> (Vec<Step>, Vec<Value>) {
    let mut disks: [Vec<Record>; 3] = Default::default();
    let [one_disk, two_disk, three_disk] = &mut disks;
    let (mut one, mut two, mut three) = (start(0, mutant, &[]), start(1, mutant, &[]), start(2, mutant, &[]));
    elect((0, &mut one, one_disk), (1, &mut two, two_disk));
    let mut proposed = Effects::default();
    one.propose(Value::Command(b"x".as_slice().into()), &mut proposed).expect("it leads");
    let request = to(1, &proposed).remove(0);
    assert!(matches!(request, Message::Accept { counted_from: 1.., .. }));

    let mut network = Counters::new(COUNTERS);
    let mut answered: Vec<Cast> = Vec::new();
    for life in 0..2 {
        for cast in handle(&mut two, two_disk, message(0, request.clone())).casts {
            answered.extend(network.count((1, life), cast).into_iter().map(|(_, cast)| cast));
        }
        two = start(1, mutant, two_disk);
    }
    let steps = answered.into_iter().flat_map(|cast| handle(&mut two, two_disk, Input::Counted(cast)).steps).collect();

    let mut one = start(0, mutant, one_disk);
    let leads = elect((2, &mut three, three_disk), (0, &mut one, one_disk));
    let mut next = Effects::default();
    three.propose(Value::Command(b"y".as_slice().into()), &mut next).expect("it leads");
    let requests = to(0, &leads).into_iter().chain(to(0, &next));
    let values = requests.filter_map(|request| match request {
        Message::Accept { proposal: Accepted { slot: 1, value, .. }, .. } => Some(value),
        _ => None,
    });
    (steps, values.collect())
}

#[test]
fn restarted_acceptor_casts_no_second_vote() {
    let (applied, proposed) = double_request(None);
    assert_eq!(applied, []);
    assert_eq!(proposed, [Value::Command(b"y".as_slice().into())]);
}

#[test]
fn cast_after_restart_is_found() {
    let (applied, proposed) = double_request(Some(Mutant::CastsAfterRestart));
    let chosen = Step::Apply { slot: 1, value: Value::Command(b"x".as_slice().into()) };
    assert_eq!(applied, [chosen], "one acceptor has made a majority alone");
    assert_ne!(proposed, [Value::Command(b"x".as_slice().into())]);
}

/// Effects of a request of ballot 1 at acceptor 1, which has promised ballot 2 before and was restarted.
fn late_request(mutant: Option<Mutant>) -> Effects {
    let mut disks: [Vec<Record>; 3] = Default::default();
    let [one_disk, two_disk, three_disk] = &mut disks;
    let (mut one, mut two, mut three) = (start(0, mutant, &[]), start(1, mutant, &[]), start(2, mutant, &[]));
    elect((0, &mut one, one_disk), (1, &mut two, two_disk));
    let mut proposed = Effects::default();
    one.propose(Value::Command(b"x".as_slice().into()), &mut proposed).expect("it leads");
    // The third replica has not heard of ballot 1, and is refused once.
    handle(&mut three, three_disk, Input::LeaderTimeout);
    elect((2, &mut three, three_disk), (1, &mut two, two_disk));
    let mut two = start(1, mutant, two_disk);
    handle(&mut two, two_disk, message(0, to(1, &proposed).remove(0)))
}

#[test]
fn restarted_acceptor_keeps_promise() {
    let effects = late_request(None);
    assert!(effects.records.is_empty() && effects.casts.is_empty(), "{effects:?}");
    assert!(matches!(to(0, &effects)[..], [Message::Refused { .. }]), "{effects:?}");
}

#[test]
fn promise_forgotten_in_crash_is_found() {
    let effects = late_request(Some(Mutant::PromiseNotOnDisk));
    assert!(matches!(effects.records[..], [Record::Accept(_)]), "{effects:?}");
}
