//! Checks of package targets: targets with tests are built for tests, and others are not.

use std::collections::BTreeSet;

use toml::{Table, Value};

use crate::support::tree::{read, tracked};

/// Where a crate lists its test targets, a file outside of them would never be run.
#[test]
fn every_test_file_belongs_to_target() {
    let files = tracked();
    for manifest in files.iter().filter(|file| file.ends_with("/Cargo.toml")) {
        let folder = manifest.strip_suffix("/Cargo.toml").expect("the manifest's name");
        let text = read(manifest).expect("a manifest");
        if !text.contains("autotests = false") {
            continue;
        }
        let main = read(&format!("{folder}/tests/main.rs")).expect("the target of most tests");
        for file in &files {
            let Some(name) = file.strip_prefix(&format!("{folder}/tests/")).and_then(|name| name.strip_suffix(".rs"))
            else {
                continue;
            };
            let name = name.strip_suffix("/mod").unwrap_or(name);
            let known =
                text.contains(&format!("path = \"tests/{name}.rs\"")) || main.contains(&format!("mod {name};\n"));
            assert!(
                known || name.contains('/'),
                "{file} is neither a target of {manifest} nor a module of tests/main.rs"
            );
        }
    }
}

/// Markers of tests in a source.
const TEST_MARKERS: [&str; 4] = ["[test]", "::test]", "cfg(test", "(test,"];
/// Attributes after the fence of a block that rustdoc runs.
const RUN_FENCES: [&str; 6] = ["", "rust", "no_run", "should_panic", "compile_fail", "ignore"];

/// Library or program of a package.
struct Target {
    manifest: String,
    root: String,
    library: bool,
    /// Built for unit tests.
    test: bool,
    /// rustdoc runs the blocks of its documentation.
    doctest: bool,
    /// Source files.
    files: BTreeSet<String>,
}

impl Target {
    fn any(&self, mut holds: impl FnMut(&str) -> bool) -> bool {
        self.files.iter().any(|file| holds(&read(file).expect("a source")))
    }

    fn has_tests(&self) -> bool {
        self.any(|text| TEST_MARKERS.iter().any(|mark| text.contains(mark)))
    }

    fn has_doc_tests(&self) -> bool {
        self.library && self.any(has_doc_tests)
    }
}

/// True if the documentation in a source has a block that rustdoc runs.
fn has_doc_tests(text: &str) -> bool {
    let docs = text.lines().filter_map(|line| {
        let line = line.trim_start();
        line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))
    });
    let mut inside = false;
    for after in docs.filter_map(|line| line.trim_start().strip_prefix("```")) {
        inside = !inside;
        if inside && after.split([',', ' ']).all(|word| RUN_FENCES.contains(&word)) {
            return true;
        }
    }
    false
}

/// All libraries and programs of the packages in these folders.
fn targets(folders: &[&str]) -> Vec<Target> {
    let files: BTreeSet<String> = tracked().into_iter().collect();
    let mut all = Vec::new();
    for manifest in files.iter().filter(|file| folders.iter().any(|folder| file.starts_with(folder))) {
        let Some(folder) = manifest.strip_suffix("Cargo.toml") else { continue };
        let table: Table = read(manifest).and_then(|text| text.parse().ok()).expect("a manifest");
        let mut target = |root: String, library: bool, section: Option<&Table>| {
            let says = |key: &str| section.and_then(|section| section.get(key)).and_then(Value::as_bool);
            let (test, doctest) = (says("test").unwrap_or(true), library && says("doctest").unwrap_or(true));
            let mut sources = BTreeSet::new();
            modules(&root, &files, &mut sources);
            all.push(Target { manifest: manifest.clone(), root, library, test, doctest, files: sources });
        };
        let library = format!("{folder}src/lib.rs");
        if files.contains(&library) {
            target(library, true, table.get("lib").and_then(Value::as_table));
        }
        let package = table.get("package").and_then(|package| package.get("name")).and_then(Value::as_str);
        let programs = table.get("bin").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for root in files.iter().filter(|file| file.starts_with(folder)) {
            let path = &root[folder.len()..];
            let name = match path.strip_prefix("src/bin/") {
                None if path == "src/main.rs" => package,
                None => None,
                Some(name) => name.strip_suffix("/main.rs").or_else(|| name.strip_suffix(".rs")),
            };
            let Some(name) = name.filter(|name| !name.contains('/')) else { continue };
            let named = |program: &&Table| match program.get("path").and_then(Value::as_str) {
                Some(own) => own == path,
                None => program.get("name").and_then(Value::as_str) == Some(name),
            };
            target(root.clone(), false, programs.iter().filter_map(Value::as_table).find(named));
        }
    }
    all
}

/// Source file with the files of the modules that it declares.
fn modules(file: &str, tracked: &BTreeSet<String>, all: &mut BTreeSet<String>) {
    let (Some(text), true) = (read(file), all.insert(file.to_owned())) else { return };
    let (folder, name) = file.rsplit_once('/').expect("a folder");
    let own = match name.strip_suffix(".rs").expect("a source") {
        "lib" | "main" | "mod" => folder.to_owned(),
        stem => format!("{folder}/{stem}"),
    };
    for line in text.lines() {
        let Some((_, name)) = line.strip_suffix(';').and_then(|line| line.split_once("mod ")) else { continue };
        for file in [format!("{own}/{name}.rs"), format!("{own}/{name}/mod.rs")] {
            if tracked.contains(&file) {
                modules(&file, tracked, all);
            }
        }
    }
}

/// Folders of the packages of both workspaces.
const PACKAGE_FOLDERS: [&str; 4] = ["apps/", "crates/", "examples/", "papers/"];

/// A library without tests that is built for tests is built twice for nothing.
#[test]
fn target_without_tests_disables_them() {
    let wrong = targets(&PACKAGE_FOLDERS).into_iter().filter(|target| target.test && !target.has_tests());
    let wrong: Vec<String> =
        wrong.map(|Target { manifest, root, .. }| format!("{manifest}: test = false, as {root} has none")).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Tests of a target with `test = false` would never be run.
#[test]
fn target_with_disabled_tests_has_none() {
    let wrong = targets(&PACKAGE_FOLDERS).into_iter().filter(|target| !target.test && target.has_tests());
    let wrong: Vec<String> =
        wrong.map(|Target { manifest, root, .. }| format!("{root} has tests, which {manifest} turns off")).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Searching a library for blocks takes as long as building it, and a block that is not run goes stale.
#[test]
fn library_declares_doctest() {
    let libraries = targets(&PACKAGE_FOLDERS).into_iter().filter(|target| target.library);
    let wrong = libraries.filter(|target| target.doctest != target.has_doc_tests());
    let wrong: Vec<String> =
        wrong.map(|target| format!("{}: doctest = {}", target.manifest, target.has_doc_tests())).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn rust_block_is_doc_test() {
    for (doc, runs) in [
        ("/// ```\n/// let x = 1;\n/// ```", true),
        ("//! ```rust,no_run\n//! main();\n//! ```", true),
        ("/// ```text\n/// a ─► b\n/// ```\n/// ```toml\n/// ```", false),
        ("// ```\n// a comment\n// ```", false),
    ] {
        assert_eq!(has_doc_tests(doc), runs, "{doc}");
    }
}
