//! Handlers of delegated calls: the front passes a search on to the index, the index to the archive, which answers the
//! caller.

use std::time::Duration;

use pathcall::delegate::{DelegatedCall, Handlers};
use pathcall::place::PlaceOptions;
use tonic::Status;

use crate::album;
use crate::pb::delegated::{PhotosFetch, PhotosFind, PhotosLookUp};
use crate::pb::{Ids, Photo, Word, Words};
use crate::server::Name;
use crate::service::{ACCELERATOR, PROCESSOR};

/// Handlers of a server.
pub fn handlers(name: Name) -> Handlers {
    match name {
        Name::Front => Handlers::new().handle::<PhotosFind, _, _>(find),
        Name::Index => Handlers::new().handle::<PhotosLookUp, _, _>(look_up),
        Name::Archive => {
            Handlers::new().handle::<PhotosFetch, _, _>(async |ids, call| fetch(ids, call, PROCESSOR).await)
        }
    }
}

/// Handlers of a server's accelerator.
pub fn accelerated(name: Name, placing: PlaceOptions) -> PlaceOptions {
    match name {
        Name::Front | Name::Index => placing,
        Name::Archive => {
            placing.acc_handler::<PhotosFetch, _, _>(async |ids, call| fetch(ids, call, ACCELERATOR).await)
        }
    }
}

async fn find(words: Words, call: DelegatedCall<Photo>) -> Result<(), Status> {
    for word in words.words {
        call.delegate::<PhotosLookUp>(Name::Index.text(), &Word { word: word.to_lowercase() })?;
    }
    Ok(())
}

async fn look_up(word: Word, call: DelegatedCall<Photo>) -> Result<(), Status> {
    call.delegate::<PhotosFetch>(Name::Archive.text(), &Ids { ids: album::find(&word.word) })
}

async fn fetch(ids: Ids, call: DelegatedCall<Photo>, takes: Duration) -> Result<(), Status> {
    tokio::time::sleep(takes).await;
    for id in ids.ids {
        call.reply(album::photo(id).ok_or_else(|| Status::not_found(format!("no photo {id}")))?).await?;
    }
    Ok(())
}
