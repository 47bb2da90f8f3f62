//! Look-ups over real nodes: delegated and iterative.

use chord::find::{Finder, serve_all};
use chord::ring::{Ring, position_of};
use pathcall::delegate::{Node, NodeConfig};

async fn all_found(ring: Ring, hops_max: u32) {
    let (node, _requests) = Node::start(&NodeConfig::default()).await.expect("a node");
    let finder = Finder::new(&serve_all(&ring).await.expect("nodes"), &node).expect("URLs");
    let mut most = 0;
    for i in 0..30_u32 {
        let (from, key) = (ring.positions()[i as usize % ring.positions().len()], position_of(&i.to_be_bytes()));
        let calls = node.stats().caller.complete;
        let found = finder.find(from, key).await.expect("found");
        assert_eq!((found.node, found.found), (ring.owner(key), true), "{key} from {from}");
        assert_eq!(node.stats().caller.complete, calls + 1, "one call for all hops");
        assert_eq!(finder.find_iteratively(from, key).await.expect("found"), found, "{key} from {from}");
        assert_eq!(node.stats().caller.complete, calls + 2 + u64::from(found.hops), "a call for each node");
        most = most.max(found.hops);
    }
    assert!(most <= hops_max, "{most} hops");
    assert!(most > 0 || ring.positions().len() == 1);
}

#[tokio::test]
async fn lookups_on_even_ring_take_at_most_log_n_hops() {
    all_found(Ring::even(16).expect("members"), 4).await;
}

#[tokio::test]
async fn lookups_on_hashed_ring_find_owner() {
    all_found(Ring::hashed(12).expect("members"), 8).await;
}

#[tokio::test]
async fn single_node_owns_every_key() {
    all_found(Ring::even(1).expect("a member"), 0).await;
}
