//! Tests of the application kv: the same result by every path, also as hedged plain gRPC (the application also checks each value), servers as
//! processes, and the picture.

use std::process::Output;

use pathcall_test_support::application::ApplicationProcess;

const KV: &str = "kv";

fn run(arguments: &[&str]) -> Output {
    pathcall_test_support::application::command(KV).args(arguments).output().expect("the application starts")
}

/// Values of a field for all paths of a report.
fn fields(report: &str, name: &str) -> Vec<String> {
    let name = format!("\"{name}\":");
    report.split(&name).skip(1).map(|rest| rest.chars().take_while(|c| !",}".contains(*c)).collect()).collect()
}

#[tokio::test]
async fn all_paths_give_same_result() {
    pathcall_test_support::element::by_element(same_results).await;
}

fn same_results(controller: &str) {
    let picture = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("kv.svg");
    let quick = [
        "demo",
        "--json",
        "--controller",
        controller,
        "--seconds",
        "0.5",
        "--get",
        "exp:2ms",
        "--scan",
        "exp:4ms",
        "--picture",
    ];
    // On an idle machine, most idempotent calls are cloned and no others; on a busy one, servers seem busy and calls
    // are repeated: repeat the run.
    let shown = (0..8).any(|_| {
        let output = run(&[&quick[..], &[picture.to_str().expect("a path")]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report = String::from_utf8(output.stdout).expect("JSON");
        println!("{report}");
        let digests = fields(&report, "digest");
        assert_eq!(digests.len(), 4, "{report}");
        assert!(digests.iter().all(|digest| *digest == digests[0] && digest.len() == 18), "{report}");
        let calls = fields(&report, "calls");
        let as_many = |count: &String| *count == calls[0] && count.parse::<u64>().is_ok_and(|n| n > 100);
        assert!(calls.iter().all(as_many), "{report}");
        let extra: Vec<f64> = fields(&report, "extra").iter().filter_map(|extra| extra.parse().ok()).collect();
        let [cloned, random, _hedged] = extra[..] else { panic!("{report}") };
        cloned > 0.1 && cloned <= 1.0 && random < cloned / 2.0
    });
    assert!(shown, "too few cloned calls, or clones of other calls");
    let svg = std::fs::read_to_string(picture).expect("a picture");
    assert!(svg.starts_with("<svg") && svg.contains("plain gRPC"), "{svg}");
}

#[test]
fn invalid_load_is_refused() {
    for (option, value) in [("--load", "0"), ("--load", "2"), ("--gets", "1.5"), ("--seconds", "0")] {
        let output = run(&["demo", "--controller", "http://127.0.0.1:1", option, value]);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && printed.starts_with(&format!("kv: {option}: expected")), "{printed}");
    }
}

#[test]
fn server_prints_its_address() {
    for way in [&["serve", "--plain"][..], &["serve"]] {
        let ready = ApplicationProcess::start(pathcall_test_support::application::command(KV).args(way)).line();
        assert!(ready.starts_with("ready http://127.0.0.1:"), "{ready:?}");
    }
}
