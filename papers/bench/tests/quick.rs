//! Quick runs of figures: each has a table, numbers and a picture.

use std::process::Command;

fn bench(args: &[&str], out: &std::path::Path) -> (bool, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pathcall-bench"));
    // Excludes Gloo, which takes seconds for each start.
    command.env("PATHCALL_PYTHON", "/nowhere/python3");
    let output = command.args(args).arg("--out").arg(out).output();
    let output = output.expect("the bench starts");
    // Output for failed tests.
    println!("{args:?}: {}", output.status);
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.success(), text(output.stdout), text(output.stderr))
}

fn directory(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn quick_figure_has_table_numbers_and_picture() {
    let out = directory("quick");
    let (done, stdout, stderr) = bench(&["--quick", "program-frame"], &out);
    assert!(done, "{stderr}");
    assert!(stdout.contains("256 linear lanes") && stdout.contains("32 keyed pairs"), "{stdout}");
    assert!(stdout.contains("and a token") && stdout.contains("without tokens"), "{stdout}");
    assert!(stdout.contains("a call, steered") && stdout.contains("answers, filtered"), "{stdout}");

    let json = std::fs::read_to_string(out.join("bench/program-frame.json")).expect("numbers");
    let rows: Vec<serde_json::Value> = serde_json::from_str(&json).expect("an array");
    // Includes the kernel's rows if built with `xdp`.
    assert!(if cfg!(feature = "xdp") { rows.len() >= 7 } else { rows.len() == 7 }, "{rows:?}");
    for row in &rows {
        let number = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name} in {row}"));
        assert!(number("ours") > 0.0 && number("peer") > 0.0);
        assert!(number("min") <= number("ours") && number("ours") <= number("max"));
        assert!((number("ratio") - number("ours") / number("peer")).abs() < 1e-9);
        assert_eq!((row["figure"].as_str(), row["better"].as_str()), (Some("program-frame"), Some("lower")));
        assert_eq!((row["unit"].as_str(), number("reps")), (Some("ns/frame"), 2.0));
        assert!(row["peer_name"].is_string() && row.get("limit").is_some());
    }

    let svg = std::fs::read_to_string(out.join("figures/program-frame.svg")).expect("a picture");
    assert!(svg.starts_with("<svg") && svg.contains("check and copy"), "{svg}");
}

#[test]
fn failed_figure_is_reported_and_others_are_made() {
    let out = directory("failing");
    // A directory in place of the file makes the write fail.
    std::fs::create_dir_all(out.join("bench/program-frame.json")).expect("a folder");
    let (done, stdout, stderr) = bench(&["--quick", "program-frame", "netrpc-fig12"], &out);
    assert!(!done && stderr.trim().ends_with("pathcall-bench: not made: program-frame"), "{stderr}");
    assert!(stdout.contains("netrpc-fig12: ") && stdout.contains("first come"), "{stdout}");
    assert!(out.join("bench/netrpc-fig12.json").is_file() && out.join("figures/netrpc-fig12-hits.svg").is_file());
}

#[test]
fn figures_are_listed_and_unknown_one_is_rejected() {
    let out = directory("named");
    let (done, stdout, _) = bench(&["--list"], &out);
    assert!(done && stdout.lines().any(|line| line.starts_with("program-frame ")), "{stdout}");
    let (done, _, stderr) = bench(&["program-fame"], &out);
    assert!(!done);
    assert_eq!(stderr.trim(), "pathcall-bench: unknown figure \"program-fame\"; --list shows all figures");
}

#[test]
fn page_lists_exactly_the_figures() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/figures.md");
    let page = std::fs::read_to_string(page).expect("the page of figures");
    let rows = page.lines().filter_map(|line| line.strip_prefix("### `")?.split_once('`'));
    let mut on_the_page: Vec<&str> = rows.map(|(name, _)| name).collect();
    let (done, listed, _) = bench(&["--list"], &directory("listed"));
    assert!(done, "{listed}");
    let mut known: Vec<&str> = listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
    on_the_page.sort_unstable();
    known.sort_unstable();
    assert_eq!(on_the_page, known);
}

#[test]
fn clone_figures_have_rows_and_plots() {
    let figures = ["netclone-fig7", "netclone-fig8", "netclone-fig15", "netclone-fig16", "netclone-real"];
    let out = directory("clones");
    let schemes = ["--scheme", "random,netclone,c-clone"];
    let (done, stdout, stderr) = bench(&[&["--quick", "--reps", "1"], &schemes[..], &figures].concat(), &out);
    assert!(done, "{stderr}");
    let rows = [
        "Exp(25): netclone, p99, mean improvement",
        "Bimodal(50, 500): netclone, throughput ceiling",
        "redundant answers at callers",
        "in real time: calls answered a second, after it",
        "Exp(5 ms), load 0.3: netclone, p99",
        "Bimodal(5 ms, 50 ms): netclone, throughput ceiling",
    ];
    for row in rows {
        assert!(stdout.contains(&format!("| {row}")), "{row}: {stdout}");
    }
    assert!(!stdout.contains(": hedging"), "{stdout}");
    for plot in ["netclone-fig7-latency", "netclone-fig15-latency", "netclone-fig16-over-time", "netclone-real-latency"]
    {
        let json = std::fs::read_to_string(out.join(format!("bench/{plot}.json"))).expect("plots");
        let panels: serde_json::Value = serde_json::from_str(&json).expect("an object");
        assert!(panels["words"].as_str().is_some_and(|words| words.starts_with("The paper")), "{panels}");
        assert!(panels["panels"].as_array().is_some_and(|panels| panels.len() >= 2), "{panels}");
        assert!(out.join(format!("figures/{plot}.svg")).is_file());
    }
}

/// Without a store, the figure reports that it is missing.
#[test]
fn store_figures_have_rows_or_report_missing_store() {
    let out = directory("stores");
    let args = ["--quick", "--reps", "1", "--scheme", "random,netclone", "netclone-fig11", "netclone-fig12"];
    let (done, stdout, stderr) = bench(&args, &out);
    assert!(done, "{stderr}");
    for (figure, store) in [("netclone-fig11", "redis-server"), ("netclone-fig12", "memcached")] {
        let missing = stderr.contains(&format!("{figure}: not made: {store} is not installed"));
        assert!(!missing || std::env::var_os("PATHCALL_STORE_TESTS").is_none(), "{stderr}");
        assert_eq!(missing, !out.join(format!("figures/{figure}-latency.svg")).is_file(), "{stderr}");
        assert!(
            missing || stdout.contains(&format!("\n{figure}: ")) && stdout.contains(" raw: netclone, p99 of GETs"),
            "{stdout}"
        );
    }
}

/// Exact rows have the thesis' values: no expected ratio is missed.
#[test]
fn simulated_delegate_figures_reach_expected_ratios() {
    let figures = [
        ("dpc-fig6.1", "10 hops"),
        ("dpc-fig6.2", "20 servers at once"),
        ("dpc-fig6.4", "10 bounces"),
        ("dpc-fig6.5", "IS2"),
        ("dpc-fig6.6", "IS7, client"),
        ("dpc-fig6.7", "IS7, at most"),
        ("dpc-table6.3", "IS6B, at the client"),
        ("dpc-bytes", "IS7, longest request"),
    ];
    let out = directory("simulated");
    let names = figures.map(|(figure, _)| figure);
    let (done, stdout, stderr) = bench(&[&["--quick", "--reps", "1"], &names[..]].concat(), &out);
    assert!(done, "{stderr}");
    for (figure, row) in figures {
        assert!(stdout.contains(&format!("| {row} ")), "{figure}: {row}: {stdout}");
        assert!(out.join(format!("bench/{figure}.json")).is_file(), "{figure}");
        assert!(out.join(format!("figures/{figure}.svg")).is_file(), "{figure}");
    }
    assert!(out.join("figures/dpc-fig6.7-IS2.svg").is_file() && out.join("figures/dpc-fig6.1-curves.svg").is_file());
    assert!(!stdout.contains("missed"), "{stdout}");
}

/// Instructions are counted if valgrind is installed. Calls on lossy links all complete, in the simulator and, as root,
/// between hosts.
#[test]
fn delegated_calls_take_few_instructions_and_survive_losses() {
    let out = directory("delegate");
    let figures = ["dpc-instructions", "dpc-loss", "testbed-delegate"];
    let (done, stdout, stderr) = bench(&[&["--quick", "--reps", "1"], &figures[..]].concat(), &out);
    assert!(done, "{stderr}");
    let counted = stdout.contains("| 1 hop ") && stdout.contains("| instructions |");
    assert!(counted || stderr.contains("dpc-instructions: not made: there is no valgrind"), "{stdout}{stderr}");
    let real = pathcall_testbed::root_tests("delegated_calls_take_few_instructions_and_survive_losses");
    let json = std::fs::read_to_string(out.join("bench/dpc-loss.json")).expect("numbers");
    let rows: Vec<serde_json::Value> = serde_json::from_str(&json).expect("an array");
    let complete: Vec<_> =
        rows.iter().filter(|row| row["case"].as_str().is_some_and(|c| c.contains("complete"))).collect();
    assert_eq!(complete.len(), if real { 5 } else { 3 }, "{stdout}");
    assert!(complete.iter().all(|row| row["ours"].as_f64() == Some(1_000.0)), "a call has failed: {stdout}{stderr}");
    if !real {
        assert!(stderr.contains("dpc-loss: not made: ") && stderr.contains("testbed-delegate: not made: "), "{stderr}");
        return;
    }
    for row in ["10 hops", "look-up, 10 documents, stubs", "ray, 10 bounces", "IS7, stubs"] {
        assert!(stdout.contains(&format!("| {row} ")), "{row}: {stdout}");
    }
}

/// Without testbeds, a figure reports the reason.
#[test]
fn testbed_figures_have_rows_or_report_reason() {
    let figures = ["testbed-vote", "netrpc-fig8", "netrpc-fig9", "netrpc-fig10", "testbed-allreduce", "netrpc-fig11"];
    let out = directory("testbeds");
    let (done, mut stdout, mut stderr) = bench(&[&["--quick", "--reps", "1"], &figures[..5]].concat(), &out);
    assert!(done, "{stderr}");
    // Second turn of a figure on the same hosts.
    let (done, more, printed) = bench(&["--quick", figures[5]], &out);
    assert!(done, "{printed}");
    stdout.push_str(&more);
    stderr.push_str(&printed);
    if !pathcall_testbed::root_tests("testbed_figures_have_rows_or_report_reason") {
        for figure in figures {
            assert!(stderr.contains(&format!("{figure}: not made: ")), "{stderr}");
        }
        assert!(stdout.is_empty(), "{stdout}");
        return;
    }
    let rows = [
        "stubs, user-space element, p99",
        "Jain's index of bytes",
        "frames lost",
        "1% lost, no element",
        "1% overflow, user-space element",
        "8 workers, 200mbit, no element",
    ];
    for row in rows {
        assert!(stdout.contains(&format!("| {row} ")), "{row}: {stdout}");
    }
    assert!(stderr.contains("no rows beside Gloo: /nowhere/python3 has no Gloo"), "{stderr}");
    for figure in ["netrpc-fig8", "netrpc-fig9"] {
        let json = std::fs::read_to_string(out.join(format!("bench/{figure}-over-time.json"))).expect("lines");
        let curves: serde_json::Value = serde_json::from_str(&json).expect("an object");
        assert!(curves["lines"].as_array().is_some_and(|lines| lines.len() >= 2), "{curves}");
        assert!(out.join(format!("figures/{figure}-over-time.svg")).is_file());
    }
    assert_eq!(stdout.contains("| XDP element, p50 "), cfg!(feature = "xdp"), "{stdout}");
    assert!(cfg!(feature = "xdp") || stderr.contains("no rows of the XDP element"), "{stderr}");
}

/// Our ranks are processes in this test, too; each turn checks their results.
#[test]
fn local_reduction_is_compared_with_installed_peers() {
    let out = directory("reduce");
    let (done, stdout, stderr) = bench(&["--quick", "--reps", "1", "leo-fig12"], &out);
    assert!(done, "{stderr}");
    for row in ["2 ranks, registered, 64 KB", "2 ranks, private, 64 MB"] {
        assert!(
            stdout.lines().any(|line| line.starts_with(&format!("| {row} ")) && line.contains("a bare loop")),
            "{row}: {stdout}"
        );
    }
    assert!(stderr.contains("no rows beside Gloo: /nowhere/python3 has no Gloo"), "{stderr}");
    let mpi = stdout.contains("| 4 ranks, private, 1 MB ") && stdout.contains("| OpenMPI ");
    assert!(mpi || stderr.contains("no rows beside OpenMPI: "), "{stderr}");
}

/// The package of the peer is optional.
#[test]
fn remote_memory_reads_are_compared_with_ucx() {
    let out = directory("transfer");
    let (done, stdout, stderr) = bench(&["--quick", "--reps", "1", "place-transfer"], &out);
    assert!(done, "{stderr}");
    if stderr.contains("place-transfer: not made: there is no ucx_perftest (Debian: ucx-utils)") {
        assert!(std::env::var_os("PATHCALL_STORE_TESTS").is_none(), "{stderr}");
        return;
    }
    for peer in ["UCX, TCP", "UCX, shared memory"] {
        let row = |line: &str| line.starts_with("| a read of 64 KB ") && line.contains(&format!("| {peer} "));
        assert!(stdout.lines().any(row), "{peer}: {stdout}");
    }
}

/// Each answer is checked; without OpenCL, a line reports it.
#[test]
fn place_applications_have_rows_against_single_paths() {
    let out = directory("place");
    let (done, stdout, stderr) = bench(&["--quick", "--reps", "1", "place-select", "place-apps"], &out);
    assert!(done, "{stderr}");
    assert!(stdout.contains("| GET of kvs, 2 paths ") && stdout.contains("| taking turns "), "{stdout}");
    for app in [
        "store, YCSB C",
        "store, YCSB B",
        "files, LZ4",
        "files, words",
        "disk, reads of 4 KiB",
        "disk, reads of 64 KiB",
    ] {
        assert!(stdout.contains(&format!("| {app}, emulated ")), "{app}: {stdout}");
        let made = stdout.contains(&format!("| {app}, OpenCL "));
        assert!(made || stderr.contains("place-apps: left out: opencl"), "{app}: {stdout} {stderr}");
    }
    assert!(out.join("figures/place-apps.svg").is_file());
}

/// The network answers these calls, and no handler exists: a service admits their callers all the same.
#[test]
fn figures_without_handlers_have_rows() {
    let out = directory("answered");
    let (done, stdout, stderr) =
        bench(&["--quick", "--reps", "1", "--case", "2-to-1, 64k values, shadow", "netrpc-sync"], &out);
    assert!(done && stdout.contains("| 2-to-1, 64k values, shadow "), "{stdout}{stderr}");
    let (done, stdout, stderr) = bench(&["--quick", "--reps", "1", "netrpc-table7"], &out);
    assert!(done && stdout.contains("| 20 at once, total rate "), "{stdout}{stderr}");
    for app_type in ["sums", "counts", "reports and reads", "locks"] {
        assert!(stdout.contains(&format!("| 20 at once, paced, {app_type}, p50 ")), "{app_type}: {stdout}");
    }
}

/// As root; without etcd there are no rows beside it.
#[test]
fn paxos_is_compared_with_plain_grpc_and_etcd() {
    let out = directory("paxos");
    let (done, stdout, stderr) = bench(&["--quick", "--reps", "1", "netrpc-fig7"], &out);
    assert!(done, "{stderr}");
    if !pathcall_testbed::root_tests("paxos_is_compared_with_plain_grpc_and_etcd") {
        assert!(stderr.contains("netrpc-fig7: not made: "), "{stderr}");
        return;
    }
    let without_etcd = stderr.contains("netrpc-fig7: no rows beside etcd");
    for peer in ["plain gRPC", "etcd, three members"].into_iter().take(if without_etcd { 1 } else { 2 }) {
        for case in ["user-space element, disk in memory, p99", "no element, on disk, 32 clients"] {
            let row = |line: &str| line.starts_with(&format!("| {case} ")) && line.contains(&format!("| {peer} "));
            assert!(stdout.lines().any(row), "{case} beside {peer}: {stdout}");
        }
    }
    assert!(out.join("figures/netrpc-fig7-over-rate-memory.svg").is_file());
}

/// As root, with the stores installed; each missing one is reported.
#[test]
fn locks_counts_and_ballots_are_compared_with_stores() {
    let out = directory("picks");
    let (done, stdout, stderr) = bench(&["--quick", "--reps", "1", "users-pick"], &out);
    assert!(done, "{stderr}");
    if !pathcall_testbed::root_tests("locks_counts_and_ballots_are_compared_with_stores") {
        assert!(stderr.contains("users-pick: not made: "), "{stderr}");
        return;
    }
    for (store, program) in [
        ("Redis, nothing on disk", "redis-server"),
        ("etcd, each write on disk", "etcd"),
        ("etcd, its disk in memory", "etcd"),
    ] {
        if stderr.contains(&format!("users-pick: no rows beside {store}: {program} is not installed")) {
            assert!(std::env::var_os("PATHCALL_STORE_TESTS").is_none(), "{stderr}");
            continue;
        }
        for case in ["a free lock, no element, p50", "8 ballots at a time, no element"] {
            let row = |line: &str| line.starts_with(&format!("| {case} ")) && line.contains(&format!("| {store} "));
            assert!(stdout.lines().any(row), "{case} beside {store}: {stdout}");
        }
    }
}
