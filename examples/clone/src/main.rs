//! Example of cloned calls: the faster of two servers answers.

use std::error::Error;

use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

mod pb {
    pathcall::include_proto!("greeter"); // + for tonic::include_proto
}
use pb::greeter_client::GreeterClient;
use pb::greeter_server::{Greeter, GreeterServer};
use pb::{Greeting, Name};

struct Handler;

#[tonic::async_trait]
impl Greeter for Handler {
    async fn greet(&self, request: Request<Name>) -> Result<Response<Greeting>, Status> {
        Ok(Response::new(Greeting { text: format!("hello {}", request.into_inner().name) }))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", address] => serve(address).await,
        ["greet", address, times] => greet(address, times.parse()?).await,
        _ => Err("greeter serve IP:PORT | greeter greet IP:PORT TIMES".into()),
    }
}

async fn serve(address: &str) -> Result<(), Box<dyn Error>> {
    let pathcall = pathcall::Layer::builder(&pb::PATHCALL) // +
        .controller("http://127.0.0.1:7700")
        .advertise(format!("http://{address}"))
        .build()
        .await?;
    let incoming = TcpIncoming::bind(address.parse()?)?.with_nodelay(Some(true));
    println!("serving at {address}");
    tonic::transport::Server::builder()
        .layer(pathcall.clone()) // +
        .add_service(GreeterServer::new(Handler))
        .serve_with_incoming(incoming)
        .await?;
    Ok(())
}

async fn greet(address: &str, times: u32) -> Result<(), Box<dyn Error>> {
    let channel = pathcall::Channel::connect(format!("http://{address}"), &pb::PATHCALL).await?; // +
    let mut client = GreeterClient::new(channel);
    let mut answered = 0;
    for _ in 0..times {
        client.greet(Name { name: "you".to_owned() }).await?;
        answered += 1;
    }
    println!("{answered} greetings");
    Ok(())
}
