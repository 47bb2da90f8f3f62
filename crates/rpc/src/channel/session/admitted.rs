//! Admission of a session's calls: the methods, and the metadata with which the server's services let them pass.
//!
//! A session is shared by all stubs of a channel, and their metadata may be of several users. Before frames of a call leave,
//! the services have let a call of its method with its metadata pass, not longer ago than the server allows.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderValue};
use pathcall_proto::manifest::Method;
use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_proto::v1::{AdmitReply, AdmitRequest};
use tokio::sync::watch;
use tonic::{Code, Status};

use super::super::transport::Transport;
use super::{Session, Slot, lock};
use crate::{awake, headers};

/// Admissions that are remembered at most; the oldest go first.
const ADMISSIONS_MAX: usize = 1024;
/// Pause between questions whether a session lives: how long an idle caller holds up a server that is to end.
const LIVES_PAUSE: Duration = Duration::from_secs(5);
/// A server that does not answer in this time takes no requests.
const LIVES_TIMEOUT: Duration = Duration::from_secs(2);
/// So often it is asked.
const LIVES_TRIES: u32 = 2;
/// Sessions that one call joins at most.
const JOINS_MAX: u32 = 3;
/// An admission holds for so long at least, whatever the server says.
const HOLD_MIN: Duration = Duration::from_millis(50);

/// Admissions of one session.
#[derive(Debug)]
pub(super) struct Admissions {
    /// What proves to the server that this caller is the session's.
    secret: Vec<u8>,
    /// The same, in a call's metadata.
    header: Option<HeaderValue>,
    /// How long one holds.
    hold: Duration,
    hasher: RandomState,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    admitted: Vec<Admission>,
    /// By method, the metadata that was let pass last.
    last: BTreeMap<String, HeaderMap>,
    /// The same of all of them: credentials are renewed from time to time.
    latest: HeaderMap,
}

#[derive(Debug)]
struct Admission {
    path: String,
    /// Of the metadata.
    digest: u64,
    until: Instant,
}

impl Admissions {
    /// Of a session that was joined at this time with this metadata, for these methods.
    pub(super) fn new(
        secret: Vec<u8>,
        hold: Duration,
        asked: Instant,
        headers: &HeaderMap,
        paths: Vec<String>,
    ) -> Self {
        let header = headers::of_session(&secret);
        let hold = hold.max(HOLD_MIN);
        let admissions = Self { secret, header, hold, hasher: RandomState::new(), state: Mutex::default() };
        paths.into_iter().for_each(|path| admissions.note(path, asked, headers));
        admissions
    }

    pub(super) fn secret(&self) -> &[u8] {
        &self.secret
    }

    pub(super) fn header(&self) -> Option<&HeaderValue> {
        self.header.as_ref()
    }

    fn has(&self, path: &str, headers: &HeaderMap) -> bool {
        let (digest, now) = (self.digest(headers), Instant::now());
        let state = lock(&self.state);
        state.admitted.iter().any(|one| one.digest == digest && one.path == path && now < one.until)
    }

    fn note(&self, path: String, asked: Instant, headers: &HeaderMap) {
        let (digest, until) = (self.digest(headers), asked + self.hold);
        let mut state = lock(&self.state);
        state.latest = headers::of_the_call(headers);
        let latest = state.latest.clone();
        state.last.insert(path.clone(), latest);
        state.admitted.retain(|one| one.until > asked && !(one.digest == digest && one.path == path));
        if state.admitted.len() == ADMISSIONS_MAX {
            state.admitted.remove(0);
        }
        state.admitted.push(Admission { path, digest, until });
    }

    /// In whatever order its entries are.
    fn digest(&self, headers: &HeaderMap) -> u64 {
        let told = headers.iter().filter(|(name, _)| headers::admits_by(name));
        told.map(|(name, value)| self.hasher.hash_one((name.as_str(), value.as_bytes()))).fold(0, u64::wrapping_add)
    }
}

impl Slot {
    /// The session, joined if need be, when the services have let a call pass: its frames may leave.
    pub(in crate::channel) async fn admitted(
        self: &Arc<Self>,
        method: &Method,
        headers: &HeaderMap,
        transport: &Transport,
    ) -> Result<Arc<Session>, Status> {
        for _ in 0..JOINS_MAX {
            let session = self.session(method, headers, transport).await?;
            if session.admissions.has(method.path, headers) {
                return Ok(session);
            }
            let asked = session.admissions.ask(self.application.name, method.path, headers, transport);
            if Box::pin(asked).await? {
                return Ok(session);
            }
            // The server has let this caller go, and it has yet to hear of it. Whoever joins anew may be another user.
            session.end("the server has let this caller go".into());
        }
        Err(Status::unavailable(format!("{}: the server lets this caller go again and again", method.path)))
    }
}

impl Admissions {
    /// False when there is no such session.
    async fn ask(&self, app: &str, path: &str, headers: &HeaderMap, transport: &Transport) -> Result<bool, Status> {
        let message =
            AdmitRequest { application: app.into(), session: self.secret.clone(), methods: vec![path.into()] };
        let (asked, request) = (Instant::now(), headers::with(headers, message));
        let AdmitReply { admitted, let_go } = PeerClient::new(transport.channel()).admit(request).await?.into_inner();
        if let_go {
            return Ok(false);
        }
        if !admitted.iter().any(|one| one == path) {
            return Err(Status::internal(format!(
                "{path}: the server has admitted something else than it was asked for"
            )));
        }
        self.note(path.into(), asked, headers);
        Ok(true)
    }

    /// Whether the server takes requests and knows the session.
    pub(super) async fn lives(&self, app: &str, transport: &Transport) -> bool {
        let headers = lock(&self.state).latest.clone();
        for _ in 0..LIVES_TRIES {
            let message = AdmitRequest { application: app.into(), session: self.secret.clone(), methods: Vec::new() };
            let mut server = PeerClient::new(transport.channel());
            match awake::timeout(LIVES_TIMEOUT, server.admit(headers::with(&headers, message))).await {
                Ok(Ok(reply)) => return !reply.get_ref().let_go,
                // Whatever else it says, it is there.
                Ok(Err(status)) if !matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled) => {
                    return true;
                }
                Ok(Err(_)) | Err(_) => {}
            }
        }
        false
    }

    /// Asks again, before an admission is too old, for each method that the session was let in for, with the metadata that
    /// was let pass last: an idle caller stays a member. Meanwhile it asks whether the session lives, as it takes a request
    /// to notice that a server is to end. Ends when the session is over.
    pub(super) async fn keep(
        self: Arc<Self>,
        mut over: watch::Receiver<Option<Arc<str>>>,
        app: &'static str,
        transport: Transport,
    ) {
        let again = self.hold * 3 / 4;
        let mut asked = Instant::now();
        loop {
            let ended = tokio::time::timeout(again.min(LIVES_PAUSE), over.wait_for(Option::is_some));
            if ended.await.is_ok() {
                return;
            }
            let last = lock(&self.state).last.clone();
            if asked.elapsed() < again {
                self.lives(app, &transport).await;
                continue;
            }
            asked = Instant::now();
            for (path, headers) in last {
                // Credentials may have run out, and others have been used since.
                let latest = lock(&self.state).latest.clone();
                for headers in [headers, latest] {
                    let admitted = awake::timeout(LIVES_TIMEOUT, self.ask(app, &path, &headers, &transport)).await;
                    let Ok(Err(status)) = admitted else { break };
                    // Who is refused asks with other metadata at its next call, or is let go.
                    tracing::warn!(application = app, path, "asked again, the server refuses: {}", status.message());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(token: &'static str, trace: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("traceparent", HeaderValue::from_static(trace));
        headers.insert("authorization", HeaderValue::from_static(token));
        headers.insert("grpc-timeout", HeaderValue::from_static("1S"));
        headers
    }

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn admission_holds_for_its_method_and_metadata() {
        let now = Instant::now();
        let admissions = Admissions::new(vec![1; 16], HOUR, now, &bearer("a", "1"), vec!["/a/A".into()]);
        assert!(admissions.has("/a/A", &bearer("a", "2")), "another trace is no other caller");
        assert!(!admissions.has("/a/B", &bearer("a", "1")));
        assert!(!admissions.has("/a/A", &bearer("b", "1")));
        assert!(!admissions.has("/a/A", &HeaderMap::new()));
    }

    #[test]
    fn admission_ends_in_time() {
        let Some(now) = Instant::now().checked_sub(HOLD_MIN) else { return };
        let admissions = Admissions::new(vec![1; 16], HOLD_MIN, now, &bearer("a", "1"), vec!["/a/A".into()]);
        assert!(!admissions.has("/a/A", &bearer("a", "1")));
    }

    #[test]
    fn the_oldest_admissions_make_room() {
        let now = Instant::now();
        let admissions = Admissions::new(vec![1; 16], HOUR, now, &HeaderMap::new(), Vec::new());
        for one in 0..=ADMISSIONS_MAX {
            admissions.note(format!("/a/{one}"), now, &HeaderMap::new());
        }
        assert!(!admissions.has("/a/0", &HeaderMap::new()));
        assert!(admissions.has(&format!("/a/{ADMISSIONS_MAX}"), &HeaderMap::new()));
        assert_eq!(lock(&admissions.state).admitted.len(), ADMISSIONS_MAX);
    }
}
