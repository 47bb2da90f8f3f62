//! Programs of C, compiled with all warnings, and run: the example, one that makes mistakes, and one that frees early.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const MODELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../place/models");

/// Where the library is that was built for this test.
fn library() -> PathBuf {
    let test = env::current_exe().expect("this test");
    let directory = test.parent().expect("a directory");
    let places = [directory.to_owned(), directory.parent().expect("a directory").to_owned()];
    let is = |place: &&PathBuf| place.join("libpathcall_place_c.so").is_file();
    places.iter().find(is).unwrap_or_else(|| panic!("no libpathcall_place_c.so in {places:?}")).clone()
}

/// Compiles a program.
fn compile(source: &Path, name: &str) -> PathBuf {
    let (program, library) = (Path::new(env!("CARGO_TARGET_TMPDIR")).join(name), library());
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-g", "-I"]);
    cc.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/include")).arg(source).arg("-o").arg(&program).arg("-L").arg(&library);
    cc.args(["-lpathcall_place_c", "-lpthread"]).arg(format!("-Wl,-rpath,{}", library.display()));
    let said = cc.output().expect("cc runs");
    assert!(said.status.success(), "{}", text(&said));
    program
}

fn text(said: &Output) -> String {
    [&said.stdout[..], &said.stderr].map(String::from_utf8_lossy).concat()
}

#[test]
fn the_example_of_c_runs() {
    let program = compile(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/example/kvs.c")), "kvs");
    let run = |hardware: &str| {
        let mut command = Command::new(&program);
        command.arg(format!("{MODELS}/applications/kvs.yaml")).arg(format!("{MODELS}/{hardware}.yaml")).arg("300");
        command.output().expect("it runs")
    };
    let said = run("direct");
    assert!(said.status.success(), "{}", text(&said));
    let told = text(&said);
    assert!(told.starts_with("300 keys, 0 wrong\nGET cpu-cpu"), "{told}");
    assert!(told.contains("acc emulated") && told.contains("PUT"), "{told}");
    // What is wrong is said, where it is.
    let said = run("none");
    assert_eq!(said.status.code(), Some(2));
    assert!(text(&said).starts_with("models: ") && text(&said).contains("none.yaml: No such file"), "{}", text(&said));
}

/// Runs a program of this folder, which says how it went.
fn check(name: &str) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name).with_extension("c");
    let mut command = Command::new(compile(&source, name));
    command.arg(format!("{MODELS}/applications/kvs.yaml")).arg(format!("{MODELS}/direct.yaml"));
    let said = command.output().expect("it runs");
    assert!(said.status.success(), "{}", text(&said));
}

#[test]
fn mistakes_of_c_are_codes() {
    check("mistakes");
}

#[test]
fn no_function_of_c_is_called_once_its_context_is_freed() {
    check("freed");
}
