//! Tests of the option `place`: results, errors, positions and messages.

use crate::common::check_files;
use pathcall_build::CheckReport;

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

/// The method of the service is on line 5.
fn check(rpc: &str, application: &str) -> Result<CheckReport, Vec<String>> {
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
fn placed_method_maps_to_request_type() {
    let get = r#"rpc Free(Slot) returns (Slot) { option (pathcall.place) = { application: "kvs.yaml", request: "GET", key: "key" }; }"#;
    let report = check(get, APPLICATION).unwrap();
    let [method] = &report.placed[..] else { panic!("{report}") };
    assert_eq!((method.path.as_str(), method.key, method.request.as_str()), ("/app.S/Free", 4, "GET"));
    assert_eq!(method.application, APPLICATION);
    assert_eq!(report.to_string(), "/app.S/Free: GET of kvs.yaml, by cpu-cpu or cpu-acc\n");
    // The request has the name of the method. A cloned method can be placed as well.
    let free = r#"rpc Free(Slot) returns (Slot) { option (pathcall.place) = { application: "kvs.yaml" };
        option (pathcall.clone) = { idempotent: true }; }"#;
    let report = check(free, APPLICATION).unwrap();
    assert_eq!((report.placed[0].key, report.cloned.len()), (0, 1));
}

#[test]
fn invalid_place_option_is_reported_with_hint() {
    says("", "/app.S/Free names no application\n  hint: add `application: \"kvs.yaml\"`");
    says(
        r#"application: "none.yaml""#,
        "/app.S/Free names none.yaml: No such file or directory (os error 2)\n  hint: the path is relative to the .proto file",
    );
    says(
        r#"application: "kvs.yaml", request: "get""#,
        "/app.S/Free has the unknown request \"get\" (kvs.yaml has GET, Free)\n  \
         hint: add `request: \"…\"` with one of these",
    );
    says(
        r#"application: "kvs.yaml", request: "GET""#,
        "/app.S/Free has no key, but its requests are ordered by ADDR\n  \
         hint: add `key: \"…\"` with a field of Slot",
    );
    says(
        r#"application: "kvs.yaml", request: "GET", key: "name""#,
        "/app.S/Free has the unknown key \"name\" (Slot has many, key)\n  hint: name one of these",
    );
    says(
        r#"application: "kvs.yaml", request: "GET", key: "many""#,
        "/app.S/Free has the key \"many\", which is not a single value\n  \
         hint: name a field that is a number, a string or bytes",
    );
    says(
        r#"application: "kvs.yaml", key: "key""#,
        "/app.S/Free has the key \"key\", but its requests are independent\n  \
         hint: remove the key, or give the type of request its dependency",
    );
}

#[test]
fn application_error_is_reported_once() {
    let option = r#"{ option (pathcall.place) = { application: "kvs.yaml" }; }"#;
    let rpcs = format!("rpc Free(Slot) returns (Slot) {option} rpc Again(Slot) returns (Slot) {option}");
    let diagnostics = check(&rpcs, &APPLICATION.replace("ADDR", "ADDRESS")).unwrap_err();
    assert_eq!(diagnostics.len(), 1, "{diagnostics:?}");
    assert!(diagnostics[0].starts_with("kvs.yaml:7:"), "{diagnostics:?}");
}

#[test]
fn streaming_method_is_not_placed() {
    let option = r#"{ option (pathcall.place) = { application: "kvs.yaml" }; }"#;
    let diagnostics = check(&format!("rpc Free(Slot) returns (stream Slot) {option}"), APPLICATION).unwrap_err();
    assert!(
        diagnostics[0].contains("is streaming, but only unary and delegated methods can be placed"),
        "{diagnostics:?}"
    );
    // A delegated method streams its replies, and each request is placed at its node.
    let option = option.replace("{ option", "{ option (pathcall.delegate) = true; option");
    check(&format!("rpc Free(Slot) returns (stream Slot) {option}"), APPLICATION).unwrap();
}
