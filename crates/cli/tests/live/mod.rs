//! A function as a user meets it: an element in the kernel, servers on hosts beside it, real programs talking through
//! both. Needs root, and the programs that [`Bed::start`] names.

pub(crate) mod bed;
mod forsaken;
pub(crate) mod photos;
pub(crate) mod traffic;

use std::time::Instant;

use bed::Bed;
use pathcall_test_support::process::until;
use pathcall_testbed::root_tests;
use photos::Photos;
use traffic::{HASTY_S, PATIENT_S, Traffic};

#[test]
fn snat_passes_connections_while_servers_come_and_go() {
    if !root_tests("snat_passes_connections_while_servers_come_and_go") {
        return;
    }
    let mut bed = Bed::start();
    bed.serve("s1");
    bed.serve("s2");
    bed.change("add-server", "s1");
    bed.change("add-server", "s2");
    bed.until_group(&["s1", "s2"]);
    let mut traffic = Traffic::start(&bed, PATIENT_S);

    // A server more, then one less, each in the middle of long connections and of many short ones.
    bed.serve("s3");
    let long = traffic.long();
    traffic.until_short(20);
    bed.change("add-server", "s3");
    bed.until_group(&["s1", "s2", "s3"]);
    traffic.until_short(20);
    long.end(&mut traffic);
    traffic.move_on();
    bed.until_steady();

    let long = traffic.long();
    traffic.until_short(20);
    bed.change("remove-server", "s1");
    bed.until_group(&["s2", "s3"]);
    traffic.until_short(20);
    long.end(&mut traffic);
    traffic.move_on();
    bed.until_steady();
    // No flow is left there: it may go.
    bed.stop("s1");
    traffic.until_short(20);
    // The same element adds maps up meanwhile, but for moments in which the machine stands still.
    let share = until("the element adds little up", || {
        bed.count_words()["element_share"].as_f64().filter(|share| *share > 0.3)
    });

    let counted = traffic.end();
    let status = bed.status();
    println!("{counted}\nbeside them, words counted: {share:.2} of the work by the element\n{status:#}");
    assert_eq!(counted.broken, [""; 0], "connections were broken");
    assert_eq!(bed.judged("invalid"), 0, "packets that the far host's kernel makes no sense of");
    assert!(bed.judged("new") as usize >= counted.connections(), "{} connections", bed.judged("new"));
    let count = |name: &str| status["counters"][name].as_u64().expect("a count");
    assert!(count("requests") > 0 && count("placed") > 0, "{status:#}");
    for wrong in ["flows_lost", "no_server", "stray", "lost_no_room", "lost_no_way_in"] {
        assert_eq!(count(wrong), 0, "{wrong}: {status:#}");
    }

    // One that is killed is missed, after a second in which it reports nothing, and new connections pass by the others.
    let began = Instant::now();
    bed.kill("s2");
    until("s2 is not missed", || (!bed.server("s2")["alive"].as_bool()?).then_some(()));
    println!("missed after {:?}", began.elapsed());
    bed.until_group(&["s3"]);
    for at in 0..8 {
        traffic::fetch(&bed, at, PATIENT_S).expect("s3 is there");
    }
}

#[test]
fn one_service_uses_all_abilities_by_an_element_that_carries_a_function() {
    if !root_tests("one_service_uses_all_abilities_by_an_element_that_carries_a_function") {
        return;
    }
    let mut bed = Bed::start();
    for name in ["s1", "s2"] {
        bed.serve(name);
        bed.change("add-server", name);
    }
    bed.until_group(&["s1", "s2"]);
    let traffic = Traffic::start(&bed, PATIENT_S);
    traffic.until_short(5);
    let service = Photos::start(&bed);
    let plain = service.call(&["--plain"]);
    // Where the machine stands still, hosts do without the element for a while, or without an accelerator.
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

    let status = bed.status();
    println!(
        "{counted}\nbeside them: {} calls of {} kinds",
        photos["calls"],
        photos["methods"].as_array().map_or(0, Vec::len)
    );
    assert_eq!(counted.broken, [""; 0], "connections were broken");
    assert_eq!(bed.judged("invalid"), 0, "packets that the far host's kernel makes no sense of");
    let count = |name: &str| status["counters"][name].as_u64().expect("a count");
    assert!(count("requests") > 0, "{status:#}");
}

#[test]
fn a_server_whose_interface_was_down_goes_on_and_one_without_ends() {
    if !root_tests("a_server_whose_interface_was_down_goes_on_and_one_without_ends") {
        return;
    }
    let mut bed = Bed::start();
    bed.serve("s1");
    bed.change("add-server", "s1");
    bed.until_group(&["s1"]);
    traffic::fetch(&bed, 0, PATIENT_S).expect("s1 is there");
    bed.blink("s1");
    until("requests are not answered any more", || traffic::fetch(&bed, 1, HASTY_S).ok());
    bed.unplug("s1");
    let mut process = bed.servers.remove("s1").expect("it serves");
    let ended = until("it does not end", || process.0.try_wait().expect("a child of ours"));
    assert_eq!(ended.code(), Some(1));
}

#[test]
fn an_element_that_is_dropped_goes_whoever_is_connected() {
    if !root_tests("an_element_that_is_dropped_goes_whoever_is_connected") {
        return;
    }
    let mut bed = Bed::start();
    drop(bed.element.take());
    forsaken::start_and_drop(&bed);
}

#[test]
fn what_a_user_gets_wrong_is_said_in_one_line() {
    if !root_tests("what_a_user_gets_wrong_is_said_in_one_line") {
        return;
    }
    let mut bed = Bed::start();
    let controller = bed.url();
    let refused = format!("pathcall: the controller at {controller} ");
    let group = |verb: &str, name: &str| bed.fails(&["function", verb, name, "--controller", &controller]);
    assert_eq!(
        group("add-server", "s9"),
        format!("{refused}refuses: the topology has no server \"s9\": it has s1, s2, s3\n")
    );
    assert_eq!(group("remove-server", "s1"), format!("{refused}refuses: no server would be left: add another first\n"));
    let other = bed.server_fails("s1", &["-D", "POOL=0xC0000300", "-D", "POOL_BITS=4"]);
    let same = "start both with the same file and the same options";
    assert_eq!(other, format!("{refused}refuses: server s1 runs another function than the element: {same}\n"));
    let moved = bed.server_fails_on("s2", "s1");
    assert!(moved.contains("server s1 is at ") && moved.ends_with('\n') && moved.lines().count() == 1, "{moved}");
    bed.stop_element();
    bed.small_links();
    let small = bed.element_fails();
    // Before it, that no controller of map and clone is there yet.
    let small = small.lines().last().unwrap_or_default();
    assert!(small.starts_with("pathcall: interface h3 has an MTU of 1500 bytes, requests take 1"), "{small}");
}
