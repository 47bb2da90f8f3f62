//! gRPC service `Function`: turns calls into commands for the element's thread.

use std::sync::Arc;

use pathcall_auth::caller;
use pathcall_netfn::live::ServerMessage;
use pathcall_netfn::place::ServerId;
use pathcall_p4::ir::Program;
use pathcall_proto::v1::function_server::Function;
use pathcall_proto::v1::{
    ChangeGroupReply, ChangeGroupRequest, FunctionStatusReply, FunctionStatusRequest, ServerHello, ServerReport,
    ServerTask, server_report,
};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::messages;
use crate::server::WAITING_MAX;
use crate::waker::Waker;

/// Connection of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectionId {
    pub(crate) server: ServerId,
    pub(crate) connection: u64,
}

/// Hello of a server, with the queue for its commands.
#[derive(Debug)]
pub(crate) struct HelloRequest {
    pub(crate) hello: ServerHello,
    pub(crate) commands: mpsc::Sender<Result<ServerTask, Status>>,
    pub(crate) taken: oneshot::Sender<Result<ConnectionId, Status>>,
}

/// Command for the element's thread.
#[derive(Debug)]
pub(crate) enum Command {
    Hello(HelloRequest),
    Message(ConnectionId, ServerMessage),
    /// The connection has ended.
    Closed(ConnectionId),
    Change(ChangeGroupRequest, oneshot::Sender<Result<ChangeGroupReply, Status>>),
    Status(oneshot::Sender<FunctionStatusReply>),
    Stop,
}

/// Command queue of the thread; it does not keep the thread running.
#[derive(Debug, Clone)]
pub(crate) struct Commands {
    sender: mpsc::WeakSender<Command>,
    waker: Waker,
}

/// Guard that wakes the thread when it is dropped.
struct WakeOnDrop<'a>(&'a Waker);

impl Drop for WakeOnDrop<'_> {
    fn drop(&mut self) {
        self.0.wake();
    }
}

impl Commands {
    pub(crate) fn new(sender: &mpsc::Sender<Command>, waker: Waker) -> Self {
        Self { sender: sender.downgrade(), waker }
    }

    /// Sends a command, and waits while the queue is full; false if the thread has ended.
    pub(crate) async fn send(&self, command: Command) -> bool {
        // Dropped after the sender, which may be the last one: the thread then ends.
        let _wakes = WakeOnDrop(&self.waker);
        let Some(sender) = self.sender.upgrade() else { return false };
        sender.send(command).await.is_ok()
    }

    async fn ask<R>(&self, command: impl FnOnce(oneshot::Sender<R>) -> Command) -> Result<R, Status> {
        let (answer, answered) = oneshot::channel();
        self.send(command(answer)).await;
        answered.await.map_err(|_| Status::unavailable("the element is stopping"))
    }
}

/// gRPC service of one function.
#[derive(Debug)]
pub(crate) struct Service {
    program: Arc<Program>,
    commands: Commands,
}

impl Service {
    pub(crate) fn new(program: Arc<Program>, commands: Commands) -> Self {
        Self { program, commands }
    }
}

#[tonic::async_trait]
impl Function for Service {
    type ServeStream = ReceiverStream<Result<ServerTask, Status>>;

    async fn serve(&self, request: Request<Streaming<ServerReport>>) -> Result<Response<Self::ServeStream>, Status> {
        let (_, extensions, mut messages_in) = request.into_parts();
        let Some(ServerReport { report: Some(server_report::Report::Hello(hello)) }) = messages_in.message().await?
        else {
            return Err(Status::invalid_argument("expected a hello first"));
        };
        caller::check(&extensions, &hello.name)?;
        let (commands, command_receiver) = mpsc::channel(WAITING_MAX);
        let taken = self.commands.ask(|taken| Command::Hello(HelloRequest { hello, commands, taken })).await??;
        tokio::spawn(forward_messages(Arc::clone(&self.program), self.commands.clone(), taken, messages_in));
        Ok(Response::new(ReceiverStream::new(command_receiver)))
    }

    async fn change_group(&self, request: Request<ChangeGroupRequest>) -> Result<Response<ChangeGroupReply>, Status> {
        let request = request.into_inner();
        Ok(Response::new(self.commands.ask(|answer| Command::Change(request, answer)).await??))
    }

    async fn function_status(
        &self,
        _: Request<FunctionStatusRequest>,
    ) -> Result<Response<FunctionStatusReply>, Status> {
        Ok(Response::new(self.commands.ask(Command::Status).await?))
    }
}

/// Forwards the messages of a server until its stream ends or a message does not fit the function.
async fn forward_messages(
    program: Arc<Program>,
    commands: Commands,
    from: ConnectionId,
    mut messages_in: Streaming<ServerReport>,
) {
    while let Ok(Some(message)) = messages_in.message().await {
        match messages::decode_message(&program, message) {
            Ok(message) => {
                if !commands.send(Command::Message(from, message)).await {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "server disconnected after an invalid message");
                break;
            }
        }
    }
    commands.send(Command::Closed(from)).await;
}
