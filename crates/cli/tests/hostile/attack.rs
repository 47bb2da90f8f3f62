//! Kinds of attack, the hostile client that makes them, and their outcomes.

use std::collections::BTreeMap;
use std::time::Instant;

use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_proto::v1::{AdmitRequest, JoinGrant, JoinRequest};
use pathcall_test_support::HANG;
use pathcall_test_support::service::join;
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use tokio::net::UdpSocket;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use super::honest::Honest;
use super::network::{INSIDER, Network, READER, by};

/// Number of changed fields per combined lie, for each list of lies.
const COMBINED: usize = 3;

macro_rules! attacks {
    ($($(#[$doc:meta])* $name:ident => $make:ident,)*) => {
        /// Kind of attack.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum Attack { $($(#[$doc])* $name,)* }

        impl Attack {
            pub(super) const ALL: &'static [Self] = &[$(Self::$name,)*];
        }

        impl Hostile<'_> {
            /// Makes some attacks of this kind.
            pub(super) async fn attack(&mut self, kind: Attack) {
                // Servers close connections with many errors.
                self.peer = PeerClient::new(self.network.connection());
                for own in [&self.insider, &self.voter, &self.reader] {
                    own.renew_admission(self.network).await;
                }
                let made = async { match kind { $(Attack::$name => self.$make().await,)* } };
                tokio::time::timeout(HANG, made).await.unwrap_or_else(|_| panic!("{kind:?} does not end"));
            }
        }
    };
}

attacks! {
    /// Joins with unknown methods or filters.
    JoinNothing => join_nothing,
    /// Joins of applications that the caller may not call.
    JoinOthers => join_others,
    /// Joins with odd ports, incarnations and numbers of flows.
    JoinOddly => join_oddly,
    /// Admissions with sessions of others, or to methods of others.
    Admit => admit,
    /// Cancelled sums in the name of others.
    CancelSum => cancel_sum,
    /// Key registrations without a join, and of keys that need no address.
    NumberKeys => number_keys,
    /// Streams of frames in the name of others.
    CarryFrames => carry_frames,
    /// Frames of others in the caller's own stream.
    CarryOthers => carry_others,
    /// Journals of calls with ids, for applications that the caller may not call.
    OpenJournal => open_journal,
    /// Calls with ids in journals of others.
    ApplyCall => apply_call,
    /// Lookups of delegate nodes, which anybody may make.
    LookupNode => lookup_node,
    /// Pools followed without a port, or for methods of others.
    FollowPool => follow_pool,
    /// Metadata that only channels send, from another client.
    Metadata => metadata,
    /// Map frames with wrong ids or keys, to the element.
    MapToElement => map_to_element,
    /// Map frames with wrong ids or keys, to the server.
    MapToServer => map_to_server,
    /// Map frames with wrong ids or keys, to callers.
    MapToCaller => map_to_caller,
    /// Truncated, extended and invalid frames.
    Damaged => damaged,
    /// Replayed frames of others, to the element.
    ReplayToElement => replay_to_element,
    /// Replayed frames of others, past the element.
    ReplayToHosts => replay_to_hosts,
    /// Frames of a member that accesses another application.
    Neighbour => neighbour,
    /// Frames of a member beyond its access rights.
    Reader => reader,
    /// Clone frames with wrong ids or keys, to the element.
    CloneToElement => clone_to_element,
    /// Clone frames with wrong ids or keys, to servers and callers of the pool.
    CloneToHosts => clone_to_hosts,
    /// Datagrams to nodes that are no messages, or of no session.
    Messages => messages,
    /// Answers, pings and grants for calls of others, in the attacker's own session.
    DelegateForged => delegate_forged,
    /// Requests without the identity of a caller.
    DelegateStranger => delegate_stranger,
    /// Incomplete messages.
    DelegateHalf => delegate_half,
    /// Joins that are dropped at once.
    JoinsDropped => joins_dropped,
    /// Joins that are held and not used.
    JoinsHeld => joins_held,
    /// Streams of frames, of replies and of pools that are held.
    StreamsHeld => streams_held,
    /// Silent connections.
    ConnectionsSilent => connections_silent,
    /// Incomplete HTTP requests.
    RequestsHalf => requests_half,
    /// Requests that are reset immediately.
    RapidReset => rapid_reset,
    /// Invalid HTTP/2.
    FramesOfHttp => frames_of_http,
    /// Overlong metadata and messages.
    TooLong => too_long,
    /// Garbage to the controller's port.
    Controller => controller,
    /// Garbage to the element's port.
    Element => element,
}

/// Outcomes of attacks, by kind.
#[derive(Debug, Default)]
pub(super) struct Tally(BTreeMap<Attack, BTreeMap<String, u64>>);

impl Tally {
    pub(super) fn count(&mut self, kind: Attack, outcome: impl Into<String>) {
        *self.0.entry(kind).or_default().entry(outcome.into()).or_default() += 1;
    }

    /// Checks that each kind was made and was answered or counted.
    pub(super) fn check(&self) {
        for kind in Attack::ALL {
            assert!(self.0.get(kind).is_some_and(|outcomes| !outcomes.is_empty()), "{kind:?} was taken silently");
        }
    }
}

/// Caller that has joined, and builds its frames by hand.
pub(super) struct Member {
    pub(super) token: &'static str,
    pub(super) socket: UdpSocket,
    pub(super) request: JoinRequest,
    pub(super) grant: JoinGrant,
    _joined: Streaming<JoinGrant>,
}

impl Member {
    /// Joins through a separate connection.
    async fn join(network: &Network, token: &'static str, path: &str) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a free port");
        let udp_port = socket.local_addr().expect("bound").port().into();
        let request = JoinRequest { udp_port, flows: 4, ..join(path) };
        let mut peer = PeerClient::new(network.connection());
        let mut joined = peer.join(by(token, request.clone())).await.expect("admitted").into_inner();
        let grant = joined.message().await.expect("a stream").expect("a grant");
        Self { token, socket, request, grant, _joined: joined }
    }

    /// Renews the caller's admission: the server ends sessions with an old admission.
    async fn renew_admission(&self, network: &Network) {
        let request = AdmitRequest {
            application: self.request.application.clone(),
            session: self.grant.session.clone(),
            methods: self.grant.admitted_methods.clone(),
        };
        let mut peer = PeerClient::new(network.connection());
        let reply = peer.admit(by(self.token, request)).await.expect("its checks admit the caller").into_inner();
        assert!(!reply.session_unknown, "the session of {} has ended", self.request.application);
    }
}

/// Hostile client.
pub(super) struct Hostile<'a> {
    pub(super) network: &'a Network,
    pub(super) honest: &'a Honest,
    pub(super) random: StdRng,
    pub(super) tally: Tally,
    pub(super) peer: PeerClient<Channel>,
    pub(super) socket: UdpSocket,
    /// Member of its own application, with full access: it uses the element.
    pub(super) insider: Member,
    /// Member that may only vote.
    pub(super) voter: Member,
    /// Member of the honest callers' application that may only read.
    pub(super) reader: Member,
    /// Sequence number of its next frame.
    pub(super) seq: u32,
}

impl<'a> Hostile<'a> {
    pub(super) async fn new(network: &'a Network, honest: &'a Honest, random: StdRng) -> Self {
        let peer = PeerClient::new(network.connection());
        let insider = Member::join(network, INSIDER, "/rpctest.Locks/Elect").await;
        let voter = Member::join(network, INSIDER, "/rpctest.Locks/Vote").await;
        let reader = Member::join(network, READER, "/rpctest.Words/Query").await;
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a free port");
        let tally = Tally::default();
        Self { network, honest, random, tally, peer, socket, insider, voter, reader, seq: 0 }
    }

    /// Copies of `truth`: one for each lie alone, and some with several lies combined.
    pub(super) fn lies<T: Clone>(&mut self, truth: &T, lies: &[fn(&mut T, &mut StdRng)]) -> Vec<T> {
        let mut told = Vec::new();
        for lie in lies {
            told.push(truth.clone());
            lie(told.last_mut().expect("pushed"), &mut self.random);
        }
        for _ in 0..COMBINED {
            let mut message = truth.clone();
            let some = self.random.random_range(1..=lies.len());
            let some: Vec<_> = lies.sample(&mut self.random, some).collect();
            some.into_iter().for_each(|lie| lie(&mut message, &mut self.random));
            told.push(message);
        }
        told
    }

    /// Checks that a call was refused.
    pub(super) fn refused<T>(&mut self, kind: Attack, what: impl std::fmt::Debug, outcome: Result<T, Status>) {
        match outcome {
            Ok(_) => panic!("{kind:?}: {what:?} was accepted"),
            Err(status) => {
                // The refusal has a reason.
                let printed = kind == Attack::TooLong || status.code() != Code::Internal;
                assert!(printed, "{kind:?}: {what:?}: {status}");
                self.tally.count(kind, format!("{:?}", status.code()));
            }
        }
    }

    /// Sends until one of these counters rises.
    pub(super) async fn counted(&mut self, kind: Attack, counters: &[&str], mut send: impl AsyncFnMut(&mut Self)) {
        let before = self.network.refusals(self.honest).await;
        let began = Instant::now();
        loop {
            send(self).await;
            let after = self.network.refusals(self.honest).await;
            let more =
                |name: &&&str| after.get(**name).copied() > Some(before.get(**name).copied().unwrap_or_default());
            let moved: Vec<&str> = counters.iter().filter(more).copied().collect();
            if !moved.is_empty() {
                moved.into_iter().for_each(|name| self.tally.count(kind, name));
                return;
            }
            assert!(began.elapsed() < HANG, "{kind:?} is taken silently: {after:#?}");
        }
    }
}

/// Number that is rarely valid.
pub(super) fn odd_number(random: &mut StdRng) -> u32 {
    match random.random_range(0..4) {
        0 => 0,
        1 => u32::MAX,
        2 => 1 << random.random_range(0..32),
        _ => random.random(),
    }
}

/// Text that is longer than any field.
pub(super) fn long_text(random: &mut StdRng) -> String {
    let len = 1 << random.random_range(9..17);
    "x".repeat(len)
}
