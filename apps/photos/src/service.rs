//! Handlers of tonic's calls: for a server's processor, for its accelerator, and for plain gRPC.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use apps_load::{Jitter, Random, Service};
use pathcall::types::StrintMap;
use tokio::sync::Semaphore;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use crate::album;
use crate::pb::photos_client::PhotosClient;
use crate::pb::photos_server::Photos;
use crate::pb::{All, Ids, Liked, Likes, Photo, PhotoId, Picture, Word, Words};

/// Read time of a photo, as from a disk, with rare long ones.
const READ: Service = Service::Exponential(Duration::from_millis(1));
const READ_JITTER: Jitter = Jitter { probability: 0.02, times: 20.0 };
/// Time of a picture: waits stand for work, so that three servers can share few processors.
pub const PROCESSOR: Duration = Duration::from_millis(2);
/// Time of the emulated accelerator.
pub const ACCELERATOR: Duration = Duration::from_millis(3);

type Stream<T> = tokio_stream::Iter<std::vec::IntoIter<Result<T, Status>>>;

/// Handler of a server.
#[derive(Debug, Clone)]
pub struct PhotoHandler {
    reads: Arc<Mutex<Random>>,
    /// Time of a picture here.
    picture: Duration,
    plain: Option<Plain>,
}

/// State of a plain server, which does the network's work itself.
#[derive(Debug, Clone)]
struct Plain {
    likes: Arc<Mutex<HashMap<String, i64>>>,
    /// Pictures are made one after the other.
    processor: Arc<Semaphore>,
    /// Next server of a search.
    next: Option<PhotosClient<Channel>>,
}

impl PhotoHandler {
    /// Handler for the processor.
    #[must_use]
    pub fn processor(seed: u64) -> Self {
        Self { reads: Arc::new(Mutex::new(Random::new(seed))), picture: PROCESSOR, plain: None }
    }

    /// Handler for the accelerator.
    #[must_use]
    pub fn accelerator(seed: u64) -> Self {
        Self { picture: ACCELERATOR, ..Self::processor(seed) }
    }

    /// Handler for plain gRPC, which calls `next` itself.
    #[must_use]
    pub fn plain(seed: u64, next: Option<PhotosClient<Channel>>) -> Self {
        let plain = Plain { likes: Arc::default(), processor: Arc::new(Semaphore::new(1)), next };
        Self { plain: Some(plain), ..Self::processor(seed) }
    }

    fn alone(&self) -> Result<&Plain, Status> {
        // With Pathcall, this call does not reach the handler; without, the layer has refused it.
        self.plain.as_ref().ok_or_else(|| Status::internal("this call is processed on its path"))
    }

    fn next(&self) -> Result<PhotosClient<Channel>, Status> {
        self.alone()?.next.clone().ok_or_else(|| Status::unimplemented("this server is the last one"))
    }

    async fn make<T>(&self, made: Option<T>) -> Result<T, Status> {
        let _turn = match &self.plain {
            Some(plain) => {
                Some(plain.processor.acquire().await.map_err(|_| Status::unavailable("the server is stopping"))?)
            }
            None => None,
        };
        tokio::time::sleep(self.picture).await;
        made.ok_or_else(missing)
    }
}

fn missing() -> Status {
    Status::not_found("unknown photo")
}

#[tonic::async_trait]
impl Photos for PhotoHandler {
    async fn like(&self, request: Request<Likes>) -> Result<Response<Liked>, Status> {
        let mut likes = self.alone()?.likes.lock().unwrap_or_else(PoisonError::into_inner);
        for (photo, more) in request.into_inner().of.unwrap_or_default().map {
            *likes.entry(photo).or_default() += more;
        }
        Ok(Response::new(Liked {}))
    }

    async fn count(&self, _: Request<All>) -> Result<Response<Likes>, Status> {
        let likes = self.alone()?.likes.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Response::new(Likes { of: Some(StrintMap { map: likes.clone() }) }))
    }

    async fn get(&self, request: Request<PhotoId>) -> Result<Response<Photo>, Status> {
        let time = {
            let mut random = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
            let time = READ.draw(&mut random);
            READ_JITTER.draw(time, &mut random)
        };
        tokio::time::sleep(time).await;
        album::photo(request.into_inner().id).map(Response::new).ok_or_else(missing)
    }

    async fn thumbnail(&self, request: Request<PhotoId>) -> Result<Response<Picture>, Status> {
        self.make(album::thumbnail(request.into_inner().id)).await.map(Response::new)
    }

    type FindStream = Stream<Photo>;
    async fn find(&self, request: Request<Words>) -> Result<Response<Self::FindStream>, Status> {
        let (mut next, mut found) = (self.next()?, Vec::new());
        for word in request.into_inner().words {
            let mut photos = next.look_up(Word { word: word.to_lowercase() }).await?.into_inner();
            while let Some(photo) = photos.message().await? {
                found.push(Ok(photo));
            }
        }
        Ok(Response::new(tokio_stream::iter(found)))
    }

    type LookUpStream = Stream<Photo>;
    async fn look_up(&self, request: Request<Word>) -> Result<Response<Self::LookUpStream>, Status> {
        let (ids, mut found) = (album::find(&request.into_inner().word), Vec::new());
        let mut photos = self.next()?.fetch(Ids { ids }).await?.into_inner();
        while let Some(photo) = photos.message().await? {
            found.push(Ok(photo));
        }
        Ok(Response::new(tokio_stream::iter(found)))
    }

    type FetchStream = Stream<Photo>;
    async fn fetch(&self, request: Request<Ids>) -> Result<Response<Self::FetchStream>, Status> {
        let photos: Option<Vec<Photo>> = request.into_inner().ids.into_iter().map(album::photo).collect();
        let photos = self.make(photos).await?.into_iter().map(Ok).collect::<Vec<_>>();
        Ok(Response::new(tokio_stream::iter(photos)))
    }
}
