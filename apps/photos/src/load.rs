//! Load generator: several callers, each with concurrent calls of all kinds, which check each answer.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use apps_load::Random;
use apps_report::call_path::Transport;
use apps_report::digest;
use pathcall::place::ROLE;
use pathcall::types::StrintMap;
use prost::Message;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::codegen::{Bytes, StdError};
use tonic::{Code, Status};

use crate::album;
use crate::pb::photos_client::PhotosClient;
use crate::pb::{All, Likes, PhotoId, Words};

/// Time for which an unavailable call is repeated, as servers may be restarted.
const RETRY_TIMEOUT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);

/// Kind of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Kind {
    /// Adds two likes.
    Like,
    /// Reads a photo.
    Get,
    /// Makes a thumbnail of a photo.
    Thumbnail,
    /// Searches all photos of a word.
    Find,
}

/// All kinds.
pub const KINDS: [Kind; 4] = [Kind::Like, Kind::Get, Kind::Thumbnail, Kind::Find];

/// Connections of a caller.
#[derive(Debug, Clone)]
pub struct Caller<T> {
    /// Client of the front server.
    pub front: PhotosClient<T>,
    /// Clients for reads: the front's pool, or one of these at random.
    pub readers: Vec<PhotosClient<T>>,
}

/// Number of calls.
#[derive(Debug, Clone)]
pub struct CallPlan {
    /// Kinds of the calls.
    pub kinds: Vec<Kind>,
    /// Least number of calls of each kind, by each caller.
    pub calls: u64,
    /// Calls continue until this is true.
    pub until: watch::Receiver<bool>,
    /// Number of completed calls of all kinds and callers.
    pub done: watch::Sender<u64>,
}

/// Call with a correct answer.
#[derive(Debug, Clone)]
pub struct CompletedCall {
    /// Kind of the call.
    pub kind: Kind,
    /// Start, relative to the first call.
    pub began: Duration,
    /// Duration, including repeats.
    pub took: Duration,
    /// Device of a thumbnail, if reported.
    pub role: Option<String>,
    /// Number of repeats.
    pub again: u64,
}

/// Outcome of all calls.
#[derive(Debug)]
pub struct RunOutcome {
    /// All calls.
    pub calls: Vec<CompletedCall>,
    /// Total time.
    pub took: Duration,
    /// Hash of all answers to the planned calls, and of the added likes.
    pub digest: String,
}

/// Makes all calls.
///
/// # Errors
/// Returns an error if a call fails or has a wrong answer.
pub async fn run<T>(callers: &[Caller<T>], plan: &CallPlan) -> Result<RunOutcome>
where
    T: Transport<Error: Into<StdError>, ResponseBody = tonic::body::Body> + Sync,
    T::Future: Send,
{
    let first = &callers.first().context("no callers")?.front;
    // Other callers may have added likes before.
    let mut expected = likes(first).await?;
    let before = expected.clone();
    let (began, mut running) = (Instant::now(), JoinSet::new());
    for (number, caller) in callers.iter().enumerate() {
        for &kind in &plan.kinds {
            let one = CallLoop { caller: caller.clone(), number: number as u64, kind, began };
            running.spawn(one.run(plan.clone()));
        }
    }
    let (mut calls, mut hash) = (Vec::new(), 0_u64);
    while let Some(done) = running.join_next().await {
        let done = done.context("a caller ended")??;
        calls.extend(done.calls);
        hash = hash.wrapping_add(done.hash);
        for (photo, likes) in done.likes {
            *expected.entry(photo).or_default() += likes;
        }
    }
    let took = began.elapsed();
    let counted = likes(first).await?;
    ensure!(counted == expected, "likes: expected {expected:?}, got {counted:?}");
    let ours = counted.iter().map(|(photo, likes)| (photo, likes - before.get(photo).unwrap_or(&0)));
    let likes: Vec<String> = ours.map(|(photo, likes)| format!("{photo} {likes}")).collect();
    let digest = digest(likes.iter().map(String::as_bytes).chain([&hash.to_be_bytes()[..]]));
    Ok(RunOutcome { calls, took, digest })
}

/// Likes of each photo.
async fn likes<T>(front: &PhotosClient<T>) -> Result<BTreeMap<String, i64>>
where
    T: Transport<Error: Into<StdError>, ResponseBody = tonic::body::Body> + Sync,
    T::Future: Send,
{
    let counted = front.clone().count(All {}).await.context("cannot read the likes")?;
    Ok(counted.into_inner().of.unwrap_or_default().map.into_iter().collect())
}

/// Sequence of calls of one kind by one caller.
struct CallLoop<T> {
    caller: Caller<T>,
    number: u64,
    kind: Kind,
    began: Instant,
}

#[derive(Default)]
struct Done {
    calls: Vec<CompletedCall>,
    hash: u64,
    likes: BTreeMap<String, i64>,
}

impl<T> CallLoop<T>
where
    T: Transport<Error: Into<StdError>, ResponseBody = tonic::body::Body> + Sync,
    T::Future: Send,
    Bytes: Send,
{
    async fn run(mut self, plan: CallPlan) -> Result<Done> {
        let (mut done, mut nth) = (Done::default(), 0);
        while nth < plan.calls || !*plan.until.borrow() {
            let (since, mut again) = (Instant::now(), 0);
            let (answer, role) = loop {
                match self.call(nth).await {
                    Ok(answered) => break answered,
                    // Reads are idempotent and repeated. A like must not and need not be.
                    Err(status) if status.code() == Code::Unavailable && self.kind != Kind::Like => {
                        ensure!(
                            since.elapsed() < RETRY_TIMEOUT,
                            "{:?} call {nth} found no server: {status}",
                            self.kind
                        );
                        again += 1;
                        tokio::time::sleep(PAUSE).await;
                    }
                    Err(status) => bail!("{:?} call {nth} of caller {}: {status}", self.kind, self.number),
                }
            };
            done.calls.push(CompletedCall {
                kind: self.kind,
                began: since - self.began,
                took: since.elapsed(),
                role,
                again,
            });
            if nth < plan.calls {
                let call = [[self.kind as u64, self.number, nth].map(u64::to_be_bytes).concat(), answer];
                let hash = digest(call.iter().map(Vec::as_slice));
                done.hash = done.hash.wrapping_add(u64::from_str_radix(&hash, 16)?);
            }
            if self.kind == Kind::Like {
                for photo in self.liked(nth) {
                    *done.likes.entry(photo).or_default() += 1;
                }
            }
            nth += 1;
            plan.done.send_modify(|done| *done += 1);
        }
        Ok(done)
    }

    /// Makes a call and checks the answer. Returns the answer, and the device if reported.
    async fn call(&mut self, nth: u64) -> Result<(Vec<u8>, Option<String>), Status> {
        let id = self.photo(nth);
        let wrong = |got: &dyn std::fmt::Debug| Status::data_loss(format!("wrong answer for photo {id}: {got:?}"));
        match self.kind {
            Kind::Like => {
                let map = self.liked(nth).into_iter().map(|photo| (photo, 1)).collect();
                self.caller.front.like(Likes { of: Some(StrintMap { map }) }).await?;
                Ok((Vec::new(), None))
            }
            Kind::Get => {
                let photo = self.reader(nth).get(PhotoId { id }).await?.into_inner();
                let right = Some(&photo) == album::photo(id).as_ref();
                if right { Ok((photo.encode_to_vec(), None)) } else { Err(wrong(&photo)) }
            }
            Kind::Thumbnail => {
                let reply = self.reader(nth).thumbnail(PhotoId { id }).await?;
                let role = reply.metadata().get(ROLE).and_then(|role| role.to_str().ok()).map(str::to_owned);
                let small = reply.into_inner();
                let right = Some(&small) == album::thumbnail(id).as_ref();
                if right { Ok((small.encode_to_vec(), role)) } else { Err(wrong(&small)) }
            }
            Kind::Find => {
                let word = album::word(nth + self.number);
                let mut photos = self.caller.front.find(Words { words: vec![word.to_owned()] }).await?.into_inner();
                let mut found = Vec::new();
                while let Some(photo) = photos.message().await? {
                    found.push(photo);
                }
                // Photos of several servers come in any order.
                found.sort_by_key(|photo| photo.id);
                let right = found.iter().cloned().map(Some).eq(album::find(word).into_iter().map(album::photo));
                let bytes = found.iter().flat_map(Message::encode_to_vec).collect();
                if right {
                    Ok((bytes, None))
                } else {
                    Err(Status::data_loss(format!("wrong answer for the search {word}: {found:?}")))
                }
            }
        }
    }

    /// Photos that this call likes.
    fn liked(&self, nth: u64) -> [String; 2] {
        let first = (nth * 3 + self.number * 7) % 10;
        [first, 10 + nth % 10].map(|photo| format!("photo-{photo}"))
    }

    fn photo(&self, nth: u64) -> u32 {
        Random::new(self.number << 32 | nth).below(u64::from(album::PHOTOS)) as u32
    }

    fn reader(&mut self, nth: u64) -> &mut PhotosClient<T> {
        let at = Random::new(self.number << 32 | nth << 8 | self.kind as u64).below(self.caller.readers.len() as u64);
        &mut self.caller.readers[at as usize]
    }
}
