//! Tests of the application rays: the image of a single machine by both paths (the application compares it), servers as
//! processes, and a server killed during a call.

use std::io::BufReader;
use std::process::{Output, Stdio};

use pathcall_test_support::application::ApplicationProcess;

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
fn any_number_of_slabs_gives_same_image() {
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
    assert_eq!(apps_report::digest(std::iter::once(&*rgb)), rpc, "the file has other pixels");
}

/// Renders and kills the last server once the first rays are back.
fn killed(way: &[&str]) {
    let (mut running, list) = pathcall_test_support::application::servers(RAYS, &["slab-0", "slab-1", "slab-2"], &[]);
    let whole = run(&[&SMALL[..], &["3", "--servers", &list], way].concat());
    assert!(whole.status.success(), "{}", text(&whole.stderr));

    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("rays.png");
    let mut render = pathcall_test_support::application::command(RAYS);
    render.args(["render", "--servers", &list, "--batch", "400", "--image"]).arg(&path).args(way);
    // Rays for minutes, so that some are in transit when the server is killed.
    render.args(["--width", "3000", "--height", "3000"]);
    let mut render = ApplicationProcess::start(render.stderr(Stdio::piped()));
    assert_eq!(render.line(), "3 servers, the first rays are back");
    running.pop();
    let (status, rest, why) = render.end();
    assert!(!status.success() && rest.is_empty() && !path.exists(), "{status}: {rest}");
    assert!(why.starts_with("rays: a batch of rays: "), "{why}");
}

#[test]
fn killed_server_ends_delegated_call() {
    killed(&[]);
}

#[test]
fn killed_server_ends_hub_and_spoke_call() {
    killed(&["--rpc"]);
}

#[test]
fn user_errors_are_one_line() {
    for (arguments, says) in [
        (vec!["render", "--slabs", "30"], "rays: 3 bounces in 30 slabs may pass 236 servers (at most 64)"),
        (vec!["render", "--bounces", "9"], "rays: invalid number of bounces 9 (at most 8)"),
        (vec!["render", "--width", "0"], "rays: invalid image size (1 to 2^26 pixels)"),
        (vec!["render", "--servers", "slab-1=127.0.0.1:1"], "rays: expected slab-0 in the list, got slab-1"),
    ] {
        let output = run(&arguments);
        assert!(!output.status.success());
        assert_eq!(text(&output.stderr).trim_end(), says);
    }
}
