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
             true` or an `idempotency_level` if a repeat is harmless, or remove the other fields",
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
        (
            "automatic: true",
            "sets `automatic` but is not idempotent, so its calls are sent only once\n  hint: add `idempotent: true` \
             or an `idempotency_level` if a repeat is harmless, or remove the other fields",
        ),
        (
            "idempotent: true, automatic: true, balance: SHORTEST",
            "is automatic and sets `balance`, which the channel chooses then\n  hint: remove `automatic`, or the other field",
        ),
        (
            "idempotent: true, automatic: true, hedgingPolicy: { maxAttempts: 2, hedgingShare: 0.1 }",
            "is automatic and sets `hedgingPolicy`, which the channel chooses then\n  hint: remove `automatic`, or the \
             other field",
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
    let both = "rpc Call(Ask) returns (Answer) { option (pathcall.clone) = { idempotent: true }; \
                option (pathcall.filter) = \"none.nf\"; }";
    let printed = check_files(&[("app.proto", &service(both))]).expect_err("two options").join("\n");
    assert!(
        printed.contains("/app.S/Call has `pathcall.filter` as well, but a method can have only one of them"),
        "{printed}"
    );
}

#[test]
fn option_without_meaning_on_streams_is_reported() {
    let policy = "hedgingPolicy: { maxAttempts: 2, hedgingDelay: \"0.02s\" }";
    for (fields, diagnostic) in [
        (
            "budget: 0.1".to_owned(),
            "has no hedgingPolicy, but streams are only hedged\n  hint: add a hedgingPolicy, or remove the option",
        ),
        (
            "automatic: true".to_owned(),
            "sets `automatic: true`, but streams are only hedged\n  hint: replace `automatic` by a hedgingPolicy",
        ),
        (
            format!("clone: true, {policy}"),
            "sets `clone: true`, but the element clones unary calls only\n  hint: remove `clone`: the call is hedged",
        ),
        (
            format!("balance: SHORTEST, {policy}"),
            "sets `balance: SHORTEST`, but streams do not wait in queues\n  hint: choose RANDOM or ROUND_ROBIN",
        ),
        (
            format!("cancel: false, {policy}"),
            "sets `cancel: false`, but slower streams are always cancelled\n  hint: remove `cancel`",
        ),
        (
            format!("workers: 4, {policy}"),
            "sets `workers`, but streams do not wait in queues\n  hint: remove `workers`, or set it on a unary method",
        ),
    ] {
        let rpc = "rpc Call(Ask) returns (stream Answer) { option (pathcall.clone) = { idempotent: true";
        let printed = check_files(&[("app.proto", &service(&format!("{rpc}, {fields} }}; }}")))]).expect_err(&fields);
        assert_eq!(printed, [format!("app.proto:31:41: error: /app.S/Call is streaming and {diagnostic}")]);
    }
    let both = "rpc Call(stream Ask) returns (stream Answer) { option (pathcall.clone) = { idempotent: true }; }";
    let printed = check_files(&[("app.proto", &service(both))]).expect_err("a stream of requests");
    let diagnostic = "is client-streaming, but only unary and server-streaming methods can be cloned\n  hint: remove the \
                      option, or the `stream` of the request";
    assert_eq!(printed, [format!("app.proto:31:48: error: /app.S/Call {diagnostic}")]);
}

#[test]
fn stream_is_described_in_one_line() {
    for (fields, described) in [
        ("", "a stream of a random server"),
        ("clone: false, cancel: true, balance: ROUND_ROBIN, ", "a stream of servers in rotation"),
    ] {
        let option = format!("idempotent: true, {fields} hedgingPolicy: {{ maxAttempts: 2, hedgingShare: 0.05 }}");
        let rpc = format!("rpc Call(Ask) returns (stream Answer) {{ option (pathcall.clone) = {{ {option} }}; }}");
        let report = check_files(&[("app.proto", &service(&rpc))]).expect("a valid file");
        assert_eq!(
            report.to_string(),
            format!(
                "/app.S/Call: {described}, extra requests up to 1 of the calls, 0.05 of the calls hedged, 2 requests at \
                 most, slower requests cancelled\n"
            )
        );
        assert!(report.cloned[0].streaming && report.cloned[0].cancel && !report.cloned[0].clone);
    }
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
        "/app.S/Call: to a random server, extra requests up to 1 of the calls, 0.05 of the calls hedged, 2 requests at \
         most, slower requests cancelled\n"
    );
    let dear = "idempotent: true, clone: true, budget: 0.1, budgetPerSecond: 0, budgetBurst: 20, cost: 5";
    let rpc = format!("rpc Call(Ask) returns (Answer) {{ option (pathcall.clone) = {{ {dear} }}; }}");
    let report = check_files(&[("app.proto", &service(&rpc))]).expect("a valid file");
    assert_eq!(
        report.to_string(),
        "/app.S/Call: cloned to two idle servers, else to a random server, extra requests up to 0.1 of the calls + 20 at \
         once + 0 a second, each counted as 5\n"
    );
    let paper = "rpc Call(Ask) returns (Answer) { option (pathcall.clone) = { idempotent: true, automatic: false }; }";
    let report = check_files(&[("app.proto", &service(paper))]).expect("a valid file");
    assert!(!report.cloned[0].automatic && report.cloned[0].clone, "{report}");
    let level = "option idempotency_level = IDEMPOTENT; option (pathcall.clone) =";
    let once = format!("rpc Call(Ask) returns (Answer) {{ {level} {{ idempotent: false }}; }}");
    assert!(check_files(&[("app.proto", &service(&once))]).expect("a valid file").cloned.is_empty());
    let once = "rpc Call(Ask) returns (Answer) { option (pathcall.clone) = { idempotent: false }; }";
    let report = check_files(&[("app.proto", &service(once))]).expect("a valid file");
    assert!(report.cloned.is_empty(), "a plain call");
}

#[test]
fn idempotent_method_without_policy_is_automatic() {
    for (level, option, described) in [
        ("", "idempotent: true", "up to 0.1 of the calls, slower requests cancelled"),
        ("", "idempotent: true, automatic: true", "up to 0.1 of the calls, slower requests cancelled"),
        ("", "idempotent: true, budget: 1, cancel: false", "up to 1 of the calls"),
        ("NO_SIDE_EFFECTS", "", "up to 0.1 of the calls, slower requests cancelled"),
        (
            "IDEMPOTENT",
            "workers: 2",
            "up to 0.1 of the calls, slower requests cancelled, 2 concurrent calls per server",
        ),
    ] {
        let level = if level.is_empty() { String::new() } else { format!("option idempotency_level = {level};") };
        let rpc = format!("rpc Call(Ask) returns (Answer) {{ {level} option (pathcall.clone) = {{ {option} }}; }}");
        let report = check_files(&[("app.proto", &service(&rpc))]).expect("a valid file");
        assert_eq!(
            report.to_string(),
            format!("/app.S/Call: by the policy that the channel measures as best, extra requests {described}\n")
        );
    }
}
