//! Tests of `modify` and streams without meaning: error, position and message.

use crate::common::check_files;
use crate::method_errors::{SUM, says, service};

#[test]
fn modification_errors_are_reported() {
    says(
        "\"modify\": \"BNOT\", \"CntFwd\": {\"to\": \"ALL\", \"key\": \"Ask.kvs\"}",
        "f.nf:3:11: error: modify: nobody gets the modified values: a filter without addTo adds nothing\n  hint: set CntFwd.to to \"SERVER\" for the handler to get them",
    );
    let proto = service("rpc Call(Nothing) returns (Answer) { option (pathcall.filter) = \"f.nf\"; }");
    let filter = "{\"AppName\": \"a\", \"modify\": \"BNOT\", \"CntFwd\": {\"to\": \"SERVER\"}}";
    let printed = check_files(&[("app.proto", &proto), ("f.nf", filter)]).expect_err("no values");
    assert_eq!(
        printed,
        [
            "f.nf:1:28: error: modify: a filter without addTo has no values: the request has no typed field\n  hint: add a typed field to the request"
        ]
    );
}

#[test]
fn stream_errors_are_reported() {
    let streamed = |fields: &str, expected: &str| {
        for reply in ["Answer", "stream Answer"] {
            let rpc = format!("rpc Call(stream Ask) returns ({reply}) {{ option (pathcall.filter) = \"f.nf\"; }}");
            let filter = format!("{{\n\"AppName\": \"a\",\n{fields}\n}}\n");
            let printed = check_files(&[("app.proto", &service(&rpc)), ("f.nf", &filter)]).expect_err(fields);
            assert_eq!(printed, [expected], "{fields}");
        }
    };
    streamed(
        &SUM.replace("ALL", "SERVER"),
        "f.nf:4:18: error: CntFwd.to: each sum is one call of the handler for all callers, but a stream is of one caller\n  hint: use \"ALL\", or a unary method",
    );
    streamed(
        "\"CntFwd\": {\"threshold\": 1, \"key\": \"Ask.kvs\"}",
        "f.nf:3:25: error: CntFwd.threshold: lease and token of a lock are metadata of its reply, which messages of a stream do not have\n  hint: use a unary method",
    );
}
