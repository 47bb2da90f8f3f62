//! C programs, compiled with all warnings and executed: the example, one with invalid calls, one that frees early.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const MODELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../place/models");

/// Directory of the shared library that was built for this test.
fn library() -> PathBuf {
    let test = env::current_exe().expect("this test");
    let directory = test.parent().expect("a directory");
    let places = [directory.to_owned(), directory.parent().expect("a directory").to_owned()];
    let is = |place: &&PathBuf| place.join("libpathcall_place_c.so").is_file();
    places.iter().find(is).unwrap_or_else(|| panic!("no libpathcall_place_c.so in {places:?}")).clone()
}

/// Compiles a C program against the library.
fn compile(source: &Path, name: &str) -> PathBuf {
    let (program, library) = (Path::new(env!("CARGO_TARGET_TMPDIR")).join(name), library());
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-g", "-I"]);
    cc.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/include")).arg(source).arg("-o").arg(&program).arg("-L").arg(&library);
    cc.args(["-lpathcall_place_c", "-lpthread"]).arg(format!("-Wl,-rpath,{}", library.display()));
    let output = cc.output().expect("cc runs");
    assert!(output.status.success(), "{}", text(&output));
    program
}

fn text(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat()
}

#[test]
fn c_example_runs() {
    let program = compile(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/example/kvs.c")), "kvs");
    let run = |hardware: &str| {
        let mut command = Command::new(&program);
        command.arg(format!("{MODELS}/applications/kvs.yaml")).arg(format!("{MODELS}/{hardware}.yaml")).arg("300");
        command.output().expect("it runs")
    };
    let output = run("direct");
    assert!(output.status.success(), "{}", text(&output));
    let printed = text(&output);
    assert!(printed.starts_with("300 keys, 0 wrong\nGET cpu-cpu"), "{printed}");
    assert!(printed.contains("acc emulated") && printed.contains("PUT"), "{printed}");
    // An error names the file.
    let output = run("none");
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output).starts_with("models: ") && text(&output).contains("none.yaml: No such file"),
        "{}",
        text(&output)
    );
}

/// Compiles and runs a program of this folder; its exit status is the result.
fn check(name: &str) {
    check_on(name, format!("{MODELS}/direct.yaml"));
}

fn check_on(name: &str, hardware: String) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name).with_extension("c");
    let mut command = Command::new(compile(&source, name));
    command.arg(format!("{MODELS}/applications/kvs.yaml")).arg(hardware);
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn invalid_calls_from_c_return_codes() {
    check("mistakes");
}

#[test]
fn requests_run_on_each_of_several_accelerators() {
    check_on("accelerators", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/two.yaml").to_owned());
}

#[test]
fn freed_context_calls_no_c_function() {
    check("freed");
}
