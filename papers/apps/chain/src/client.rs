//! Client of the chain: finds head and tail, and repeats failed calls.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use apps_report::nodes;
use pathcall::delegate::{CallOptions, Node};
use tokio::time::timeout;
use tonic::{Code, Request, Status};

use crate::pb::chain_client::ChainClient;
use crate::pb::master_client::MasterClient;
use crate::pb::update::Effect;
use crate::pb::{self, ReadRequest, Update, Value, View, WatchRequest, WriteRequest};

/// Maximum wait before a failed call is repeated; a new view ends the wait.
const PAUSE: Duration = Duration::from_millis(20);

/// Client that runs one operation at a time.
#[derive(Debug)]
pub struct Client {
    id: u64,
    seq: u64,
    master: MasterClient<pathcall::Channel>,
    view: View,
    chains: BTreeMap<String, ChainClient<pathcall::Channel>>,
    node: Node,
    options: CallOptions,
    retry_time: Duration,
    nested: bool,
    repeats: u64,
}

#[derive(Debug)]
enum ClientRequest {
    Write(WriteRequest),
    Read(ReadRequest),
}

impl Client {
    /// Creates a client of the chain whose master has this URL. The client repeats failed calls for `retry_time`.
    ///
    /// # Errors
    /// Returns an error if the URL is invalid.
    pub fn new(master: &str, node: Node, options: CallOptions, retry_time: Duration) -> Result<Self> {
        let master = MasterClient::new(nodes::channel(master, &pb::PATHCALL, &node, options)?);
        Ok(Self {
            id: rand::random(),
            seq: 0,
            master,
            view: View::default(),
            chains: BTreeMap::new(),
            node,
            options,
            retry_time,
            nested: false,
            repeats: 0,
        })
    }

    /// Selects nested remote calls: each node calls the next one and waits for its answer.
    pub fn nest(&mut self, nested: bool) {
        self.nested = nested;
    }

    /// Number of repeated calls.
    #[must_use]
    pub fn repeats(&self) -> u64 {
        self.repeats
    }

    /// Updates a key exactly once, with as many attempts as needed; returns the new value.
    ///
    /// # Errors
    /// Returns the error of the last attempt when the time is over. The update may have taken effect or not.
    pub async fn write(&mut self, key: &str, effect: Effect) -> Result<String, Status> {
        self.seq += 1;
        let update = Update { client: self.id, seq: self.seq, key: key.to_owned(), effect: Some(effect) };
        let request = WriteRequest { update: Some(update), nested: self.nested };
        Ok(self.repeat(&ClientRequest::Write(request)).await?.value.unwrap_or_default())
    }

    /// Reads the value of a key.
    ///
    /// # Errors
    /// Returns the error of the last attempt when the time is over.
    pub async fn read(&mut self, key: &str) -> Result<Option<String>, Status> {
        Ok(self.repeat(&ClientRequest::Read(ReadRequest { key: key.to_owned() })).await?.value)
    }

    async fn repeat(&mut self, ask: &ClientRequest) -> Result<Value, Status> {
        let began = Instant::now();
        loop {
            match self.once(ask).await {
                Err(status) if is_transient(&status) && began.elapsed() < self.retry_time => {
                    self.repeats += u64::from(self.view.number > 0);
                    self.refresh_view().await;
                }
                done => return done,
            }
        }
    }

    async fn once(&mut self, ask: &ClientRequest) -> Result<Value, Status> {
        if self.view.number == 0 {
            return Err(Status::unavailable("the master does not answer"));
        }
        let mut replies = match ask {
            ClientRequest::Write(request) => {
                let head = self.view.members.first().map(|head| head.url.clone());
                self.chain(head)?.write(self.limited(request.clone())).await?
            }
            ClientRequest::Read(request) => {
                let tail = self.view.members.last().map(|tail| tail.url.clone());
                self.chain(tail)?.read(self.limited(request.clone())).await?
            }
        };
        let value = replies.get_mut().message().await?;
        value.ok_or_else(|| Status::unavailable("the call completed without a reply"))
    }

    /// Waits for the next view; returns with the old view after a pause.
    async fn refresh_view(&mut self) {
        let mut master = self.master.clone();
        let number = self.view.number + 1;
        let watch = async move {
            let replies = master.watch(WatchRequest { number }).await.ok()?;
            replies.into_inner().message().await.ok()?
        };
        let began = Instant::now();
        // The first call needs time to connect.
        let wait = if self.view.number == 0 { self.retry_time } else { PAUSE };
        match timeout(wait, watch).await {
            Ok(Some(view)) => self.view = view,
            // The master is unreachable: wait as long as in the other case.
            Ok(None) => tokio::time::sleep(PAUSE.saturating_sub(began.elapsed())).await,
            Err(_) => {}
        }
    }

    fn limited<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(4 * self.options.timeout);
        request
    }

    fn chain(&mut self, url: Option<String>) -> Result<ChainClient<pathcall::Channel>, Status> {
        let url = url.ok_or_else(|| Status::unavailable("the chain has no nodes"))?;
        if let Some(chain) = self.chains.get(&url) {
            return Ok(chain.clone());
        }
        let channel = nodes::channel(&url, &pb::PATHCALL, &self.node, self.options);
        let chain = ChainClient::new(channel.map_err(|error| Status::internal(format!("{error:#}")))?);
        Ok(self.chains.entry(url).or_insert(chain.max_decoding_message_size(usize::MAX)).clone())
    }
}

/// True if another attempt may succeed. A server that stops during a call returns various status codes.
fn is_transient(status: &Status) -> bool {
    !matches!(status.code(), Code::InvalidArgument | Code::Aborted | Code::Unimplemented | Code::OutOfRange)
}
