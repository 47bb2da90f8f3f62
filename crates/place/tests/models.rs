//! Models in YAML: the built-in ones, and every error in one line with its position.

use pathcall_place::model::{HostLink, NodeRole, Preset};
use pathcall_place::path::PathSide;
use pathcall_place::{Application, DeviceRole, Hardware, Paths};

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
fn every_application_maps_to_every_model() {
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
fn logical_links_in_host_use_physical_links() {
    let hardware = Hardware::parse("mine.yaml", HARDWARE).expect("a model");
    let names = |link| {
        hardware
            .route(link, DeviceRole::Acc)
            .expect("a route")
            .iter()
            .map(|at| &hardware.nodes[*at].name[..])
            .collect::<Vec<_>>()
    };
    assert_eq!(names(HostLink::Cn), ["cpu", "plx", "nic"], "by the least latency");
    assert_eq!(names(HostLink::Nc), ["nic", "cpu"], "as given");
    assert_eq!(names(HostLink::Ac), ["gpu", "plx", "cpu"]);
    let on_path = Hardware::preset(Preset::OnPath);
    let route = on_path.route(HostLink::Cn, DeviceRole::Acc).expect("a route");
    assert_eq!(on_path.nodes[route[1]].role, NodeRole::Acc, "processor's route passes the accelerator");
}

#[test]
fn path_times_are_sums_of_hops() {
    let hardware = Hardware::parse("mine.yaml", HARDWARE).expect("a model");
    let application = Application::parse("mine.yaml", APPLICATION).expect("an application");
    let paths = Paths::of(&hardware, &hardware, &application).expect("paths");
    let [plain, both] = paths.of_kind(paths.kind("GET").expect("a type")) else { panic!("two paths") };

    // 8 and 64 bytes take no longer than a message does: 50 ns, or 1 µs on the slow link.
    let hops: Vec<(PathSide, &str, u64, u64)> = plain
        .hops
        .iter()
        .map(|hop| {
            let resource = &paths.resources[usize::from(hop.resource.0)];
            (resource.side, &resource.name[..], hop.delay_ns, hop.busy_ns)
        })
        .collect();
    let (asks, answers) = (PathSide::Requester, PathSide::Responder);
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
    assert_eq!((plain.role, plain.requester_role, plain.fifo), (DeviceRole::Cpu, DeviceRole::Cpu, false), "four slots");
    assert_eq!((both.role, both.requester_role, both.fifo), (DeviceRole::Acc, DeviceRole::Acc, true));
    // 1,000 bytes at 12.8 GB/s, rounded up.
    assert_eq!((both.hops[0].delay_ns, both.hops[0].busy_ns), (279, 79));
}

#[test]
fn missing_compute_times_must_be_profiled() {
    let text = APPLICATION.replace("cpu: 1 us, acc: 400 ns", "cpu: 1 us");
    let mut application = Application::parse("a.yaml", &text).expect("an application");
    assert_eq!(application.unknown(), [(0, DeviceRole::Acc)]);
    let hardware = Hardware::preset(Preset::Direct);
    let mistake = Paths::of(&hardware, &hardware, &application).expect_err("compute time is unknown").to_string();
    assert_eq!(mistake, "a.yaml:11:19: the compute time of `look` on acc is unknown; profile it, or set it in `tasks`");
    application.set_compute(0, DeviceRole::Acc, 400);
    assert!(application.unknown().is_empty());
    assert!(Paths::of(&hardware, &hardware, &application).is_ok());
}

#[test]
fn missing_accelerator_error_names_host() {
    let plain = "\
hardware: plain
nodes: { cpu: { role: cpu }, nic: { role: nic } }
links: [{ between: [cpu, nic], bandwidth: 1 GB/s, messages: 1 M/s, latency: 1 us }]
";
    let plain = Hardware::parse("plain.yaml", plain).expect("a model");
    let application = Application::parse("a.yaml", APPLICATION).expect("an application");
    let parse_error = Paths::of(&plain, &Hardware::preset(Preset::Direct), &application)
        .expect_err("host without accelerator")
        .to_string();
    assert_eq!(
        parse_error,
        "a.yaml:11:19: the path needs CA (cpu to acc), but `plain`, the requester, has no acc; use another path or \
         another model"
    );
}

/// Error message of a text whose first `from` is replaced.
fn parse_error<T>(
    text: &str,
    from: &str,
    to: &str,
    parse: fn(&str, &str) -> Result<T, pathcall_place::ModelError>,
) -> String {
    assert!(text.contains(from), "{from}");
    match parse("f.yaml", &text.replacen(from, to, 1)) {
        Ok(_) => panic!("{from} as {to} is accepted"),
        Err(mistake) => mistake.to_string(),
    }
}

#[test]
fn hardware_errors_have_position_and_remedy() {
    let mut wrong = Vec::new();
    for (from, to, expected) in [
        ("slots: 4", "slotz: 4", "f.yaml:3:21: there is no key `slotz` here; keys are role, slots"),
        ("slots: 4", "slots: 0", "f.yaml:3:28: invalid slots `0`; write a number from 1 to 65536"),
        ("slots: 4", "slots:", "f.yaml:3:26: a value is missing after the key; write one, or remove the key"),
        ("role: acc", "role: gpu", "f.yaml:4:16: invalid role `gpu`; write one of cpu, acc, nic, switch"),
        (
            "role: acc",
            "role: cpu",
            "f.yaml:4:16: there are two nodes with role cpu, the first is `cpu` in line 3; a host has one: remove one",
        ),
        (
            "role: nic",
            "role: switch",
            "f.yaml:3:3: no node has role nic; each host needs one: add `nic: { role: nic }`",
        ),
        ("  gpu:", "  g p:", "f.yaml:4:3: invalid name `g p`; use 1 to 64 letters, digits, `_`, `-`, `.`"),
        ("  gpu:", "  cpu:", "f.yaml:4:3: duplicate key `cpu`, first in line 3; rename or remove one"),
        ("[cpu, plx]", "[cpu, fpga]", "f.yaml:8:22: there is no node `fpga`; nodes are cpu, gpu, nic, plx"),
        ("[cpu, plx]", "[cpu, cpu]", "f.yaml:8:22: the link joins `cpu` to itself; name two nodes"),
        ("[cpu, plx]", "[cpu]", "f.yaml:8:17: a link is between two nodes, not 1; write `between: [cpu, nic]`"),
        (
            "[cpu, nic], b",
            "[plx, cpu], b",
            "f.yaml:11:17: `plx` and `cpu` are joined twice, first in line 8; give one link, which carries both directions",
        ),
        ("12.8 GB/s", "12.8", "f.yaml:8:39: `12.8` has no unit; write a bandwidth like 12.8 GB/s or 100 Gbit/s"),
        ("12.8 GB/s", "-1 GB/s", "f.yaml:8:39: `-1 GB/s` is negative; a bandwidth cannot be negative"),
        ("200 ns", "200", "f.yaml:8:77: `200` has no unit; write a time like 600 ns or 1.5 us"),
        (", latency: 200 ns", "", "f.yaml:8:50: the key `latency` is missing; add `latency: …`"),
        (
            "NC: [nic, cpu]",
            "NC: [nic, gpu, cpu]",
            "f.yaml:13:13: no link joins `nic` and `gpu`; add one, or use another route",
        ),
        ("NC: [nic, cpu]", "NC: [nic, plx, nic, cpu]", "f.yaml:13:18: the route visits `nic` twice"),
        ("NC: [nic, cpu]", "NC: [cpu, nic]", "f.yaml:13:3: NC goes from the nic to the cpu; so must its route"),
        (
            "NC: [nic, cpu]",
            "NX: [nic, cpu]",
            "f.yaml:13:3: invalid logical link `NX`; write one of CN, NC, AN, NA, CA, AC",
        ),
        (
            "hardware: mine",
            "hardware: mine\nhardware: x",
            "f.yaml:2:1: duplicate key `hardware`, first in line 1; rename or remove one",
        ),
        (
            "NC: [nic, cpu]",
            "NC: [nic, cpu]\n  CN: [cpu, nic]\n  NC: [nic, plx, cpu]",
            "f.yaml:15:3: duplicate key `NC`, first in line 13; rename or remove one",
        ),
        (
            "{ role: acc }",
            "[acc]",
            "f.yaml:4:8: a map is expected here, not a list or a single value; write `key: value`",
        ),
        (
            "{ role: acc }",
            "acc",
            "f.yaml:4:8: a map is expected here, not a list or a single value; write `key: value`",
        ),
        (
            "[cpu, plx]",
            "{ cpu: plx }",
            "f.yaml:8:16: a list is expected here, not a map or a single value; write `[one, other]`, or `- one` on a line",
        ),
        (
            "role: acc",
            "role: [acc]",
            "f.yaml:4:16: a single value is expected here, not a map or a list; write one word, name or quantity",
        ),
        (
            "  NC: [nic, cpu]",
            "  NC: [nic, cpu]\n---\nhardware: other",
            "f.yaml:14:1: a second document begins here; remove the `---`, or move the document to a file of its own",
        ),
    ] {
        wrong.extend(Some(parse_error(HARDWARE, from, to, Hardware::parse)).filter(|line| line != expected));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let lonely =
        HARDWARE.replace("  - { between: [gpu, plx], bandwidth: 12.8 GB/s, messages: 20 M/s, latency: 300 ns }\n", "");
    let line = Hardware::parse("f.yaml", &lonely).expect_err("node is disconnected").to_string();
    assert_eq!(line, "f.yaml:4:3: no route from `gpu` to `nic`; add links");
    let bare = Hardware::parse("f.yaml", "hardware: bare\nnodes: {}\nlinks: []\n").expect_err("no nodes").to_string();
    assert_eq!(bare, "f.yaml:2:8: there are no nodes; give at least one");
    let twice = APPLICATION.replace("dependency: ADDR\n", "dependency: ADDR\n    access: read\n    dependency: MSG\n");
    let line = Application::parse("f.yaml", &twice).expect_err("a key twice").to_string();
    assert_eq!(line, "f.yaml:9:5: duplicate key `dependency`, first in line 7; rename or remove one");
    for text in ["", "\n", "---\n---\n", "a: [", "hardware: {{}}", "- 1", "\u{0}"] {
        let line = Hardware::parse("f.yaml", text).expect_err("no model").to_string();
        assert!(line.starts_with("f.yaml:") && line.lines().count() == 1, "{line}");
    }
}

#[test]
fn application_errors_have_position_and_remedy() {
    let mut wrong = Vec::new();
    for (from, to, expected) in [
        ("bytes: 8 B", "bytes: -8 B", "f.yaml:9:41: `-8 B` is negative; a size cannot be negative"),
        ("bytes: 8 B", "bytes: 8", "f.yaml:9:41: `8` has no unit; write a size like 64 B or 256 KiB"),
        ("bytes: 8 B", "bytes:", "f.yaml:9:39: a value is missing after the key; write one, or remove the key"),
        ("bytes: 8 B, ", "", "f.yaml:9:64: the key `bytes` is missing; add `bytes: …`"),
        (
            "path: cpu-cpu",
            "path: cpu-gpu",
            "f.yaml:9:25: invalid path `cpu-gpu`; write one of cpu-cpu, cpu-acc, acc-cpu, acc-acc, or name an \
             accelerator, acc0 to acc6, like cpu-acc1",
        ),
        ("requester: pack", "requester: pick", "f.yaml:9:70: there is no task `pick`; tasks are look, pack"),
        ("dependency: ADDR", "dependency: ADR", "f.yaml:7:17: invalid dependency `ADR`; write one of NONE, ADDR, MSG"),
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
        ("cpu: 2 us", "cpu: 2 h", "f.yaml:4:16: invalid unit `h` of a time; units are ns, us, µs, ms, s"),
        ("  pack: {", "  look: {", "f.yaml:4:3: duplicate key `look`, first in line 3; rename or remove one"),
        ("requests:\n", "requests:\n  GET: {}\n", "f.yaml:6:8: the key `dependency` is missing; add `dependency: …`"),
        (
            "      - trips: [{",
            "      - trips: [{ path: cpu-cpu, bytes: 8 B, reply: 8 B }]\n      - trips: [{",
            "f.yaml:10:25: `GET` has two dataflows `cpu-cpu`, the first in line 9; give one a `name`",
        ),
        (
            "bytes: 8 B",
            "bytes: { CN: 8 B }",
            "f.yaml:9:41: invalid value; write a size, or a list of links with sizes like `[CA: 256 KiB, AN: 8 B, NC: 8 B]`",
        ),
        (
            "{ cpu: 2 us }",
            "[2 us]",
            "f.yaml:4:9: a map is expected here, not a list or a single value; write `key: value`",
        ),
        (
            "cpu: 2 us",
            "gpu: 2 us",
            "f.yaml:4:11: there is no key `gpu` here; keys are cpu, acc, acc0, acc1, acc2, acc3, acc4, acc5, acc6",
        ),
    ] {
        wrong.extend(Some(parse_error(APPLICATION, from, to, Application::parse)).filter(|line| line != expected));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let several = Application::parse("f.yaml", "\"ta\\nsks\\r\": 1").expect_err("no such key").to_string();
    assert_eq!(several, r"f.yaml:1:1: there is no key `ta\nsks\r` here; keys are application, tasks, requests");
    let slow = APPLICATION.replace("cpu: 1 us", "cpu: 3600 s");
    let application = Application::parse("f.yaml", &slow).expect("an application");
    let hardware = Hardware::preset(Preset::Direct);
    let line = Paths::of(&hardware, &hardware, &application).expect_err("too slow").to_string();
    assert_eq!(line, "f.yaml:9:25: a GET by `cpu-cpu` takes more than an hour; check the units");
}

#[test]
fn file_of_more_than_a_mebibyte_is_an_error() {
    let long = format!("{HARDWARE}# {}", "x".repeat(1 << 20));
    let error = Hardware::parse("long.yaml", &long).expect_err("too long").to_string();
    assert_eq!(error, format!("long.yaml: the file has {} bytes; at most 1048576 are allowed", long.len()));
}
