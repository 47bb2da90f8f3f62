//! Tests of `pathcall pipe`: the check, and processes of sidecars and fronts around unmodified services.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use pathcall_test_support::HANG;
use pathcall_test_support::process::Process;
use pathcall_test_support::shop::Shop;
use pathcall_test_support::stubs::shop::front_client::FrontClient;
use pathcall_test_support::stubs::shop::{Item, Receipt, Wish};
use tokio::time::{sleep, timeout};
use tonic::{Code, Status};

fn pathcall(args: &[&str]) -> Command {
    let example = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/pipe");
    let mut command = Command::new(crate::PATHCALL);
    command.args(args).current_dir(example).stdin(Stdio::null());
    command
}

#[track_caller]
fn fails(args: &[&str], expected: &str) {
    let Output { status, stdout, stderr } = pathcall(args).output().expect("the command is built");
    assert_eq!((status.code(), String::from_utf8_lossy(&stdout).as_ref()), (Some(1), ""));
    assert_eq!(String::from_utf8_lossy(&stderr), format!("{expected}\n"));
}

/// Starts a process of the pipe, and returns what follows `ready: `.
fn start(args: &[&str]) -> (Process, String) {
    let (process, ready) = Process::ready(&mut pathcall(&[&["pipe"], args].concat()));
    (process, ready.trim_end().trim_start_matches("ready: ").to_owned())
}

/// Starts the sidecar of a step, and returns what follows its name in the `ready` line.
fn serve(step: &str, service: &str, options: &[&str]) -> (Process, String) {
    let args = ["serve", "order.yaml", "--step", step, "--service", service];
    let (process, ready) = start(&[&args, options].concat());
    let at = ready.strip_prefix(&format!("step {step} at ")).unwrap_or_else(|| panic!("{ready}"));
    (process, at.to_owned())
}

async fn order(url: &str, token: &str) -> Result<Receipt, Status> {
    let mut client = FrontClient::connect(url.to_owned()).await.expect("a front");
    let item = Some(Item { name: "lamp".to_owned(), count: 1 });
    let wish = Wish { token: token.to_owned(), item, comment: String::new() };
    timeout(HANG, client.order(wish)).await.expect("in time").map(tonic::Response::into_inner)
}

#[test]
fn check_prints_description_or_position_of_error() {
    let Output { status, stdout, .. } = pathcall(&["pipe", "check", "order.yaml"]).output().expect("it is built");
    let printed = String::from_utf8_lossy(&stdout);
    assert!(status.success() && printed.starts_with("/shop.Front/Order: 4 messages between hosts"), "{printed}");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("order.yaml");
    std::fs::write(&path, "protos: []\npipe: x\n").expect("written");
    let path = path.to_str().expect("text");
    fails(&["pipe", "check", path], &format!("{path}:2:1: error: the key `steps` is missing; add `steps: …`"));
    let args = ["pipe", "front", path, "--listen", "127.0.0.1:0"];
    fails(&args, &format!("pathcall: {path}:2:1: error: the key `steps` is missing; add `steps: …`"));
}

#[test]
fn wrong_options_are_refused() {
    let serve = |step, rest: &[&'static str]| {
        let args = ["pipe", "serve", "order.yaml", "--step", step, "--service", "http://127.0.0.1:1"];
        [&args, rest].concat()
    };
    let steps = "its steps are auth, stock, billing";
    fails(&serve("ship", &[]), &format!("pathcall: the pipe has no step \"ship\"; {steps}"));
    fails(
        &["pipe", "serve", "order.yaml", "--step", "auth", "--service", "localhost:1"],
        "pathcall: invalid --service localhost:1: write http://HOST:PORT",
    );
    let goes_on = "pathcall: calls go on to step stock; add --directory stock=HOST:PORT, or --controller URL";
    fails(&serve("auth", &[]), goes_on);
    fails(
        &serve("billing", &["--listen", "127.0.0.1:0"]),
        "pathcall: calls go on to step auth; add --directory auth=HOST:PORT, or --controller URL",
    );
    fails(&serve("auth", &["--directory", "billing=127.0.0.1:1"]), goes_on);
    let wrong = "pathcall: invalid --directory ship=127.0.0.1:1: the pipe has no step \"ship\"; ";
    fails(&serve("auth", &["--directory", "ship=127.0.0.1:1"]), &format!("{wrong}{steps}"));
    fails(&serve("auth", &["--directory", "stock"]), "pathcall: invalid --directory stock: write STEP=HOST:PORT");
    fails(
        &serve("auth", &["--controller", "http://127.0.0.1:1"]),
        "pathcall: step auth has no name in the directory; add --name",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_with_listed_sidecars_serve_calls() {
    let shop = Shop::default();
    let service = shop.serve().await;
    let (_billing, billing) = serve("billing", &service, &[]);
    let (stock_process, stock) = serve("stock", &service, &["--directory", &format!("billing={billing}")]);
    let listed = format!("stock={stock},billing={billing}");
    let (_auth, auth) = serve("auth", &service, &["--directory", &listed, "--listen", "127.0.0.1:0"]);
    let (auth, beside) = auth.split_once(", front at ").expect("a front, too");
    let args = ["front", "order.yaml", "--listen", "127.0.0.1:0", "--directory", &format!("auth={auth},{listed}")];
    let (_front, ready) = start(&args);
    let front = ready.strip_prefix("front at ").expect("a URL");
    for url in [beside, front] {
        let receipt = order(url, "secret").await.expect("a receipt");
        assert_eq!((&*receipt.user, receipt.reservation), ("ann", 7));
        let failed = order(url, "wrong").await.expect_err("no user");
        assert_eq!((failed.code(), failed.message()), (Code::Unauthenticated, "step auth: unknown token"));
    }
    drop(stock_process);
    for url in [beside, front] {
        let failed = order(url, "secret").await.expect_err("a sidecar has stopped");
        assert_eq!(failed.code(), Code::Unavailable, "{failed}");
        assert!(failed.message().starts_with("step stock: "), "{failed}");
    }
}

/// Calls a pipe whose processes find each other at a controller. `tls` returns the options of a role.
async fn order_with_controller(tls: impl Fn(&str) -> Vec<String>) {
    let options = |role: &str, rest: &[&str]| -> Vec<String> {
        rest.iter().map(|option| (*option).to_owned()).chain(tls(role)).collect()
    };
    let free = "127.0.0.1:0";
    let mut command = pathcall(&["controller"]);
    let (_controller, ready) = Process::ready(command.args(options("controller", &["--listen", free])));
    let controller = ready.trim_end().trim_start_matches("ready: controller at ");
    let service = Shop::default().serve().await;
    let _sidecars = ["auth", "stock", "billing"].map(|step| {
        let args = ["pipe", "serve", "order.yaml", "--step", step, "--service", &service, "--name", "host-1"];
        Process::ready(pathcall(&args).args(options("server", &["--controller", controller])))
    });
    let args = ["pipe", "front", "order.yaml", "--listen", free, "--controller", controller];
    let (_front, ready) = Process::ready(pathcall(&args).args(options("caller", &[])));
    let front = ready.trim_end().strip_prefix("ready: front at ").expect("a URL");
    // All nodes have to learn the directory first.
    let receipt = timeout(HANG, async {
        loop {
            match order(front, "secret").await {
                Ok(receipt) => return receipt,
                Err(status) => assert_eq!(status.code(), Code::Unavailable, "{status}"),
            }
            sleep(Duration::from_millis(20)).await;
        }
    });
    assert_eq!(receipt.await.expect("in time").user, "ann");
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_with_controller_serve_calls() {
    order_with_controller(|_| Vec::new()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_with_certificates_serve_calls() {
    let folder = tempfile::tempdir().expect("a folder");
    let cert = |args: &[&str]| {
        let mut command = Command::new(crate::PATHCALL);
        let output = command.arg("cert").args(args).current_dir(folder.path()).output().expect("the command is built");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    cert(&["init", "--domain", "corp.example"]);
    for role in ["controller", "server", "caller"] {
        cert(&["issue", role, "one"]);
        let text = format!("[tls]\nauthorities = \"certs/ca.pem\"\ncertificate = \"certs/{role}-one.pem\"\n");
        std::fs::write(folder.path().join(format!("{role}.toml")), text).expect("written");
    }
    let path = |role: &str| folder.path().join(format!("{role}.toml")).display().to_string();
    order_with_controller(|role| vec!["--tls".to_owned(), path(role)]).await;
}
