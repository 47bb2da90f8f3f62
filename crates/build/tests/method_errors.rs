//! What is wrong between a filter and the method that names it: each mistake, its place, and what
//! is said about it.

use crate::common::check_files;

/// Line 1 to 30 are messages; the service is put after them.
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
  pathcall.STRFPMap fps = 5;
}
message Nothing {}
"#;

fn service(rpcs: &str) -> String {
    format!("{MESSAGES}service S {{\n{rpcs}\n}}\n")
}

/// What is said about a filter with these fields, for `rpc Call(Ask) returns (Answer)`.
fn complaints(fields: &str) -> Vec<String> {
    let proto = service("rpc Call(Ask) returns (Answer) { option (pathcall.filter) = \"f.nf\"; }");
    let filter = format!("{{\n\"AppName\": \"a\",\n{fields}\n}}\n");
    check_files(&[("app.proto", &proto), ("f.nf", &filter)]).expect_err(fields)
}

#[track_caller]
fn says(fields: &str, expected: &str) {
    assert_eq!(complaints(fields), [expected], "{fields}");
}

/// Fields after these stand from line 3 on.
const SUM: &str = r#""get": "Answer.tensor", "addTo": "Ask.tensor", "clear": "copy",
"CntFwd": {"to": "ALL", "threshold": 2, "key": "ClientID"}"#;

#[track_caller]
fn sum_with(from: &str, to: &str, expected: &str) {
    assert!(SUM.contains(from));
    says(&SUM.replace(from, to), expected);
}

#[test]
fn references() {
    let add = |reference: &str, expected: &str| says(&format!("\"addTo\": \"{reference}\""), expected);
    const TYPED: &str =
        "expected one of IntArray, FPArray, FPArray32, STRINTMap, STRFPMap, INTINTMap, INTFPMap, IntValue, FPValue";
    add(
        "Other.tensor",
        "f.nf:3:10: error: addTo: `Other.tensor` is in no message of `Call`: expected a field of `Ask`, got `Other.tensor`",
    );
    add(
        "Answer.tensor",
        "f.nf:3:10: error: addTo: `Answer` is the reply of `Call`, and addTo works on the request: expected a field of `Ask`, got `Answer.tensor`",
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
        "f.nf:3:10: error: addTo: `Ask.tensor` is the typed field, an FPArray: expected nothing after it\n  hint: leave out `.data`",
    );
    add("Ask.many", "f.nf:3:10: error: addTo: `Ask.many` is repeated: expected a single field");
    add("Ask.inners.tensor", "f.nf:3:10: error: addTo: `Ask.inners` is repeated: expected a single field");
    add(
        "Ask.maybe",
        "f.nf:3:10: error: addTo: `Ask.maybe` is in the oneof `choice`: expected a field that stands by itself",
    );
    says(
        "\"get\": \"Ask.tensor\"",
        "f.nf:3:8: error: get: `Ask` is the request of `Call`, and get works on the reply: expected a field of `Answer`, got `Ask.tensor`",
    );
    says(
        "\"CntFwd\": {\"key\": \"Answer.kvs\", \"threshold\": 1}",
        "f.nf:3:19: error: CntFwd.key: `Answer` is the reply of `Call`, and CntFwd.key works on the request: expected a field of `Ask`, got `Answer.kvs`",
    );
}

#[test]
fn sums() {
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
        "f.nf:3:57: error: clear: a sum over 2 callers must be cleared for the next one\n  hint: use \"copy\" or \"shadow\"",
    );
    sum_with("ALL", "SRC", "f.nf:4:18: error: CntFwd.to: all 2 callers wait for the sum\n  hint: use \"ALL\"");
    sum_with("ALL", "SERVER", "f.nf:4:18: error: CntFwd.to: all 2 callers wait for the sum\n  hint: use \"ALL\"");
    sum_with(
        "ClientID",
        "NULL",
        "f.nf:4:48: error: CntFwd.key: a sum over 2 callers counts callers\n  hint: use \"ClientID\"",
    );
    sum_with(
        "ClientID",
        "Ask.kvs",
        "f.nf:4:48: error: CntFwd.key: a sum over 2 callers counts callers\n  hint: use \"ClientID\"",
    );
}

#[test]
fn additions() {
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
        "f.nf:4:10: error: clear: what is added by one call cannot be cleared by it\n  hint: use \"nop\", and clear in a method of its own (addTo and get \"nop\")",
    );
    add(
        "\"CntFwd\": {\"to\": \"ALL\"}",
        "f.nf:4:18: error: CntFwd.to: an addition without a threshold is answered to its caller alone\n  hint: use \"SRC\", or \"SERVER\" to have the handler called",
    );
    add(
        "\"CntFwd\": {\"key\": \"ClientID\"}",
        "f.nf:4:19: error: CntFwd.key: callers are counted by a threshold, and there is none\n  hint: use \"NULL\"",
    );
    add(
        "\"CntFwd\": {\"key\": \"Ask.kvs\"}",
        "f.nf:4:19: error: CntFwd.key: `Ask.kvs` is counted by a threshold, and there is none\n  hint: use \"NULL\"",
    );
}

#[test]
fn acknowledgements() {
    says(
        "\"ack\": \"server\",\n\"CntFwd\": {\"threshold\": 1, \"key\": \"Ask.kvs\"}",
        "f.nf:3:8: error: ack: is about what addTo adds under keys, and a count adds nothing\n  hint: remove it",
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
}

#[test]
fn counts() {
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
    count(
        "Ask.kvs",
        "\"get\": \"Answer.kvs\"",
        "f.nf:4:8: error: get: a count is answered without values\n  hint: use \"nop\", and read in a method of its own (threshold 0)",
    );
    count(
        "Ask.kvs",
        "\"clear\": \"copy\"",
        "f.nf:4:10: error: clear: what is counted by one call cannot be cleared by it\n  hint: use \"nop\", and clear in a method of its own (threshold 0)",
    );
    count(
        "Ask.kvs",
        "\"modify\": \"BNOT\"",
        "f.nf:4:11: error: modify: modifies what addTo adds, and a count adds nothing\n  hint: use \"nop\"",
    );
}

#[test]
fn queries_and_clears() {
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
        "f.nf:4:25: error: get: what is read by one call cannot be cleared by it\n  hint: use \"nop\", and read in a method of its own (clear \"nop\")",
    );
    keyed(
        "Ask.kvs",
        "\"clear\": \"copy\", \"modify\": \"BNOT\"",
        "f.nf:4:28: error: modify: modifies what addTo adds, and a clear adds nothing\n  hint: use \"nop\"",
    );
    keyed(
        "Ask.kvs",
        "\"get\": \"Answer.kvs\", \"modify\": \"BNOT\"",
        "f.nf:4:32: error: modify: modifies what addTo adds, and a query adds nothing\n  hint: use \"nop\"",
    );
    says(
        "\"clear\": \"copy\", \"CntFwd\": {\"to\": \"ALL\", \"key\": \"Ask.kvs\"}",
        "f.nf:3:35: error: CntFwd.to: a clear without a threshold is answered to its caller alone\n  hint: use \"SRC\", or \"SERVER\" to have the handler called",
    );
}

#[test]
fn keys_that_may_be_meant_are_to_be_named() {
    let messages = "message Deep { Keys keys = 1; Deep deep = 2; }\nmessage Either { oneof either { Keys a = 1; pathcall.STRINTMap b = 2; } }\n\
                    message Many { repeated pathcall.STRINTMap kvs = 1; }\n";
    for (message, fields) in
        [("Deep", "`Deep.keys.ids`"), ("Either", "`Either.a.ids` or `Either.b`"), ("Many", "`Many.kvs`")]
    {
        let rpc = format!("rpc Call({message}) returns (Nothing) {{ option (pathcall.filter) = \"f.nf\"; }}");
        let proto = format!("{}{messages}", service(&rpc));
        let filter = "{\"AppName\": \"a\", \"clear\": \"copy\"}";
        let said = check_files(&[("app.proto", &proto), ("f.nf", filter)]).expect_err(message);
        let expected = format!(
            "f.nf:1:1: error: CntFwd.key: no typed field of `{message}` stands by itself in it: expected {fields}\n  \
             hint: name the field that has the keys in CntFwd.key"
        );
        assert_eq!(said, [expected]);
    }
}

#[test]
fn two_methods_of_one_type_are_told() {
    let delegated = |name| format!("rpc {name}(Ask) returns (stream Answer) {{ option (pathcall.delegate) = true; }}");
    let proto = service(&delegated("TCall")) + &format!("service ST {{ {} }}\n", delegated("Call"));
    let said = check_files(&[("app.proto", &proto)]).expect_err("both are STCall");
    assert!(
        said[0].ends_with(
            "error: /app.ST/Call and /app.S/TCall are both `delegated::STCall`\n  hint: give one of them another name"
        ),
        "{said:?}"
    );
}

#[test]
fn nothing_to_do() {
    says(
        "\"get\": \"nop\"",
        "f.nf:1:1: error: this filter does nothing\n  hint: name a field in addTo or get, set clear to \"copy\", or give CntFwd a threshold",
    );
}

#[test]
fn precision_without_floats_is_a_warning() {
    let proto = service("rpc Call(Keys) returns (Nothing) { option (pathcall.filter) = \"f.nf\"; }");
    let filter = "{\n\"AppName\": \"a\", \"Precision\": 3, \"addTo\": \"Keys.ids\"}";
    let report = check_files(&[("app.proto", &proto), ("f.nf", filter)]).expect("a warning does not stop");
    let [warning] = &report.warnings[..] else { panic!("{report:?}") };
    assert!(
        warning.to_string().ends_with(
            "f.nf:2:30: warning: Precision: has no effect on integers, and `Call` has nothing else\n  hint: use 0"
        ),
        "{warning}"
    );
}

#[test]
fn what_is_passed_on_takes_one_message_and_streams_its_replies() {
    for (rpc, complaint) in [
        (
            "rpc Call(Ask) returns (Answer) { option (pathcall.delegate) = true; }",
            "app.proto:31:34: error: /app.S/Call has one reply; where servers pass a call on there are any number\n  \
             hint: write `returns (stream …)`",
        ),
        (
            "rpc Call(stream Ask) returns (stream Answer) { option (pathcall.delegate) = true; }",
            "app.proto:31:48: error: /app.S/Call takes a stream; what is passed on is one message\n  \
             hint: remove `stream` before the request, or the option",
        ),
    ] {
        let said = check_files(&[("app.proto", &service(rpc))]).expect_err(rpc);
        assert_eq!(said, [complaint]);
    }
    let fine = service("rpc Call(Ask) returns (stream Answer) { option (pathcall.delegate) = true; }");
    check_files(&[("app.proto", &fine)]).expect("nothing is wrong");
    let not = service("rpc Call(Ask) returns (Answer) { option (pathcall.delegate) = false; }");
    check_files(&[("app.proto", &not)]).expect("nothing is wrong");
}

#[test]
fn what_is_cloned_may_be_done_twice_and_says_what_can_be_meant() {
    let rpc = |option: &str| format!("rpc Call(Ask) returns (Answer) {{ option (pathcall.clone) = {{ {option} }}; }}");
    let says = |option: &str| check_files(&[("app.proto", &service(&rpc(option)))]);
    for (option, complaint) in [
        (
            "clone: true",
            "says `clone` and is not idempotent; what may not be done twice is sent once\n  hint: add `idempotent: \
             true` if doing it twice is as good as once, or remove the rest",
        ),
        (
            "idempotent: true, budget: 11",
            "has the budget 11, expected a share of the calls between 0 and 10\n  hint: 0.1 is one extra request for \
             ten calls",
        ),
        (
            "idempotent: true, balance: ROUND_ROBIN",
            "is cloned and takes servers in turn; the element clones to pairs that are drawn\n  hint: add `clone: \
             false`, or choose RANDOM or SHORTEST",
        ),
        (
            "idempotent: true, hedgingPolicy: { maxAttempts: 6, hedgingDelay: \"0.02s\" }",
            "has the maxAttempts 6, expected 2 to 5\n  hint: the first request is counted",
        ),
        (
            "idempotent: true, hedgingPolicy: { maxAttempts: 2, hedgingDelay: \"20ms\" }",
            "has the hedgingDelay \"20ms\", expected seconds and an `s`\n  hint: 20 ms are \"0.02s\"",
        ),
        (
            "idempotent: true, workers: 0",
            "has 0 workers, expected at least 1\n  hint: remove it to leave it to the server",
        ),
    ] {
        let said = says(option).expect_err(option);
        assert_eq!(said, [format!("app.proto:31:34: error: /app.S/Call {complaint}")]);
    }
    let streams = "rpc Call(Ask) returns (stream Answer) { option (pathcall.clone) = { idempotent: true }; }";
    let said = check_files(&[("app.proto", &service(streams))]).expect_err("a stream");
    assert!(said[0].contains("/app.S/Call streams; only unary calls are cloned"), "{said:?}");
    let both = "rpc Call(Ask) returns (Answer) { option (pathcall.clone) = { idempotent: true }; \
                option (pathcall.filter) = \"none.nf\"; }";
    let said = check_files(&[("app.proto", &service(both))]).expect_err("two ways").join("\n");
    assert!(said.contains("/app.S/Call has `pathcall.filter` too; a call goes one way only"), "{said}");
}

#[test]
fn a_cloned_method_is_described_in_a_line() {
    let option = "idempotent: true, balance: SHORTEST, budget: 0.1, cancel: true, workers: 4, \
                  hedgingPolicy: { maxAttempts: 3, hedgingDelay: \"0.02s\", nonFatalStatusCodes: [ABORTED, UNAVAILABLE] }";
    let rpc = format!("rpc Call(Ask) returns (Answer) {{ option (pathcall.clone) = {{ {option} }}; }}");
    let report = check_files(&[("app.proto", &service(&rpc))]).expect("nothing is wrong");
    assert_eq!(
        report.to_string(),
        "/app.S/Call: cloned to two idle servers, else to the shorter queue of two, extra requests up to 0.1 of the \
         calls, hedged after 20ms, 3 requests at most, 2 status codes not fatal, losers cancelled, 4 at once at a server\n"
    );
    let once = "rpc Call(Ask) returns (Answer) { option (pathcall.clone) = { idempotent: false }; }";
    let report = check_files(&[("app.proto", &service(once))]).expect("nothing is wrong");
    assert!(report.cloned.is_empty(), "a plain call");
}
