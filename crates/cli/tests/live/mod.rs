//! Tests of a function on a live element: XDP program in the kernel, servers on hosts beside it, real programs that
//! communicate through both. Needs root, and the programs that [`LiveTestbed::start`] names.

mod dropped_element;
pub(crate) mod photos;
pub(crate) mod testbed;
pub(crate) mod traffic;

use std::time::Instant;

use pathcall_test_support::process::until;
use pathcall_testbed::root_tests;
use photos::Photos;
use testbed::LiveTestbed;
use traffic::{HASTY_S, PATIENT_S, Traffic};

#[test]
fn snat_keeps_connections_during_scaling() {
    if !root_tests("snat_keeps_connections_during_scaling") {
        return;
    }
    let mut testbed = LiveTestbed::start();
    testbed.serve("s1");
    testbed.serve("s2");
    testbed.change("add-server", "s1");
    testbed.change("add-server", "s2");
    testbed.until_group(&["s1", "s2"]);
    let mut traffic = Traffic::start(&testbed, PATIENT_S);

    // One more server, then one less, each during long and short connections.
    testbed.serve("s3");
    let long = traffic.long();
    traffic.until_short(20);
    testbed.change("add-server", "s3");
    testbed.until_group(&["s1", "s2", "s3"]);
    traffic.until_short(20);
    long.end(&mut traffic);
    traffic.move_on();
    testbed.until_steady();

    let long = traffic.long();
    traffic.until_short(20);
    testbed.change("remove-server", "s1");
    testbed.until_group(&["s2", "s3"]);
    traffic.until_short(20);
    long.end(&mut traffic);
    traffic.move_on();
    testbed.until_steady();
    // No flow is left on the server: it may stop.
    testbed.stop("s1");
    traffic.until_short(20);
    // Meanwhile the same element sums for map, except while the machine stands still.
    let share = until("the element processes few values", || {
        testbed.count_words()["element_share"].as_f64().filter(|share| *share > 0.3)
    });

    let counted = traffic.end();
    let status = testbed.status();
    println!("{counted}\nbeside them, words counted: {share:.2} of the work by the element\n{status:#}");
    assert_eq!(counted.broken, [""; 0], "connections were broken");
    assert_eq!(testbed.conntrack_count("invalid"), 0, "packets invalid for the outside host's connection tracking");
    assert!(
        testbed.conntrack_count("new") as usize >= counted.connections(),
        "{} connections",
        testbed.conntrack_count("new")
    );
    let count = |name: &str| status["counters"][name].as_u64().expect("a count");
    assert!(count("requests") > 0 && count("placed") > 0, "{status:#}");
    for wrong in ["flows_lost", "no_server", "stray", "lost_no_room", "lost_no_way_in"] {
        assert_eq!(count(wrong), 0, "{wrong}: {status:#}");
    }

    // A killed server is detected after a second without reports, and new connections go to the others.
    let began = Instant::now();
    testbed.kill("s2");
    until("s2 is still in the group", || (!testbed.server("s2")["alive"].as_bool()?).then_some(()));
    println!("missed after {:?}", began.elapsed());
    testbed.until_group(&["s3"]);
    for at in 0..8 {
        traffic::fetch(&testbed, at, PATIENT_S).expect("s3 answers");
    }
}

#[test]
fn service_uses_all_abilities_beside_function() {
    if !root_tests("service_uses_all_abilities_beside_function") {
        return;
    }
    let mut testbed = LiveTestbed::start();
    for name in ["s1", "s2"] {
        testbed.serve(name);
        testbed.change("add-server", name);
    }
    testbed.until_group(&["s1", "s2"]);
    let traffic = Traffic::start(&testbed, PATIENT_S);
    traffic.until_short(5);
    let service = Photos::start(&testbed);
    let plain = service.call(&["--plain"]);
    // Where the machine stands still, hosts work without the element or an accelerator for a while.
    let photos = until("not every ability is used", || {
        let photos = service.call(&["--front", &service.front]);
        assert_eq!(photos["digest"], plain["digest"], "{photos:#}");
        println!("{photos:#}");
        let share = |name: &str| photos[name].as_f64().expect("a share");
        let made = ["cpu", "acc"].map(|role| photos["thumbnails"][role].as_u64().expect("a count"));
        let trace = photos["trace"].as_str().expect("a trace");
        let all = share("likes_in_element") > 0.3
            && share("cloned") > 0.1
            && made.iter().all(|made| *made > 0)
            && ["/Find: ", "/LookUp: ", "/Fetch ("].iter().all(|part| trace.contains(part));
        all.then_some(photos)
    });
    traffic.until_short(5);
    let counted = traffic.end();

    let status = testbed.status();
    println!(
        "{counted}\nbeside them: {} calls of {} kinds",
        photos["calls"],
        photos["methods"].as_array().map_or(0, Vec::len)
    );
    assert_eq!(counted.broken, [""; 0], "connections were broken");
    assert_eq!(testbed.conntrack_count("invalid"), 0, "packets invalid for the outside host's connection tracking");
    let count = |name: &str| status["counters"][name].as_u64().expect("a count");
    assert!(count("requests") > 0, "{status:#}");
}

#[test]
fn server_survives_link_flap_and_ends_without_interface() {
    if !root_tests("server_survives_link_flap_and_ends_without_interface") {
        return;
    }
    let mut testbed = LiveTestbed::start();
    testbed.serve("s1");
    testbed.change("add-server", "s1");
    testbed.until_group(&["s1"]);
    traffic::fetch(&testbed, 0, PATIENT_S).expect("s1 answers");
    testbed.flap_link("s1");
    until("requests are not answered any more", || traffic::fetch(&testbed, 1, HASTY_S).ok());
    testbed.unplug("s1");
    let mut process = testbed.servers.remove("s1").expect("connection to the service");
    let ended = until("the process is still running", || process.0.try_wait().expect("child process"));
    assert_eq!(ended.code(), Some(1));
}

#[test]
fn dropped_element_ends_despite_connections() {
    if !root_tests("dropped_element_ends_despite_connections") {
        return;
    }
    let mut testbed = LiveTestbed::start();
    drop(testbed.element.take());
    dropped_element::start_and_drop(&testbed);
}

#[test]
fn user_errors_are_one_line() {
    if !root_tests("user_errors_are_one_line") {
        return;
    }
    let mut testbed = LiveTestbed::start();
    let controller = testbed.url();
    let refused = format!("pathcall: the controller at {controller} ");
    let group = |verb: &str, name: &str| testbed.fails(&["function", verb, name, "--controller", &controller]);
    assert_eq!(
        group("add-server", "s9"),
        format!("{refused}refuses: the topology has no server \"s9\": it has s1, s2, s3\n")
    );
    assert_eq!(group("remove-server", "s1"), format!("{refused}refuses: no server would be left: add another first\n"));
    let other = testbed.server_fails("s1", &["-D", "POOL=0xC0000300", "-D", "POOL_BITS=4"]);
    let same = "start both with the same file and the same options";
    assert_eq!(other, format!("{refused}refuses: server s1 runs another function than the element: {same}\n"));
    let moved = testbed.server_fails_on("s2", "s1");
    assert!(
        moved.contains("server s1 has MAC address ") && moved.ends_with('\n') && moved.lines().count() == 1,
        "{moved}"
    );
    testbed.stop_element();
    testbed.small_links();
    let small = testbed.element_fails();
    // Skips the line about the missing controller of map and clone.
    let small = small.lines().last().unwrap_or_default();
    assert!(small.starts_with("pathcall: interface h3 has an MTU of 1500 bytes, requests take 1"), "{small}");
}
