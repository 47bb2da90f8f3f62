//! The application as a user runs it: both ways, the image that one machine renders (it compares them itself); servers
//! as processes, and one that is killed in the middle.

use std::io::BufReader;
use std::process::{Output, Stdio};

use pathcall_test_support::application::Running;

const RAYS: &str = "rays";
const SMALL: [&str; 9] = ["render", "--json", "--width", "64", "--height", "40", "--batch", "400", "--bounces"];

fn run(arguments: &[&str]) -> Output {
    pathcall_test_support::application::command(RAYS).args(arguments).output().expect("the application starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

fn digest(arguments: &[&str]) -> String {
    pathcall_test_support::application::digest(RAYS, &[&SMALL[..], &["3"], arguments].concat())
}

#[test]
fn both_ways_and_any_number_of_slabs_give_the_same_image() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("rays.png");
    let rpc = digest(&["--rpc"]);
    assert_eq!(rpc.len(), 16);
    assert_eq!(digest(&["--image", path.to_str().expect("text")]), rpc);
    assert_eq!(digest(&["--slabs", "1"]), rpc);
    assert_eq!(digest(&["--slabs", "7"]), rpc);
    let file = BufReader::new(std::fs::File::open(path).expect("written"));
    let mut image = png::Decoder::new(file).read_info().expect("a PNG");
    let mut rgb = vec![0; image.output_buffer_size().expect("a size")];
    let info = image.next_frame(&mut rgb).expect("pixels");
    assert_eq!((info.width, info.height, info.color_type), (64, 40, png::ColorType::Rgb));
    assert_eq!(apps_report::digest(std::iter::once(&*rgb)), rpc, "the file has the pixels that were compared");
}

/// Renders by servers of which the last is killed when the first rays are back.
fn killed(way: &[&str]) {
    let (mut running, list) = pathcall_test_support::application::servers(RAYS, &["slab-0", "slab-1", "slab-2"], &[]);
    let whole = run(&[&SMALL[..], &["3", "--servers", &list], way].concat());
    assert!(whole.status.success(), "{}", text(&whole.stderr));

    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("rays.png");
    let mut render = pathcall_test_support::application::command(RAYS);
    render.args(["render", "--servers", &list, "--batch", "400", "--image"]).arg(&path).args(way);
    // As many rays as take minutes, so that they are on their way when the server is killed.
    render.args(["--width", "3000", "--height", "3000"]);
    let mut render = Running::start(render.stderr(Stdio::piped()));
    assert_eq!(render.line(), "3 servers, the first rays are back");
    running.pop();
    let (status, rest, why) = render.end();
    assert!(!status.success() && rest.is_empty() && !path.exists(), "{status}: {rest}");
    assert!(why.starts_with("rays: a batch of rays: "), "{why}");
}

#[test]
fn a_server_that_is_killed_ends_the_call_that_is_passed_on() {
    killed(&[]);
}

#[test]
fn a_server_that_is_killed_ends_the_call_of_each_in_turn() {
    killed(&["--rpc"]);
}

#[test]
fn what_is_wrong_is_said_in_a_line() {
    for (arguments, says) in [
        (vec!["render", "--slabs", "30"], "rays: 3 bounces in 30 slabs may take 236 servers, at most 64"),
        (vec!["render", "--bounces", "9"], "rays: at most 8 bounces are followed, got 9"),
        (vec!["render", "--width", "0"], "rays: an image has 1 to 2^26 pixels"),
        (vec!["render", "--servers", "slab-1=127.0.0.1:1"], "rays: expected slab-0 in the list, got slab-1"),
    ] {
        let output = run(&arguments);
        assert!(!output.status.success());
        assert_eq!(text(&output.stderr).trim_end(), says);
    }
}
