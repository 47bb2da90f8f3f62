//! Descriptors and mappings of a process whose peers come and go: in a process of its own, since it counts them.

use std::net::{Ipv4Addr, SocketAddr};

use pathcall_endpoint::driver::link::{Link, Sharing};
use pathcall_testbed::alone;
use pathcall_wire::Instant;

const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn sharing(part: Sharing) -> Link {
    let mut link = Link::bind(LOCAL).unwrap();
    link.share_memory(part).unwrap();
    link
}

/// Descriptors and mappings of this process.
fn held() -> (usize, usize) {
    let fds = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    (fds, maps.lines().filter(|line| line.contains("pathcall-ring")).count())
}

#[tokio::test]
async fn a_thousand_connections_leave_nothing_behind() {
    if !alone("rings_flat::a_thousand_connections_leave_nothing_behind") {
        return;
    }
    let mut element = sharing(Sharing::Offer);
    let mut before = None;
    for round in 0..1000 {
        let mut endpoint = sharing(Sharing::Seek);
        endpoint.seek(Instant(0), Some(element.local_addr()));
        while endpoint.memory_peers().count() == 0 {
            tokio::select! {
                ready = element.readable() => ready.unwrap(),
                ready = endpoint.readable() => ready.unwrap(),
            }
            assert_eq!(element.recv(|_, _, _| ()).unwrap() + endpoint.recv(|_, _, _| ()).unwrap(), 0);
        }
        drop(endpoint);
        while element.memory_peers().count() > 0 {
            element.readable().await.unwrap();
            assert_eq!(element.recv(|_, _, _| ()).unwrap(), 0);
        }
        if round == 10 {
            before = Some(held());
        }
    }
    assert_eq!(before, Some(held()));
    assert_eq!(element.stats().rings_agreed, 1000);
}
