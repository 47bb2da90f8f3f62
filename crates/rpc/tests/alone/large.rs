//! Test of a reply of 100 MB: its items wait for the reader in bounded memory. Runs in a process of its own, whose
//! memory is measured.

use std::time::Duration;

use pathcall_rpc::delegate::{CallOptions, DelegatedCall, Handlers, NodeConfig, Transport};
use pathcall_rpc::{Channel, Layer};
use pathcall_test_support::HANG;
use pathcall_test_support::stubs::delegated::DocsFetch;
use pathcall_test_support::stubs::docs_client::DocsClient;
use pathcall_test_support::stubs::{Note, PATHCALL};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;

const ITEMS: usize = 1_600;
const ITEM_BYTES: usize = 64 << 10;
/// Maximum memory of both ends together, bytes: the items of the call's credit, as many waiting items, and overhead of
/// the allocator.
const MEMORY_BYTES: u64 = 40 << 20;

/// Peak memory of this process, bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

async fn client(transport: Transport) -> DocsClient<Channel> {
    let fetch = async |note: Note, call: DelegatedCall<Note>| {
        for i in 0..ITEMS {
            let digit = char::from(b'0' + (i % 10) as u8);
            call.reply(Note { text: note.text.clone() + &digit.to_string().repeat(ITEM_BYTES) }).await?;
        }
        Ok(())
    };
    let handlers = Handlers::new().node(NodeConfig::default().transport(transport));
    let handlers = handlers.handle::<DocsFetch, _, _>(fetch).start().await.expect("starts");
    let server = Layer::builder(&PATHCALL).handlers(handlers).build().await.expect("starts");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let router = tonic::transport::Server::builder().layer(server.clone()).add_routes(Routes::default());
    tokio::spawn(router.serve_with_incoming(TcpIncoming::from(listener)));
    let options = CallOptions::default().timeout(Duration::from_secs(10));
    let builder = Channel::builder(url, &PATHCALL).expect("a URL").call_options(options);
    DocsClient::new(builder.connect().await.expect("connects"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reply_of_100_mb_needs_bounded_memory() {
    if !crate::alone("large::reply_of_100_mb_needs_bounded_memory") {
        return;
    }
    for transport in [Transport::Flows, Transport::Tcp] {
        let mut client = client(transport.clone()).await;
        let before = peak();
        let stream = client.fetch(Note { text: "item ".to_owned() }).await.expect("it begins");
        let (mut stream, mut items) = (stream.into_inner(), 0);
        while let Some(note) = timeout(HANG, stream.message()).await.expect("in time").expect("complete") {
            let digit = b'0' + (items % 10) as u8;
            assert!(note.text.len() == 5 + ITEM_BYTES && note.text.as_bytes()[5] == digit, "item {items}");
            items += 1;
        }
        assert_eq!(items, ITEMS);
        let grown = peak() - before;
        assert!(grown < MEMORY_BYTES, "{transport:?}: {grown} bytes more for 100 MB");
    }
}
