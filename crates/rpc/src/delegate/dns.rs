//! Directory of services whose replicas have the addresses of a host name.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::time::sleep;

use super::directory::Directory;

/// Pause before names are resolved again.
const PERIOD: Duration = Duration::from_secs(5);

/// Resolves the host of each service, `host:port`, and keeps the directory up to date, until dropped.
pub(super) async fn follow(services: Vec<(String, String)>, directory: Directory) {
    let mut known: BTreeMap<String, Vec<SocketAddr>> = BTreeMap::new();
    loop {
        for (service, host) in &services {
            match lookup_host(host).await {
                Ok(addresses) => drop(known.insert(service.clone(), addresses.collect())),
                Err(error) => tracing::warn!(%error, "cannot resolve {host:?}, the host of the service {service:?}"),
            }
        }
        let replicas = known.iter().flat_map(|(service, addresses)| addresses.iter().map(move |at| (service, *at)));
        directory.set(replicas.map(|(service, address)| (format!("{service}/{address}"), address)));
        sleep(PERIOD).await;
    }
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
