//! Models from YAML: those that come with the crate, and every mistake in one line, with where it is.

use pathcall_place::model::{LogicalLink, NodeRole, Preset};
use pathcall_place::path::Side;
use pathcall_place::{Application, Hardware, Paths, Role};

const HARDWARE: &str = "\
hardware: mine
nodes:
  cpu: { role: cpu, slots: 4 }
  gpu: { role: acc }
  nic: { role: nic }
  plx: { role: switch }
links:
  - { between: [cpu, plx], bandwidth: 12.8 GB/s, messages: 20 M/s, latency: 200 ns }
  - { between: [gpu, plx], bandwidth: 12.8 GB/s, messages: 20 M/s, latency: 300 ns }
  - { between: [nic, plx], bandwidth: 12.8 GB/s, messages: 20 M/s, latency: 100 ns }
  - { between: [cpu, nic], bandwidth: 1 GB/s, messages: 1 M/s, latency: 900 ns }
routes:
  NC: [nic, cpu]
";

const APPLICATION: &str = "\
application: mine
tasks:
  look: { cpu: 1 us, acc: 400 ns }
  pack: { cpu: 2 us }
requests:
  GET:
    dependency: ADDR
    dataflows:
      - trips: [{ path: cpu-cpu, bytes: 8 B, reply: 64 B, requester: pack, responder: look }]
      - trips:
          - path: acc-acc
            bytes: [CA: 1 KB, AN: 1 KB, NA: 1 KB]
            reply: [AN: 64 B, NA: 64 B, AC: 64 B]
            responder: look
";

fn applications() -> [(&'static str, &'static str); 4] {
    [
        ("kvs.yaml", include_str!("../models/applications/kvs.yaml")),
        ("dfs.yaml", include_str!("../models/applications/dfs.yaml")),
        ("ebs.yaml", include_str!("../models/applications/ebs.yaml")),
        ("allreduce.yaml", include_str!("../models/applications/allreduce.yaml")),
    ]
}

#[test]
fn every_application_lies_over_every_model() {
    let custom = Hardware::parse("mine.yaml", HARDWARE).expect("a model");
    let mine = Application::parse("mine.yaml", APPLICATION).expect("an application");
    let given = applications().map(|(file, text)| Application::parse(file, text).unwrap_or_else(|m| panic!("{m}")));
    for hardware in Preset::ALL.map(Hardware::preset).into_iter().chain([custom]) {
        for application in given.iter().chain([&mine]) {
            let paths = Paths::of(&hardware, &hardware, application).unwrap_or_else(|mistake| panic!("{mistake}"));
            assert_eq!(paths.kinds.len(), application.requests.len());
            for path in &paths.paths {
                assert!(path.toll_ns > 0 && path.traverse_ns > path.toll_ns, "{}", path.name);
            }
        }
    }
    for preset in Preset::ALL {
        assert_eq!(Preset::named(preset.name()), Some(preset));
        assert_eq!(Hardware::preset(preset).name, preset.name());
    }
}

#[test]
fn logical_links_run_over_physical_ones() {
    let hardware = Hardware::parse("mine.yaml", HARDWARE).expect("a model");
    let names = |link| {
        hardware.route(link).expect("a route").iter().map(|at| &hardware.nodes[*at].name[..]).collect::<Vec<_>>()
    };
    assert_eq!(names(LogicalLink::Cn), ["cpu", "plx", "nic"], "by the least latency");
    assert_eq!(names(LogicalLink::Nc), ["nic", "cpu"], "as given");
    assert_eq!(names(LogicalLink::Ac), ["gpu", "plx", "cpu"]);
    let on_path = Hardware::preset(Preset::OnPath);
    let route = on_path.route(LogicalLink::Cn).expect("a route");
    assert_eq!(on_path.nodes[route[1]].role, NodeRole::Acc, "what the processor sends passes the accelerator");
}

#[test]
fn a_path_is_the_sum_of_its_hops() {
    let hardware = Hardware::parse("mine.yaml", HARDWARE).expect("a model");
    let application = Application::parse("mine.yaml", APPLICATION).expect("an application");
    let paths = Paths::of(&hardware, &hardware, &application).expect("paths");
    let [plain, both] = paths.of_kind(paths.kind("GET").expect("a type")) else { panic!("two paths") };

    // 8 and 64 bytes take no longer than a message does: 50 ns, or 1 µs on the slow link.
    let hops: Vec<(Side, &str, u64, u64)> = plain
        .hops
        .iter()
        .map(|hop| {
            let resource = &paths.resources[usize::from(hop.resource.0)];
            (resource.side, &resource.name[..], hop.delay_ns, hop.busy_ns)
        })
        .collect();
    let (asks, answers) = (Side::Requester, Side::Responder);
    assert_eq!(
        hops,
        [
            (asks, "cpu", 2_000, 500),
            (asks, "cpu>plx", 250, 50),
            (asks, "plx>nic", 150, 50),
            (answers, "nic>cpu", 1_900, 1_000),
            (answers, "cpu", 1_000, 250),
            (answers, "cpu>plx", 250, 50),
            (answers, "plx>nic", 150, 50),
            (asks, "nic>cpu", 1_900, 1_000),
        ]
    );
    assert_eq!((plain.traverse_ns, plain.toll_ns), (7_600, 2_950));
    assert_eq!((plain.role, plain.requester_role, plain.fifo), (Role::Cpu, Role::Cpu, false), "four slots");
    assert_eq!((both.role, both.requester_role, both.fifo), (Role::Acc, Role::Acc, true));
    // 1,000 bytes at 12.8 GB/s, rounded up.
    assert_eq!((both.hops[0].delay_ns, both.hops[0].busy_ns), (279, 79));
}

#[test]
fn compute_times_that_are_not_given_are_to_be_profiled() {
    let text = APPLICATION.replace("cpu: 1 us, acc: 400 ns", "cpu: 1 us");
    let mut application = Application::parse("a.yaml", &text).expect("an application");
    assert_eq!(application.unknown(), [(0, Role::Acc)]);
    let hardware = Hardware::preset(Preset::Direct);
    let mistake = Paths::of(&hardware, &hardware, &application).expect_err("it is not known").to_string();
    assert_eq!(mistake, "a.yaml:11:19: how long `look` takes on acc is not known; profile it, or give it in `tasks`");
    application.set_compute(0, Role::Acc, 400);
    assert!(application.unknown().is_empty());
    assert!(Paths::of(&hardware, &hardware, &application).is_ok());
}

#[test]
fn a_host_without_an_accelerator_is_named() {
    let plain = "\
hardware: plain
nodes: { cpu: { role: cpu }, nic: { role: nic } }
links: [{ between: [cpu, nic], bandwidth: 1 GB/s, messages: 1 M/s, latency: 1 us }]
";
    let plain = Hardware::parse("plain.yaml", plain).expect("a model");
    let application = Application::parse("a.yaml", APPLICATION).expect("an application");
    let said =
        Paths::of(&plain, &Hardware::preset(Preset::Direct), &application).expect_err("it lacks one").to_string();
    assert_eq!(
        said,
        "a.yaml:11:19: the path needs CA (cpu to acc), but `plain`, the requester, has no acc; take another path or \
         another model"
    );
}

/// A text with its first `from` replaced, and what is said of it.
fn said<T>(text: &str, from: &str, to: &str, parse: fn(&str, &str) -> Result<T, pathcall_place::Mistake>) -> String {
    assert!(text.contains(from), "{from}");
    match parse("f.yaml", &text.replacen(from, to, 1)) {
        Ok(_) => panic!("{from} as {to} is taken"),
        Err(mistake) => mistake.to_string(),
    }
}

#[test]
fn mistakes_in_hardware_are_pointed_at() {
    let mut wrong = Vec::new();
    for (from, to, expected) in [
        ("slots: 4", "slotz: 4", "f.yaml:3:21: there is no key `slotz` here; keys are role, slots"),
        ("slots: 4", "slots: 0", "f.yaml:3:28: `0` are no slots; write a number from 1 to 65536"),
        ("slots: 4", "slots:", "f.yaml:3:26: a value is missing after the key"),
        ("role: acc", "role: gpu", "f.yaml:4:16: `gpu` is no role; write one of cpu, acc, nic, switch"),
        (
            "role: acc",
            "role: cpu",
            "f.yaml:4:16: there are two nodes with role cpu, `cpu` is the other; a host has one",
        ),
        ("role: nic", "role: switch", "f.yaml:3:3: no node has role nic; each host needs one"),
        ("  gpu:", "  g p:", "f.yaml:4:3: `g p` is no name; use 1 to 64 letters, digits, `_`, `-`, `.`"),
        ("  gpu:", "  cpu:", "f.yaml:4:3: the key cpu stands here twice; keep one"),
        ("[cpu, plx]", "[cpu, fpga]", "f.yaml:8:22: there is no node `fpga`; nodes are cpu, gpu, nic, plx"),
        ("[cpu, plx]", "[cpu, cpu]", "f.yaml:8:22: the link joins `cpu` to itself; name two nodes"),
        ("[cpu, plx]", "[cpu]", "f.yaml:8:17: a link is between two nodes, not 1; write `between: [cpu, nic]`"),
        ("[cpu, nic], b", "[plx, cpu], b", "f.yaml:11:17: `plx` and `cpu` are joined twice; give one link"),
        ("12.8 GB/s", "12.8", "f.yaml:8:39: `12.8` has no unit; write a bandwidth like 12.8 GB/s or 100 Gbit/s"),
        ("12.8 GB/s", "-1 GB/s", "f.yaml:8:39: `-1 GB/s` is negative; a bandwidth can't be"),
        ("200 ns", "200", "f.yaml:8:77: `200` has no unit; write a time like 600 ns or 1.5 us"),
        (", latency: 200 ns", "", "f.yaml:8:50: the key `latency` is missing"),
        (
            "NC: [nic, cpu]",
            "NC: [nic, gpu, cpu]",
            "f.yaml:13:13: no link joins `nic` and `gpu`; add one, or take another way",
        ),
        (
            "NC: [nic, cpu]",
            "NC: [nic, plx, nic, cpu]",
            "f.yaml:13:18: the route goes in a loop: it comes to `nic` twice",
        ),
        ("NC: [nic, cpu]", "NC: [cpu, nic]", "f.yaml:13:3: NC goes from the nic to the cpu; so must its route"),
        (
            "NC: [nic, cpu]",
            "NX: [nic, cpu]",
            "f.yaml:13:3: `NX` is no logical link; write one of CN, NC, AN, NA, CA, AC",
        ),
        ("hardware: mine", "hardware: mine\nhardware: x", "f.yaml:2:1: the key hardware stands here twice; keep one"),
    ] {
        wrong.extend(Some(said(HARDWARE, from, to, Hardware::parse)).filter(|line| line != expected));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let lonely =
        HARDWARE.replace("  - { between: [gpu, plx], bandwidth: 12.8 GB/s, messages: 20 M/s, latency: 300 ns }\n", "");
    let line = Hardware::parse("f.yaml", &lonely).expect_err("it is disconnected").to_string();
    assert_eq!(line, "f.yaml: no links lead from `gpu` to `nic`; join them");
    for text in ["", "\n", "---\n---\n", "a: [", "hardware: {{}}", "- 1", "\u{0}"] {
        let line = Hardware::parse("f.yaml", text).expect_err("no model").to_string();
        assert!(line.starts_with("f.yaml:") && line.lines().count() == 1, "{line}");
    }
}

#[test]
fn mistakes_in_applications_are_pointed_at() {
    let mut wrong = Vec::new();
    for (from, to, expected) in [
        ("bytes: 8 B", "bytes: -8 B", "f.yaml:9:41: `-8 B` is negative; a size can't be"),
        ("bytes: 8 B", "bytes: 8", "f.yaml:9:41: `8` has no unit; write a size like 64 B or 256 KiB"),
        ("bytes: 8 B", "bytes:", "f.yaml:9:39: a value is missing after the key"),
        ("bytes: 8 B, ", "", "f.yaml:9:64: the key `bytes` is missing"),
        (
            "path: cpu-cpu",
            "path: cpu-gpu",
            "f.yaml:9:25: `cpu-gpu` is no path; write one of cpu-cpu, cpu-acc, acc-cpu, acc-acc",
        ),
        ("requester: pack", "requester: pick", "f.yaml:9:70: there is no task `pick`; tasks are look, pack"),
        ("dependency: ADDR", "dependency: ADR", "f.yaml:7:17: `ADR` is no dependency; write one of NONE, ADDR, MSG"),
        (
            "[CA: 1 KB, AN",
            "[CA: 1 KB, CN",
            "f.yaml:12:31: CA ends at the acc, CN begins at the cpu; links follow each other",
        ),
        (
            "[CA: 1 KB, AN: 1 KB, NA: 1 KB]",
            "[CN: 1 KB, NA: 1 KB]",
            "f.yaml:12:20: from acc to acc a message goes over AN, then NA; one other link may stand before, one after",
        ),
        (
            "[CA: 1 KB, AN: 1 KB, NA: 1 KB]",
            "[AC: 1 KB, CA: 1 KB, AN: 1 KB, NA: 1 KB]",
            "f.yaml:12:20: from acc to acc a message goes over AN, then NA; one other link may stand before, one after",
        ),
        (
            "[AN: 64 B, NA: 64 B, AC: 64 B]",
            "[AN: 64 B, NA: 64 B, AC: 64 B, CA: 64 B]",
            "f.yaml:13:20: from acc to acc a message goes over AN, then NA; one other link may stand before, one after",
        ),
        ("cpu: 2 us", "cpu: 2 h", "f.yaml:4:16: `h` is no unit of a time; units are ns, us, µs, ms, s"),
        ("cpu: 2 us", "gpu: 2 us", "f.yaml:4:11: there is no key `gpu` here; keys are cpu, acc"),
    ] {
        wrong.extend(Some(said(APPLICATION, from, to, Application::parse)).filter(|line| line != expected));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let several = Application::parse("f.yaml", "\"ta\\nsks\\r\": 1").expect_err("no such key").to_string();
    assert_eq!(several, r"f.yaml:1:1: there is no key `ta\nsks\r` here; keys are application, tasks, requests");
    let slow = APPLICATION.replace("cpu: 1 us", "cpu: 3600 s");
    let application = Application::parse("f.yaml", &slow).expect("an application");
    let hardware = Hardware::preset(Preset::Direct);
    let line = Paths::of(&hardware, &hardware, &application).expect_err("too slow").to_string();
    assert_eq!(line, "f.yaml:9:25: a GET by `cpu-cpu` takes over an hour; is a unit wrong?");
}
