//! Several callers, each of which makes calls of all kinds at once, and holds each answer against what it has to be.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use apps_load::Random;
use apps_report::digest;
use apps_report::way::Transport;
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

/// A call that finds nobody is made again for so long: servers may be started anew.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);

/// What is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Two likes are added.
    Like,
    /// A photo is read.
    Get,
    /// A photo is made smaller.
    Thumbnail,
    /// All photos of a word.
    Find,
}

/// All of them.
pub const KINDS: [Kind; 4] = [Kind::Like, Kind::Get, Kind::Thumbnail, Kind::Find];

/// How a caller reaches the service.
#[derive(Debug, Clone)]
pub struct Caller<T> {
    /// The server that it knows.
    pub front: PhotosClient<T>,
    /// Who answers reads: the front's pool, or one of these at random.
    pub readers: Vec<PhotosClient<T>>,
}

/// How much is called.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Calls of each kind, by each caller, at least.
    pub calls: u64,
    /// And until this says true.
    pub until: watch::Receiver<bool>,
    /// Calls that are done, of all kinds and callers.
    pub done: watch::Sender<u64>,
}

/// A call that was answered, and rightly.
#[derive(Debug, Clone)]
pub struct Called {
    /// What it was.
    pub kind: Kind,
    /// Since the first one began.
    pub began: Duration,
    /// How long it took, with what was made again.
    pub took: Duration,
    /// Who made a thumbnail, where it is said.
    pub role: Option<String>,
    /// How often it was made again.
    pub again: u64,
}

/// What came of all calls.
#[derive(Debug)]
pub struct Outcome {
    /// Each of them.
    pub calls: Vec<Called>,
    /// All together.
    pub took: Duration,
    /// Of all answers to the calls that each run makes, and of the likes that it adds.
    pub digest: String,
}

/// Makes all calls.
///
/// # Errors
/// Where one fails, or is answered with anything but what it has to be.
pub async fn run<T>(callers: &[Caller<T>], plan: &Plan) -> Result<Outcome>
where
    T: Transport<Error: Into<StdError>, ResponseBody = tonic::body::Body> + Sync,
    T::Future: Send,
{
    let first = &callers.first().context("no caller")?.front;
    // Others may have called before.
    let mut expected = likes(first).await?;
    let before = expected.clone();
    let (began, mut running) = (Instant::now(), JoinSet::new());
    for (number, caller) in callers.iter().enumerate() {
        for kind in KINDS {
            let one = One { caller: caller.clone(), number: number as u64, kind, began };
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
    Ok(Outcome { calls, took, digest })
}

/// What each photo has.
async fn likes<T>(front: &PhotosClient<T>) -> Result<BTreeMap<String, i64>>
where
    T: Transport<Error: Into<StdError>, ResponseBody = tonic::body::Body> + Sync,
    T::Future: Send,
{
    let counted = front.clone().count(All {}).await.context("the likes")?;
    Ok(counted.into_inner().of.unwrap_or_default().map.into_iter().collect())
}

/// Calls of one kind by one caller, one after the other.
struct One<T> {
    caller: Caller<T>,
    number: u64,
    kind: Kind,
    began: Instant,
}

#[derive(Default)]
struct Done {
    calls: Vec<Called>,
    hash: u64,
    likes: BTreeMap<String, i64>,
}

impl<T> One<T>
where
    T: Transport<Error: Into<StdError>, ResponseBody = tonic::body::Body> + Sync,
    T::Future: Send,
    Bytes: Send,
{
    async fn run(mut self, plan: Plan) -> Result<Done> {
        let (mut done, mut nth) = (Done::default(), 0);
        while nth < plan.calls || !*plan.until.borrow() {
            let (since, mut again) = (Instant::now(), 0);
            let (answer, role) = loop {
                match self.call(nth).await {
                    Ok(answered) => break answered,
                    // Reads may be done again. A like may not, and need not.
                    Err(status) if status.code() == Code::Unavailable && self.kind != Kind::Like => {
                        ensure!(since.elapsed() < PATIENCE, "{:?} {nth} finds nobody: {status}", self.kind);
                        again += 1;
                        tokio::time::sleep(PAUSE).await;
                    }
                    Err(status) => bail!("{:?} {nth} of caller {}: {status}", self.kind, self.number),
                }
            };
            done.calls.push(Called { kind: self.kind, began: since - self.began, took: since.elapsed(), role, again });
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

    /// Makes a call: what it was answered with, checked, and by whom.
    async fn call(&mut self, nth: u64) -> Result<(Vec<u8>, Option<String>), Status> {
        let id = self.photo(nth);
        let wrong = |got: &dyn std::fmt::Debug| Status::data_loss(format!("not what photo {id} is: {got:?}"));
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
                // They come in any order where several servers answer.
                found.sort_by_key(|photo| photo.id);
                let right = found.iter().cloned().map(Some).eq(album::find(word).into_iter().map(album::photo));
                let bytes = found.iter().flat_map(Message::encode_to_vec).collect();
                if right {
                    Ok((bytes, None))
                } else {
                    Err(Status::data_loss(format!("not what {word} finds: {found:?}")))
                }
            }
        }
    }

    /// The photos that this call likes.
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
