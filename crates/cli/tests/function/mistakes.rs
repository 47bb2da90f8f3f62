//! Tests of error messages: one clear line with position, cause and remedy.

use std::path::Path;

use super::{folder, functions, packets, pathcall, printed, write};

#[track_caller]
fn fails(folder: &Path, args: &[&str], expected: &str) {
    let output = pathcall(folder, args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{args:?} works");
    assert!(
        stderr.trim_end() == expected || stderr.contains(expected) && args.contains(&"--port"),
        "{args:?}: {stderr}"
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
}

#[test]
fn invalid_capture_is_reported() {
    let folder = folder("captures");
    let function = functions("snat.p4c");
    let file = |name: &str, bytes: &[u8]| std::fs::write(folder.join(name), bytes).expect("written");
    let tcp = std::fs::read(functions("tcp.pcap")).expect("a capture");
    file("empty", b"");
    file("text", b"no capture at all, but a text");
    file("ng", &[0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0]);
    file("packed", &[0x1f, 0x8b, 8, 0]);
    file("short", &tcp[..tcp.len() - 1]);
    let mut cooked = tcp.clone();
    cooked[20] = 113;
    file("cooked", &cooked);
    for (name, expected) in [
        ("none", "pathcall: none: No such file or directory (os error 2)"),
        ("empty", "pathcall: empty: is empty: expected a capture (pcap)"),
        ("text", "pathcall: text: is not a capture: expected pcap format, as tcpdump -w writes it"),
        ("ng", "pathcall: ng: is in pcapng format: convert it with editcap -F pcap IN OUT"),
        ("packed", "pathcall: packed: is compressed: decompress it with gunzip"),
        ("short", "pathcall: short: ends in the middle of packet 600"),
        (
            "cooked",
            "pathcall: cooked: has link type LINUX_SLL: functions need Ethernet; capture on one interface, not on \
             `any`",
        ),
    ] {
        fails(&folder, &["run", &function, "--pcap", name, "--out", "out.pcap"], expected);
    }
}

#[test]
fn digits_before_file_are_port() {
    let folder = folder("digits");
    let (function, tcp) = (functions("trd.p4c"), functions("tcp.pcap"));
    for (word, file) in [("a.pcap", "a.pcap"), ("3=a=b.pcap", "a=b.pcap"), ("x=a.pcap", "x=a.pcap")] {
        let expected = format!("pathcall: {file}: No such file or directory (os error 2)");
        fails(&folder, &["run", &function, "--pcap", word, "--out", "o"], &expected);
    }
    for word in ["", "3=", "256=a.pcap", "99999=a.pcap"] {
        let output = pathcall(&folder, &["run", &function, "--pcap", word, "--out", "o"]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains("--pcap"), "{word:?}: {stderr}");
    }
    if !super::compilers() {
        return;
    }
    std::fs::copy(tcp, folder.join("a=b.pcap")).expect("copied");
    let run = |more: &[&str]| printed(&folder, &[&["run", &function, "--out", "o"][..], more].concat());
    let at = ["0", "3"].map(|port| run(&["--pcap", "a=b.pcap", "--port", port]));
    assert_ne!(at[0], at[1]);
    assert_eq!(run(&["--pcap", "3=a=b.pcap", "--port", "0"]), at[1]);
}

#[test]
fn input_file_is_never_overwritten() {
    let folder = folder("distinct");
    let function = functions("trd.p4c");
    let all = packets(functions("tcp.pcap").as_ref());
    write(&folder.join("in.pcap"), &all);
    let run = |more: &[&'static str], expected| {
        fails(&folder, &[&["run", &function, "--pcap", "in.pcap"][..], more].concat(), expected);
    };
    run(&["--out", "./in.pcap"], "pathcall: ./in.pcap is an input: choose another file for --out");
    run(&["--out", "o", "--digests", "in.pcap"], "pathcall: in.pcap is an input: choose another file for --digests");
    run(&["--out", "o", "--digests", "o"], "pathcall: o: --out and --digests name the same file: choose two");
    assert_eq!(packets(&folder.join("in.pcap")), all, "the input file changed");
}

#[test]
fn port_and_server_limits_are_checked() {
    let folder = folder("bounds");
    let (function, tcp) = (functions("trd.p4c"), functions("tcp.pcap"));
    let run = |more: &[&str], expected: &str| {
        let output = pathcall(&folder, &[&["run", &function, "--out", "o"][..], more].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(expected), "{more:?}: {stderr}");
    };
    let beyond = "(0 to 255; higher ports belong to the servers)";
    run(&["--pcap", &format!("256={tcp}")], beyond);
    run(&["--pcap", &tcp, "--port", "300"], beyond);
    run(&["--pcap", "1="], "expected a file, as in --pcap in.pcap or --pcap 1=in.pcap");
    run(&["--pcap", &tcp, "--servers", "0"], "0 is not in 1..=255");
    run(&["--pcap", &tcp, "--placement", "best"], "best");
    run(&[], "--pcap");
}

#[test]
fn invalid_entry_is_reported_with_line() {
    let folder = folder("entries");
    let (function, tcp) = (functions("fib.p4c"), functions("tcp.pcap"));
    for (text, expected) in [
        ("routse 0 10.0.0.0/8 to_group 1", "line 1: unknown table \"routse\""),
        ("\n# one\nroutes 0 10.0.0.0/8 to_gruop 1", "line 3: table pre.routes has no action \"to_gruop\""),
        ("routes 0 10.0.0.0/8 to_group", "line 1: table pre.routes: expected 1 arguments, got 0"),
        ("routes 0 10.0.0.0/8 to_group 70000", "line 1: table pre.routes: argument 0x11170 does not fit 16 bits"),
        ("routes 0 10.0.0.0/33 to_group 1", "line 1: table pre.routes: prefix 0x21 does not fit 32 bits"),
        ("routes 0 10.0.0/8 to_group 1", "line 1: invalid number or address \"10.0.0\""),
        (
            "routes 0 10.0.0.0/8 to_group 1\nroutes 0 10.0.0.0/8 to_group 2",
            "line 2: table pre.routes has an entry with these keys",
        ),
        ("groups 1 spread", "line 1: table post.groups: expected 2 arguments, got 0"),
    ] {
        std::fs::write(folder.join("routes.txt"), text).expect("written");
        let args = ["run", &function, "--pcap", &tcp, "--out", "out.pcap", "--entries", "routes.txt"];
        fails(&folder, &args, &format!("pathcall: routes.txt: {expected}"));
    }
}

#[test]
fn c_errors_are_reported_with_position() {
    if !super::compilers() {
        return;
    }
    let folder = folder("c");
    let text = std::fs::read_to_string(functions("smooth.p4c")).expect("a function");
    let wrong = text.replace("s->mean += WEIGHT * away;", "s->maen += WEIGHT * away;").replace("sqrtf(", "sqrtq(");
    assert_ne!(text, wrong);
    std::fs::write(folder.join("wrong.p4c"), wrong).expect("written");
    for command in [
        &["check", "wrong.p4c"][..],
        &["build", "wrong.p4c", "-o", "built"],
        &["run", "wrong.p4c", "--pcap", "none", "--out", "none"],
        &["run", "wrong.p4c", "--pcap", "none", "--out", "none", "--native"],
    ] {
        let output = pathcall(&folder, command);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        assert!(stderr.contains("wrong.p4c:21:") && stderr.contains("s->maen += WEIGHT * away;"), "{stderr}");
        assert!(stderr.contains("wrong.p4c:25:") && stderr.contains("sqrtq"), "{stderr}");
        assert!(!folder.join("built").exists() && !folder.join("none").exists(), "nothing is written");
    }
}
