//! Models from YAML: those that come with the crate, and every mistake with its line.

use pathcall_place::model::{LogicalLink, Preset};
use pathcall_place::{Application, Hardware, Paths, Role};

const APPLICATIONS: [(&str, &str); 4] = [
    ("kvs.yaml", include_str!("../models/applications/kvs.yaml")),
    ("dfs.yaml", include_str!("../models/applications/dfs.yaml")),
    ("ebs.yaml", include_str!("../models/applications/ebs.yaml")),
    ("allreduce.yaml", include_str!("../models/applications/allreduce.yaml")),
];

#[test]
fn every_application_lies_over_every_preset() {
    for preset in Preset::ALL {
        let hardware = Hardware::preset(preset);
        assert_eq!(hardware.name, preset.name());
        assert_eq!(Preset::named(preset.name()), Some(preset));
        for (file, text) in APPLICATIONS {
            let application = Application::parse(file, text).unwrap_or_else(|mistake| panic!("{mistake}"));
            let paths = Paths::of(&hardware, &hardware, &application).unwrap_or_else(|mistake| panic!("{mistake}"));
            for path in &paths.paths {
                println!(
                    "{file} on {}: {} T={} toll={} fifo={}",
                    hardware.name, path.name, path.traverse_ns, path.toll_ns, path.fifo
                );
                assert!(path.toll_ns > 0 && path.traverse_ns >= path.toll_ns);
            }
        }
    }
}

#[test]
fn mistakes_have_lines() {
    for (text, said) in [("hardware: x\nnodes:\n  cpu: { role: cpu, slotz: 3 }\nlinks: []\n", "?")] {
        println!("{}", Hardware::parse("h.yaml", text).expect_err(said));
    }
    for (from, to) in [
        ("reply: 64 B", "reply: 64"),
        ("reply: 64 B", "reply: -64 B"),
        ("reply: 64 B", "reply:"),
        ("reply: 64 B", "reply: [CN: 8 B]"),
        ("reply: 64 B", "reply: [CX: 8 B]"),
        ("reply: 64 B", "replies: 64 B"),
        (", reply: 64 B", ""),
        ("look-up: {", "look-upp: {"),
        ("dependency: ADDR", "dependency: SOME"),
        ("  GET:", "  PUT:"),
        ("application: kvs", "application: kvs\napplication: x"),
        ("cpu: 1200 ns,", "cpu: 1200 ns"),
        ("path: cpu-acc", "path: cpu-gpu"),
        ("  GET:", "  'G T':"),
    ] {
        let text = APPLICATIONS[0].1.replacen(from, to, 1);
        println!("{}", Application::parse("kvs.yaml", &text).expect_err(to));
    }
    let _ = (LogicalLink::ALL, Role::Acc);
}
