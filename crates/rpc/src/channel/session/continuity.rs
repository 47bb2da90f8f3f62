//! Continuity of a caller over its sessions: an error where the next session does not go on from the last one.
//!
//! A restarted server has lost the values of its callers: the next query fails once, with DATA_LOSS.
//!
//! A worker of sums whose session was lost joins again, and begins with the server's first open chunk. If that is not its
//! own next chunk, another worker is at another step: it repeats a sum whose result this worker has, or it has gone on.
//! Their values would be added to each other. So the next sum of this worker fails once, with ABORTED.

use pathcall_proto::manifest::{Kind, Method};
use tonic::Status;

use super::{ChannelApplication, MapSession, lock};

/// Where the next sum of a worker begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SumPosition {
    /// Incarnation of the caller in its session.
    session: u32,
    /// Id of the server's state.
    pub(super) server: u32,
    /// Number of the next chunk.
    pub(super) chunk: u64,
}

impl ChannelApplication {
    /// Records a call that has succeeded: the session's server may have state of this caller.
    pub(in crate::channel) fn mark_server_state(&self, method: &Method, session: &MapSession) {
        match method.kind {
            Kind::Add { .. } | Kind::Count { .. } => self.mark_state_at(session.server),
            Kind::Sum { .. } => {
                let (session, server, chunk) = (session.incarnation, session.server, session.handle.next_sum_chunk());
                *lock(&self.sum_position) = Some(SumPosition { session, server, chunk });
            }
            _ => {}
        }
    }

    /// Records that this server has state of this caller, for a call with an id.
    pub(in crate::channel) fn mark_state_at(&self, server: u32) {
        lock(&self.stateful_server).get_or_insert(server);
    }

    /// Begins a call in this session. Fails once, instead of a silent zero or a sum of two steps, if the session does
    /// not go on from the last one.
    pub(in crate::channel) fn check_continuity(&self, method: &Method, session: &MapSession) -> Result<(), Status> {
        match method.kind {
            Kind::Query | Kind::Add { get: true, .. } | Kind::Clear => self.check_loss(method, session),
            Kind::Sum { .. } => self.check_step(method, session),
            _ => Ok(()),
        }
    }

    /// Fails if the server has restarted since it had values of this caller.
    fn check_loss(&self, method: &Method, session: &MapSession) -> Result<(), Status> {
        let mut stateful_server = lock(&self.stateful_server);
        if stateful_server.is_none_or(|server| server == session.server) {
            return Ok(());
        }
        *stateful_server = Some(session.server);
        let (path, app) = (method.path, method.app);
        Err(Status::data_loss(format!("{path}: the server of {app} has restarted and lost the values of this caller")))
    }

    /// Fails if another worker may be at another step.
    fn check_step(&self, method: &Method, session: &MapSession) -> Result<(), Status> {
        // A sum that fails tells the caller, so only a sum that succeeds leaves a position.
        let Some(last) = lock(&self.sum_position).take() else { return Ok(()) };
        let goes_on = (last.server, last.chunk) == (session.server, session.start_chunk);
        if last.session == session.incarnation || goes_on {
            return Ok(());
        }
        let (path, app) = (method.path, method.app);
        Err(Status::aborted(format!(
            "{path}: this worker has joined {app} again, and another worker may be at another step: agree on a step, \
             then call its sum in all workers"
        )))
    }
}
