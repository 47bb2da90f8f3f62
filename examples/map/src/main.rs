//! Example of a map: page visits that are summed in the network.

use std::collections::BTreeMap;

use pathcall::types::StrintMap;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

mod pb {
    pathcall::include_proto!("visits");
}
use pb::visits_client::VisitsClient;
use pb::visits_server::{Visits, VisitsServer};

struct Handler;

#[tonic::async_trait]
impl Visits for Handler {
    async fn count(&self, request: Request<pb::Seen>) -> Result<Response<pb::Noted>, Status> {
        println!("visits of {}", request.into_inner().site);
        Ok(Response::new(pb::Noted {}))
    }
    async fn total(&self, _: Request<pb::Ask>) -> Result<Response<pb::Totals>, Status> {
        Err(Status::unimplemented("totals are in the map"))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    if std::env::args().nth(1).as_deref() == Some("serve") { serve().await } else { count().await }
}

async fn serve() -> Result<(), Box<dyn std::error::Error>> {
    let pathcall = pathcall::Layer::builder(&pb::PATHCALL).controller("http://127.0.0.1:7700").build().await?;
    let incoming = TcpIncoming::bind("127.0.0.1:50051".parse()?)?.with_nodelay(Some(true));
    println!("serving");
    tonic::transport::Server::builder()
        .layer(pathcall.clone())
        .add_service(VisitsServer::new(Handler))
        .serve_with_incoming(incoming)
        .await?;
    Ok(())
}

async fn count() -> Result<(), Box<dyn std::error::Error>> {
    let channel = pathcall::Channel::connect("http://127.0.0.1:50051", &pb::PATHCALL).await?;
    let mut client = VisitsClient::new(channel);
    for _ in 0..3 {
        let pages = [("/".to_owned(), 20), ("/docs".to_owned(), 1)].into();
        client.count(pb::Seen { pages: Some(StrintMap { map: pages }), site: "example.org".to_owned() }).await?;
    }
    let totals = client.total(pb::Ask {}).await?.into_inner();
    println!("{:?}", totals.pages.unwrap_or_default().map.into_iter().collect::<BTreeMap<_, _>>());
    Ok(())
}
