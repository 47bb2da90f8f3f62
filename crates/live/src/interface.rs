//! Network interface: its index, MTU and MAC address, as the system reports them.

use std::fs;

use crate::Error;

/// Network interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interface {
    /// Index of the interface.
    pub(crate) index: u32,
    /// MTU: bytes after the Ethernet header.
    pub(crate) mtu: usize,
    pub(crate) mac: [u8; 6],
}

impl Interface {
    /// Reads the interface with this name.
    ///
    /// # Errors
    /// [`Error::NoInterface`].
    pub(crate) fn of(name: &str) -> Result<Self, Error> {
        let missing = || Error::NoInterface(name.to_owned());
        let read = |what: &str| {
            let known = !name.is_empty() && !name.contains('/') && !name.starts_with('.');
            let read = fs::read_to_string(format!("/sys/class/net/{name}/{what}"));
            read.ok().filter(|_| known).map(|text| text.trim().to_owned()).ok_or_else(missing)
        };
        let mut mac = [0; 6];
        for (byte, text) in mac.iter_mut().zip(read("address")?.split(':')) {
            *byte = u8::from_str_radix(text, 16).map_err(|_| missing())?;
        }
        let number = |what| read(what)?.parse::<u32>().map_err(|_| missing());
        Ok(Self { index: number("ifindex")?, mtu: number("mtu")? as usize, mac })
    }
}

/// MAC address as text, like `02:00:00:00:00:01`.
#[cfg_attr(not(feature = "kernel"), allow(dead_code, reason = "used by the element only"))]
pub(crate) fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
