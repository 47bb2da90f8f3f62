//! What applications and pools leave in the kernel when they go: nothing. In a process of its own, with nothing beside
//! it, as objects are counted for the whole kernel. Needs root, and the program ip.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::common::frames::{self, GAID, SERVER, WORKERS};
use crate::common::{address, loaded};
use crate::hosts::{Host, Hosts};
use pathcall_program::{Endpoint, Pool};
use pathcall_xdp::{Error, Kernel, Objects};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const POOL: u32 = 70;
/// Endpoints of the pool's servers.
const SERVERS: [u32; 3] = [71, 72, 73];

/// Waits until there are so many maps: the kernel frees them a while after the last who used them.
fn maps(expected: usize) {
    let began = Instant::now();
    while Objects::now().maps != expected {
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}, expected {expected} maps", Objects::now());
        std::thread::yield_now();
    }
}

/// How many maps there are when the kernel has freed those of tests before.
fn settled() -> usize {
    let (mut maps, mut since) = (Objects::now().maps, Instant::now());
    while since.elapsed() < Duration::from_secs(2) {
        std::thread::yield_now();
        let now = Objects::now().maps;
        if now != maps {
            (maps, since) = (now, Instant::now());
        }
    }
    maps
}

fn install(kernel: &mut Kernel, servers: &[u32]) {
    kernel.install_pool(&Pool { gaid: POOL, version: 1, servers: servers.to_vec() }).expect("there is room");
    for (server, at) in servers.iter().zip([WORKERS[0], WORKERS[1], SERVER]) {
        let entry = Endpoint { endpoint: *server, incarnation: 1, gaid: POOL, slot_base: 0, slots: 0 };
        kernel.set_endpoint(&entry, address(at)).expect("there is room");
    }
}

#[test]
fn groups_and_pools_that_go_leave_no_tables() {
    let _alone = crate::alone();
    if loaded(frames::kernel()).is_none() {
        return;
    }
    let hosts = Hosts::up();
    let mut attached = hosts.attached(true).unwrap_or_else(|error| panic!("{error}"));
    let kernel = &mut attached.element;
    assert!(
        hosts.reaches(Host::Server, *crate::common::ELEMENT.ip()),
        "now the element's machine knows where the server is"
    );
    let none = settled();
    hosts.within(Host::Element, || {
        install(kernel, &SERVERS);
        maps(none + 3);
        install(kernel, &SERVERS[..2]);
        maps(none + 1);
        kernel.set_group(GAID, &WORKERS).expect("two interfaces");
        maps(none + 2);
        kernel.remove(POOL).expect("it is there");
        maps(none + 1);
        kernel.remove(GAID).expect("it is there");
        maps(none);

        // What fails half-way, as there can be no more descriptors, and with them no tables.
        install(kernel, &SERVERS[..2]);
        let swapped = Pool { gaid: POOL, version: 2, servers: vec![SERVERS[1], SERVERS[0]] };
        let refused = without_descriptors(|| kernel.install_pool(&swapped));
        assert!(matches!(refused, Err(Error::Kernel { .. })), "{refused:?}");
        assert!(!kernel.has(POOL));
        maps(none);
        install(kernel, &SERVERS);
        maps(none + 3);
        kernel.remove(POOL).expect("it is there");
        maps(none);
    });
}

/// Does this while the process can open no more files.
fn without_descriptors<T>(work: impl FnOnce() -> T) -> T {
    let before = getrlimit(Resource::Nofile);
    let next = File::open("/dev/null").expect("one more").as_raw_fd() as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(next), ..before }).expect("fewer");
    let done = work();
    setrlimit(Resource::Nofile, before).expect("as before");
    done
}
