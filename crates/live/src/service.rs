//! Service `Function`: turns calls into commands for the element's thread.

use std::sync::Arc;

use pathcall_auth::caller;
use pathcall_function::ir::Program;
use pathcall_function::live::Word;
use pathcall_function::place::ServerId;
use pathcall_proto::v1::function_server::Function;
use pathcall_proto::v1::{
    ChangeGroupReply, ChangeGroupRequest, FunctionStatusReply, FunctionStatusRequest, ServerHello, ServerTask,
    ServerWord, server_word,
};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::server::WAITING_MAX;
use crate::wake::Waker;
use crate::words;

/// A server that is taken, by one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) server: ServerId,
    pub(crate) connection: u64,
}

/// A server offers itself.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) hello: ServerHello,
    pub(crate) tasks: mpsc::Sender<Result<ServerTask, Status>>,
    pub(crate) taken: oneshot::Sender<Result<Taken, Status>>,
}

/// What the element's thread is to do.
#[derive(Debug)]
pub(crate) enum Command {
    Hello(Offer),
    Word(Taken, Word),
    /// The connection has ended.
    Gone(Taken),
    Change(ChangeGroupRequest, oneshot::Sender<Result<ChangeGroupReply, Status>>),
    Status(oneshot::Sender<FunctionStatusReply>),
    Stop,
}

/// A way to the thread that does not keep it running.
#[derive(Debug, Clone)]
pub(crate) struct Commands {
    sender: mpsc::WeakSender<Command>,
    waker: Waker,
}

/// Wakes the thread when it is dropped.
struct Wakes<'a>(&'a Waker);

impl Drop for Wakes<'_> {
    fn drop(&mut self) {
        self.0.wake();
    }
}

impl Commands {
    pub(crate) fn new(sender: &mpsc::Sender<Command>, waker: Waker) -> Self {
        Self { sender: sender.downgrade(), waker }
    }

    /// Waits while the thread has enough to do. Whether there is one.
    pub(crate) async fn send(&self, command: Command) -> bool {
        // Behind the sender, which may be the last: then the thread ends.
        let _wakes = Wakes(&self.waker);
        let Some(sender) = self.sender.upgrade() else { return false };
        sender.send(command).await.is_ok()
    }

    async fn ask<R>(&self, command: impl FnOnce(oneshot::Sender<R>) -> Command) -> Result<R, Status> {
        let (answer, answered) = oneshot::channel();
        self.send(command(answer)).await;
        answered.await.map_err(|_| Status::unavailable("the element is stopping"))
    }
}

/// The service of one function.
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

    async fn serve(&self, request: Request<Streaming<ServerWord>>) -> Result<Response<Self::ServeStream>, Status> {
        let (_, extensions, mut said) = request.into_parts();
        let Some(ServerWord { word: Some(server_word::Word::Hello(hello)) }) = said.message().await? else {
            return Err(Status::invalid_argument("expected a hello first"));
        };
        caller::check(&extensions, &hello.name)?;
        let (tasks, told) = mpsc::channel(WAITING_MAX);
        let taken = self.commands.ask(|taken| Command::Hello(Offer { hello, tasks, taken })).await??;
        tokio::spawn(listen(Arc::clone(&self.program), self.commands.clone(), taken, said));
        Ok(Response::new(ReceiverStream::new(told)))
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

/// Passes on what a server says until it is silent for good, or says what does not fit.
async fn listen(program: Arc<Program>, commands: Commands, from: Taken, mut said: Streaming<ServerWord>) {
    while let Ok(Some(word)) = said.message().await {
        match words::word_in(&program, word) {
            Ok(word) => {
                if !commands.send(Command::Word(from, word)).await {
                    return;
                }
            }
            Err(unfit) => {
                tracing::warn!(%unfit, "a server is not heard any more");
                break;
            }
        }
    }
    commands.send(Command::Gone(from)).await;
}
