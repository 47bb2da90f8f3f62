//! What leads to servers: of each the one connection that counts.
//!
//! ```text
//! hello ─► begins ── the controller has taken it: up ─► current ── gone, dead, or full ─► none
//! ```
//!
//! What an earlier connection of a server says, or its end, is nothing of the present one's.

use pathcall_function::place::ServerId;
use pathcall_proto::v1::ServerTask;
use tokio::sync::mpsc;
use tonic::Status;

use crate::service::Taken;

pub(super) type Tasks = mpsc::Sender<Result<ServerTask, Status>>;

/// Of all servers.
#[derive(Debug)]
pub(super) struct Links {
    servers: Vec<Link>,
    /// The number of the last connection.
    connections: u64,
}

#[derive(Debug, Default)]
struct Link {
    now: Option<Connection>,
    /// It has said hello, and the controller has not taken it for another than before yet.
    next: Option<Connection>,
}

#[derive(Debug)]
struct Connection {
    number: u64,
    tasks: Tasks,
}

impl Links {
    /// To so many servers, none of which is connected.
    pub(super) fn new(servers: usize) -> Self {
        Self { servers: (0..servers).map(|_| Link::default()).collect(), connections: 0 }
    }

    /// A server has said hello: it begins anew, and what its last connection says is void.
    pub(super) fn begins(&mut self, server: ServerId, tasks: Tasks) -> Taken {
        self.connections += 1;
        let connection = Connection { number: self.connections, tasks };
        if let Some(link) = self.servers.get_mut(usize::from(server)) {
            *link = Link { now: None, next: Some(connection) };
        }
        Taken { server, connection: self.connections }
    }

    /// The controller has taken the server in.
    pub(super) fn up(&mut self, server: ServerId) {
        if let Some(link) = self.servers.get_mut(usize::from(server)) {
            link.now = link.next.take();
        }
    }

    /// The controller takes the server for dead: nothing is said to it, and nothing that it says counts.
    pub(super) fn down(&mut self, server: ServerId) {
        if let Some(link) = self.servers.get_mut(usize::from(server)) {
            link.now = None;
        }
    }

    /// A connection has ended.
    pub(super) fn gone(&mut self, from: Taken) {
        if self.is_current(from) {
            self.down(from.server);
        }
    }

    /// Whether what comes by this connection counts.
    pub(super) fn is_current(&self, from: Taken) -> bool {
        let now = self.servers.get(usize::from(from.server)).and_then(|link| link.now.as_ref());
        now.is_some_and(|connection| connection.number == from.connection)
    }

    /// Tells a server something. Who takes in nothing is lost, and will begin anew.
    pub(super) fn tell(&mut self, server: ServerId, task: ServerTask) {
        let Some(link) = self.servers.get_mut(usize::from(server)) else { return };
        let Some(connection) = &link.now else { return };
        if connection.tasks.try_send(Ok(task)).is_err() {
            link.now = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks() -> (Tasks, mpsc::Receiver<Result<ServerTask, Status>>) {
        mpsc::channel(1)
    }

    #[test]
    fn connection_counts_once_the_controller_has_taken_its_server() {
        let mut links = Links::new(2);
        let (send, mut told) = tasks();
        let first = links.begins(1, send);
        assert!(!links.is_current(first));
        links.tell(1, ServerTask::default());
        assert!(told.try_recv().is_err(), "what was for the server before is not for it");
        links.up(1);
        assert!(links.is_current(first) && !links.is_current(Taken { server: 0, ..first }));
        links.tell(1, ServerTask::default());
        assert!(told.try_recv().is_ok());
        links.down(1);
        assert!(!links.is_current(first));
    }

    #[test]
    fn earlier_connection_says_nothing_of_the_present_one() {
        let mut links = Links::new(1);
        let first = links.begins(0, tasks().0);
        links.up(0);
        let second = links.begins(0, tasks().0);
        assert!(!links.is_current(first) && !links.is_current(second), "it begins anew");
        // The one before is found dead, as it was.
        links.down(0);
        links.up(0);
        assert!(!links.is_current(first) && links.is_current(second));
        links.gone(first);
        assert!(links.is_current(second), "its end is seen late");
        links.gone(second);
        assert!(!links.is_current(second));
    }

    #[test]
    fn server_that_takes_nothing_in_is_lost() {
        let mut links = Links::new(1);
        let (send, _told) = tasks();
        let slow = links.begins(0, send);
        links.up(0);
        links.tell(0, ServerTask::default());
        assert!(links.is_current(slow));
        links.tell(0, ServerTask::default());
        assert!(!links.is_current(slow), "there is no room for more");
    }
}
