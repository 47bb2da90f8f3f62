//! Golden tests of whole programs: each file in `tests/p4` compiles to the IR beside it, and each in `functions`
//! compiles. `BLESS=1` rewrites the IR files.

use pathcall_p4::{DiagnosticReport, Sources, compile};
use std::path::{Path, PathBuf};

fn programs(folder: &str, ending: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|file| file.extension().is_some_and(|found| found == ending));
    files.sort();
    assert!(!files.is_empty(), "nothing in {}", folder.display());
    files
}

fn compiled(file: &Path) -> String {
    let mut sources = Sources::new(Vec::new());
    match compile(&mut sources, file) {
        Ok(program) => program.to_string(),
        Err(wrong) => panic!("{}", DiagnosticReport(&wrong, &sources)),
    }
}

#[test]
fn programs_compile_to_recorded_ir() {
    let mut differ = Vec::new();
    for file in programs("tests/p4", "p4") {
        let found = compiled(&file);
        let golden = file.with_extension("ir");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&golden, &found).expect("written");
        }
        let expected = std::fs::read_to_string(&golden).unwrap_or_default();
        let first = expected.lines().zip(found.lines()).position(|(a, b)| a != b);
        if expected != found {
            let line = first.unwrap_or(expected.lines().count().min(found.lines().count()));
            differ.push(format!(
                "{}:{}: expected `{}`, found `{}`",
                golden.display(),
                line + 1,
                expected.lines().nth(line).unwrap_or(""),
                found.lines().nth(line).unwrap_or("")
            ));
        }
    }
    assert!(differ.is_empty(), "{}\nBLESS=1 takes what is found", differ.join("\n"));
}

#[test]
fn functions_compile_and_have_a_handler() {
    for file in programs("../../functions", "p4c") {
        let text = compiled(&file);
        assert!(text.contains("\nhandler request ("), "{}:\n{text}", file.display());
        assert_eq!(text.matches("\n    remote\n").count(), 1, "{}:\n{text}", file.display());
    }
}

#[test]
fn compilation_is_deterministic() {
    for file in programs("tests/p4", "p4") {
        assert_eq!(compiled(&file), compiled(&file), "{}", file.display());
    }
}

#[test]
fn examples_in_documentation_compile() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/function.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let examples: Vec<&str> = page.split("```p4\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(!examples.is_empty());
    for example in examples {
        let mut sources = Sources::new(Vec::new());
        if let Err(wrong) = compile(&mut sources, ("example.p4c", example)) {
            panic!("{}", DiagnosticReport(&wrong, &sources));
        }
    }
}

#[test]
fn emitted_p4_of_programs_compiles() {
    for file in programs("tests/p4", "p4") {
        let mut sources = Sources::new(Vec::new());
        let program = compile(&mut sources, file.as_path()).expect("compiles");
        let text = pathcall_p4::emit::p4::emit(&program).expect("can be emitted as P4");
        let mut sources = Sources::new(Vec::new());
        match compile(&mut sources, ("again.p4", text.as_str())) {
            Ok(again) => {
                assert_eq!(again.tables.len(), program.tables.len(), "{}", file.display());
                assert_eq!(again.headers.len(), program.headers.len(), "{}", file.display());
            }
            Err(wrong) => panic!("{}:\n{}\n{text}", file.display(), DiagnosticReport(&wrong, &sources)),
        }
    }
}
