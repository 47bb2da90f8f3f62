//! Tests of conflicts between a filter and its method: error, position and message.

use crate::common::check_files;

/// Lines 1 to 30 are messages; the service follows.
const MESSAGES: &str = r#"syntax = "proto3";
package app;
import "pathcall/types.proto";
import "pathcall/options.proto";
message Inner { pathcall.FPArray tensor = 1; string note = 2; }
message Ask {
  pathcall.FPArray tensor = 1;
  pathcall.IntArray counts = 2;
  string name = 3;
  Inner inner = 4;
  repeated pathcall.FPArray many = 5;
  repeated Inner inners = 6;
  map<string, int64> plain = 7;
  oneof choice { pathcall.FPArray maybe = 8; string other = 9; }
  pathcall.STRINTMap kvs = 10;
  pathcall.IntValue one = 11;
  optional pathcall.FPArray32 small = 12;
  Color color = 13;
}
enum Color { RED = 0; }
message Keys { pathcall.INTINTMap ids = 1; }
message Answer {
  pathcall.FPArray tensor = 1;
  pathcall.IntArray counts = 2;
  pathcall.STRINTMap kvs = 3;
  pathcall.FPValue number = 4;
  pathcall.STRFPMap fps = 5; pathcall.IntValue one = 6;
}
message Nothing {}
"#;

pub(crate) fn service(rpcs: &str) -> String {
    format!("{MESSAGES}service S {{\n{rpcs}\n}}\n")
}

/// Diagnostics of a filter with these fields, for `rpc Call(Ask) returns (Answer)`.
fn diagnostics(fields: &str) -> Vec<String> {
    let proto = service("rpc Call(Ask) returns (Answer) { option (pathcall.filter) = \"f.nf\"; }");
    let filter = format!("{{\n\"AppName\": \"a\",\n{fields}\n}}\n");
    check_files(&[("app.proto", &proto), ("f.nf", &filter)]).expect_err(fields)
}

#[track_caller]
pub(crate) fn says(fields: &str, expected: &str) {
    assert_eq!(diagnostics(fields), [expected], "{fields}");
}

/// Further fields begin on line 3.
pub(crate) const SUM: &str = r#""get": "Answer.tensor", "addTo": "Ask.tensor", "clear": "copy",
"CntFwd": {"to": "ALL", "threshold": 2, "key": "ClientID"}"#;

#[track_caller]
fn sum_with(from: &str, to: &str, expected: &str) {
    assert!(SUM.contains(from));
    says(&SUM.replace(from, to), expected);
}

#[test]
fn reference_errors_are_reported() {
    let add = |reference: &str, expected: &str| says(&format!("\"addTo\": \"{reference}\""), expected);
    const TYPED: &str =
        "expected one of IntArray, FPArray, FPArray32, STRINTMap, STRFPMap, INTINTMap, INTFPMap, IntValue, FPValue";
    add(
        "Other.tensor",
        "f.nf:3:10: error: addTo: `Other.tensor` is in no message of `Call`: expected a field of `Ask`, got `Other.tensor`",
    );
    add(
        "Answer.tensor",
        "f.nf:3:10: error: addTo: `Answer` is the reply of `Call`, but addTo needs the request: expected a field of `Ask`, got `Answer.tensor`",
    );
    add(
        "Ask.tensr",
        "f.nf:3:10: error: addTo: `Ask` has no such field: expected `tensor`, `counts`, `name`, `inner`, `many`, `inners`, `plain`, `maybe`, `other`, `kvs`, `one`, `small` or `color`, got `tensr`\n  hint: did you mean \"Ask.tensor\"?",
    );
    add("Ask.name", &format!("f.nf:3:10: error: addTo: `Ask.name` is a string: {TYPED}"));
    add("Ask.color", &format!("f.nf:3:10: error: addTo: `Ask.color` is an enum `Color`: {TYPED}"));
    add("Ask.plain", &format!("f.nf:3:10: error: addTo: `Ask.plain` is a plain map: {TYPED}"));
    add(
        "Ask.inner",
        &format!(
            "f.nf:3:10: error: addTo: `Ask.inner` is a message `Inner`: {TYPED}\n  hint: did you mean \"Ask.inner.tensor\"?"
        ),
    );
    add("Ask.inner.note", &format!("f.nf:3:10: error: addTo: `Ask.inner.note` is a string: {TYPED}"));
    add(
        "Ask.inner.tensro",
        "f.nf:3:10: error: addTo: `Ask.inner` has no such field: expected `tensor` or `note`, got `tensro`\n  hint: did you mean \"Ask.inner.tensor\"?",
    );
    add(
        "Ask.tensor.data",
        "f.nf:3:10: error: addTo: `Ask.tensor` is the typed field, an FPArray: expected nothing after it\n  hint: remove `.data`",
    );
    add("Ask.many", "f.nf:3:10: error: addTo: `Ask.many` is repeated: expected a single field");
    add("Ask.inners.tensor", "f.nf:3:10: error: addTo: `Ask.inners` is repeated: expected a single field");
    add(
        "Ask.maybe",
        "f.nf:3:10: error: addTo: `Ask.maybe` is in the oneof `choice`: expected a field outside of any oneof",
    );
    says(
        "\"get\": \"Ask.tensor\"",
        "f.nf:3:8: error: get: `Ask` is the request of `Call`, but get needs the reply: expected a field of `Answer`, got `Ask.tensor`",
    );
    says(
        "\"CntFwd\": {\"key\": \"Answer.kvs\", \"threshold\": 1}",
        "f.nf:3:19: error: CntFwd.key: `Answer` is the reply of `Call`, but CntFwd.key needs the request: expected a field of `Ask`, got `Answer.kvs`",
    );
}

#[test]
fn sum_errors_are_reported() {
    sum_with(
        "Ask.tensor",
        "Ask.kvs",
        "f.nf:3:34: error: addTo: `Ask.kvs` is a STRINTMap; a sum over 2 callers needs an array or a number\n  hint: set CntFwd.threshold to 0 to add a map's values under its keys",
    );
    sum_with(
        "\"Answer.tensor\"",
        "\"nop\"",
        "f.nf:3:8: error: get: a sum over 2 callers needs the field of the reply that gets it\n  hint: name an array or a number of the reply",
    );
    sum_with(
        "Answer.tensor",
        "Answer.number",
        "f.nf:3:8: error: get: types differ: `Ask.tensor` has an array, `Answer.number` has one number\n  hint: use the same type in request and reply",
    );
    sum_with(
        "Answer.tensor",
        "Answer.counts",
        "f.nf:3:8: error: get: values differ: `Ask.tensor` has floating-point numbers, `Answer.counts` has integers\n  hint: use the same kind of values in request and reply",
    );
    sum_with(
        "\"copy\"",
        "\"nop\"",
        "f.nf:3:57: error: clear: a sum over 2 callers must be cleared for the next one\n  hint: use \"copy\", \"shadow\" or \"lazy\"",
    );
    sum_with(
        "ALL",
        "SRC",
        "f.nf:4:18: error: CntFwd.to: all 2 callers wait for the sum\n  hint: use \"ALL\", or \"SERVER\" to have the handler called with the sum",
    );
    let to_server = |clear: &str, expected: &str| {
        says(&SUM.replace("ALL", "SERVER").replace("\"copy\"", clear), expected);
    };
    for clear in ["\"shadow\"", "\"lazy\""] {
        to_server(
            clear,
            "f.nf:3:57: error: clear: the element answers the callers itself, but with CntFwd.to \"SERVER\" the handler decides the answer\n  hint: use \"copy\"",
        );
    }
    to_server(
        "\"copy\", \"lanes\": \"int8\"",
        "f.nf:3:74: error: lanes: only the callers know the shared scales, but with CntFwd.to \"SERVER\" the handler gets the sum\n  hint: remove it, and set Precision",
    );
    sum_with(
        "ClientID",
        "NULL",
        "f.nf:4:48: error: CntFwd.key: a sum over 2 callers must count callers\n  hint: use \"ClientID\"",
    );
    sum_with(
        "ClientID",
        "Ask.kvs",
        "f.nf:4:48: error: CntFwd.key: a sum over 2 callers must count callers\n  hint: use \"ClientID\"",
    );
}

#[test]
fn addition_errors_are_reported() {
    let add = |fields: &str, expected: &str| says(&format!("\"addTo\": \"Ask.kvs\",\n{fields}"), expected);
    add(
        "\"get\": \"Answer.tensor\"",
        "f.nf:4:8: error: get: types differ: `Ask.kvs` has a map with string keys, `Answer.tensor` has an array\n  hint: use the same type in request and reply",
    );
    add(
        "\"get\": \"Answer.fps\"",
        "f.nf:4:8: error: get: values differ: `Ask.kvs` has integers, `Answer.fps` has floating-point numbers\n  hint: use the same kind of values in request and reply",
    );
    add(
        "\"clear\": \"copy\"",
        "f.nf:4:10: error: clear: one call cannot both add and clear\n  hint: use \"nop\", and clear in a separate method (addTo and get \"nop\")",
    );
    add(
        "\"CntFwd\": {\"to\": \"ALL\"}",
        "f.nf:4:18: error: CntFwd.to: an addition without a threshold is answered to its caller only\n  hint: use \"SRC\", or \"SERVER\" to have the handler called",
    );
    add(
        "\"CntFwd\": {\"key\": \"ClientID\"}",
        "f.nf:4:19: error: CntFwd.key: counting callers needs a threshold\n  hint: use \"NULL\"",
    );
    add(
        "\"CntFwd\": {\"key\": \"Ask.kvs\"}",
        "f.nf:4:19: error: CntFwd.key: counting `Ask.kvs` needs a threshold\n  hint: use \"NULL\"",
    );
}

#[test]
fn lanes_errors_are_reported() {
    let sum = |field: &str, reply: &str, workers: u32, keys: &str, expected: &str| {
        let counts = format!("\"CntFwd\": {{\"to\": \"ALL\", \"threshold\": {workers}, \"key\": \"ClientID\"}}");
        says(
            &format!("\"addTo\": \"{field}\", \"get\": \"{reply}\", \"clear\": \"copy\", {counts},\n{keys}"),
            expected,
        );
    };
    let floats = |workers, keys: &str, expected: &str| sum("Ask.tensor", "Answer.tensor", workers, keys, expected);
    floats(
        2,
        "\"topk\": 0.1",
        "f.nf:4:9: error: topk: needs values with shared scales, of which the channel keeps the rest\n  hint: set lanes to \"int16\" or \"int8\"",
    );
    floats(
        128,
        "\"lanes\": \"int8\"",
        "f.nf:4:10: error: lanes: a sum of 128 callers does not fit int8, which has room for 127\n  hint: use a larger size",
    );
    floats(
        2,
        "\"lanes\": \"int8\", \"Precision\": 3",
        "f.nf:4:31: error: Precision: has no meaning with lanes: values have shared scales\n  hint: remove it",
    );
    floats(
        2,
        "\"lanes\": \"int16\", \"modify\": \"BNOT\"",
        "f.nf:4:29: error: modify: applies to single values, but lanes have several\n  hint: use \"nop\"",
    );
    sum(
        "Ask.counts",
        "Answer.counts",
        2,
        "\"lanes\": \"int8\"",
        "f.nf:4:10: error: lanes: applies to arrays of floating-point numbers, but `Ask.counts` is an IntArray\n  hint: use FPArray or FPArray32",
    );
    says(
        "\"addTo\": \"Ask.kvs\",\n\"lanes\": \"int8\"",
        "f.nf:4:10: error: lanes: applies to sums, but this method has no threshold for addTo\n  hint: remove it",
    );
}

#[test]
fn read_of_method_that_is_no_query_is_reported() {
    says(
        "\"read\": \"recent\",\n\"addTo\": \"Ask.kvs\"",
        "f.nf:3:9: error: read: applies to queries, but an addition is answered by the server if it gets values\n  hint: remove it",
    );
    sum_with(
        "\"clear\": \"copy\"",
        "\"clear\": \"copy\", \"read\": \"recent\"",
        "f.nf:3:73: error: read: applies to queries, but a sum is the same for all callers\n  hint: remove it",
    );
}

#[test]
fn ack_errors_are_reported() {
    says(
        "\"ack\": \"server\",\n\"CntFwd\": {\"threshold\": 1, \"key\": \"Ask.kvs\"}",
        "f.nf:3:8: error: ack: applies to keyed additions and votes, but a count to 1 is a lock\n  hint: remove it",
    );
    let proto = service("rpc Call(Ask) returns (Answer) { option (pathcall.filter) = \"f.nf\"; }");
    let warnings = |fields: &str| {
        let filter = format!("{{\"AppName\": \"a\", \"addTo\": \"Ask.kvs\",\n{fields}}}");
        check_files(&[("app.proto", &proto), ("f.nf", &filter)]).expect("a warning does not stop").warnings
    };
    assert!(warnings("\"ack\": \"server\"").is_empty());
    let [warning] = &warnings("\"ack\": \"server\", \"get\": \"Answer.kvs\"")[..] else { panic!("one warning") };
    let expected =
        "f.nf:2:8: warning: ack: has no effect on a call that gets values: the server answers it\n  hint: remove it";
    assert!(warning.to_string().ends_with(expected), "{warning}");
    let filter = "{\"AppName\": \"a\", \"ack\": \"server\",\n\"CntFwd\": {\"to\": \"ALL\", \"threshold\": 2, \"key\": \"Ask.kvs\"}}";
    let votes = check_files(&[("app.proto", &proto), ("f.nf", filter)]).expect("a vote that the server records");
    assert!(votes.warnings.is_empty());
    says(
        "\"ack\": \"server\",\n\"CntFwd\": {\"to\": \"SERVER\", \"threshold\": 2, \"key\": \"Ask.kvs\"}",
        "f.nf:3:8: error: ack: applies to keyed additions and votes, but the server decides votes for the server\n  hint: remove it",
    );
}

#[test]
fn count_errors_are_reported() {
    let count = |key: &str, fields: &str, expected: &str| {
        says(&format!("\"CntFwd\": {{\"threshold\": 1, \"key\": \"{key}\"}},\n{fields}"), expected);
    };
    let needs = "f.nf:3:35: error: CntFwd.key: a count to 1 without addTo needs the field whose keys are counted\n  hint: name a map or an array of the request";
    count("NULL", "", needs);
    count("ClientID", "", needs);
    count(
        "Ask.one",
        "",
        "f.nf:3:35: error: CntFwd.key: `Ask.one` is an IntValue; its keys cannot be counted\n  hint: name a map or an array of the request",
    );
    let counters = |get: &str, expected: &str| {
        count("Ask.kvs", &format!("\"get\": \"{get}\""), &format!("f.nf:4:8: error: get: {expected}"));
    };
    counters(
        "Answer.fps",
        "counters are integers, `Answer.fps` has floating-point numbers\n  hint: use a map or an array of integers",
    );
    counters("Answer.one", "`Answer.one` has one number, but each key has a counter\n  hint: use a map or an array");
    counters(
        "Answer.counts",
        "keys differ: `Ask.kvs` has strings, `Answer.counts` has integers\n  hint: use the same kind of keys in request and reply",
    );
    count(
        "Ask.kvs",
        "\"clear\": \"copy\"",
        "f.nf:4:10: error: clear: one call cannot both count and clear\n  hint: use \"nop\", and clear in a separate method (threshold 0)",
    );
    count(
        "Ask.kvs",
        "\"modify\": \"BNOT\"",
        "f.nf:4:11: error: modify: nobody gets the modified values: a count adds nothing\n  hint: set CntFwd.to to \"SERVER\" for the handler to get them",
    );
}

#[test]
fn query_and_clear_errors_are_reported() {
    let several = "f.nf:2:1: error: CntFwd.key: `Ask` has 5 typed fields: expected `Ask.tensor`, `Ask.counts`, `Ask.kvs`, `Ask.one` or `Ask.small`\n  hint: name the field that has the keys in CntFwd.key";
    says("\"get\": \"Answer.kvs\"", &several.replace("2:1", "1:1"));
    says("\"clear\": \"copy\"", &several.replace("2:1", "1:1"));
    let keyed = |key: &str, fields: &str, expected: &str| {
        says(&format!("\"CntFwd\": {{\"key\": \"{key}\"}},\n{fields}"), expected)
    };
    keyed(
        "Ask.tensor",
        "\"get\": \"Answer.kvs\"",
        "f.nf:4:8: error: get: keys differ: `Ask.tensor` has integers, `Answer.kvs` has strings\n  hint: use the same kind of keys in request and reply",
    );
    keyed(
        "Ask.kvs",
        "\"clear\": \"copy\", \"get\": \"Answer.kvs\"",
        "f.nf:4:25: error: get: one call cannot both read and clear\n  hint: use \"nop\", and read in a separate method (clear \"nop\")",
    );
    keyed(
        "Ask.kvs",
        "\"clear\": \"copy\", \"modify\": \"BNOT\"",
        "f.nf:4:28: error: modify: nobody gets the modified values: a clear adds nothing\n  hint: set CntFwd.to to \"SERVER\" for the handler to get them",
    );
    keyed(
        "Ask.kvs",
        "\"get\": \"Answer.kvs\", \"modify\": \"BNOT\"",
        "f.nf:4:32: error: modify: nobody gets the modified values: a query adds nothing\n  hint: set CntFwd.to to \"SERVER\" for the handler to get them",
    );
    says(
        "\"clear\": \"copy\", \"CntFwd\": {\"to\": \"ALL\", \"key\": \"Ask.kvs\"}",
        "f.nf:3:35: error: CntFwd.to: a clear without a threshold is answered to its caller only\n  hint: use \"SRC\", or \"SERVER\" to have the handler called",
    );
}

#[test]
fn ambiguous_key_field_is_reported() {
    let messages = "message Deep { Keys keys = 1; Deep deep = 2; }\nmessage Either { oneof either { Keys a = 1; pathcall.STRINTMap b = 2; } }\n\
                    message Many { repeated pathcall.STRINTMap kvs = 1; }\n";
    for (message, fields) in
        [("Deep", "`Deep.keys.ids`"), ("Either", "`Either.a.ids` or `Either.b`"), ("Many", "`Many.kvs`")]
    {
        let rpc = format!("rpc Call({message}) returns (Nothing) {{ option (pathcall.filter) = \"f.nf\"; }}");
        let proto = format!("{}{messages}", service(&rpc));
        let filter = "{\"AppName\": \"a\", \"clear\": \"copy\"}";
        let printed = check_files(&[("app.proto", &proto), ("f.nf", filter)]).expect_err(message);
        let expected = format!(
            "f.nf:1:1: error: CntFwd.key: `{message}` has no typed field outside of nested messages, oneofs and repeated \
             fields: expected {fields}\n  hint: name the field that has the keys in CntFwd.key"
        );
        assert_eq!(printed, [expected]);
    }
}

#[test]
fn duplicate_type_name_is_reported() {
    let delegated = |name| format!("rpc {name}(Ask) returns (stream Answer) {{ option (pathcall.delegate) = true; }}");
    let proto = service(&delegated("TCall")) + &format!("service ST {{ {} }}\n", delegated("Call"));
    let printed = check_files(&[("app.proto", &proto)]).expect_err("duplicate type name");
    assert!(
        printed[0]
            .ends_with("error: /app.ST/Call and /app.S/TCall are both `delegated::STCall`\n  hint: rename one of them"),
        "{printed:?}"
    );
}

#[test]
fn filter_without_effect_is_reported() {
    says(
        "\"get\": \"nop\"",
        "f.nf:1:1: error: this filter does nothing\n  hint: name a field in addTo or get, set clear to \"copy\", set modify, or give CntFwd a threshold",
    );
}

#[test]
fn precision_without_floats_is_warning() {
    let proto = service("rpc Call(Keys) returns (Nothing) { option (pathcall.filter) = \"f.nf\"; }");
    let filter = "{\n\"AppName\": \"a\", \"Precision\": 3, \"addTo\": \"Keys.ids\"}";
    let report = check_files(&[("app.proto", &proto), ("f.nf", filter)]).expect("a warning does not stop");
    let [warning] = &report.warnings[..] else { panic!("{report:?}") };
    assert!(
        warning.to_string().ends_with(
            "f.nf:2:30: warning: Precision: has no effect: all values of `Call` are integers\n  hint: use 0"
        ),
        "{warning}"
    );
}

#[test]
fn delegated_method_needs_a_single_request() {
    let streamed = service("rpc Call(stream Ask) returns (stream Answer) { option (pathcall.delegate) = true; }");
    let printed = check_files(&[("app.proto", &streamed)]).expect_err("a stream of requests");
    let diagnostic = "app.proto:31:48: error: /app.S/Call takes a stream, but a delegated method takes one message\n  \
                      hint: remove `stream` before the request, or the option";
    assert_eq!(printed, [diagnostic]);
    for reply in ["Answer", "stream Answer"] {
        let fine = service(&format!("rpc Call(Ask) returns ({reply}) {{ option (pathcall.delegate) = true; }}"));
        check_files(&[("app.proto", &fine)]).expect("a valid file");
    }
    let not = service("rpc Call(Ask) returns (Answer) { option (pathcall.delegate) = false; }");
    check_files(&[("app.proto", &not)]).expect("a valid file");
}
