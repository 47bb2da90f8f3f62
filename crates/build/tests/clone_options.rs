//! Tests of the option `pathcall.clone`: messages of invalid ones, and the description of valid ones.

use crate::common::check_files;
use crate::method_errors::service;

#[test]
fn invalid_clone_option_is_reported() {
    let rpc = |option: &str| format!("rpc Call(Ask) returns (Answer) {{ option (pathcall.clone) = {{ {option} }}; }}");
    let says = |option: &str| check_files(&[("app.proto", &service(&rpc(option)))]);
    for (option, diagnostic) in [
        (
            "clone: true",
            "sets `clone` but is not idempotent, so its calls are sent only once\n  hint: add `idempotent: \
             true` if a repeat is harmless, or remove the other fields",
        ),
        (
            "idempotent: true, budget: 11",
            "has the invalid budget 11: expected a share of the calls between 0 and 10\n  hint: 0.1 is one extra request \
             for ten calls",
        ),
        (
            "idempotent: true, budgetPerSecond: -1",
            "has the budgetPerSecond -1, expected 0 to 1000000 extra requests\n  hint: 0 allows a share of the calls only",
        ),
        ("idempotent: true, cost: 0", "has the cost 0, expected 1 to 1000\n  hint: 2 halves the extra requests"),
        (
            "idempotent: true, balance: ROUND_ROBIN",
            "is cloned, but ROUND_ROBIN allows no clones, which go to random pairs of servers\n  hint: add `clone: \
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
            "idempotent: true, hedgingPolicy: { maxAttempts: 2, hedgingShare: 0.6 }",
            "has the hedgingShare 0.6, expected 0.001 to 0.5\n  hint: 0.05 hedges the slowest twentieth of the calls",
        ),
        (
            "idempotent: true, hedgingPolicy: { maxAttempts: 2, hedgingShare: 0.1, hedgingDelay: \"1s\" }",
            "has a hedgingDelay and a hedgingShare\n  hint: remove the hedgingDelay to learn it",
        ),
        (
            "idempotent: true, workers: 0",
            "has 0 workers, expected at least 1\n  hint: remove the field to use the server's own number",
        ),
    ] {
        let printed = says(option).expect_err(option);
        assert_eq!(printed, [format!("app.proto:31:34: error: /app.S/Call {diagnostic}")]);
    }
    let streams = "rpc Call(Ask) returns (stream Answer) { option (pathcall.clone) = { idempotent: true }; }";
    let printed = check_files(&[("app.proto", &service(streams))]).expect_err("a stream");
    assert!(printed[0].contains("/app.S/Call is streaming, but only unary methods can be cloned"), "{printed:?}");
    let both = "rpc Call(Ask) returns (Answer) { option (pathcall.clone) = { idempotent: true }; \
                option (pathcall.filter) = \"none.nf\"; }";
    let printed = check_files(&[("app.proto", &service(both))]).expect_err("two options").join("\n");
    assert!(
        printed.contains("/app.S/Call has `pathcall.filter` as well, but a method can have only one of them"),
        "{printed}"
    );
}

#[test]
fn cloned_method_is_described_in_one_line() {
    let option = "idempotent: true, balance: SHORTEST, budget: 0.1, cancel: true, workers: 4, \
                  hedgingPolicy: { maxAttempts: 3, hedgingDelay: \"0.02s\", nonFatalStatusCodes: [ABORTED, UNAVAILABLE] }";
    let rpc = format!("rpc Call(Ask) returns (Answer) {{ option (pathcall.clone) = {{ {option} }}; }}");
    let report = check_files(&[("app.proto", &service(&rpc))]).expect("a valid file");
    assert_eq!(
        report.to_string(),
        "/app.S/Call: cloned to two idle servers, else to the shorter queue of two, extra requests up to 0.1 of the \
         calls, hedged after 20ms, 3 requests at most, 2 status codes not fatal, slower requests cancelled, \
         4 concurrent calls per server\n"
    );
    let learned = "idempotent: true, clone: false, hedgingPolicy: { maxAttempts: 2, hedgingShare: 0.05 }";
    let rpc = format!("rpc Call(Ask) returns (Answer) {{ option (pathcall.clone) = {{ {learned} }}; }}");
    let report = check_files(&[("app.proto", &service(&rpc))]).expect("a valid file");
    assert_eq!(
        report.to_string(),
        "/app.S/Call: to a random server, extra requests up to 1 of the calls, 0.05 of the calls hedged, 2 requests at most\n"
    );
    let dear = "idempotent: true, budget: 0.1, budgetPerSecond: 0, budgetBurst: 20, cost: 5";
    let rpc = format!("rpc Call(Ask) returns (Answer) {{ option (pathcall.clone) = {{ {dear} }}; }}");
    let report = check_files(&[("app.proto", &service(&rpc))]).expect("a valid file");
    assert_eq!(
        report.to_string(),
        "/app.S/Call: cloned to two idle servers, else to a random server, extra requests up to 0.1 of the calls + 20 at \
         once + 0 a second, each counted as 5\n"
    );
    let once = "rpc Call(Ask) returns (Answer) { option (pathcall.clone) = { idempotent: false }; }";
    let report = check_files(&[("app.proto", &service(once))]).expect("a valid file");
    assert!(report.cloned.is_empty(), "a plain call");
}
