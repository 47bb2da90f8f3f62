//! Checks of the style: size and opening of files, banned calls, linked pages, and layering of crates.

use crate::support::tree::{read, tracked, words};

/// Limit of lines of a file, so that a reader can keep it in mind.
const LINES_MAX: usize = 420;
/// Longer files, with the reason.
const LONG_FILES: [(&str, &str); 1] = [("crates/wire/src/mutant.rs", "the complete list of mutants")];
/// Crates that each crate may use, lowest layer first.
const LAYERS: &[(&str, &[&str])] = &[
    ("wire", &[]),
    ("shm", &[]),
    ("auth", &[]),
    ("sandbox", &[]),
    ("console", &[]),
    ("plot", &[]),
    ("testbed", &["wire", "console"]),
    ("tidy", &[]),
    ("proto", &["wire"]),
    ("program", &["wire"]),
    ("endpoint", &["wire"]),
    ("driver", &["wire", "shm", "endpoint"]),
    ("p4", &["wire"]),
    ("netfn", &["wire", "sandbox", "p4"]),
    ("function-testing", &["wire", "p4", "netfn"]),
    ("place", &["wire", "shm", "endpoint", "driver"]),
    ("place-c", &["wire", "place"]),
    ("build", &["proto", "place"]),
    ("control", &["wire", "proto", "auth"]),
    ("xdp", &["wire", "program", "p4"]),
    ("live", &["wire", "proto", "auth", "p4", "netfn", "xdp"]),
    ("element", &["wire", "proto", "auth", "program", "driver", "xdp"]),
    ("rpc", &["wire", "proto", "auth", "endpoint", "driver", "place"]),
    ("pipe", &["wire", "build", "place", "rpc"]),
    ("conformance", &["wire", "program", "p4"]),
    ("sim", &["wire", "program", "endpoint", "p4", "netfn", "place"]),
    ("pathcall", &["proto", "auth", "rpc"]),
    ("demo", &["console", "place", "plot", "testbed"]),
];
/// Crates above all layers: the command, and crates that only tests use.
const TOP_CRATES: [&str; 4] = ["cli", "fuzzing", "test-support", "tutorials"];

#[test]
fn files_are_short_and_open_with_docs() {
    let mut wrong = Vec::new();
    for file in tracked().iter().filter(|f| f.ends_with(".rs") && !f.contains("/golden/") && !f.contains("/generated/"))
    {
        let Some(text) = read(file) else { continue };
        let lines = text.lines().count();
        if lines > LINES_MAX && !LONG_FILES.iter().any(|(name, _)| name == file) {
            wrong.push(format!("{file}: {lines} lines, at most {LINES_MAX}"));
        }
        let tests = file.ends_with("tests.rs") || file.contains("/tests/");
        if !tests && !text.starts_with("//!") {
            wrong.push(format!("{file}: does not open with what it is (//!)"));
        }
        let banned =
            [concat!("to", "do!("), concat!("db", "g!("), concat!("unimple", "mented!("), concat!("/wo", "rk/")];
        for call in banned.into_iter().filter(|call| text.contains(call)) {
            wrong.push(format!("{file}: has {call}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn pages_are_linked() {
    let pages: Vec<String> = tracked().into_iter().filter(|f| f.ends_with(".md")).collect();
    let all: String = pages.iter().filter_map(|page| read(page)).collect();
    for page in pages.iter().filter(|page| page.as_str() != "README.md") {
        let name = page.rsplit('/').next().expect("a name");
        assert!(all.contains(&format!("{name})")), "{page} is linked from nowhere");
    }
}

#[test]
fn crate_layers_point_one_way() {
    for (n, (name, allowed)) in LAYERS.iter().enumerate() {
        for used in *allowed {
            assert!(LAYERS[..n].iter().any(|(lower, _)| lower == used), "{used} has to stand before {name}");
        }
        let text = read(&format!("crates/{name}/Cargo.toml")).expect("a crate");
        let normal = text.split("[dev-dependencies]").next().expect("text");
        for used in normal.lines().filter_map(|line| line.strip_prefix("pathcall-")) {
            let used = used.split(['.', ' ', '=']).next().expect("a name");
            assert!(allowed.contains(&used), "crates/{name} must not use crates/{used}");
        }
    }
    let known = |name: &str| TOP_CRATES.contains(&name) || LAYERS.iter().any(|(layer, _)| *layer == name);
    for file in tracked() {
        let Some(name) = file.strip_prefix("crates/").and_then(|rest| rest.strip_suffix("/Cargo.toml")) else {
            continue;
        };
        assert!(name.contains('/') || known(name), "{file}: where does it stand?");
    }
}

#[test]
fn product_does_not_use_papers_workspace() {
    for file in tracked().iter().filter(|file| file.ends_with("Cargo.toml") && !file.starts_with("papers/")) {
        let text = read(file).expect("a manifest");
        let uses = text.lines().any(|line| line.contains("papers/") && line.contains("path ="));
        assert!(!uses, "{file} uses papers/");
    }
}

#[test]
fn every_workspace_dependency_is_used() {
    for (workspace, of_papers) in [("Cargo.toml", false), ("papers/Cargo.toml", true)] {
        let text = read(workspace).expect("the workspace");
        let (_, rest) = text.split_once("[workspace.dependencies]").expect("dependencies");
        let members =
            tracked().into_iter().filter(|f| f.ends_with("Cargo.toml") && f.starts_with("papers/") == of_papers);
        let manifests: String = members.filter_map(|f| read(&f)).collect();
        for line in rest.lines().skip(1).take_while(|line| !line.starts_with('[')) {
            let Some((name, _)) = line.split_once(" = ") else { continue };
            let used = [format!("\n{name}.workspace"), format!("\n{name} = {{ workspace")];
            assert!(used.iter().any(|u| manifests.contains(u)), "{workspace}: {name} is unused");
        }
    }
}

/// Dependencies of code that is generated when a package is built.
const GENERATED: [&str; 2] = ["prost", "tonic-prost"];

#[test]
fn every_package_dependency_is_used() {
    let tracked = tracked();
    let mut unused = Vec::new();
    for manifest in tracked.iter().filter(|f| f.ends_with("/Cargo.toml")) {
        let package = manifest.trim_end_matches("Cargo.toml");
        let own = tracked.iter().filter(|f| f.starts_with(package) && f.ends_with(".rs"));
        let sources: String = own.filter_map(|f| read(f).map(|text| included(f, &text) + &text)).collect();
        let table: toml::Table = read(manifest).and_then(|text| text.parse().ok()).expect("a manifest");
        let names = |section: &str| table.get(section).and_then(|s| s.as_table()).map(|s| s.keys().cloned());
        for name in ["dependencies", "dev-dependencies", "build-dependencies"].into_iter().filter_map(names).flatten() {
            let generated = GENERATED.contains(&name.as_str()) && tracked.contains(&format!("{package}build.rs"));
            if !generated && words(&sources, &name.replace('-', "_")).next().is_none() {
                unused.push(format!("{manifest}: {name}"));
            }
        }
    }
    assert!(unused.is_empty(), "unused dependencies:\n{}", unused.join("\n"));
}

/// Sources that a file includes from other packages by `#[path = "…"]`.
fn included(file: &str, text: &str) -> String {
    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    let paths = text.split("#[path = \"").skip(1).filter_map(|rest| rest.split('"').next());
    paths.filter_map(|path| read(&format!("{folder}/{path}"))).collect()
}
