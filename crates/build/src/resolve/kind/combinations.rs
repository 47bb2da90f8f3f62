//! Enumeration of all combinations of a filter's primitives, held to the tables of `docs/filters.md`.

use std::collections::BTreeMap;
use std::path::Path;

use pathcall_proto::manifest::{Ack, ForwardTarget, Kind, LaneFormat, MapPath, Modify, OpType, ReadMode};

use super::super::{ResolvedMethod, file_and_index, kind};
use crate::diagnostic::{Positioned, Severity, SourceText, TextRange};
use crate::filter::{ClearOption, CntFwd, CountedKey, NetFilter};
use crate::load::{FilterMethod, load};

/// Methods with each kind of stream. Request and reply have a field of each type.
const PROTO: &str = r#"syntax = "proto3";
package app;
import "pathcall/types.proto";
import "pathcall/options.proto";
message Ask {
  pathcall.IntArray array = 1;
  pathcall.IntValue number = 2;
  pathcall.STRINTMap strings = 3;
  pathcall.INTINTMap integers = 4;
}
message Answer {
  pathcall.IntArray array = 1;
  pathcall.IntValue number = 2;
  pathcall.STRINTMap strings = 3;
  pathcall.INTINTMap integers = 4;
  pathcall.FPArray floats = 5;
}
service S {
  rpc Unary(Ask) returns (Answer) { option (pathcall.filter) = "f.nf"; }
  rpc Replies(Ask) returns (stream Answer) { option (pathcall.filter) = "f.nf"; }
  rpc Requests(stream Ask) returns (Answer) { option (pathcall.filter) = "f.nf"; }
  rpc Both(stream Ask) returns (stream Answer) { option (pathcall.filter) = "f.nf"; }
}
"#;
const PAGE: &str = "../../docs/filters.md";

/// Calls `check` with each combination.
fn each_combination(mut check: impl FnMut(NetFilter)) {
    const SPAN: TextRange = TextRange { start: 0, end: 0 };
    fn at<T>(value: T) -> Positioned<T> {
        Positioned { value, span: SPAN }
    }
    let field = |message: &str, name: &str| (name != "nop").then(|| format!("{message}.{name}"));
    let keys = ["NULL", "ClientID", "array", "number", "strings", "integers"];
    for add_to in ["nop", "array", "number", "strings", "integers"] {
        for get in ["nop", "array", "number", "strings", "integers", "floats"] {
            for clear in [ClearOption::Nop, ClearOption::Copy, ClearOption::Shadow, ClearOption::Lazy] {
                for op in [OpType::Nop, OpType::Max] {
                    for (threshold, key) in [0, 1, 2].into_iter().flat_map(|count| keys.map(|key| (count, key))) {
                        for to in [ForwardTarget::Src, ForwardTarget::All, ForwardTarget::Server] {
                            let key = match key {
                                "NULL" => CountedKey::Null,
                                "ClientID" => CountedKey::ClientId,
                                name => CountedKey::Field(format!("Ask.{name}")),
                            };
                            check(NetFilter {
                                span: SPAN,
                                app_name: at("a".to_owned()),
                                precision: at(0),
                                get: at(field("Answer", get)),
                                add_to: at(field("Ask", add_to)),
                                clear: at(clear),
                                modify: at(Modify { op, para: 0 }),
                                cnt_fwd: CntFwd { to: at(to), threshold: at(threshold), key: at(key) },
                                ack: at(Ack::Element),
                                path: at(MapPath::Automatic),
                                read: at(ReadMode::Linearizable),
                                lanes: at(LaneFormat::Int32),
                                topk: at(0),
                            });
                        }
                    }
                }
            }
        }
    }
}

/// Row of the first table for a method.
fn row_of(method: &ResolvedMethod) -> &'static str {
    let to_server = method.to == ForwardTarget::Server;
    match (method.kind, to_server) {
        (Kind::Sum { .. }, false) => "sum",
        (Kind::Sum { .. }, true) => "sum to the server",
        (Kind::Add { get: false, .. }, _) => "addition",
        (Kind::Add { get: true, .. }, _) => "addition with read",
        (Kind::Query, _) => "query",
        (Kind::Count { threshold: 1, .. }, _) => "lock",
        (Kind::Count { .. }, false) => "vote",
        (Kind::Count { .. }, true) => "vote to the server",
        (Kind::Clear, _) => "clear",
        (Kind::Modify, _) => "modification",
    }
}

/// Whether a text has the parts of a pattern between its `…`, in their order.
fn matches(pattern: &str, text: &str) -> bool {
    let mut rest = text;
    pattern.split('…').enumerate().all(|(nth, part)| match rest.find(part) {
        Some(at) if nth > 0 || at == 0 => {
            rest = &rest[at + part.len()..];
            true
        }
        _ => false,
    })
}

/// Rows of the page: text of the first cell, and number in the last one.
fn rows_of_page(page: &str) -> BTreeMap<String, u64> {
    let row = |line: &str| {
        let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
        let count = cells.last()?.replace(',', "").parse().ok()?;
        Some((cells.first()?.trim_matches('`').trim().to_owned(), count))
    };
    page.lines().filter_map(row).collect()
}

#[test]
fn every_combination_stands_on_page() {
    let directory = tempfile::tempdir().expect("a directory");
    let proto = directory.path().join("app.proto");
    std::fs::write(&proto, PROTO).expect("a file");
    let loaded = load(&[proto], &[directory.path().to_path_buf()]).unwrap_or_else(|problem| panic!("{problem}"));
    let source = SourceText::new("f.nf", "{}");
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE)).expect("the page");
    let mut expected = rows_of_page(&page);
    let (number_on_page, mut all) = (expected.remove("all"), 0);
    let (mut counts, mut missing) = (BTreeMap::<String, u64>::new(), BTreeMap::<String, u64>::new());
    let resolve = |filter: &NetFilter, named: &FilterMethod| {
        let mut problems = Vec::new();
        let resolved =
            file_and_index(named, &mut problems).and_then(|_| kind::method(&source, filter, named, &mut problems));
        problems.retain(|problem| problem.severity == Severity::Error);
        resolved.ok_or_else(|| problems.swap_remove(0).message)
    };
    each_combination(|filter| {
        for named in &loaded.methods {
            all += 1;
            let row = match resolve(&filter, named) {
                Ok(method) => row_of(&method).to_owned(),
                Err(text) => {
                    let fitting: Vec<_> = expected.keys().filter(|pattern| matches(pattern, &text)).collect();
                    match fitting[..] {
                        [row] => row.clone(),
                        _ => {
                            *missing.entry(format!("{text} {fitting:?}")).or_default() += 1;
                            continue;
                        }
                    }
                }
            };
            *counts.entry(row).or_default() += 1;
        }
    });
    assert!(missing.is_empty(), "not one row of {PAGE}: {missing:#?}\n{counts:#?}");
    assert_eq!((number_on_page, counts), (Some(all), expected), "{PAGE}");
}
