//! Forged messages of *delegate*: datagrams of no session, messages about calls of others in the attacker's own
//! session, and requests without the identity of a caller.

use std::net::SocketAddr;

use pathcall_rpc::delegate::{Client, Directory, Node, NodeConfig};
use pathcall_test_support::stubs::delegated::{DocsFetch, DocsLookup};
use pathcall_test_support::stubs::{Note, Wish};
use pathcall_wire::delegate::{
    ContextId, DelegateRequest, DelegateResponse, NodeId, Ping, PingSubject, Pong, RequestFailure, RequestManifest,
    ResponseGrant, ResponseId, encode,
};
use pathcall_wire::messages::{Acks, AcksRepr, GreetingRepr, MessageFrame, MessageKind, PART, Part, PartRepr, token};
use rand::RngExt;
use tokio::time::{Duration, timeout};

use super::attack::{Attack, Hostile, odd_number};

/// Datagrams between two checks of counters.
const BURST: usize = 32;
/// Time after which a missing welcome is requested again.
const WELCOME: Duration = Duration::from_millis(200);
/// Incomplete messages per burst.
const HALVES: u32 = 16;

/// Session with messages built by hand.
struct Session {
    to: SocketAddr,
    node: NodeId,
    key: u64,
    seq: u32,
}

impl Hostile<'_> {
    fn node_address(&mut self) -> SocketAddr {
        self.network.nodes[self.random.random_range(0..3)].address()
    }

    /// Adds the token that an admitted caller can make, where frames have tokens.
    fn signed(&self, frame: &[u8]) -> Vec<u8> {
        let mut room = [frame, &[0; 8]].concat();
        token::append_token(self.network.nodes[0].node().key().as_ref(), &mut room, frame.len()).to_vec()
    }

    /// Payload bytes of a part.
    fn part(&self) -> usize {
        if self.network.tokens { PART - 8 } else { PART }
    }

    async fn begin_session(&mut self, to: SocketAddr) -> Session {
        let (node, session): (u64, u64) = (self.random.random(), self.random.random());
        let hello = GreetingRepr::new(MessageKind::Hello, node & ((1 << 48) - 1), session, 0);
        let mut buffer = [0; 2048];
        loop {
            let frame = self.signed(&hello.bytes());
            self.socket.send_to(&frame, to).await.expect("sent");
            while let Ok(Ok((len, _))) = timeout(WELCOME, self.socket.recv_from(&mut buffer)).await {
                if let Ok(MessageFrame::Welcome(welcome)) = MessageFrame::parse(&buffer[..len])
                    && welcome.session == session
                {
                    return Session { to, node: NodeId::new(hello.node), key: welcome.key, seq: 0 };
                }
            }
        }
    }

    /// Sends a message that fits one part.
    async fn send_message(&self, session: &mut Session, message: &[u8]) {
        session.seq += 1;
        let part = PartRepr::new(session.key, session.seq, session.seq, 0, message.len() as u32);
        self.send_part(session, part, message).await;
    }

    async fn send_part(&self, session: &Session, part: PartRepr, bytes: &[u8]) {
        let mut frame = vec![0; Part::<()>::LEN];
        part.emit(&mut frame);
        frame.extend(bytes);
        let _ = self.socket.send_to(&self.signed(&frame), session.to).await;
    }

    pub(super) async fn messages(&mut self) {
        self.counted(Attack::Messages, &["node ignored"], async |hostile| {
            for turn in 0..BURST {
                let to = hostile.node_address();
                let random = &mut hostile.random;
                let (node, session, key) = (random.random(), random.random(), random.random());
                let kinds = [MessageKind::Hello, MessageKind::Welcome, MessageKind::Gone];
                let mut bytes = match turn % 5 {
                    0 => GreetingRepr::new(kinds[random.random_range(0..3)], node, session, key).bytes().to_vec(),
                    1 => {
                        let total = odd_number(random);
                        let part =
                            PartRepr::new(key, odd_number(random), odd_number(random), odd_number(random), total);
                        let mut bytes = vec![0; Part::<()>::LEN + random.random_range(0..=PART)];
                        part.emit(&mut bytes);
                        bytes
                    }
                    2 => {
                        let mut bytes = vec![0xff; Acks::<()>::LEN + 4 * random.random_range(0..70)];
                        AcksRepr::new(session, key).emit(&mut bytes);
                        bytes
                    }
                    3 => (0..random.random_range(0..1400)).map(|_| random.random()).collect(),
                    _ => {
                        let part = PartRepr::new(key, 1, 1, 0, 100);
                        let mut bytes = vec![0; Part::<()>::LEN + 100];
                        part.emit(&mut bytes);
                        bytes
                    }
                };
                if turn % 7 == 0 {
                    bytes.truncate(random.random_range(0..=bytes.len()));
                }
                let _ = hostile.socket.send_to(&bytes, to).await;
            }
        })
        .await;
    }

    /// Message about a call of another caller.
    fn message(&mut self, own: NodeId) -> Vec<u8> {
        let known = self.network.nodes[self.random.random_range(0..3)].node().id();
        let address = self.node_address();
        let random = &mut self.random;
        let node = [own, known, NodeId::new(random.random())][random.random_range(0..3)];
        let call = ContextId::new(node, random.random_range(0..64));
        let other = ContextId::new(known, random.random_range(0..64));
        let request = other.request(random.random_range(0..4)).inherited(random.random_range(0..3));
        let manifest = RequestManifest {
            request: request.branch(),
            context: other,
            requests: odd_number(random),
            responses: odd_number(random),
            server: address,
        };
        let manifest = random.random::<bool>().then_some(manifest);
        let subject = if random.random() { PingSubject::Request(request) } else { PingSubject::Context(other) };
        let mut bytes = match random.random_range(0..7) {
            0 => {
                let id = if random.random() {
                    ResponseId::Sole(request.branch())
                } else {
                    ResponseId::Numbered(other, odd_number(random))
                };
                let again = random.random::<bool>().then_some(known);
                DelegateResponse { call, id, null: random.random(), again, manifest }.encode().to_vec()
            }
            1 => {
                let unreachable =
                    random.random::<bool>().then(|| ([10, 0, 0, random.random()], random.random()).into());
                RequestFailure { call, request, code: random.random(), text: random.random(), unreachable }
                    .encode()
                    .to_vec()
            }
            2 => Ping { call, subject, abort: random.random(), round: odd_number(random), first: odd_number(random) }
                .encode()
                .to_vec(),
            3 => ResponseGrant { call, context: other, responses: odd_number(random) }.encode().to_vec(),
            4 => {
                let pong = Pong {
                    call,
                    subject,
                    flags: random.random(),
                    round: odd_number(random),
                    context: other,
                    requests: odd_number(random),
                    responses: odd_number(random),
                    first: odd_number(random),
                    code: random.random(),
                    sender: known,
                };
                [&pong.encode(random.random())[..], &encode::list(address)].concat()
            }
            5 => {
                let request = DelegateRequest {
                    flags: random.random(),
                    call,
                    request,
                    depth: random.random(),
                    gc: random.random_range(0..16),
                    credit: random.random_range(0..16),
                    ended: random.random(),
                    deadline: odd_number(random),
                    age: odd_number(random),
                    reply: address,
                    sender: [own, known][random.random_range(0..2)],
                    manifest,
                };
                request.encode().to_vec()
            }
            _ => (0..random.random_range(0..200)).map(|_| random.random()).collect(),
        };
        bytes.extend((0..random.random_range(0..64)).map(|_| random.random::<u8>()));
        bytes.truncate(PART - 8);
        if bytes.is_empty() { vec![0] } else { bytes }
    }

    pub(super) async fn delegate_forged(&mut self) {
        let to = self.node_address();
        let mut session = self.begin_session(to).await;
        self.counted(Attack::DelegateForged, &["node refused"], async |hostile| {
            for _ in 0..BURST {
                let message = hostile.message(session.node);
                hostile.send_message(&mut session, &message).await;
            }
        })
        .await;
    }

    /// First parts of messages that reserve as much memory as one part can.
    pub(super) async fn delegate_half(&mut self) {
        let to = self.node_address();
        let mut session = self.begin_session(to).await;
        let part = self.part();
        let bytes = vec![0; part];
        for message in 0..HALVES {
            for offset in [0, 255, 511, 1 << 16] {
                session.seq += 1;
                let half = PartRepr::new(session.key, session.seq, message, offset * part as u32, 200 << 20);
                self.send_part(&session, half, &bytes).await;
            }
        }
        // Parts beyond the window are ignored.
        self.counted(Attack::DelegateHalf, &["node ignored"], async |hostile| {
            session.seq += 1;
            let beyond = PartRepr::new(session.key, session.seq, HALVES, (1 << 17) * part as u32, 200 << 20);
            hostile.send_part(&session, beyond, &bytes).await;
        })
        .await;
    }

    pub(super) async fn delegate_stranger(&mut self) {
        // An admitted caller knows the key; the request lacks its identity.
        let config = NodeConfig::default().key(self.network.nodes[0].node().key());
        let (node, _requests) = Node::start(&config).await.expect("starts");
        let [index, a, _] = self.network.nodes.each_ref().map(|node| node.address());
        let client = Client::new(node, Directory::of([("index", index), ("a", a)]));
        let (wish, name) = (Wish { names: vec!["hostile".into()] }, Note { text: "hostile".into() });
        let lookup = client.call::<Note>().request::<DocsLookup>("index", &wish).expect("a request");
        // Also a method without handler on the node.
        let fetch = client.call::<Note>().request::<DocsFetch>("a", &name).expect("a request");
        let none = client.call::<Note>().request::<DocsFetch>("index", &name).expect("a request");
        for call in [lookup, fetch, none] {
            let mut replies = call.begin().expect("begun");
            let reply = replies.message().await;
            self.refused(Attack::DelegateStranger, "a request", reply);
        }
    }
}
