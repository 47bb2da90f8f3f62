//! Tests of the meaning of filters for their methods.

use crate::common::check_files;
use pathcall_build::ResolvedMethod;
use pathcall_build::resolve::ResolvedField;
use pathcall_proto::manifest::{ClearPolicy, FilterStreams, ForwardTarget, Kind, Modify, OpType, Shape};

const MESSAGES: &str = r#"syntax = "proto3";
package app.v1;
import "pathcall/types.proto";
import "pathcall/options.proto";
message Ask {
  message Part { Deep deep = 7; }
  message Deep { pathcall.FPArray tensor = 2; }
  Part part = 3;
}
message Bare { pathcall.STRFPMap kvs = 5; }
message Mixed { pathcall.IntValue vote = 1; string why = 2; }
message Tally { pathcall.IntValue votes = 1; }
message Sum { pathcall.FPArray32 tensor = 9; }
message Two { pathcall.IntArray left = 1; pathcall.IntArray right = 2; }
message Empty {}
"#;

/// Method `rpc Call(REQUEST) returns (REPLY)` with these fields of a filter.
fn method(request: &str, reply: &str, fields: &str) -> ResolvedMethod {
    let proto = format!(
        "{MESSAGES}service S {{ rpc Call({request}) returns ({reply}) {{ option (pathcall.filter) = \"f.nf\"; }} }}\n"
    );
    let filter = format!("{{ \"AppName\": \"a\", {fields} }}");
    let report =
        check_files(&[("app.proto", &proto), ("f.nf", &filter)]).unwrap_or_else(|printed| panic!("{printed:?}"));
    assert_eq!(report.warnings, []);
    report.methods.into_iter().next().expect("a method")
}

const TO_ALL: &str = r#""clear": "copy", "CntFwd": {"to": "ALL", "threshold": 3, "key": "ClientID"}"#;

#[test]
fn nested_field_is_found_by_any_name() {
    for name in ["Ask", "v1.Ask", "app.v1.Ask"] {
        let fields = format!("\"addTo\": \"{name}.part.deep.tensor\", \"get\": \"Sum.tensor\", {TO_ALL}");
        let method = method("Ask", "Sum", &fields);
        assert_eq!(method.path, "/app.v1.S/Call");
        assert_eq!(method.package, "app.v1");
        assert_eq!(method.kind, Kind::Sum { threshold: 3, clear: ClearPolicy::Copy });
        let field =
            ResolvedField { path: vec![3, 7, 2], name: "Ask.part.deep.tensor".to_owned(), shape: Shape::FpArray };
        assert_eq!(method.request, Some(field));
        assert!(!method.untyped_request);
        assert_eq!(method.reply.map(|field| field.shape), Some(Shape::FpArray32));
    }
}

#[test]
fn scalars_can_be_summed() {
    let method = method("Mixed", "Tally", &format!("\"addTo\": \"Mixed.vote\", \"get\": \"Tally.votes\", {TO_ALL}"));
    assert_eq!(method.kind, Kind::Sum { threshold: 3, clear: ClearPolicy::Copy });
    assert_eq!(method.request.map(|field| field.shape), Some(Shape::Int));
    assert!(method.untyped_request, "why");
}

#[test]
fn addition_can_read_and_modify() {
    let fields = r#""Precision": 4, "addTo": "Bare.kvs", "get": "Bare.kvs", "modify": {"op": "max", "para": 0},
        "CntFwd": {"to": "SERVER"}"#;
    let method = method("Bare", "Bare", fields);
    assert_eq!(method.kind, Kind::Add { get: true, to: ForwardTarget::Server });
    assert_eq!(method.modify, Modify { op: OpType::Max, para: 0 });
    assert_eq!((method.precision, method.to), (4, ForwardTarget::Server));
    assert!(!method.untyped_request);
}

#[test]
fn query_keys_default_to_only_typed_field() {
    let keys = |request: &str, fields: &str| method(request, "Bare", fields).request.map(|field| field.name);
    assert_eq!(keys("Bare", "\"get\": \"Bare.kvs\""), Some("Bare.kvs".to_owned()));
    assert_eq!(keys("Empty", "\"get\": \"Bare.kvs\""), None);
    let method = method("Two", "Tally", r#""get": "Tally.votes", "CntFwd": {"key": "Two.right"}"#);
    assert_eq!(method.kind, Kind::Query);
    assert_eq!(method.request.map(|field| field.name), Some("Two.right".to_owned()));
    assert!(method.untyped_request, "left");
}

#[test]
fn counts_and_clears_are_resolved() {
    let count = method("Two", "Empty", r#""CntFwd": {"to": "ALL", "threshold": 2, "key": "Two.left"}"#);
    assert_eq!(count.kind, Kind::Count { threshold: 2, to: ForwardTarget::All });
    let clear = method("Empty", "Empty", r#""clear": "copy""#);
    assert_eq!((clear.kind, clear.request, clear.untyped_request), (Kind::Clear, None, false));
}

#[test]
fn counts_get_counters_and_modify_works_alone() {
    let fields =
        r#""get": "Two.right", "CntFwd": {"to": "SERVER", "threshold": 2, "key": "Two.left"}, "modify": "BNOT""#;
    let count = method("Two", "Two", fields);
    assert_eq!(count.kind, Kind::Count { threshold: 2, to: ForwardTarget::Server });
    assert_eq!(count.reply.map(|field| field.name), Some("Two.right".to_owned()));
    let modify = method("Bare", "Empty", r#""modify": {"op": "MIN", "para": 9}, "CntFwd": {"to": "SERVER"}"#);
    assert_eq!((modify.kind, modify.request.map(|field| field.name)), (Kind::Modify, Some("Bare.kvs".to_owned())));
}

#[test]
fn streams_are_part_of_digest() {
    let fields = "\"addTo\": \"Bare.kvs\"";
    let [unary, client, both] =
        [("Bare", "Bare"), ("stream Bare", "Bare"), ("stream Bare", "stream Bare")].map(|(a, b)| method(a, b, fields));
    let streams = [unary.streams, client.streams, both.streams];
    assert_eq!(streams, [FilterStreams::Unary, FilterStreams::Client, FilterStreams::Both]);
    assert!(both.canonical().ends_with(" stream both\n"), "{}", both.canonical());
    assert!(unary.digest != client.digest && client.digest != both.digest);
}

#[test]
fn method_is_described_in_one_line() {
    let fields = format!("\"Precision\": 8, \"addTo\": \"Ask.part.deep.tensor\", \"get\": \"Sum.tensor\", {TO_ALL}");
    assert_eq!(
        method("Ask", "Sum", &fields).to_string(),
        "/app.v1.S/Call: application \"a\", sum over 3 callers, Ask.part.deep.tensor (FPArray) -> Sum.tensor (FPArray32), 8 digits"
    );
}

/// The digest is part of the contract between processes: it must not change between builds, and must change with every
/// property that both ends rely on.
#[test]
fn digest_covers_shared_properties() {
    let digest = |fields: &str| method("Bare", "Bare", fields).digest;
    let base = method("Bare", "Bare", "\"addTo\": \"Bare.kvs\"");
    assert_eq!(base.canonical(), "/app.v1.S/Call 1:a 0 add 0 src 0 0 5:STRFPMap -\n");
    // Computed by hand from the line above.
    assert_eq!(base.digest, 0xa5d7_8c83_b285_711e);
    assert_eq!(digest("\"addTo\": \"app.v1.Bare.kvs\", \"clear\": \"nop\""), base.digest, "equivalent filter");
    for other in [
        "\"addTo\": \"Bare.kvs\", \"Precision\": 1",
        "\"addTo\": \"Bare.kvs\", \"get\": \"Bare.kvs\"",
        "\"addTo\": \"Bare.kvs\", \"modify\": \"BNOT\"",
        "\"addTo\": \"Bare.kvs\", \"CntFwd\": {\"to\": \"SERVER\"}",
        "\"get\": \"Bare.kvs\"",
        "\"CntFwd\": {\"key\": \"Bare.kvs\", \"threshold\": 1}",
    ] {
        assert_ne!(digest(other), base.digest, "{other}");
    }
}
