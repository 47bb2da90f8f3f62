//! Methods with the option `place`: what they come to, each mistake, its place, and what is said about it.

use crate::common::check_files;
use pathcall_build::Report;

const APPLICATION: &str = "application: kvs
tasks:
  look-up: { cpu: 2 us, acc: 1 us }
  insert: { cpu: 2 us }
requests:
  GET:
    dependency: ADDR
    access: read
    dataflows:
      - trips: [{ path: cpu-cpu, bytes: 8 B, reply: 16 B, responder: look-up }]
      - trips: [{ path: cpu-acc, bytes: 8 B, reply: 16 B, responder: look-up }]
  Free:
    dependency: NONE
    dataflows:
      - trips: [{ path: cpu-cpu, bytes: 8 B, reply: 16 B, responder: insert }]
";

/// The service's method stands in line 5.
fn check(rpc: &str, application: &str) -> Result<Report, Vec<String>> {
    let proto = format!(
        "syntax = \"proto3\"; package app;\nimport \"pathcall/options.proto\";\n\
         message Slot {{ bytes key = 4; repeated int64 many = 2; }}\nservice S {{\n{rpc}\n}}\n"
    );
    check_files(&[("app.proto", &proto), ("kvs.yaml", application)])
}

#[track_caller]
fn says(option: &str, expected: &str) {
    let rpc = format!("rpc Free(Slot) returns (Slot) {{ option (pathcall.place) = {{ {option} }}; }}");
    assert_eq!(check(&rpc, APPLICATION).expect_err(option), [format!("app.proto:5:33: error: {expected}")], "{option}");
}

#[test]
fn a_method_is_a_type_of_request() {
    let get = r#"rpc Free(Slot) returns (Slot) { option (pathcall.place) = { application: "kvs.yaml", request: "GET", key: "key" }; }"#;
    let report = check(get, APPLICATION).unwrap();
    let [method] = &report.placed[..] else { panic!("{report}") };
    assert_eq!((method.path.as_str(), method.key, method.request.as_str()), ("/app.S/Free", 4, "GET"));
    assert_eq!(method.application, APPLICATION);
    assert_eq!(report.to_string(), "/app.S/Free: GET of kvs.yaml, by cpu-cpu or cpu-acc\n");
    // The method's own name, and a clone may be placed too.
    let free = r#"rpc Free(Slot) returns (Slot) { option (pathcall.place) = { application: "kvs.yaml" };
        option (pathcall.clone) = { idempotent: true }; }"#;
    let report = check(free, APPLICATION).unwrap();
    assert_eq!((report.placed[0].key, report.cloned.len()), (0, 1));
}

#[test]
fn mistakes_are_told_with_what_to_do() {
    says("", "/app.S/Free names no application\n  hint: add `application: \"kvs.yaml\"`");
    says(
        r#"application: "none.yaml""#,
        "/app.S/Free names none.yaml: No such file or directory (os error 2)\n  hint: it is looked for beside the .proto",
    );
    says(
        r#"application: "kvs.yaml", request: "get""#,
        "/app.S/Free is the request \"get\", which kvs.yaml lacks; it has GET, Free\n  \
         hint: add `request: \"…\"` with one of these",
    );
    says(
        r#"application: "kvs.yaml", request: "GET""#,
        "/app.S/Free says no key, and its requests keep their order by ADDR\n  \
         hint: add `key: \"…\"` with a field of Slot",
    );
    says(
        r#"application: "kvs.yaml", request: "GET", key: "name""#,
        "/app.S/Free has the key \"name\", which Slot lacks; it has many, key\n  hint: name one of these",
    );
    says(
        r#"application: "kvs.yaml", request: "GET", key: "many""#,
        "/app.S/Free has the key \"many\", which has no single value\n  \
         hint: name a field that is a number, a string or bytes",
    );
    says(
        r#"application: "kvs.yaml", key: "key""#,
        "/app.S/Free has the key \"key\", and its requests depend on no others\n  \
         hint: remove the key, or give the type of request its dependency",
    );
}

#[test]
fn what_is_wrong_in_the_application_is_told_there_and_once() {
    let option = r#"{ option (pathcall.place) = { application: "kvs.yaml" }; }"#;
    let rpcs = format!("rpc Free(Slot) returns (Slot) {option} rpc Again(Slot) returns (Slot) {option}");
    let complaints = check(&rpcs, &APPLICATION.replace("ADDR", "ADDRESS")).unwrap_err();
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    assert!(complaints[0].starts_with("kvs.yaml:7:"), "{complaints:?}");
}

#[test]
fn a_stream_is_not_placed() {
    let option = r#"{ option (pathcall.place) = { application: "kvs.yaml" }; }"#;
    let complaints = check(&format!("rpc Free(Slot) returns (stream Slot) {option}"), APPLICATION).unwrap_err();
    assert!(complaints[0].contains("streams; only unary calls are placed"), "{complaints:?}");
    // What servers pass on streams its replies, and is placed where it comes to.
    let option = option.replace("{ option", "{ option (pathcall.delegate) = true; option");
    check(&format!("rpc Free(Slot) returns (stream Slot) {option}"), APPLICATION).unwrap();
}
