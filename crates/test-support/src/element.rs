//! Controller and element in the test's process.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use pathcall_element::Registration;

use crate::HANG;
use crate::store::TIMING;

const FREE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Runs `test` beside a controller and a registered element in this process. `test` gets the URL of the controller, and
/// may block.
///
/// # Panics
/// Panics if they don't start, or if `test` panics.
pub async fn by_element<T: Send + 'static>(test: impl FnOnce(&str) -> T + Send + 'static) -> T {
    let listener = pathcall_control::bind(FREE).await.expect("a free port");
    let config = pathcall_control::Config::default().timing(TIMING).keep_alive(HANG);
    let controller = pathcall_control::serve(listener, config).await.expect("serves");
    let config = pathcall_element::Config::default().data(FREE).control(FREE).controller(Some(controller.url()));
    let element = pathcall_element::run(config).await.expect("runs");
    let known = |registration: &Registration| matches!(registration, Registration::Known { .. });
    element.registration().wait_for(known).await.expect("the element is registered");
    let url = controller.url();
    let done = tokio::task::spawn_blocking(move || test(&url)).await.expect("the test passes");
    element.shutdown().await;
    controller.shutdown().await;
    done
}
