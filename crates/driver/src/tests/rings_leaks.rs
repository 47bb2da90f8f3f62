//! Test of a process's descriptors and mappings while peers connect and disconnect; it needs a process of its own.

use std::net::{Ipv4Addr, SocketAddr};

use crate::link::{Link, SharingRole};
use pathcall_testbed::alone;
use pathcall_wire::Instant;

const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn sharing(part: SharingRole) -> Link {
    let mut link = Link::bind(LOCAL).unwrap();
    link.share_memory(part).unwrap();
    link
}

/// Numbers of descriptors and mappings of this process.
fn open_resources() -> (usize, usize) {
    let fds = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    (fds, maps.lines().filter(|line| line.contains("pathcall-ring")).count())
}

#[tokio::test]
async fn thousand_connections_leak_nothing() {
    if !alone("tests::rings_leaks::thousand_connections_leak_nothing") {
        return;
    }
    let mut element = sharing(SharingRole::Offer);
    let mut before = None;
    for round in 0..1000 {
        let mut endpoint = sharing(SharingRole::Request);
        endpoint.request_memory(Instant(0), Some(element.local_addr()));
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
            before = Some(open_resources());
        }
    }
    assert_eq!(before, Some(open_resources()));
    assert_eq!(element.stats().rings_agreed, 1000);
}
