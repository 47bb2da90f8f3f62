//! Connections to the servers of a function, at most one current connection for each server.
//!
//! ```text
//! hello ─► open ── controller reports the server up: activate ─► current ── closed, dead, or queue full ─► none
//! ```
//!
//! Messages of an earlier connection of the server, and its end, are ignored.

use pathcall_netfn::place::ServerId;
use pathcall_proto::v1::ServerTask;
use tokio::sync::mpsc;
use tonic::Status;

use crate::service::ConnectionId;

pub(super) type CommandSender = mpsc::Sender<Result<ServerTask, Status>>;

/// Connections of all servers.
#[derive(Debug)]
pub(super) struct Connections {
    servers: Vec<ServerSlot>,
    /// Number of the last connection.
    connections: u64,
}

#[derive(Debug, Default)]
struct ServerSlot {
    current: Option<Connection>,
    /// Connection that has said hello, and that the controller has not activated yet.
    opened: Option<Connection>,
}

#[derive(Debug)]
struct Connection {
    number: u64,
    commands: CommandSender,
}

impl Connections {
    /// Connections of `servers` servers, none of which is connected.
    pub(super) fn new(servers: usize) -> Self {
        Self { servers: (0..servers).map(|_| ServerSlot::default()).collect(), connections: 0 }
    }

    /// Opens a connection after a hello: the server has restarted, so its last connection is void.
    pub(super) fn open(&mut self, server: ServerId, commands: CommandSender) -> ConnectionId {
        self.connections += 1;
        let connection = Connection { number: self.connections, commands };
        if let Some(link) = self.servers.get_mut(usize::from(server)) {
            *link = ServerSlot { current: None, opened: Some(connection) };
        }
        ConnectionId { server, connection: self.connections }
    }

    /// Activates the open connection: the controller has accepted the server.
    pub(super) fn activate(&mut self, server: ServerId) {
        if let Some(link) = self.servers.get_mut(usize::from(server)) {
            link.current = link.opened.take();
        }
    }

    /// Deactivates the current connection: the controller takes the server for dead.
    pub(super) fn deactivate(&mut self, server: ServerId) {
        if let Some(link) = self.servers.get_mut(usize::from(server)) {
            link.current = None;
        }
    }

    /// Closes a connection that has ended.
    pub(super) fn close(&mut self, from: ConnectionId) {
        if self.is_current(from) {
            self.deactivate(from.server);
        }
    }

    /// Whether `from` is the current connection of its server.
    pub(super) fn is_current(&self, from: ConnectionId) -> bool {
        let current = self.servers.get(usize::from(from.server)).and_then(|link| link.current.as_ref());
        current.is_some_and(|connection| connection.number == from.connection)
    }

    /// Sends a command to a server. A server with a full queue loses its connection, and will restart.
    pub(super) fn send(&mut self, server: ServerId, task: ServerTask) {
        let Some(link) = self.servers.get_mut(usize::from(server)) else { return };
        let Some(connection) = &link.current else { return };
        if connection.commands.try_send(Ok(task)).is_err() {
            link.current = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands() -> (CommandSender, mpsc::Receiver<Result<ServerTask, Status>>) {
        mpsc::channel(1)
    }

    #[test]
    fn connection_is_current_after_activation() {
        let mut connections = Connections::new(2);
        let (send, mut commands) = commands();
        let first = connections.open(1, send);
        assert!(!connections.is_current(first));
        connections.send(1, ServerTask::default());
        assert!(commands.try_recv().is_err(), "a command for the previous instance is not sent");
        connections.activate(1);
        assert!(connections.is_current(first) && !connections.is_current(ConnectionId { server: 0, ..first }));
        connections.send(1, ServerTask::default());
        assert!(commands.try_recv().is_ok());
        connections.deactivate(1);
        assert!(!connections.is_current(first));
    }

    #[test]
    fn earlier_connection_does_not_affect_current_one() {
        let mut connections = Connections::new(1);
        let first = connections.open(0, commands().0);
        connections.activate(0);
        let second = connections.open(0, commands().0);
        assert!(!connections.is_current(first) && !connections.is_current(second), "not activated yet");
        // The controller finds the previous instance dead.
        connections.deactivate(0);
        connections.activate(0);
        assert!(!connections.is_current(first) && connections.is_current(second));
        connections.close(first);
        assert!(connections.is_current(second), "the end of an earlier connection is ignored");
        connections.close(second);
        assert!(!connections.is_current(second));
    }

    #[test]
    fn server_with_full_queue_loses_connection() {
        let mut connections = Connections::new(1);
        let (send, _commands) = commands();
        let slow = connections.open(0, send);
        connections.activate(0);
        connections.send(0, ServerTask::default());
        assert!(connections.is_current(slow));
        connections.send(0, ServerTask::default());
        assert!(!connections.is_current(slow), "the queue is full");
    }
}
