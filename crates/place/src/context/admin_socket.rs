//! Admin socket of a context: the socket's thread passes queries to the context, which answers them between other
//! work.

use std::io;
use std::path::Path;

use crossbeam_channel::{Receiver, SendTimeoutError, Sender, bounded};

use super::PlaceContext;
use crate::admin_socket::{AdminQuery, AdminSocket, CLIENT_TIMEOUT};

/// Limit on the queued queries.
const WAITING_MAX: usize = 16;

/// Query, with the sender for its answer.
type QueuedQuery = (AdminQuery, Sender<String>);

/// Admin socket and its queued queries.
#[derive(Debug)]
pub(super) struct ContextAdminSocket {
    // Dropped before the socket, so that no thread waits for an answer at the end.
    pub(super) asked: Receiver<QueuedQuery>,
    _socket: AdminSocket,
}

impl ContextAdminSocket {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let (ask, asked) = bounded(WAITING_MAX);
        Ok(Self { asked, _socket: AdminSocket::open(path, move |query| answer(query, &ask))? })
    }
}

fn answer(query: AdminQuery, ask: &Sender<QueuedQuery>) -> String {
    let (to, answer) = bounded(1);
    match ask.send_timeout((query, to), CLIENT_TIMEOUT) {
        Err(SendTimeoutError::Disconnected(_)) => return "the program ends\n".into(),
        Ok(()) | Err(SendTimeoutError::Timeout(_)) => {}
    }
    let busy = "no answer within 5 s: the program is busy\n";
    answer.recv_timeout(CLIENT_TIMEOUT).unwrap_or_else(|_| busy.into())
}

impl PlaceContext {
    /// Text for an operator.
    #[must_use]
    pub fn answer_query(&self, query: AdminQuery) -> String {
        match query {
            AdminQuery::Explain(count) => self.explain(count).map(|line| format!("{line}\n")).collect(),
            AdminQuery::Status => self.telemetry().to_string(),
        }
    }

    /// Answers the queued queries.
    pub(super) fn answer_queries(&self) {
        let Some(socket) = &self.admin_socket else { return };
        while let Ok((query, to)) = socket.asked.try_recv() {
            let _ = to.try_send(self.answer_query(query));
        }
    }
}
