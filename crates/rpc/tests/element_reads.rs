//! Tests of queries that the element answers.

use pathcall_control::MemoryPolicy;
use pathcall_proto::manifest::{Manifest, Method, ReadMode};
use pathcall_rpc::{Channel, Layer};
use pathcall_test_support::HANG;
use pathcall_test_support::service::{TestServer, counts, str_int};
use pathcall_test_support::stubs::words_client::WordsClient;
use pathcall_test_support::stubs::{PATHCALL, Wanted};
use tokio::time::timeout;

use crate::memory_sharing::{network, until};

/// Number of queries of which the server must see nothing.
const QUERIES: usize = 20;

/// The words' methods, with this mode of queries.
fn words_with(read: ReadMode) -> &'static Manifest {
    let method = |method: &Method| Method { read, ..*method };
    let methods: Vec<_> = PATHCALL.methods.iter().filter(|method| method.app == "T-WORDS").map(method).collect();
    Box::leak(Box::new(Manifest { methods: methods.leak(), ..PATHCALL }))
}

/// Frames and direct calls that the server has received.
fn received(layer: &Layer) -> (u64, u64) {
    let stats = layer.stats().into_iter().find(|stats| stats.name == "T-WORDS").expect("its application");
    (stats.map.frames_received, stats.direct.calls)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn query_of_hot_key_leaves_no_frame_at_server() {
    for read in ReadMode::ALL {
        let (controller, _element) = network(MemoryPolicy::default(), 1024, 1024 * 64).await;
        let manifest = words_with(read);
        let layer = Layer::builder(manifest).controller(controller.url()).memory(64).build().await.unwrap();
        let server = TestServer::start_with(layer.clone(), 0).await;
        let mut words = WordsClient::new(Channel::connect(server.uri(), manifest).await.unwrap());
        let mut other = WordsClient::new(Channel::connect(server.uri(), manifest).await.unwrap());
        words.reduce(counts(&[("hot", 1)], "")).await.unwrap();
        until(&controller, |status| status.applications[0].memory.is_some()).await;
        let (mut sum, mut unseen) = (1, 0);
        let reading = async {
            while unseen < QUERIES {
                let before = received(&layer);
                let wanted = Wanted { keys: Some(str_int(&[("hot", 0)])), ..Wanted::default() };
                let found = words.query(wanted).await.unwrap().into_inner().kvs.unwrap().map;
                unseen += usize::from(received(&layer) == before);
                if read == ReadMode::Linearizable {
                    assert_eq!(found.get("hot"), Some(&sum));
                    if unseen % 3 == 0 {
                        // The other caller's addition is in the next answer, whichever way it went.
                        other.reduce(counts(&[("hot", 1)], "")).await.unwrap();
                        sum += 1;
                    }
                }
            }
        };
        timeout(HANG, reading).await.expect("the element answers queries");
    }
}
