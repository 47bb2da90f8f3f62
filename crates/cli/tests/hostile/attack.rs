//! The kinds of attack, the hostile client that makes them, and what became of them.

use std::collections::BTreeMap;
use std::time::Instant;

use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_proto::v1::{JoinGrant, JoinRequest};
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

/// Lies that are told together, for each list of them.
const COMBINED: usize = 3;

macro_rules! attacks {
    ($($(#[$doc:meta])* $name:ident => $make:ident,)*) => {
        /// A kind of attack.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum Attack { $($(#[$doc])* $name,)* }

        impl Attack {
            pub(super) const ALL: &'static [Self] = &[$(Self::$name,)*];
        }

        impl Hostile<'_> {
            /// Makes some of this kind.
            pub(super) async fn attack(&mut self, kind: Attack) {
                // Servers end connections by which much is wrong.
                self.peer = PeerClient::new(self.network.connection());
                let made = async { match kind { $(Attack::$name => self.$make().await,)* } };
                tokio::time::timeout(HANG, made).await.unwrap_or_else(|_| panic!("{kind:?} does not end"));
            }
        }
    };
}

attacks! {
    /// Joins of what there is not, or by filters that there are not.
    JoinNothing => join_nothing,
    /// Joins of applications that the caller may not call.
    JoinOthers => join_others,
    /// Joins with odd ports, incarnations and numbers of flows.
    JoinOddly => join_oddly,
    /// Questions to be let in by sessions of others, or to others' methods.
    Admit => admit,
    /// Sums given up in the name of others.
    GiveUp => give_up,
    /// Numbers of keys asked for by who has not joined, and of keys that need none.
    Name => name,
    /// Streams of frames in the name of others.
    Carry => carry,
    /// Frames of others in a caller's own stream.
    CarryOthers => carry_others,
    /// Books of applications that the caller may not call.
    OpenBook => open_book,
    /// Calls with ids, in books that others have.
    Apply => apply,
    /// Questions where delegated calls go: anybody may ask.
    Node => node,
    /// Pools followed without a port, or by methods that are not the caller's.
    FollowPool => follow_pool,
    /// What channels say beside their frames, said by others.
    Metadata => metadata,
    /// Map frames by wrong names or keys, to the element.
    MapToElement => map_to_element,
    /// The same, to the server.
    MapToServer => map_to_server,
    /// The same, to callers.
    MapToCaller => map_to_caller,
    /// Frames that are cut, extended, or none.
    Damaged => damaged,
    /// Frames of others as they were, to the element.
    ReplayToElement => replay_to_element,
    /// The same, past the element.
    ReplayToHosts => replay_to_hosts,
    /// Frames of a member that reaches for another application.
    Neighbour => neighbour,
    /// Frames of a member that asks for more than it is let in for.
    Reader => reader,
    /// Clone frames by wrong names or keys, to the element.
    CloneToElement => clone_to_element,
    /// The same, to servers and callers of the pool.
    CloneToHosts => clone_to_hosts,
    /// Datagrams that are no messages, or of no session, to nodes.
    Messages => messages,
    /// Answers, pings and grants of others' calls in a session of one's own.
    DelegateForged => delegate_forged,
    /// Requests that say nothing of who calls.
    DelegateStranger => delegate_stranger,
    /// Messages of which only the beginning comes.
    DelegateHalf => delegate_half,
    /// Joins that are dropped at once.
    JoinsDropped => joins_dropped,
    /// Joins that are held, and not used.
    JoinsHeld => joins_held,
    /// Streams of frames, of replies and of pools that are held.
    StreamsHeld => streams_held,
    /// Connections that nothing is said by.
    ConnectionsSilent => connections_silent,
    /// Requests that do not end.
    RequestsHalf => requests_half,
    /// Requests that are reset as soon as they are made.
    RapidReset => rapid_reset,
    /// HTTP/2 that is none.
    FramesOfHttp => frames_of_http,
    /// Metadata and messages that are too long.
    TooLong => too_long,
    /// Garbage for the controller's port.
    Controller => controller,
    /// Garbage for the element's port.
    Element => element,
}

/// What became of attacks, by kind.
#[derive(Debug, Default)]
pub(super) struct Tally(BTreeMap<Attack, BTreeMap<String, u64>>);

impl Tally {
    pub(super) fn count(&mut self, kind: Attack, outcome: impl Into<String>) {
        *self.0.entry(kind).or_default().entry(outcome.into()).or_default() += 1;
    }

    /// Each kind was made, and something was said or counted of it.
    pub(super) fn check(&self) {
        for kind in Attack::ALL {
            assert!(self.0.get(kind).is_some_and(|outcomes| !outcomes.is_empty()), "{kind:?} was taken silently");
        }
    }
}

/// A caller that has joined, and writes its frames by hand.
pub(super) struct Member {
    pub(super) token: &'static str,
    pub(super) socket: UdpSocket,
    pub(super) request: JoinRequest,
    pub(super) grant: JoinGrant,
    _joined: Streaming<JoinGrant>,
}

impl Member {
    /// Joins by a connection of its own.
    async fn join(network: &Network, token: &'static str, path: &str) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a free port");
        let udp_port = socket.local_addr().expect("bound").port().into();
        let request = JoinRequest { udp_port, flows: 4, ..join(path) };
        let mut peer = PeerClient::new(network.connection());
        let mut joined = peer.join(by(token, request.clone())).await.expect("let in").into_inner();
        let grant = joined.message().await.expect("a stream").expect("a grant");
        Self { token, socket, request, grant, _joined: joined }
    }
}

/// Who attacks.
pub(super) struct Hostile<'a> {
    pub(super) network: &'a Network,
    pub(super) honest: &'a Honest,
    pub(super) random: StdRng,
    pub(super) tally: Tally,
    pub(super) peer: PeerClient<Channel>,
    pub(super) socket: UdpSocket,
    /// Of an application of its own, which it may do everything in: it works by the element.
    pub(super) insider: Member,
    /// Of one that it may only vote in.
    pub(super) voter: Member,
    /// Of that of the honest callers, which it may only read.
    pub(super) reader: Member,
    /// Numbers of its frames.
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

    /// What the truth becomes by each of the lies alone, and by some together.
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

    /// A call that must not be done.
    pub(super) fn refused<T>(&mut self, kind: Attack, what: impl std::fmt::Debug, outcome: Result<T, Status>) {
        match outcome {
            Ok(_) => panic!("{kind:?}: {what:?} is taken"),
            Err(status) => {
                // It has an answer, which says why.
                let said = kind == Attack::TooLong || status.code() != Code::Internal;
                assert!(said, "{kind:?}: {what:?}: {status}");
                self.tally.count(kind, format!("{:?}", status.code()));
            }
        }
    }

    /// Sends until one of these counters has gone up.
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

/// A number that is hardly ever right.
pub(super) fn odd(random: &mut StdRng) -> u32 {
    match random.random_range(0..4) {
        0 => 0,
        1 => u32::MAX,
        2 => 1 << random.random_range(0..32),
        _ => random.random(),
    }
}

/// A text of a length that nothing has.
pub(super) fn long(random: &mut StdRng) -> String {
    let len = 1 << random.random_range(9..17);
    "x".repeat(len)
}
