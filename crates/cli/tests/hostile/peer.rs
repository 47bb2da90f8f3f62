//! Forged calls of the service Peer, field by field, and forged metadata.

use pathcall_proto::v1::{
    AdmitRequest, ApplyCallRequest, CancelSumRequest, CarryFramesRequest, FollowPoolRequest, JoinRequest,
    LookupNodeRequest, NumberKeysRequest, OpenJournalRequest, Pair,
};
use pathcall_test_support::service::{counts, join, names, note, str_int, within};
use pathcall_test_support::stubs::docs_client::DocsClient;
use pathcall_test_support::stubs::locks_client::LocksClient;
use pathcall_test_support::stubs::words_client::WordsClient;
use pathcall_test_support::stubs::{Wanted, Wish};
use rand::RngExt;
use rand::rngs::StdRng;
use tonic::Request;
use tonic::metadata::AsciiMetadataKey;

use super::attack::{Attack, Hostile, long_text, odd_number};
use super::network::{HONEST, INSIDER, OUTSIDER, READER, by};

const WORDS: &str = "/rpctest.Words/Reduce";
const SUMS: &str = "/rpctest.Training/Update";
const VOTE: &str = "/rpctest.Locks/Vote";
const ELECT: &str = "/rpctest.Locks/Elect";
/// Limit of flows of a caller.
const FLOWS_MAX: u32 = 64;
/// Deadline of calls of the hostile client.
const DEADLINE_MS: u64 = 60_000;

fn guessed(random: &mut StdRng) -> Vec<u8> {
    let len = [16, 16, 16, 0, 15, 17, 4096][random.random_range(0..7)];
    (0..len).map(|_| random.random()).collect()
}

impl Hostile<'_> {
    pub(super) async fn join_nothing(&mut self) {
        let lies: &[fn(&mut JoinRequest, &mut StdRng)] = &[
            |join, _| join.application = String::new(),
            |join, random| join.application = long_text(random),
            |join, _| join.application = "T-NOTHING".into(),
            |join, random| join.filter_digest ^= 1 << random.random_range(0..64),
            |join, random| join.udp_port = (1 << 16) | odd_number(random),
            |join, _| join.method = String::new(),
            |join, random| join.method = long_text(random),
            |join, _| join.method = "/rpctest.Locks/Nothing".into(),
            |join, _| join.method = WORDS.into(),
            |join, _| join.method = "/rpctest.Training/Echo".into(),
        ];
        for request in self.lies(&join(ELECT), lies) {
            let outcome = self.peer.join(by(INSIDER, request.clone())).await;
            self.refused(Attack::JoinNothing, request.method, outcome);
        }
    }

    pub(super) async fn join_others(&mut self) {
        for path in [WORDS, SUMS, "/rpctest.Locks/Lock", "/rpctest.Locks/Reset", "/rpctest.Words/Bump"] {
            for token in [OUTSIDER, INSIDER, READER] {
                let outcome =
                    self.peer.join(by(token, JoinRequest { incarnation: self.random.random(), ..join(path) }));
                let outcome = outcome.await;
                self.refused(Attack::JoinOthers, (path, token), outcome);
            }
        }
    }

    /// Odd but valid requests are admitted, within bounds.
    pub(super) async fn join_oddly(&mut self) {
        let hosts: Vec<u32> = self.network.hosts().values().map(|host| host.port().into()).collect();
        let elements = [self.network.relay, self.network.element.data_addr()].map(|element| element.port().into());
        for path in [VOTE, ELECT] {
            let mut requests = Vec::new();
            // No port, or a port of another party: other callers, the server, the element.
            let others = [0, 1, self.network.server.port().into()].into_iter().chain(elements);
            for udp_port in hosts.iter().copied().chain(others) {
                requests.push(JoinRequest { udp_port, incarnation: self.random.random(), ..join(path) });
            }
            for number in [0, 1, 65, 1 << 31, u32::MAX] {
                requests.push(JoinRequest { flows: number, incarnation: self.random.random(), ..join(path) });
                requests.push(JoinRequest { incarnation: number, ..join(path) });
            }
            for request in requests {
                let joined = self.peer.join(by(INSIDER, request.clone())).await;
                let mut joined = match joined {
                    Ok(joined) => joined.into_inner(),
                    Err(status) => {
                        self.tally.count(Attack::JoinOddly, format!("{:?}", status.code()));
                        continue;
                    }
                };
                let grant = joined.message().await.expect("a stream").expect("a grant");
                assert!((1..=FLOWS_MAX).contains(&grant.flows), "{grant:?}");
                self.tally.count(Attack::JoinOddly, "admitted within bounds");
            }
        }
    }

    pub(super) async fn admit(&mut self) {
        let application = self.voter.request.application.clone();
        let truth = AdmitRequest {
            application,
            session: self.voter.grant.session.clone(),
            methods: vec!["/rpctest.Locks/Reset".into()],
        };
        // A forbidden method, then allowed methods with an unknown session.
        let outcome = self.peer.admit(by(INSIDER, truth.clone())).await;
        self.refused(Attack::Admit, "another method", outcome);
        let outcome = self.peer.admit(by(OUTSIDER, AdmitRequest { methods: vec![VOTE.into()], ..truth.clone() })).await;
        self.refused(Attack::Admit, "without a token", outcome);
        let lies: &[fn(&mut AdmitRequest, &mut StdRng)] = &[
            |admit, _| admit.application = String::new(),
            |admit, random| admit.application = long_text(random),
            |admit, _| admit.application = "T-WORDS".into(),
            |admit, random| admit.session = guessed(random),
            |admit, _| admit.methods = vec![WORDS.into()],
            |admit, random| admit.methods = vec![long_text(random)],
            |admit, _| admit.methods = vec!["/rpctest.Locks/Reset".into(); 10_000],
        ];
        for request in self.lies(&truth, lies) {
            match self.peer.admit(by(INSIDER, request)).await {
                Ok(reply) => {
                    let reply = reply.into_inner();
                    assert!(reply.session_unknown && reply.admitted_methods.is_empty(), "{reply:?}");
                    self.tally.count(Attack::Admit, "released");
                }
                Err(status) => self.tally.count(Attack::Admit, format!("{:?}", status.code())),
            }
        }
    }

    pub(super) async fn cancel_sum(&mut self) {
        let callers: Vec<u32> = self.network.hosts().into_keys().collect();
        let application = "T-SUM".to_owned();
        let truth = CancelSumRequest {
            application,
            filter_digest: join(SUMS).filter_digest,
            endpoint: callers[self.random.random_range(0..callers.len())],
            incarnation: self.random.random(),
            session: self.insider.grant.session.clone(),
        };
        let lies: &[fn(&mut CancelSumRequest, &mut StdRng)] = &[
            |cancel, random| cancel.application = long_text(random),
            |cancel, random| cancel.filter_digest ^= 1 << random.random_range(0..64),
            |cancel, random| cancel.session = guessed(random),
            |cancel, random| cancel.endpoint = odd_number(random),
            |cancel, random| cancel.incarnation = odd_number(random),
        ];
        for request in self.lies(&truth, lies) {
            // Cancelling a sum of others has no effect: sums continue.
            let outcome = self.peer.cancel_sum(by(INSIDER, request)).await;
            let printed = outcome.map_or_else(|status| format!("{:?}", status.code()), |_| "of nobody".into());
            self.tally.count(Attack::CancelSum, printed);
        }
    }

    pub(super) async fn number_keys(&mut self) {
        let truth = NumberKeysRequest {
            application: self.voter.request.application.clone(),
            filter_digest: self.voter.request.filter_digest,
            server_incarnation: self.voter.grant.server_incarnation,
            // The same key each time, because registered keys are kept.
            keys: vec!["k".repeat(2000)],
            session: self.voter.grant.session.clone(),
        };
        let lies: &[fn(&mut NumberKeysRequest, &mut StdRng)] = &[
            |name, _| name.application = "T-WORDS".into(),
            |name, random| name.application = long_text(random),
            |name, random| name.filter_digest ^= 1 << random.random_range(0..64),
            |name, random| name.server_incarnation ^= 1 << random.random_range(0..32),
            |name, random| name.session = guessed(random),
            |name, _| name.keys = vec!["short".into()],
            |name, _| name.keys = vec![String::new(); 100_000],
            |name, _| name.keys = vec!["k".repeat((1 << 20) + 1)],
            |name, _| name.keys = vec!["k".repeat(3 << 20)],
        ];
        for request in self.lies(&truth, lies) {
            let outcome = self.peer.number_keys(by(INSIDER, request)).await;
            self.refused(Attack::NumberKeys, "a lie", outcome);
        }
    }

    pub(super) async fn carry_frames(&mut self) {
        let hosts: Vec<u32> = self.network.hosts().into_keys().collect();
        let truth = CarryFramesRequest {
            application: self.voter.request.application.clone(),
            endpoint: self.voter.grant.endpoint,
            incarnation: self.voter.request.incarnation,
            frames: Vec::new(),
            session: self.voter.grant.session.clone(),
        };
        let lies: &[fn(&mut CarryFramesRequest, &mut StdRng)] = &[
            |carry, _| carry.application = "T-WORDS".into(),
            |carry, random| carry.application = long_text(random),
            |carry, random| carry.endpoint ^= 1 << random.random_range(0..32),
            |carry, random| carry.incarnation ^= 1 << random.random_range(0..32),
            |carry, random| carry.session = guessed(random),
        ];
        let mut requests = self.lies(&truth, lies);
        requests.extend(hosts.into_iter().map(|endpoint| CarryFramesRequest { endpoint, ..truth.clone() }));
        for request in requests {
            let outcome = self.peer.carry_frames(by(INSIDER, tokio_stream::iter([request]))).await;
            self.refused(Attack::CarryFrames, "another's", outcome);
        }
        // Stream that ends before its first message.
        let outcome = self.peer.carry_frames(by(INSIDER, tokio_stream::empty::<CarryFramesRequest>())).await;
        self.refused(Attack::CarryFrames, "nobody's", outcome);
    }

    pub(super) async fn open_journal(&mut self) {
        let application = "T-WORDS".to_owned();
        let truth = OpenJournalRequest { application, filter_digest: join(WORDS).filter_digest, method: WORDS.into() };
        let lies: &[fn(&mut OpenJournalRequest, &mut StdRng)] = &[
            |_, _| {},
            |open, random| open.application = long_text(random),
            |open, _| open.application = "T-SUM".into(),
            |open, random| open.filter_digest ^= 1 << random.random_range(0..64),
            |open, random| open.method = long_text(random),
            |open, _| open.method = VOTE.into(),
        ];
        for request in self.lies(&truth, lies) {
            let token = [OUTSIDER, INSIDER, READER][self.random.random_range(0..3)];
            let outcome = self.peer.open_journal(by(token, request)).await;
            self.refused(Attack::OpenJournal, "a journal", outcome);
        }
    }

    pub(super) async fn apply_call(&mut self) {
        let truth = ApplyCallRequest {
            application: "T-WORDS".into(),
            filter_digest: join(WORDS).filter_digest,
            journal: self.random.random(),
            call_id: vec![1],
            pairs: vec![Pair { key: b"\x01key 1".to_vec(), value: 1 }],
            attempt: 1,
            method: WORDS.into(),
            ..ApplyCallRequest::default()
        };
        let lies: &[fn(&mut ApplyCallRequest, &mut StdRng)] = &[
            |_, _| {},
            |apply, random| apply.application = long_text(random),
            |apply, random| apply.filter_digest ^= 1 << random.random_range(0..64),
            |apply, random| apply.journal = random.random(),
            |apply, _| apply.call_id = vec![0; 129],
            |apply, _| apply.completed_ids = vec![vec![0; 100]; 5000],
            |apply, _| apply.earlier_pending_attempts = vec![7; 65],
            |apply, _| apply.op = 99,
            |apply, _| apply.pairs = vec![Pair::default(); 20_000],
            |apply, random| apply.attempt = random.random(),
            |apply, random| apply.pending_from = random.random(),
            |apply, _| apply.method = "/rpctest.Words/Query".into(),
            |apply, _| apply.method = VOTE.into(),
        ];
        // No caller has this session, admitted or not.
        for token in [OUTSIDER, INSIDER, READER, HONEST] {
            for request in self.lies(&truth, lies) {
                let outcome = self.peer.apply_call(by(token, request)).await;
                self.refused(Attack::ApplyCall, token, outcome);
            }
        }
    }

    pub(super) async fn lookup_node(&mut self) {
        for token in [OUTSIDER, INSIDER] {
            let outcome =
                self.peer.lookup_node(by(token, LookupNodeRequest { method: "/rpctest.Docs/Lookup".into() })).await;
            if self.network.tokens {
                // Only admitted callers get the key.
                self.refused(Attack::LookupNode, token, outcome);
                continue;
            }
            let reply = outcome.expect("every caller may ask").into_inner();
            assert_eq!(reply.address, self.network.nodes[0].address().to_string());
            self.tally.count(Attack::LookupNode, "answered");
        }
    }

    pub(super) async fn follow_pool(&mut self) {
        let method = "/rpctest.Store/Tried".into();
        let truth = FollowPoolRequest { udp_port: 9, incarnation: 7, method, ..FollowPoolRequest::default() };
        let lies: &[fn(&mut FollowPoolRequest, &mut StdRng)] = &[
            |follow, _| follow.udp_port = 0,
            |follow, random| follow.udp_port = (1 << 16) | odd_number(random),
            |follow, _| follow.method = "/rpctest.Store/Get".into(),
            |follow, _| follow.method = WORDS.into(),
            |follow, random| follow.method = long_text(random),
        ];
        for request in self.lies(&truth, lies) {
            let outcome = self.peer.follow_pool(by(INSIDER, request)).await;
            self.refused(Attack::FollowPool, "a lie", outcome);
        }
        for token in [OUTSIDER, READER] {
            let outcome = self.peer.follow_pool(by(token, truth.clone())).await;
            self.refused(Attack::FollowPool, token, outcome);
        }
    }

    pub(super) async fn metadata(&mut self) {
        let hex = |id: &[u8]| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let sessions = [
            String::new(),
            "0".repeat(32),
            "z".repeat(32),
            "0".repeat(5000),
            hex(&guessed(&mut self.random)),
            hex(&self.insider.grant.session),
            hex(&self.voter.grant.session),
            // Session of a member that may only read.
            hex(&self.reader.grant.session),
        ];
        let says = ["pathcall-call", "pathcall-direct", "pathcall-admitted", "pathcall-call-id"];
        let first = self.random.random_range(0..says.len());
        for (nth, session) in sessions.iter().enumerate() {
            for token in [OUTSIDER, INSIDER, READER] {
                self.call_with_metadata(token, says[(first + nth) % says.len()], session).await;
            }
        }
    }

    /// Calls methods of others with metadata that only channels send.
    async fn call_with_metadata(&mut self, token: &str, says: &str, session: &str) {
        let channel = self.network.connection();
        let (mut words, mut locks) = (WordsClient::new(channel.clone()), LocksClient::new(channel.clone()));
        let wanted = Wanted { keys: Some(str_int(&[("key 1", 0)])), text: "hostile".into() };
        let by = [token, says, session];
        let outcomes = [
            words.reduce(request_with_metadata(by, counts(&[("key 1", 1)], "hostile"))).await.err(),
            words.report(request_with_metadata(by, counts(&[("key 1", 1)], ""))).await.err(),
            locks.lock(request_with_metadata(by, names(&["the lock"], ""))).await.err(),
            locks.release(request_with_metadata(by, names(&["the lock"], ""))).await.err(),
            locks.reset(request_with_metadata(by, note(""))).await.err(),
        ];
        for status in outcomes {
            let status = status.unwrap_or_else(|| panic!("{token:?} is served by {says} {session:?}"));
            self.tally.count(Attack::Metadata, format!("{:?}", status.code()));
        }
        // The reader may read.
        let asked = words.query(request_with_metadata(by, wanted)).await;
        if token != READER {
            self.refused(Attack::Metadata, "a query", asked);
        }
        let mut docs = DocsClient::new(channel);
        let asked = docs.lookup(request_with_metadata(by, Wish { names: vec!["hostile".into()] })).await;
        let asked = match asked {
            Ok(replies) => replies.into_inner().message().await,
            Err(status) => Err(status),
        };
        self.refused(Attack::Metadata, "a document", asked);
    }
}

/// Request with a credential and metadata that only channels send.
fn request_with_metadata<T>([token, says, session]: [&str; 3], message: T) -> Request<T> {
    let mut request = within(DEADLINE_MS, message);
    let metadata = request.metadata_mut();
    if !token.is_empty() {
        metadata.insert("authorization", token.parse().expect("text"));
    }
    metadata.insert(AsciiMetadataKey::from_bytes(says.as_bytes()).expect("a name"), "1".parse().expect("text"));
    metadata.insert("pathcall-session", session.parse().expect("text"));
    request
}
