//! Each query gives the same rows passed from server to server, from a hub, and computed in one place.

use graph::direct;
use graph::pb::graph_client::GraphClient;
use graph::pb::{self, Step, step::At};
use graph::query::Query;
use graph::walk::{self, Asker, Way};
use graph::world::{Place, Size, World};
use pathcall::delegate::NodeConfig;
use proptest::prelude::*;
use tonic::Code;

fn world(seed: u64) -> World {
    World::new(&Size { seed, persons: 40, forums: 7, posts: 60, comments: 240 })
}

/// Asks everything, each both ways.
async fn all_equal(seed: u64, servers: u64, ids: &[u64]) {
    let world = world(seed);
    let urls = walk::serve_all(&world, servers).await.expect("servers");
    let node = walk::node(&NodeConfig::default()).await.expect("a node");
    let asker = Asker::new(&urls, &node).expect("URLs");
    for (id, query) in ids.iter().flat_map(|id| Query::ALL.map(|query| (*id, query))) {
        let expected = direct::answer(&world, query, id);
        for way in [Way::PassedOn, Way::Hub] {
            let answer = asker.ask(query, id, way).await;
            match &expected {
                Some(rows) => assert_eq!(&answer.expect("an answer"), rows, "{query:?} of {id}, {way:?}"),
                None => assert_eq!(answer.expect_err("nothing").code(), Code::NotFound, "{query:?} of {id}, {way:?}"),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 20, ..ProptestConfig::default() })]

    #[test]
    fn all_three_ways_give_the_same(
        seed in any::<u64>(),
        servers in 1u64..9,
        // Some are nobody's.
        ids in prop::collection::vec(0u64..320, 1..12),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(all_equal(seed, servers, &ids));
    }
}

#[test]
fn the_networks_asked_have_what_queries_are_about() {
    let world = world(1);
    let rows = |query, id| direct::answer(&world, query, id).map_or(0, |rows| rows.len());
    assert!((0..40).any(|id| rows(Query::Is2, id) == 10) && (0..40).any(|id| rows(Query::Is2, id) < 10));
    assert!((0..40).any(|id| rows(Query::Is3, id) > 10));
    assert!((0..300).any(|id| rows(Query::Is7, id) > 3) && (0..300).any(|id| rows(Query::Is7, id) == 0));
    let (mut know, mut strangers) = (0, 0);
    for row in (0..300).flat_map(|id| direct::answer(&world, Query::Is7, id).expect("a message")) {
        let pb::row::Row::Reply(reply) = row else { panic!("{row:?}") };
        *if reply.knows { &mut know } else { &mut strangers } += 1;
    }
    assert!(know > 10 && strangers > 10, "{know} and {strangers}");
    let depth = |mut id| {
        let mut depth = 0;
        while let Place::ReplyTo(on) = world.messages[&id].place {
            (id, depth) = (on, depth + 1);
        }
        depth
    };
    assert!((0..300).any(|id| depth(id) > 4));
}

/// As a query that is passed on: one request at each server, and the caller hears of rows only.
#[tokio::test]
async fn a_query_goes_from_server_to_server() {
    let world = world(1);
    let urls = walk::serve_all(&world, 3).await.expect("servers");
    let node = walk::node(&NodeConfig::default()).await.expect("a node");
    let asker = Asker::new(&urls, &node).expect("URLs");
    asker.ask(Query::Is5, 7, Way::PassedOn).await.expect("an answer");
    assert_eq!(node.stats().caller.complete, 1, "one call for all hops");
    asker.ask(Query::Is5, 7, Way::Hub).await.expect("an answer");
    assert_eq!(node.stats().caller.complete, 3, "one call for each hop");
}

#[tokio::test]
async fn a_step_that_names_nothing_is_refused() {
    let urls = walk::serve_all(&world(1), 2).await.expect("servers");
    let channel = pathcall::Channel::connect(urls[0].clone(), &pb::PATHCALL).await.expect("a server");
    for at in [None, Some(At::Thread(pb::Thread { at: 0, row: None })), Some(At::Author(pb::Recent::default()))] {
        let mut replies = GraphClient::new(channel.clone()).walk(Step { hub: false, at }).await.expect("a stream");
        let status = replies.get_mut().message().await.expect_err("refused");
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    }
}
