//! Equal answers of all queries from delegated calls, from a hub, and from one process.

use graph::direct;
use graph::network::{MessageParent, Size, SocialNetwork};
use graph::pb::graph_client::GraphClient;
use graph::pb::{self, Step, step::At};
use graph::query::Query;
use graph::walk::{self, QueryClient, QueryVariant};
use pathcall::delegate::NodeConfig;
use proptest::prelude::*;
use tonic::Code;

fn network(seed: u64) -> SocialNetwork {
    SocialNetwork::new(&Size { seed, persons: 40, forums: 7, posts: 60, comments: 240 })
}

/// Runs all queries in both variants.
async fn all_equal(seed: u64, servers: u64, ids: &[u64]) {
    let network = network(seed);
    let urls = walk::serve_all(&network, servers).await.expect("servers");
    let node = walk::node(&NodeConfig::default()).await.expect("a node");
    let asker = QueryClient::new(&urls, &node).expect("URLs");
    for (id, query) in ids.iter().flat_map(|id| Query::ALL.map(|query| (*id, query))) {
        let expected = direct::answer(&network, query, id);
        for variant in [QueryVariant::Delegated, QueryVariant::Hub] {
            let answer = asker.ask(query, id, variant).await;
            match &expected {
                Some(rows) => assert_eq!(&answer.expect("an answer"), rows, "{query:?} of {id}, {variant:?}"),
                None => {
                    assert_eq!(answer.expect_err("nothing").code(), Code::NotFound, "{query:?} of {id}, {variant:?}")
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 20, ..ProptestConfig::default() })]

    #[test]
    fn delegated_hub_and_direct_answers_are_equal(
        seed in any::<u64>(),
        servers in 1u64..9,
        // Some ids do not exist.
        ids in prop::collection::vec(0u64..320, 1..12),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(all_equal(seed, servers, &ids));
    }
}

#[test]
fn generated_networks_cover_query_cases() {
    let network = network(1);
    let rows = |query, id| direct::answer(&network, query, id).map_or(0, |rows| rows.len());
    assert!((0..40).any(|id| rows(Query::Is2, id) == 10) && (0..40).any(|id| rows(Query::Is2, id) < 10));
    assert!((0..40).any(|id| rows(Query::Is3, id) > 10));
    assert!((0..300).any(|id| rows(Query::Is7, id) > 3) && (0..300).any(|id| rows(Query::Is7, id) == 0));
    let (mut know, mut strangers) = (0, 0);
    for row in (0..300).flat_map(|id| direct::answer(&network, Query::Is7, id).expect("a message")) {
        let pb::row::Row::Reply(reply) = row else { panic!("{row:?}") };
        *if reply.knows { &mut know } else { &mut strangers } += 1;
    }
    assert!(know > 10 && strangers > 10, "{know} and {strangers}");
    let depth = |mut id| {
        let mut depth = 0;
        while let MessageParent::ReplyTo(on) = network.messages[&id].parent {
            (id, depth) = (on, depth + 1);
        }
        depth
    };
    assert!((0..300).any(|id| depth(id) > 4));
}

/// A delegated query makes one request at each server, and the caller receives rows only.
#[tokio::test]
async fn delegated_query_takes_one_call() {
    let network = network(1);
    let urls = walk::serve_all(&network, 3).await.expect("servers");
    let node = walk::node(&NodeConfig::default()).await.expect("a node");
    let asker = QueryClient::new(&urls, &node).expect("URLs");
    asker.ask(Query::Is5, 7, QueryVariant::Delegated).await.expect("an answer");
    assert_eq!(node.stats().caller.complete, 1, "one call for all hops");
    asker.ask(Query::Is5, 7, QueryVariant::Hub).await.expect("an answer");
    assert_eq!(node.stats().caller.complete, 3, "one call for each hop");
}

#[tokio::test]
async fn empty_step_is_rejected() {
    let urls = walk::serve_all(&network(1), 2).await.expect("servers");
    let channel = pathcall::Channel::connect(urls[0].clone(), &pb::PATHCALL).await.expect("a server");
    for at in [None, Some(At::Thread(pb::Thread { at: 0, row: None })), Some(At::Author(pb::Recent::default()))] {
        let mut replies = GraphClient::new(channel.clone()).walk(Step { hub: false, at }).await.expect("a stream");
        let status = replies.get_mut().message().await.expect_err("refused");
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    }
}
