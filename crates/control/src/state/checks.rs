//! Checks of addresses and names in requests.

use super::{RegistrationRefusal, TEXT_MAX};

/// Checks a UDP address to which frames can be sent.
pub(super) fn check_data_address(address: &str) -> Result<(), RegistrationRefusal> {
    let parsed = address.parse().ok().filter(|a: &std::net::SocketAddr| a.port() != 0 && !a.ip().is_unspecified());
    match parsed {
        Some(_) => Ok(()),
        None => {
            Err(RegistrationRefusal::Invalid { field: "data_address", expected: "ip:port", got: truncated(address) })
        }
    }
}

/// Checks the name of a rack; the empty one is that of parties that name none.
pub(super) fn check_rack(rack: &str) -> Result<(), RegistrationRefusal> {
    if rack.len() <= TEXT_MAX && !rack.contains(char::is_control) {
        return Ok(());
    }
    let expected = "up to 255 bytes without control characters";
    Err(RegistrationRefusal::Invalid { field: "rack", expected, got: truncated(rack) })
}

/// Whether an element at one address can send to a host at the other: an element at an IPv4 address cannot send to
/// IPv6, and frames to itself would loop.
pub(super) fn can_send_to(element: &str, host: &str) -> bool {
    let parsed = |address: &str| address.parse::<std::net::SocketAddr>().ok();
    match (parsed(element), parsed(host)) {
        (Some(element), Some(host)) => element != host && (element.is_ipv6() || host.is_ipv4()),
        _ => false,
    }
}

/// Text for an error message, truncated.
pub(crate) fn truncated(text: &str) -> String {
    text.chars().take(80).collect()
}
