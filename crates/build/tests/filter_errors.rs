//! Tests of `modify` and streams without meaning: error, position and message.

use crate::common::check_files;
use crate::method_errors::{says, service};

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
