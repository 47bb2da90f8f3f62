//! Directory of services whose replicas have the addresses of a host name.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::directory::Directory;

/// Pause before names are resolved again, and the longest wait for a name.
const PERIOD: Duration = Duration::from_secs(5);

/// Resolves the host of each service, `host:port`, and keeps the directory up to date, until dropped.
pub(super) async fn follow(services: Vec<(String, String)>, directory: Directory) {
    let mut known: BTreeMap<String, Vec<SocketAddr>> = BTreeMap::new();
    loop {
        let mut resolved = JoinSet::new();
        for (service, host) in services.clone() {
            resolved.spawn(async move {
                match timeout(PERIOD, resolve(&host)).await {
                    Ok(Ok(addresses)) => return Some((service, addresses)),
                    Ok(Err(error)) => {
                        tracing::warn!(%error, "cannot resolve {host:?}, the host of the service {service:?}")
                    }
                    Err(_) => tracing::warn!("no answer for {host:?}, the host of the service {service:?}"),
                }
                None
            });
        }
        // A name that is slow does not delay the others.
        while let Some(done) = resolved.join_next().await {
            let Ok(Some((service, addresses))) = done else { continue };
            known.insert(service, addresses);
            let replicas = known.iter().flat_map(|(service, addresses)| addresses.iter().map(move |at| (service, *at)));
            directory.set(replicas.map(|(service, address)| (format!("{service}/{address}"), address)));
        }
        sleep(PERIOD).await;
    }
}

async fn resolve(host: &str) -> io::Result<Vec<SocketAddr>> {
    Ok(lookup_host(host).await?.collect())
}

#[cfg(test)]
mod tests {
    use super::super::directory::NodeTarget;
    use super::*;

    #[tokio::test]
    async fn service_has_addresses_of_its_host() {
        let directory = Directory::of_dns([("index", "127.0.0.7:7801"), ("docs", "no host:0")]);
        let index = NodeTarget::service("index");
        directory.wait_for(&index).await;
        assert_eq!(directory.find(&index).unwrap(), SocketAddr::from(([127, 0, 0, 7], 7801)));
        assert!(directory.find(&NodeTarget::service("docs")).is_err());
    }
}
