//! What the system says of an interface.

use std::fs;

use crate::Error;

/// An interface by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interface {
    /// The system's number for it.
    pub(crate) index: u32,
    /// Bytes behind the Ethernet header.
    pub(crate) mtu: usize,
    pub(crate) mac: [u8; 6],
}

impl Interface {
    /// # Errors
    /// [`Error::NoInterface`].
    pub(crate) fn of(name: &str) -> Result<Self, Error> {
        let missing = || Error::NoInterface(name.to_owned());
        let said = |what: &str| {
            let known = !name.is_empty() && !name.contains('/') && !name.starts_with('.');
            let said = fs::read_to_string(format!("/sys/class/net/{name}/{what}"));
            said.ok().filter(|_| known).map(|text| text.trim().to_owned()).ok_or_else(missing)
        };
        let mut mac = [0; 6];
        for (byte, text) in mac.iter_mut().zip(said("address")?.split(':')) {
            *byte = u8::from_str_radix(text, 16).map_err(|_| missing())?;
        }
        let number = |what| said(what)?.parse::<u32>().map_err(|_| missing());
        Ok(Self { index: number("ifindex")?, mtu: number("mtu")? as usize, mac })
    }
}

/// As people write it.
#[cfg_attr(not(feature = "kernel"), allow(dead_code, reason = "said where the element is"))]
pub(crate) fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
