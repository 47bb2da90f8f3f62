//! Tests of the NetRPC paper's filters (Fig. 3, 17, 20, 23).

use std::path::PathBuf;

use pathcall_build::resolve::ResolvedField;
use pathcall_build::{ResolvedMethod, check};
use pathcall_proto::manifest::{ClearPolicy, ForwardTarget, Kind, Modify, Shape};

fn methods(name: &str) -> Vec<ResolvedMethod> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let report = check(path).unwrap_or_else(|problems| panic!("{problems:#?}"));
    assert_eq!(report.warnings, []);
    report.methods
}

fn field(name: &str, shape: Shape) -> Option<ResolvedField> {
    Some(ResolvedField { path: vec![1], name: name.to_owned(), shape })
}

#[test]
fn fig_3_gradient_updates() {
    let [update] = &methods("training.proto")[..] else { panic!("one method") };
    assert_eq!(update.path, "/training.Training/Update");
    assert_eq!(update.package, "training");
    assert_eq!((update.app.as_str(), update.precision), ("DT-1", 8));
    assert_eq!(update.kind, Kind::Sum { threshold: 2, clear: ClearPolicy::Copy });
    assert_eq!((update.modify, update.to), (Modify::NOP, ForwardTarget::All));
    assert_eq!(update.request, field("NewGrad.tensor", Shape::FpArray));
    assert_eq!(update.reply, field("AgtrGrad.tensor", Shape::FpArray));
    assert!(!update.untyped_request);
}

#[test]
fn fig_17_map_reduce() {
    let [query, reduce] = &methods("mapreduce.proto")[..] else { panic!("two methods") };
    assert_eq!(reduce.path, "/mr.MapReduce/ReduceByKey");
    assert_eq!(reduce.kind, Kind::Add { get: false, to: ForwardTarget::Src });
    assert_eq!((&reduce.request, &reduce.reply), (&field("ReduceRequest.kvs", Shape::StrInt), &None));
    assert_eq!(query.path, "/mr.MapReduce/Query");
    assert_eq!(query.kind, Kind::Query);
    assert_eq!((&query.request, &query.reply), (&None, &field("QueryReply.kvs", Shape::StrInt)));
    assert!(query.untyped_request, "msg is in the request");
    assert_eq!((&reduce.app, reduce.digest), (&query.app, query.digest));
}

#[test]
fn fig_20_lock() {
    let [lock, release] = &methods("lock.proto")[..] else { panic!("two methods") };
    assert_eq!(lock.path, "/lock.Lock/GetLock");
    assert_eq!(lock.kind, Kind::Count { threshold: 1, to: ForwardTarget::Src });
    assert_eq!(lock.request, field("LockRequest.kvs", Shape::StrInt));
    assert_eq!(release.path, "/lock.Lock/Release");
    assert_eq!(release.kind, Kind::Clear);
    assert_eq!(release.request, field("ReleaseRequest.kvs", Shape::StrInt));
}

#[test]
fn fig_23_monitoring() {
    let [monitor, query] = &methods("monitor.proto")[..] else { panic!("two methods") };
    assert_eq!(monitor.path, "/monitor.Monitor/MonitorCall");
    assert_eq!(monitor.kind, Kind::Add { get: false, to: ForwardTarget::Server });
    assert_eq!(monitor.to, ForwardTarget::Server);
    assert!(monitor.untyped_request, "payload stays in the message");
    assert_eq!(query.kind, Kind::Query);
}

#[test]
fn object_is_chosen_by_fields_without_number() {
    let lines = |name: &str| methods(name).iter().map(|method| method.at.line).collect::<Vec<_>>();
    assert_eq!(lines("mapreduce.proto"), [14, 1], "Query is the second object, ReduceByKey the first");
    assert_eq!(lines("lock.proto"), [1, 14]);
}
