//! Configurations that the tests share: application 7 in epoch 1, with owner 1 and caller 10.

use pathcall_endpoint::map::client::ClientConfig;
use pathcall_endpoint::map::lease::Era;
use pathcall_endpoint::map::server::ServerConfig;

/// Owner, without memory in an element.
pub(crate) fn server_config() -> ServerConfig {
    ServerConfig { gaid: 7, epoch: 1, endpoint: 1, incarnation: 5, ..ServerConfig::default() }
}

/// Caller, with four rows.
pub(crate) fn client_config() -> ClientConfig {
    ClientConfig {
        gaid: 7,
        epoch: 1,
        endpoint: 10,
        incarnation: 5,
        server: 1,
        server_incarnation: 5,
        rows: 4,
        era: Era::of_epoch(1).of_element(),
        ..ClientConfig::default()
    }
}
