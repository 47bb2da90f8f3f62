//! Soak test of all abilities on a testbed, whose processes are killed at random again and again: controller, element
//! in the kernel, servers of a function and of a service that uses map, clone, delegate and place, and an application
//! that never ends.
//!
//! Callers check each answer, for `PATHCALL_SOAK_S` seconds. In the end no surviving process has more memory,
//! descriptors or threads than when it was warm, and nothing is left in the kernel. Needs root, and the programs that
//! the tests in `live` need.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use pathcall_test_support::photo_callers::PhotoCallers;
use pathcall_test_support::process::Process;
use pathcall_testbed::{list_testbeds, root_tests};
use pathcall_xdp::BpfObjects;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};
use serde_json::Value;

use crate::isolation::LIMIT;
use crate::live::photos::Photos;
use crate::live::testbed::LiveTestbed;
use crate::live::traffic::{HASTY_S, Traffic};

/// Pause between two checks.
const PAUSE: Duration = Duration::from_millis(20);
/// Least number of kinds of victims, and of calls, however long that takes.
const KINDS_MIN: usize = 4;
const CALLS_MIN: u64 = 200;
/// Servers of the function's group.
const GROUP: [&str; 2] = ["s1", "s2"];
/// Tolerated change of memory: allocators keep some for each thread, controllers and elements remember members.
const SLACK_BYTES: u64 = 16 << 20;
/// Tolerated change of descriptors, threads and kernel tables: connections, blocking work, applications.
const SLACK: usize = 8;

/// Processes that may be killed. The front is excluded: it alone holds the sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Photos(&'static str),
    Function(&'static str),
    Application,
    Element,
    Controller,
}

const SERVERS: [Victim; 5] = [
    Victim::Photos("index"),
    Victim::Photos("archive"),
    Victim::Function("s1"),
    Victim::Function("s2"),
    Victim::Application,
];
const ALL: [Victim; 7] =
    [SERVERS[0], SERVERS[1], SERVERS[2], SERVERS[3], SERVERS[4], Victim::Element, Victim::Controller];

/// Resources of a process.
#[derive(Debug, Clone, Copy)]
struct ProcessResources {
    memory: u64,
    descriptors: usize,
    threads: usize,
}

impl ProcessResources {
    fn of(process: &Process) -> Self {
        let at = PathBuf::from(format!("/proc/{}", process.0.id()));
        let pages = std::fs::read_to_string(at.join("statm")).expect("Linux");
        let pages: u64 = pages.split(' ').nth(1).expect("resident").parse().expect("a number");
        let count = |what| std::fs::read_dir(at.join(what)).expect("Linux").count();
        Self { memory: pages * 4096, descriptors: count("fd"), threads: count("task") }
    }

    fn is_flat(self, warm: Self) -> bool {
        self.memory <= warm.memory + SLACK_BYTES
            && self.descriptors <= warm.descriptors + SLACK
            && self.threads <= warm.threads + SLACK
    }
}

/// Kernel objects of the machine, by unique id or by name.
#[derive(Debug)]
struct KernelObjects {
    programs: BTreeSet<u32>,
    maps: BTreeSet<u32>,
    links: BTreeSet<u32>,
    interfaces: BTreeSet<OsString>,
    testbeds: BTreeSet<String>,
}

impl KernelObjects {
    fn now() -> Self {
        let BpfObjects { programs, maps, links } = BpfObjects::now();
        let interfaces = std::fs::read_dir("/sys/class/net").expect("Linux");
        let interfaces = interfaces.map(|entry| entry.expect("an entry").file_name()).collect();
        Self {
            programs,
            maps: maps.into_keys().collect(),
            links,
            interfaces,
            testbeds: list_testbeds().expect("readable").into_keys().collect(),
        }
    }

    /// Objects created since `before`, including those of other tests, which clean up as well.
    fn since(&self, before: &Self) -> Self {
        Self {
            programs: &self.programs - &before.programs,
            maps: &self.maps - &before.maps,
            links: &self.links - &before.links,
            interfaces: &self.interfaces - &before.interfaces,
            testbeds: &self.testbeds - &before.testbeds,
        }
    }

    fn sizes(&self) -> [usize; 5] {
        let Self { programs, maps, links, interfaces, testbeds } = self;
        [programs.len(), maps.len(), links.len(), interfaces.len(), testbeds.len()]
    }

    /// Number of these objects that still exist.
    fn left(&self) -> [usize; 5] {
        let now = Self::now();
        [
            (&self.programs & &now.programs).len(),
            (&self.maps & &now.maps).len(),
            (&self.links & &now.links).len(),
            (&self.interfaces & &now.interfaces).len(),
            (&self.testbeds & &now.testbeds).len(),
        ]
    }
}

/// Totals of the test.
#[derive(Debug, Default)]
struct Tally {
    turns: u64,
    calls: u64,
    again: u64,
    killed: BTreeMap<String, u64>,
    /// Number of times that the controller lost its store, too.
    forgotten: u64,
}

struct Soak {
    // Processes are dropped before the namespaces that they run in.
    traffic: Traffic,
    photos: Photos,
    application: Option<Process>,
    bed: LiveTestbed,
    random: StdRng,
    tally: Tally,
}

impl Soak {
    fn start(seed: u64) -> Self {
        let mut bed = LiveTestbed::start();
        for name in GROUP {
            bed.serve(name);
            bed.change("add-server", name);
        }
        bed.until_group(&GROUP);
        let (traffic, photos) = (Traffic::start(&bed, HASTY_S), Photos::start(&bed));
        let (random, tally) = (StdRng::seed_from_u64(seed), Tally::default());
        let mut soak = Self { traffic, photos, application: None, bed, random, tally };
        soak.start_one(Victim::Application);
        soak.until_whole();
        soak
    }

    /// Turns of callers for this long, during which processes are killed.
    fn run(&mut self, time: Duration, victims: &[Victim]) {
        let began = Instant::now();
        // As many turns as time allows, and until enough processes were killed and calls made.
        let enough = |tally: &Tally| tally.killed.len() >= KINDS_MIN && tally.calls > CALLS_MIN;
        while began.elapsed() < time || !enough(&self.tally) {
            self.turn(victims);
            println!("{:?} of {time:?}: {:?}", began.elapsed(), self.tally);
        }
    }

    fn turn(&mut self, victims: &[Victim]) {
        let mut calling = PhotoCallers::start(self.photos.command(2), &self.photos.front);
        for _ in 0..3 {
            let some = self.random.random_range(1..=3);
            let mut killed: Vec<Victim> = victims.sample(&mut self.random, some).copied().collect();
            let mut spare = self.is_spare();
            killed.retain(|victim| !matches!(victim, Victim::Function(_)) || std::mem::take(&mut spare));
            println!("{killed:?}");
            for &victim in &killed {
                self.kill(victim);
                *self.tally.killed.entry(format!("{victim:?}")).or_default() += 1;
            }
            if self.random.random() {
                self.until_frames(&mut calling, 100);
            }
            killed.shuffle(&mut self.random);
            // Servers need a controller to become ready.
            killed.sort_by_key(|victim| matches!(victim, Victim::Photos(_) | Victim::Function(_)));
            killed.into_iter().for_each(|victim| self.start_one(victim));
            self.until_whole();
            self.until_frames(&mut calling, 200);
        }
        self.take(&calling.end());
    }

    fn take(&mut self, report: &Value) {
        self.tally.turns += 1;
        self.tally.calls += report["calls"].as_u64().expect("a count");
        self.tally.again += report["again"].as_u64().expect("a count");
    }

    fn kill(&mut self, victim: Victim) {
        match victim {
            Victim::Photos(name) => drop(self.photos.servers.remove(name).expect("the program runs")),
            Victim::Function(name) => self.bed.kill(name),
            Victim::Application => self.application = None,
            Victim::Element => self.bed.element = None,
            Victim::Controller => {
                self.bed.controller = None;
                if self.random.random() {
                    std::fs::remove_file(self.bed.store()).expect("the store file");
                    self.tally.forgotten += 1;
                }
            }
        }
    }

    fn start_one(&mut self, victim: Victim) {
        match victim {
            Victim::Photos(name) => drop(self.photos.serve(name)),
            Victim::Function(name) => self.bed.serve(name),
            Victim::Application => {
                self.application = Some(crate::live::testbed::start_silent(&mut self.bed.word_count()))
            }
            Victim::Element => self.bed.start_element(),
            Victim::Controller => self.bed.start_controller(),
        }
    }

    /// Waits until all processes are back: the pool has its servers, the function at least one, and connections pass.
    fn until_whole(&self) {
        self.photos.until_known(&self.bed);
        for name in GROUP {
            self.bed.change("add-server", name);
        }
        self.traffic.until_short(1);
    }

    /// True if a function's server may be killed: a killed server is out of the group for two minutes, and another one
    /// must remain.
    fn is_spare(&self) -> bool {
        let status = self.bed.status();
        let servers = status["servers"].as_array().expect("servers");
        servers.iter().filter(|server| server["in_group"] == true && server["alive"] == true).count() == GROUP.len()
    }

    /// Waits until the element has processed `more` further frames, counted from zero after a restart.
    fn until_frames(&self, calling: &mut PhotoCallers, more: u64) {
        let frames = || {
            let status = self.bed.map_status()?;
            let alive = status["elements"].as_array()?.iter().find(|element| element["alive"] == true)?.clone();
            alive["counters"]["element"]["frames_in"].as_u64()
        };
        let (before, began) = (frames().unwrap_or(0), Instant::now());
        while frames().is_some_and(|now| now >= before && now < before + more) {
            calling.go_on();
            std::thread::sleep(PAUSE);
            assert!(
                began.elapsed() < LIMIT,
                "no frames at the element: {:#}",
                self.bed.map_status().unwrap_or_default()
            );
        }
    }

    /// Resources of each process that was not killed in the last half.
    fn has(&self) -> BTreeMap<&'static str, ProcessResources> {
        let element = self.bed.element.as_ref().expect("the program runs");
        let controller = self.bed.controller.as_ref().expect("the program runs");
        let front = &self.photos.servers["front"];
        [("controller", controller), ("element", element), ("front", front)]
            .map(|(name, process)| (name, ProcessResources::of(process)))
            .into()
    }
}

#[test]
fn nothing_grows_over_repeated_kills() {
    if !root_tests("nothing_grows_over_repeated_kills") {
        return;
    }
    let number = |name, or| std::env::var(name).ok().map_or(or, |text| text.parse().expect("a number"));
    let time = Duration::from_secs(number("PATHCALL_SOAK_S", 5));
    let seed = number("PATHCALL_SOAK_SEED", 1);
    let before = KernelObjects::now();
    let mut soak = Soak::start(seed);
    soak.run(time / 2, &ALL);
    soak.run(time / 8, &SERVERS);
    let (warm, machine) = (soak.has(), KernelObjects::now());
    soak.run(time * 3 / 8, &SERVERS);
    // Resources of killed processes take a moment to go.
    let end = KernelObjects::now();
    // Tables may be replaced: an application that has just started has its own.
    let (came, [programs, maps, links, ..]) = (end.since(&machine), machine.since(&end).sizes());
    let may_stay = [programs, maps + SLACK, links, 0, 0];
    let is_flat = || {
        let stays = came.left();
        soak.has().iter().all(|(name, has)| has.is_flat(warm[name]))
            && stays.iter().zip(may_stay).all(|(stays, may)| *stays <= may)
    };
    let is_flat = until_some(is_flat);
    println!("warm {warm:#?}\nend {:#?}\ncame {:?}, of {may_stay:?}: {came:?}", soak.has(), came.left());
    assert!(is_flat, "a resource grows");
    let tally = &soak.tally;
    assert!(tally.calls > CALLS_MIN && tally.killed.len() >= KINDS_MIN, "{tally:?}");
    let Soak { traffic, photos, application, bed, .. } = soak;
    println!("{}", traffic.end());
    let made = KernelObjects::now().since(&before);
    drop((photos, application, bed));
    assert!(until_some(|| made.left() == [0; 5]), "left: {:?} of {made:?}", made.left());
}

/// Waits for a condition, at most as long as clean-up takes.
fn until_some(condition: impl Fn() -> bool) -> bool {
    let began = Instant::now();
    while !condition() {
        if began.elapsed() > LIMIT {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
    true
}
