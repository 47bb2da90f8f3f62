//! Who writes and reads: finds head and tail, and repeats what failed.

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

/// A failed call is repeated when the view changes, or after this.
const PAUSE: Duration = Duration::from_millis(20);

/// A client: one operation at a time.
#[derive(Debug)]
pub struct Client {
    id: u64,
    seq: u64,
    master: MasterClient<pathcall::Channel>,
    view: View,
    chains: BTreeMap<String, ChainClient<pathcall::Channel>>,
    node: Node,
    options: CallOptions,
    give_up: Duration,
    nested: bool,
    repeats: u64,
}

#[derive(Debug)]
enum Ask {
    Write(WriteRequest),
    Read(ReadRequest),
}

impl Client {
    /// A client of the chain that the master at this URL keeps. It repeats what fails for `give_up`.
    ///
    /// # Errors
    /// When the URL is none.
    pub fn new(master: &str, node: Node, options: CallOptions, give_up: Duration) -> Result<Self> {
        let master = MasterClient::new(nodes::channel(master, &pb::PATHCALL, &node, options)?);
        Ok(Self {
            id: rand::random(),
            seq: 0,
            master,
            view: View::default(),
            chains: BTreeMap::new(),
            node,
            options,
            give_up,
            nested: false,
            repeats: 0,
        })
    }

    /// Has each node call the next and wait for it, from now on: nested remote calls.
    pub fn nest(&mut self, nested: bool) {
        self.nested = nested;
    }

    /// How often it has repeated a call.
    #[must_use]
    pub fn repeats(&self) -> u64 {
        self.repeats
    }

    /// Writes once, however often it has to ask; the value of the key after that.
    ///
    /// # Errors
    /// The last call's, when it gives up: it may have written, or not.
    pub async fn write(&mut self, key: &str, effect: Effect) -> Result<String, Status> {
        self.seq += 1;
        let update = Update { client: self.id, seq: self.seq, key: key.to_owned(), effect: Some(effect) };
        let request = WriteRequest { update: Some(update), nested: self.nested };
        Ok(self.repeat(&Ask::Write(request)).await?.value.unwrap_or_default())
    }

    /// The value of a key.
    ///
    /// # Errors
    /// The last call's, when it gives up.
    pub async fn read(&mut self, key: &str) -> Result<Option<String>, Status> {
        Ok(self.repeat(&Ask::Read(ReadRequest { key: key.to_owned() })).await?.value)
    }

    async fn repeat(&mut self, ask: &Ask) -> Result<Value, Status> {
        let began = Instant::now();
        loop {
            match self.once(ask).await {
                Err(status) if is_passing(&status) && began.elapsed() < self.give_up => {
                    self.repeats += u64::from(self.view.number > 0);
                    self.look().await;
                }
                done => return done,
            }
        }
    }

    async fn once(&mut self, ask: &Ask) -> Result<Value, Status> {
        if self.view.number == 0 {
            return Err(Status::unavailable("the master does not answer"));
        }
        let mut replies = match ask {
            Ask::Write(request) => {
                let head = self.view.members.first().map(|head| head.url.clone());
                self.chain(head)?.write(self.limited(request.clone())).await?
            }
            Ask::Read(request) => {
                let tail = self.view.members.last().map(|tail| tail.url.clone());
                self.chain(tail)?.read(self.limited(request.clone())).await?
            }
        };
        let value = replies.get_mut().message().await?;
        value.ok_or_else(|| Status::unavailable("the call is complete, and nobody replied"))
    }

    /// Gets the next view, or this one again if that does not change soon.
    async fn look(&mut self) {
        let mut master = self.master.clone();
        let number = self.view.number + 1;
        let watch = async move {
            let replies = master.watch(WatchRequest { number }).await.ok()?;
            replies.into_inner().message().await.ok()?
        };
        let began = Instant::now();
        // The first one takes the time to connect.
        let wait = if self.view.number == 0 { self.give_up } else { PAUSE };
        match timeout(wait, watch).await {
            Ok(Some(view)) => self.view = view,
            // The master is not there: no sooner than else.
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

/// Whether it may go well another time. A server that stops in the middle of a call says many things.
fn is_passing(status: &Status) -> bool {
    !matches!(status.code(), Code::InvalidArgument | Code::Aborted | Code::Unimplemented | Code::OutOfRange)
}
