//! What applications and pools leave in the kernel when they go: nothing. In a process of its own, as tables are counted
//! for the whole kernel, and it can open no more files for a while. Needs root, and the program ip.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::common::frames::{self, GAID, SERVER, WORKERS};
use crate::common::{address, loaded};
use crate::hosts::{Host, Hosts};
use pathcall_program::{Endpoint, Pool};
use pathcall_xdp::{Error, Kernel, Objects};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Longer than the kernel takes, and another test beside this one.
const PATIENCE: Duration = Duration::from_secs(180);
const POOL: u32 = 70;
/// Endpoints of the pool's servers.
const SERVERS: [u32; 3] = [71, 72, 73];

/// Tables of interfaces by their numbers, whoever made them: a group and a pair of servers have one each.
fn tables() -> BTreeSet<u32> {
    let maps = Objects::now().maps.into_iter();
    maps.filter(|(_, name)| name == "interfaces").map(|(number, _)| number).collect()
}

/// Tables that this test has made.
struct Made {
    before: BTreeSet<u32>,
}

impl Made {
    /// Waits until there are so many: the kernel frees them a while after the last who used them.
    fn are(&self, expected: usize) {
        let began = Instant::now();
        loop {
            let made = &tables() - &self.before;
            if made.len() == expected {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{made:?}, expected {expected} tables");
            std::thread::yield_now();
        }
    }
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
    let made = Made { before: tables() };
    hosts.within(Host::Element, || {
        install(kernel, &SERVERS);
        made.are(3);
        install(kernel, &SERVERS[..2]);
        made.are(1);
        kernel.set_group(GAID, &WORKERS).expect("two interfaces");
        made.are(2);
        kernel.remove(POOL).expect("it is there");
        made.are(1);
        kernel.remove(GAID).expect("it is there");
        made.are(0);

        // What fails half-way, as there can be no more descriptors, and with them no tables.
        install(kernel, &SERVERS[..2]);
        let swapped = Pool { gaid: POOL, version: 2, servers: vec![SERVERS[1], SERVERS[0]] };
        let refused = without_descriptors(|| kernel.install_pool(&swapped));
        assert!(matches!(refused, Err(Error::Kernel { .. })), "{refused:?}");
        assert!(!kernel.has(POOL));
        made.are(0);
        install(kernel, &SERVERS);
        made.are(3);
        kernel.remove(POOL).expect("it is there");
        made.are(0);
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
