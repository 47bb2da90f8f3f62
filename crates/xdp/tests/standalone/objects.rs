//! Tests that removed applications and pools leave no tables in the kernel. In a process of their own, because tables
//! are counted for the whole kernel, and the process cannot open files for a while. Needs root, and the program ip.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::common::frames::{self, GAID, SERVER, WORKERS};
use crate::common::{address, loaded};
use crate::hosts::{Host, Hosts};
use pathcall_program::{Endpoint, InstalledPool};
use pathcall_xdp::{BpfObjects, Error, KernelSwitch};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Longest wait for the kernel, and for another test that runs at the same time.
const WAIT_MAX: Duration = Duration::from_secs(180);
const POOL: u32 = 70;
/// Endpoints of the pool's servers.
const SERVERS: [u32; 3] = [71, 72, 73];

/// Ids of all tables of interfaces in the kernel: each group and each pair of servers has one.
fn tables() -> BTreeSet<u32> {
    let maps = BpfObjects::now().maps.into_iter();
    maps.filter(|(_, name)| name == "interfaces").map(|(number, _)| number).collect()
}

/// Tables that this test has made.
struct Made {
    before: BTreeSet<u32>,
}

impl Made {
    /// Waits until there are `expected` tables: the kernel frees tables some time after their last use.
    fn are(&self, expected: usize) {
        let started = Instant::now();
        loop {
            let made = &tables() - &self.before;
            if made.len() == expected {
                return;
            }
            assert!(started.elapsed() < WAIT_MAX, "{made:?}, expected {expected} tables");
            std::thread::yield_now();
        }
    }
}

fn install(kernel: &mut KernelSwitch, servers: &[u32]) {
    kernel.install_pool(&InstalledPool { gaid: POOL, version: 1, servers: servers.to_vec() }).expect("there is room");
    for (server, at) in servers.iter().zip([WORKERS[0], WORKERS[1], SERVER]) {
        let entry = Endpoint { endpoint: *server, incarnation: 1, gaid: POOL, slot_base: 0, slots: 0 };
        kernel.set_endpoint(&entry, address(at)).expect("there is room");
    }
}

#[test]
fn removed_groups_and_pools_leave_no_tables() {
    let _alone = crate::exclusive();
    if loaded(frames::kernel()).is_none() {
        return;
    }
    let hosts = Hosts::up();
    let mut attached = hosts.attached(true).unwrap_or_else(|error| panic!("{error}"));
    let kernel = &mut attached.element;
    assert!(hosts.reaches(Host::Server, *crate::common::ELEMENT.ip()), "the element's machine resolves the server");
    let made = Made { before: tables() };
    hosts.within(Host::Element, || {
        install(kernel, &SERVERS);
        made.are(3);
        install(kernel, &SERVERS[..2]);
        made.are(1);
        kernel.set_group(GAID, &WORKERS).expect("two interfaces");
        made.are(2);
        kernel.remove(POOL).expect("installed");
        made.are(1);
        kernel.remove(GAID).expect("installed");
        made.are(0);

        // A change that fails half-way, because no more descriptors, and so no more tables, can be made.
        install(kernel, &SERVERS[..2]);
        let swapped = InstalledPool { gaid: POOL, version: 2, servers: vec![SERVERS[1], SERVERS[0]] };
        let refused = without_descriptors(|| kernel.install_pool(&swapped));
        assert!(matches!(refused, Err(Error::Kernel { .. })), "{refused:?}");
        assert!(!kernel.has(POOL));
        made.are(0);
        install(kernel, &SERVERS);
        made.are(3);
        kernel.remove(POOL).expect("installed");
        made.are(0);
    });
}

/// Runs `work` while the process cannot open files.
fn without_descriptors<T>(work: impl FnOnce() -> T) -> T {
    let before = getrlimit(Resource::Nofile);
    let next = File::open("/dev/null").expect("one more").as_raw_fd() as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(next), ..before }).expect("fewer");
    let done = work();
    setrlimit(Resource::Nofile, before).expect("the former limit");
    done
}
