//! Example of a delegated call: a search for documents over three servers.

use std::error::Error;

use pathcall::delegate::{DelegatedCall, Handlers, PendingTrace};
use tonic::{Request, Status};

mod pb {
    pathcall::include_proto!("docs");
}
use pb::delegated::{DocsFetch, DocsFind, DocsLookUp};
use pb::docs_client::DocsClient;
use pb::{Doc, Id, Query, Word};

const TITLES: [&str; 3] = ["A tale of two switches", "The switch and the whale", "Whales of the north"];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["ask", text] => ask(text).await,
        [name] => serve(name).await,
        _ => Err("docs front | index | store | ask TEXT".into()),
    }
}

async fn serve(name: &str) -> Result<(), Box<dyn Error>> {
    let handlers = match name {
        "front" => Handlers::new().handle::<DocsFind, _, _>(find),
        "index" => Handlers::new().handle::<DocsLookUp, _, _>(look_up),
        _ => Handlers::new().handle::<DocsFetch, _, _>(fetch),
    };
    let serving = handlers.controller("http://127.0.0.1:7700", name).start().await?;
    serving.directory().wait_for(&name.into()).await; // from here on, others can find the server
    println!("{name} at {}", serving.address());
    let pathcall = pathcall::Layer::builder(&pb::PATHCALL).handlers(serving).build().await?;
    match name {
        "front" => Ok(pathcall.serve("127.0.0.1:50051".parse()?).await?),
        _ => std::future::pending().await,
    }
}

/// The front passes each word on to the index.
async fn find(query: Query, call: DelegatedCall<Doc>) -> Result<(), Status> {
    for word in query.text.split_whitespace() {
        call.delegate::<DocsLookUp>("index", &Word { word: word.to_lowercase() })?;
    }
    Ok(())
}

/// The index passes each matching document on to the store.
async fn look_up(Word { word }: Word, call: DelegatedCall<Doc>) -> Result<(), Status> {
    for (id, title) in TITLES.iter().enumerate() {
        if title.to_lowercase().contains(&word) {
            call.delegate::<DocsFetch>("store", &Id { id: id as u32 })?;
        }
    }
    Ok(())
}

/// The store replies directly to the caller.
async fn fetch(Id { id }: Id, call: DelegatedCall<Doc>) -> Result<(), Status> {
    let title = TITLES.get(id as usize).ok_or_else(|| Status::not_found(format!("no document {id}")))?;
    call.reply(Doc { title: (*title).to_owned() }).await
}

async fn ask(text: &str) -> Result<(), Box<dyn Error>> {
    let channel = pathcall::Channel::connect("http://127.0.0.1:50051", &pb::PATHCALL).await?;
    let mut request = Request::new(Query { text: text.to_owned() });
    let trace = PendingTrace::of(&mut request);
    let mut docs = DocsClient::new(channel).find(request).await?.into_inner();
    while let Some(doc) = docs.message().await? {
        println!("{}", doc.title);
    }
    print!("{}", trace.finished().await.expect("it was traced"));
    Ok(())
}
