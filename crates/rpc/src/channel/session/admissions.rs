//! Admissions of a session's calls: which methods, with which metadata, the server's services have admitted.
//!
//! All stubs of a channel share a session, and their metadata may be that of several users. Frames of a call are sent
//! only after the services have admitted a call of its method with its metadata, within the time that the server
//! allows.

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
use super::{ChannelApplication, MapSession, lock};
use crate::{headers, process_timeout};

/// Maximum number of admissions kept; the oldest are dropped first.
const ADMISSIONS_MAX: usize = 1024;
/// Interval at which the session is tested: for how long an idle caller delays a server that shuts down.
const TEST_INTERVAL: Duration = Duration::from_secs(5);
/// Time limit for the answer of a server that is tested.
const TEST_TIMEOUT: Duration = Duration::from_secs(2);
/// Number of tests before the server counts as unreachable.
const TESTS: u32 = 2;
/// Maximum number of joins for one call.
const JOINS_MAX: u32 = 3;
/// Minimum validity of an admission.
const HOLD_MIN: Duration = Duration::from_millis(50);

/// Admissions of one session.
#[derive(Debug)]
pub(super) struct Admissions {
    /// Secret of the session, which identifies the caller to the server.
    secret: Vec<u8>,
    /// The secret as a metadata value.
    header: Option<HeaderValue>,
    /// Validity of an admission.
    hold: Duration,
    hasher: RandomState,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    admitted: Vec<Admission>,
    /// Metadata admitted last, by method.
    last: BTreeMap<String, HeaderMap>,
    /// Metadata admitted last of all methods: credentials are renewed from time to time.
    latest: HeaderMap,
}

#[derive(Debug)]
struct Admission {
    path: String,
    /// Digest of the metadata.
    digest: u64,
    until: Instant,
}

impl Admissions {
    /// Admissions of a session that was joined at this time, with this metadata, for these methods.
    pub(super) fn new(
        secret: Vec<u8>,
        hold: Duration,
        asked: Instant,
        headers: &HeaderMap,
        paths: Vec<String>,
    ) -> Self {
        let header = headers::encode_session(&secret);
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
        state.latest = headers::application_metadata(headers);
        let latest = state.latest.clone();
        state.last.insert(path.clone(), latest);
        state.admitted.retain(|one| one.until > asked && !(one.digest == digest && one.path == path));
        if state.admitted.len() == ADMISSIONS_MAX {
            state.admitted.remove(0);
        }
        state.admitted.push(Admission { path, digest, until });
    }

    /// Digest of the metadata, independent of the order of entries.
    fn digest(&self, headers: &HeaderMap) -> u64 {
        let told = headers.iter().filter(|(name, _)| headers::is_credential(name));
        told.map(|(name, value)| self.hasher.hash_one((name.as_str(), value.as_bytes()))).fold(0, u64::wrapping_add)
    }
}

impl ChannelApplication {
    /// Current session, once the services have admitted the call: its frames may be sent.
    pub(in crate::channel) async fn admitted(
        self: &Arc<Self>,
        method: &Method,
        headers: &HeaderMap,
        transport: &Transport,
    ) -> Result<Arc<MapSession>, Status> {
        for _ in 0..JOINS_MAX {
            let session = self.session(method, headers, transport).await?;
            if session.admissions.has(method.path, headers) {
                return Ok(session);
            }
            let asked = session.admissions.ask(self.application.name, method.path, headers, transport);
            if Box::pin(asked).await? {
                return Ok(session);
            }
            if session.continues_elsewhere().await {
                continue;
            }
            // The server has ended the membership, and this caller has not been notified yet. Another user's metadata
            // may be used to join.
            session.end("the server has ended this caller's membership".into());
        }
        Err(Status::unavailable(format!("{}: the server repeatedly ends this caller's membership", method.path)))
    }
}

impl Admissions {
    /// Requests an admission; false if the server does not have the session.
    async fn ask(&self, app: &str, path: &str, headers: &HeaderMap, transport: &Transport) -> Result<bool, Status> {
        let message =
            AdmitRequest { application: app.into(), session: self.secret.clone(), methods: vec![path.into()] };
        let (asked, request) = (Instant::now(), headers::request_with(headers, message));
        let AdmitReply { admitted_methods, session_unknown } =
            PeerClient::new(transport.channel()).admit(request).await?.into_inner();
        if session_unknown {
            return Ok(false);
        }
        if !admitted_methods.iter().any(|one| one == path) {
            return Err(Status::internal(format!("{path}: the server has admitted other methods than requested")));
        }
        self.note(path.into(), asked, headers);
        Ok(true)
    }

    /// Whether the server accepts requests and has the session.
    pub(super) async fn is_alive(&self, app: &str, transport: &Transport) -> bool {
        let headers = lock(&self.state).latest.clone();
        for _ in 0..TESTS {
            let message = AdmitRequest { application: app.into(), session: self.secret.clone(), methods: Vec::new() };
            let mut server = PeerClient::new(transport.channel());
            match process_timeout::timeout(TEST_TIMEOUT, server.admit(headers::request_with(&headers, message))).await {
                Ok(Ok(reply)) => return !reply.get_ref().session_unknown,
                // Any other status is an answer.
                Ok(Err(status)) if !matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled) => {
                    return true;
                }
                Ok(Err(_)) | Err(_) => {}
            }
        }
        false
    }

    /// Renews the admissions of the session's methods before they expire, with the metadata that was admitted last, so
    /// that an idle caller stays a member. In between, tests whether the session is alive, because only a request shows
    /// that a server is shutting down. Runs until the session ends.
    pub(super) async fn renew(
        self: Arc<Self>,
        mut over: watch::Receiver<Option<Arc<str>>>,
        app: &'static str,
        transport: Transport,
    ) {
        let again = self.hold * 3 / 4;
        let mut asked = Instant::now();
        loop {
            let ended = tokio::time::timeout(again.min(TEST_INTERVAL), over.wait_for(Option::is_some));
            if ended.await.is_ok() {
                return;
            }
            let last = lock(&self.state).last.clone();
            if asked.elapsed() < again {
                self.is_alive(app, &transport).await;
                continue;
            }
            asked = Instant::now();
            for (path, headers) in last {
                // Credentials may have expired, and others may have been used since.
                let latest = lock(&self.state).latest.clone();
                for headers in [headers, latest] {
                    let admitted =
                        process_timeout::timeout(TEST_TIMEOUT, self.ask(app, &path, &headers, &transport)).await;
                    let Ok(Err(status)) = admitted else { break };
                    // A refused caller asks with other metadata at its next call, or its membership ends.
                    tracing::warn!(
                        application = app,
                        path,
                        "the server refused to renew the admission: {}",
                        status.message()
                    );
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
    fn admission_is_valid_for_its_method_and_metadata_only() {
        let now = Instant::now();
        let admissions = Admissions::new(vec![1; 16], HOUR, now, &bearer("a", "1"), vec!["/a/A".into()]);
        assert!(admissions.has("/a/A", &bearer("a", "2")), "another trace is no other caller");
        assert!(!admissions.has("/a/B", &bearer("a", "1")));
        assert!(!admissions.has("/a/A", &bearer("b", "1")));
        assert!(!admissions.has("/a/A", &HeaderMap::new()));
    }

    #[test]
    fn expired_admission_is_not_valid() {
        let Some(now) = Instant::now().checked_sub(HOLD_MIN) else { return };
        let admissions = Admissions::new(vec![1; 16], HOLD_MIN, now, &bearer("a", "1"), vec!["/a/A".into()]);
        assert!(!admissions.has("/a/A", &bearer("a", "1")));
    }

    #[test]
    fn oldest_admission_is_dropped_at_capacity() {
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
