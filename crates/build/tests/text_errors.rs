//! Tests of errors in the text of a filter: error, position and message.

use pathcall_build::filter::parse;

fn diagnostics(text: &str) -> Vec<String> {
    parse(text).expect_err(text).iter().map(ToString::to_string).collect()
}

/// Checks the only diagnostic of a text.
#[track_caller]
fn says(text: &str, expected: &str) {
    assert_eq!(diagnostics(text), [expected], "{text}");
}

#[test]
fn invalid_json_is_reported() {
    says("", "<filter>:1:1: error: the file has no filter");
    says("[]", "<filter>:1:1: error: the file has no filter");
    says("// nothing\n", "<filter>:1:1: error: the file has no filter");
    says("{\n  \"AppName\": \"a\"\n", "<filter>:1:1: error: unterminated object");
    says(
        "{\n  \"AppName\" \"a\"\n}",
        "<filter>:2:13: error: expected colon after the string or word in object property",
    );
    says("{\n  \"AppName\": \"a\"\n  \"get\": \"nop\"\n}", "<filter>:2:17: error: expected comma");
    says("{\n  AppName: \"a\"\n}", "<filter>:2:3: error: expected string for object property");
    says("{\n  'AppName': \"a\"\n}", "<filter>:2:3: error: single-quoted strings are not allowed");
    says("{\"AppName\": \"a\"}\n{\n  \"AppName\": ]\n}", "<filter>:3:14: error: unexpected close bracket");
    says("{\"AppName\": \"a\"},\n{\"AppName\": \"b\"}", "<filter>:1:17: error: unexpected comma");
    says("7", "<filter>:1:1: error: wrong type: expected an object, got a number");
    says("[{\"AppName\": \"a\"},\n \"b\"]", "<filter>:2:2: error: wrong type: expected an object, got a string");
    let deep = "[".repeat(10_000);
    assert_eq!(diagnostics(&deep).len(), 1);
}

#[test]
fn unknown_and_repeated_fields_are_reported() {
    let unknown = diagnostics("{\n  \"AppName\": \"a\",\n  \"Addto\": \"M.f\"\n}").join("\n");
    let start = "<filter>:3:3: error: Addto: unknown field: expected `AppName`, `Precision`, `get`, `addTo`, ";
    assert!(unknown.starts_with(start), "{unknown}");
    assert!(unknown.ends_with("\n  hint: did you mean \"addTo\"?"), "{unknown}");
    says(
        "{\n  \"AppName\": \"a\",\n  \"CntFwd\": {\"limit\": 2}\n}",
        "<filter>:3:14: error: CntFwd.limit: unknown field: expected `to`, `threshold` or `key`",
    );
    says(
        "{\n  \"AppName\": \"a\",\n  \"AppName\": \"b\"\n}",
        "<filter>:3:3: error: AppName: is given twice\n  <filter>:2:3: first given here",
    );
}

#[test]
fn invalid_app_name_is_reported() {
    says("\n  {}", "<filter>:2:3: error: AppName: is missing: expected the name of the application");
    says("{\"AppName\": \" \"}", "<filter>:1:13: error: AppName: is empty: expected the name of the application");
    says("{\"AppName\": 7}", "<filter>:1:13: error: AppName: wrong type: expected a string, got a number");
}

#[test]
fn invalid_precision_is_reported() {
    let says =
        |value: &str, expected: &str| says(&format!("{{\"AppName\": \"a\",\n \"Precision\": {value}}}"), expected);
    says("16", "<filter>:2:15: error: Precision: is out of range: expected an integer from 0 to 15, got 16");
    says("-1", "<filter>:2:15: error: Precision: is out of range: expected an integer from 0 to 15, got -1");
    says("1.5", "<filter>:2:15: error: Precision: is not an integer: expected an integer from 0 to 15, got 1.5");
    says("\"8\"", "<filter>:2:15: error: Precision: wrong type: expected an integer from 0 to 15, got a string");
    let huge = "9".repeat(30);
    says(
        &huge,
        &format!("<filter>:2:15: error: Precision: is out of range: expected an integer from 0 to 15, got {huge}"),
    );
}

#[test]
fn reference_errors_are_reported() {
    for field in ["get", "addTo"] {
        let says = |value: &str, expected: &str| {
            let expected = expected.replace('?', field).replace("%", &(field.len() + 6).to_string());
            says(&format!("{{\"AppName\": \"a\",\n \"{field}\": {value}}}"), &expected);
        };
        says("null", "<filter>:2:%: error: ?: wrong type: expected a string, got null");
        says("\"NOP\"", "<filter>:2:%: error: ?: is not a field: expected `Message.field` or `nop`, got `NOP`");
        says("\"M..f\"", "<filter>:2:%: error: ?: is not a field: expected `Message.field` or `nop`, got `M..f`");
        says("\"M.f g\"", "<filter>:2:%: error: ?: is not a field: expected `Message.field` or `nop`, got `M.f g`");
    }
}

#[test]
fn invalid_clear_is_reported() {
    let says = |value: &str, expected: &str| says(&format!("{{\"AppName\": \"a\",\n \"clear\": {value}}}"), expected);
    says(
        "\"cpoy\"",
        "<filter>:2:11: error: clear: unknown value: expected `nop`, `copy`, `shadow` or `lazy`, got `cpoy`\n  hint: did you mean \"copy\"?",
    );
    says("true", "<filter>:2:11: error: clear: wrong type: expected a string, got a boolean");
}

#[test]
fn invalid_ack_is_reported() {
    let says = |value: &str, expected: &str| says(&format!("{{\"AppName\": \"a\",\n \"ack\": {value}}}"), expected);
    says(
        "\"Server\"",
        "<filter>:2:9: error: ack: unknown value: expected `element` or `server`, got `Server`\n  hint: did you mean \"server\"?",
    );
    says("1", "<filter>:2:9: error: ack: wrong type: expected a string, got a number");
}

#[test]
fn invalid_read_is_reported() {
    says(
        "{\"AppName\": \"a\",\n \"read\": \"stale\"}",
        "<filter>:2:10: error: read: unknown value: expected `linearizable` or `recent`, got `stale`",
    );
}

#[test]
fn invalid_modify_is_reported() {
    let says = |value: &str, expected: &str| says(&format!("{{\"AppName\": \"a\",\n \"modify\": {value}}}"), expected);
    says(
        "[]",
        "<filter>:2:12: error: modify: wrong type: expected `nop` or an object with `op` and `para`, got an array",
    );
    says("\"MAX\"", "<filter>:2:12: error: modify: MAX needs a para\n  hint: write {\"op\": \"MAX\", \"para\": 1}");
    let ops = "`nop`, `MAX`, `MIN`, `ADD`, `ASSIGN`, `SHIFTL`, `SHIFTR`, `BAND`, `BOR`, `BNOT` or `BXOR`";
    says("\"MUL\"", &format!("<filter>:2:12: error: modify: unknown value: expected {ops}, got `MUL`"));
    says("{\"para\": 1}", &format!("<filter>:2:12: error: modify.op: is missing: expected {ops}"));
    says("{\"op\": \"MIN\"}", "<filter>:2:12: error: modify.para: is missing: expected an integer");
    says(
        "{\"op\": \"MIN\", \"para\": 0.5}",
        "<filter>:2:34: error: modify.para: is not an integer: expected an integer from -2147483648 to 2147483647, got 0.5",
    );
    says(
        "{\"op\": \"SHIFTL\", \"para\": 32}",
        "<filter>:2:37: error: modify.para: is out of range: expected an integer from 0 to 31, got 32",
    );
    says(
        "{\"op\": \"BNOT\", \"para\": 1}",
        "<filter>:2:35: error: modify.para: is out of range: expected nothing or 0, got 1",
    );
    says("{\"op\": \"nop\", \"arg\": 1}", "<filter>:2:26: error: modify.arg: unknown field: expected `op` or `para`");
}

#[test]
fn invalid_cnt_fwd_is_reported() {
    let says = |value: &str, expected: &str| says(&format!("{{\"AppName\": \"a\",\n \"CntFwd\": {value}}}"), expected);
    says(
        "\"ALL\"",
        "<filter>:2:12: error: CntFwd: wrong type: expected an object with `to`, `threshold` and `key`, got a string",
    );
    says(
        "{\"to\": \"all\"}",
        "<filter>:2:19: error: CntFwd.to: unknown value: expected `ALL`, `SRC` or `SERVER`, got `all`\n  hint: did you mean \"ALL\"?",
    );
    says(
        "{\"threshold\": -1}",
        "<filter>:2:26: error: CntFwd.threshold: is out of range: expected an integer not below 0, got -1",
    );
    says(
        "{\"threshold\": \"2\"}",
        "<filter>:2:26: error: CntFwd.threshold: wrong type: expected an integer not below 0, got a string",
    );
    says(
        "{\"key\": \"ClientId\"}",
        "<filter>:2:20: error: CntFwd.key: unknown value: expected `NULL`, `ClientID` or `Message.field`, got `ClientId`\n  hint: did you mean \"ClientID\"?",
    );
    says("{\"key\": 1}", "<filter>:2:20: error: CntFwd.key: wrong type: expected a string, got a number");
}

#[test]
fn all_errors_are_reported_at_once() {
    let text = "{\n  \"Precision\": -1,\n  \"clear\": \"later\",\n}\n{\n  \"AppName\": \"\",\n}";
    let places: Vec<_> = diagnostics(text).iter().map(|line| line[..12].to_owned()).collect();
    assert_eq!(places, ["<filter>:1:1", "<filter>:2:1", "<filter>:3:1", "<filter>:6:1"]);
}
