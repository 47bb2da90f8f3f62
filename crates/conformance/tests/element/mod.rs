//! Tests of hosts with an element whose program is the P4 text in a profile that fits a pipeline: applications of `apps/`
//! run through it, over UDP on loopback.

mod pipeline_element;

use std::process::{Command, Stdio};

use pathcall_program::pipeline::PipelineProfile;
use pathcall_proto::v1::controller_client::ControllerClient;
use pathcall_proto::v1::{NoMemoryReason, StatusReply, StatusRequest};
use pathcall_test_support::HANG;
use pathcall_test_support::process::program;
use tokio::time::timeout;

use pipeline_element::PipelineElement;

const FREE: &str = "127.0.0.1:0";

/// Controller with elements of these profiles.
async fn network(profiles: &[PipelineProfile]) -> (pathcall_control::Handle, Vec<PipelineElement>) {
    let listener = pathcall_control::bind(FREE.parse().unwrap()).await.expect("a free port");
    let config = pathcall_control::Config::default().keep_alive(HANG);
    let controller = pathcall_control::serve(listener, config).await.expect("serves");
    let mut elements = Vec::new();
    for profile in profiles {
        elements.push(PipelineElement::start(*profile, controller.url()).await);
    }
    (controller, elements)
}

async fn status(controller: &str) -> StatusReply {
    let mut client = ControllerClient::connect(controller.to_owned()).await.expect("a controller");
    client.status(StatusRequest {}).await.expect("its status").into_inner()
}

/// Runs a program of `apps/` to its end; returns its JSON.
async fn run(name: &str, args: &[&str]) -> serde_json::Value {
    let mut command = Command::new(program(name));
    command.args(args).arg("--json").stdin(Stdio::null());
    let ran = tokio::task::spawn_blocking(move || command.output());
    let ran = timeout(HANG, ran).await.expect("it ends in time").expect("no panic").expect("it starts");
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{name} {args:?}: {out}{err}");
    serde_json::from_str(out.lines().last().unwrap_or_default()).unwrap_or_else(|_| panic!("{name}: {out}{err}"))
}

/// `training` compares its losses, bit for bit, with those of one worker that sums the same gradients.
#[tokio::test]
async fn training_sums_in_profile_of_map() {
    let (controller, elements) = network(&[PipelineProfile::Map]).await;
    let url = controller.url();
    run("training", &["--controller", &url, "--path", "element", "--epochs", "2"]).await;
    let applications = elements[0].applications();
    let (_, counters) = applications.iter().max_by_key(|(_, counters)| counters.applied).expect("an application");
    assert!(counters.reached > 0 && counters.results > 0 && counters.clears > 0, "{counters:?}");
    // Rows have the element's 32 lanes, not the 256 of an element in software.
    let lanes = counters.lanes_added / counters.applied;
    assert!((1..=32).contains(&lanes), "{counters:?}");
    assert_eq!(elements[0].failures(), Vec::<String>::new());
}

#[tokio::test]
async fn kv_reads_clone_in_profile_of_clone() {
    let (controller, elements) = network(&[PipelineProfile::Clone]).await;
    let url = controller.url();
    run("kv", &["demo", "--controller", &url, "--seconds", "0.4", "--objects", "200", "--no-random"]).await;
    let counters = elements[0].pools();
    let sum = |field: fn(&pathcall_program::PoolCounters) -> u64| counters.iter().map(field).sum::<u64>();
    assert!(sum(|c| c.requests) > 0 && sum(|c| c.replies) > 0, "{counters:?}");
    assert!(sum(|c| c.clones) > 0 && sum(|c| c.filtered) > 0, "{counters:?}");
    assert_eq!(elements[0].failures(), Vec::<String>::new());
}

#[tokio::test]
async fn keyed_additions_run_in_profile_of_map() {
    let (controller, elements) = network(&[PipelineProfile::Map]).await;
    let url = controller.url();
    run("wordcount", &["--controller", &url, "--path", "element"]).await;
    let applied: u64 = elements[0].applications().iter().map(|(_, counters)| counters.applied).sum();
    assert!(applied > 0, "{:?}", elements[0].applications());
    assert_eq!(elements[0].failures(), Vec::<String>::new());
}

/// Two elements with a profile each serve both abilities.
#[tokio::test]
async fn profiles_share_applications_and_pools() {
    let (controller, elements) = network(&[PipelineProfile::Clone, PipelineProfile::Map]).await;
    let url = controller.url();
    run("training", &["--controller", &url, "--path", "element", "--epochs", "1"]).await;
    run("kv", &["demo", "--controller", &url, "--seconds", "0.2", "--objects", "200", "--no-random"]).await;
    assert!(elements[0].applications().is_empty() && elements[1].pools().is_empty());
    assert!(elements[0].pools().iter().any(|pool| pool.requests > 0));
    assert!(elements[1].applications().iter().any(|(_, counters)| counters.applied > 0));
}

#[tokio::test]
async fn application_without_serving_profile_works_in_software() {
    let (controller, elements) = network(&[PipelineProfile::Clone]).await;
    let url = controller.url();
    let watch = async {
        loop {
            let status = status(&url).await;
            let reason = |reason: NoMemoryReason| status.applications.iter().any(|a| a.no_memory_reason() == reason);
            if reason(NoMemoryReason::Profile) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    let args = ["--controller", &url, "--path", "element", "--epochs", "2"];
    let (_, ()) = tokio::join!(run("training", &args), async { timeout(HANG, watch).await.expect("the reason") });
    assert!(elements[0].applications().is_empty());
}
