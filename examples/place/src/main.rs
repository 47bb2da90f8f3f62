//! Example of paths inside a host: digests by the processor or by an accelerator.

use std::error::Error;
use std::time::Duration;

use pathcall::place::{Hardware, PlaceOptions, ROLE};
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

mod pb {
    pathcall::include_proto!("digests");
}
use pb::digests_client::DigestsClient;
use pb::digests_server::{Digests, DigestsServer};
use pb::{Chunk, Sum};

/// Handler for one role. Both add bytes; a delay stands for a device.
struct Part(Duration);

#[tonic::async_trait]
impl Digests for Part {
    async fn digest(&self, request: Request<Chunk>) -> Result<Response<Sum>, Status> {
        tokio::time::sleep(self.0).await;
        Ok(Response::new(Sum { sum: request.into_inner().data.iter().map(|byte| u64::from(*byte)).sum() }))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", host] => serve(host).await,
        ["digest", chunks, at_once] => digest(chunks.parse()?, at_once.parse()?).await,
        _ => Err("digests serve HOST.yaml | digests digest CHUNKS AT_ONCE".into()),
    }
}

async fn serve(host: &str) -> Result<(), Box<dyn Error>> {
    let hardware = Hardware::parse(host, &std::fs::read_to_string(host)?)?;
    let accelerator = DigestsServer::new(Part(Duration::from_millis(20)));
    let placing = PlaceOptions::new(hardware).acc(accelerator).admin_socket("digests.sock");
    let pathcall = pathcall::Layer::builder(&pb::PATHCALL).place(placing).build().await?;
    let incoming = TcpIncoming::bind("127.0.0.1:50051".parse()?)?.with_nodelay(Some(true));
    println!("serving");
    tonic::transport::Server::builder()
        .layer(pathcall.clone())
        .add_service(DigestsServer::new(Part(Duration::from_millis(2))))
        .serve_with_incoming(incoming)
        .await?;
    Ok(())
}

async fn digest(chunks: usize, at_once: usize) -> Result<(), Box<dyn Error>> {
    let channel = pathcall::Channel::connect("http://127.0.0.1:50051", &pb::PATHCALL).await?;
    let (mut processor, mut accelerator) = (0, 0);
    for _ in 0..chunks / at_once {
        let calls = (0..at_once).map(|_| {
            let mut client = DigestsClient::new(channel.clone());
            tokio::spawn(async move { client.digest(Chunk { data: vec![1; 4096] }).await })
        });
        for call in calls.collect::<Vec<_>>() {
            let reply = call.await??;
            let by_accelerator = reply.metadata().get(ROLE).is_some_and(|role| role == "acc");
            *if by_accelerator { &mut accelerator } else { &mut processor } += 1;
            assert_eq!(reply.into_inner().sum, 4096);
        }
    }
    println!("by the processor {processor}, by the accelerator {accelerator}");
    Ok(())
}
