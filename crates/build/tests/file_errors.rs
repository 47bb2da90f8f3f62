//! Tests of errors in files: the `.proto`, its filter, the chosen object; and of methods that share an application.

use crate::common::check_files;

const HEAD: &str = r#"syntax = "proto3";
package app;
import "pathcall/types.proto";
import "pathcall/options.proto";
message Ask { pathcall.STRINTMap kvs = 1; pathcall.FPArray tensor = 2; pathcall.INTINTMap ids = 3; }
message Answer { pathcall.STRINTMap kvs = 1; pathcall.FPArray tensor = 2; pathcall.STRFPMap fps = 3; }
message Only { pathcall.STRINTMap kvs = 1; }
"#;

const ADD: &str = r#"{ "AppName": "a", "addTo": "Ask.kvs" }"#;

/// Checks the diagnostic for methods `rpc NAME(Ask) returns (Answer)` with these filters, on lines 9, 10, …
#[track_caller]
fn says(methods: &[(&str, &str)], files: &[(&str, &str)], expected: &str) {
    let rpcs: Vec<_> = methods
        .iter()
        .map(|(name, filter)| {
            format!("rpc {name}(Ask) returns (Answer) {{ option (pathcall.filter) = \"{filter}\"; }}")
        })
        .collect();
    let proto = format!("{HEAD}service S {{\n{}\n}}\n", rpcs.join("\n"));
    let files = [&[("app.proto", proto.as_str())], files].concat();
    assert_eq!(check_files(&files).expect_err(expected), [expected]);
}

#[test]
fn proto_errors_are_reported() {
    let says =
        |text: &str, expected: &str| assert_eq!(check_files(&[("app.proto", text)]).expect_err(text), [expected]);
    says("syntax = \"proto3\";\nmessage {}", "app.proto:2:9: error: expected an identifier, but found '{'");
    says("syntax = \"proto3\";\nimport \"none.proto\";", "app.proto:2:1: error: import 'none.proto' not found");
    says("syntax = \"proto3\";\nmessage A { B b = 1; }", "app.proto:2:13: error: name 'B' is not defined");
    let missing = pathcall_build::check("no/such.proto").expect_err("no file");
    assert_eq!(missing[0].to_string(), "no/such.proto: error: no such file");
    let outside = pathcall_build::check_all(&["Cargo.toml"], &["src"]).expect_err("not included");
    assert_eq!(outside[0].to_string(), "Cargo.toml: error: is in none of the include directories");
}

#[test]
fn filter_file_errors_are_reported() {
    says(
        &[("A", "none.nf")],
        &[],
        "app.proto:9:31: error: cannot read filter `none.nf`: No such file or directory (os error 2)\n  hint: the path is relative to the .proto file that names it",
    );
    says(
        &[("A", "")],
        &[],
        "app.proto:9:31: error: the filter's file name is empty: expected a path such as `agtr.nf`",
    );
    // A file with errors is reported once, however many methods name it.
    says(&[("A", "f.nf"), ("B", "f.nf")], &[("f.nf", "{")], "f.nf:1:1: error: unterminated object");
}

#[test]
fn ambiguous_filters_of_a_file_are_reported() {
    let query = r#"{ "AppName": "a", "get": "Answer.kvs", "CntFwd": {"key": "Ask.kvs"} }"#;
    let two = format!("{ADD}\n{query}\n");
    says(
        &[("A", "f.nf")],
        &[("f.nf", &two)],
        "app.proto:9:31: error: 2 filters in `f.nf` fit /app.S/A\n  f.nf:2:1: this filter fits as well as the one at f.nf:1:1\n  hint: select one by its number, counting from 1: filter = \"f.nf#1\"",
    );
    says(
        &[("A", "f.nf#3")],
        &[("f.nf", &two)],
        "app.proto:9:31: error: `f.nf#3` does not exist: expected a number from 1 to 2, got 3",
    );
    says(
        &[("A", "f.nf#0")],
        &[("f.nf", &two)],
        "app.proto:9:31: error: `f.nf#0` does not exist: expected a number from 1 to 2, got 0",
    );
    let others = two.replace("Ask", "Only");
    says(
        &[("A", "f.nf")],
        &[("f.nf", &others)],
        "app.proto:9:31: error: none of the 2 filters in `f.nf` names fields of /app.S/A alone: expected fields of `Ask` and `Answer`\n  hint: select one by its number, counting from 1: filter = \"f.nf#1\"",
    );
}

#[test]
fn stream_of_replies_to_one_request_is_reported() {
    let proto = format!(
        "{HEAD}service S {{\nrpc A(Ask) returns (stream Answer) {{ option (pathcall.filter) = \"f.nf\"; }}\n}}\n"
    );
    let printed = check_files(&[("app.proto", &proto), ("f.nf", ADD)]).expect_err("streams");
    assert_eq!(
        printed,
        [
            "app.proto:9:38: error: /app.S/A has a stream of replies, but a filter has one result for a request\n  hint: remove the filter or the `stream` of replies, or let the requests be a stream, too"
        ]
    );
}

#[test]
fn application_conflicts_are_reported() {
    let clash = |second: &str, expected: &str| {
        says(&[("A", "a.nf"), ("B", "b.nf")], &[("a.nf", ADD), ("b.nf", second)], expected);
    };
    clash(
        r#"{ "AppName": "a", "Precision": 2, "get": "Answer.fps", "CntFwd": {"key": "Ask.kvs"} }"#,
        "b.nf:1:1: error: Precision: application \"a\" has Precision 0, not 2\n  a.nf:1:1: `/app.S/A` is here\n  hint: use one Precision throughout an application",
    );
    clash(
        r#"{ "AppName": "a", "get": "Answer.fps", "CntFwd": {"key": "Ask.kvs"} }"#,
        "b.nf:1:1: error: AppName: application \"a\" has both floating-point and integer values\n  a.nf:1:1: `/app.S/A` is here\n  hint: give one of them another AppName",
    );
    clash(
        r#"{ "AppName": "a", "addTo": "Ask.ids" }"#,
        "b.nf:1:1: error: AppName: application \"a\" has both string and integer keys\n  a.nf:1:1: `/app.S/A` is here\n  hint: give one of them another AppName",
    );
    clash(
        r#"{ "AppName": "a", "CntFwd": {"threshold": 1, "key": "Ask.kvs"} }"#,
        "b.nf:1:1: error: AppName: in application \"a\", votes cannot share the map with values that are added\n  a.nf:1:1: `/app.S/A` is here\n  hint: give one of them another AppName",
    );
    let sum = r#"{ "AppName": "a", "addTo": "Ask.tensor", "get": "Answer.tensor", "clear": "copy", "CntFwd": {"to": "ALL", "threshold": 2, "key": "ClientID"} }"#;
    clash(
        sum,
        "b.nf:1:1: error: AppName: in application \"a\", a sum cannot share the map with keys\n  a.nf:1:1: `/app.S/A` is here\n  hint: give one of them another AppName",
    );
    says(
        &[("A", "s.nf"), ("B", "s.nf")],
        &[("s.nf", sum)],
        "s.nf:1:1: error: AppName: in application \"a\", only one method can be a sum\n  s.nf:1:1: `/app.S/A` is here\n  hint: give one of them another AppName",
    );
}

#[test]
fn application_in_two_services_is_reported() {
    let rpc = "{ rpc A(Ask) returns (Answer) { option (pathcall.filter) = \"f.nf\"; } }";
    let proto = format!("{HEAD}service S {rpc}\nservice T {rpc}\n");
    let printed = check_files(&[("app.proto", &proto), ("f.nf", ADD)]).expect_err("two services");
    assert_eq!(
        printed,
        [
            "f.nf:1:1: error: AppName: application \"a\" belongs to service `app.S` and cannot be used in `app.T`\n  f.nf:1:1: `/app.S/A` is here\n  hint: give each service a separate application"
        ]
    );
}
