//! Topology file: devices and their links (the paper's `topo.conf`, §III-A).
//!
//! ```toml
//! [[device]]
//! name = "tor"
//! role = "element"
//!
//! [[device]]
//! name = "s1"
//! role = "server"
//! mac = "02:00:00:00:00:01"
//! capacity = 1_000_000        # packets a second
//!
//! [[link]]
//! between = ["tor:1", "s1"]   # the element's port 1
//! interface = "eth1"          # which is this interface there, where the element runs live
//! ```
//!
//! A topology has one element, servers linked to it, and networks, which need only a name.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::ServerId;

/// Devices and links of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// Name of the element.
    pub element: String,
    /// Servers; a [`ServerId`] is an index here.
    pub servers: Vec<TopologyDevice>,
    /// Networks.
    pub networks: Vec<TopologyDevice>,
    /// Interfaces of the element by port, as far as links name them.
    pub interfaces: BTreeMap<u16, String>,
}

/// Server or network at a port of the element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyDevice {
    /// Name of the device.
    pub name: String,
    /// Port of the element.
    pub port: u16,
    /// MAC address of a server on the link.
    pub mac: [u8; 6],
    /// Packets per second that a server can process; 0 for a network.
    pub capacity: u64,
}

/// Role of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TopologyDeviceRole {
    /// Network element; exactly one.
    Element,
    /// Server of the function.
    Server,
    /// Source and destination of packets.
    Network,
}

/// Error in a topology file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {message}")]
pub struct TopologyError {
    /// Name of the file, as given.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1, in characters.
    pub column: usize,
    /// Message, one line.
    pub message: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    device: Vec<RawDevice>,
    #[serde(default)]
    link: Vec<RawLink>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDevice {
    name: Spanned<String>,
    role: Spanned<TopologyDeviceRole>,
    mac: Option<Spanned<String>>,
    capacity: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLink {
    between: [Spanned<String>; 2],
    interface: Option<Spanned<String>>,
}

/// Byte offset and message of an error.
type SpannedError = (usize, String);

/// Default capacity of a server, packets per second.
const CAPACITY: u64 = 1_000_000;
/// Number of the element's ports: v1model's 9 bits, without the drop port.
const PORTS: u16 = 511;

impl Topology {
    /// Parses the text of `file`.
    ///
    /// # Errors
    /// The first error, with its position.
    pub fn parse(file: &str, text: &str) -> Result<Self, TopologyError> {
        read(text).map_err(|(at, message)| {
            // Spans of the parser end at character boundaries; any other offset points at the beginning of the file.
            let before = text.get(..at).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
            TopologyError { file: file.to_owned(), line, column, message }
        })
    }

    /// Server with this name.
    #[must_use]
    pub fn server(&self, name: &str) -> Option<ServerId> {
        self.servers.iter().position(|server| server.name == name).map(|index| index as ServerId)
    }
}

fn read(text: &str) -> Result<Topology, SpannedError> {
    let parsed: Result<File, _> = toml::from_str(text);
    let file = parsed.map_err(|error| {
        let message = error.message().lines().next().unwrap_or("not TOML").to_owned();
        (error.span().map_or(0, |span| span.start), message)
    })?;
    let element = element_name(&file.device)?;
    let (mut servers, mut networks) = (Vec::new(), Vec::new());
    let (mut ports, mut interfaces) = (Vec::new(), BTreeMap::new());
    for link in &file.link {
        let (device, port) = link_ends(&file.device, element, link)?;
        if ports.contains(&port) {
            return Err((link.between[0].span().start, format!("port {port} of {element} has a link already")));
        }
        ports.push(port);
        if let Some(interface) = &link.interface {
            let name = interface.get_ref();
            if interfaces.values().any(|other| other == name) {
                return Err((interface.span().start, format!("interface {name:?} is used by another port")));
            }
            interfaces.insert(port, name.clone());
        }
        let device = linked_device(device, port)?;
        let of = if device.1 == TopologyDeviceRole::Server { &mut servers } else { &mut networks };
        if of.iter().any(|other: &TopologyDevice| other.name == device.0.name) {
            return Err((link.between[1].span().start, format!("{} has a link already", device.0.name)));
        }
        of.push(device.0);
    }
    let linked = |name: &str| servers.iter().chain(&networks).any(|device| device.name == name);
    let unlinked = file
        .device
        .iter()
        .find(|device| *device.role.get_ref() != TopologyDeviceRole::Element && !linked(device.name.get_ref()));
    match unlinked {
        Some(device) => Err((device.name.span().start, format!("{} has no link to {element}", device.name.get_ref()))),
        None if servers.is_empty() => Err((0, "expected a device with role \"server\", there is none".to_owned())),
        None => Ok(Topology { element: element.to_owned(), servers, networks, interfaces }),
    }
}

/// Name of the one element, after a check that names are unique.
fn element_name(devices: &[RawDevice]) -> Result<&str, SpannedError> {
    let mut element = None;
    for (index, device) in devices.iter().enumerate() {
        let (name, at) = (device.name.get_ref(), device.name.span().start);
        if name.is_empty() || name.contains(':') {
            return Err((at, format!("expected a name without a colon, got {name:?}")));
        }
        if devices[..index].iter().any(|other| other.name.get_ref() == name) {
            return Err((at, format!("two devices are named {name:?}")));
        }
        if *device.role.get_ref() == TopologyDeviceRole::Element && element.replace(name.as_str()).is_some() {
            return Err((device.role.span().start, "expected one element, this is a second".to_owned()));
        }
    }
    element.ok_or((0, "expected a device with role \"element\", there is none".to_owned()))
}

/// Ends of a link: the device, and the element's port.
fn link_ends<'a>(
    devices: &'a [RawDevice],
    element: &str,
    link: &RawLink,
) -> Result<(&'a RawDevice, u16), SpannedError> {
    let [one, other] = &link.between;
    let of_element = |end: &Spanned<String>| end.get_ref().split(':').next() == Some(element);
    let (port, device) = match (of_element(one), of_element(other)) {
        (true, false) => (one, other),
        (false, true) => (other, one),
        _ => return Err((one.span().start, format!("expected a link between a port of {element} and another device"))),
    };
    let number = port.get_ref().split_once(':').and_then(|(_, number)| number.parse().ok());
    let Some(number) = number.filter(|number| *number < PORTS) else {
        let expected = format!("expected \"{element}:PORT\" with a port below {PORTS}, got {:?}", port.get_ref());
        return Err((port.span().start, expected));
    };
    let found = devices.iter().find(|one| one.name.get_ref() == device.get_ref());
    let found = found.ok_or_else(|| (device.span().start, format!("no device is named {:?}", device.get_ref())))?;
    Ok((found, number))
}

fn linked_device(device: &RawDevice, port: u16) -> Result<(TopologyDevice, TopologyDeviceRole), SpannedError> {
    let (name, role) = (device.name.get_ref().clone(), *device.role.get_ref());
    let mac = match &device.mac {
        Some(text) => {
            let wrong =
                || (text.span().start, format!("expected six bytes like 02:00:00:00:00:01, got {:?}", text.get_ref()));
            parse_mac(text.get_ref()).ok_or_else(wrong)?
        }
        None if role == TopologyDeviceRole::Server => {
            return Err((device.name.span().start, format!("server {name} needs a mac")));
        }
        None => [0; 6],
    };
    let capacity = device.capacity.unwrap_or(if role == TopologyDeviceRole::Server { CAPACITY } else { 0 });
    if role == TopologyDeviceRole::Server && capacity == 0 {
        return Err((device.name.span().start, format!("server {name}: expected a capacity above 0")));
    }
    Ok((TopologyDevice { name, port, mac, capacity }, role))
}

fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        let part = parts.next().filter(|part| part.len() == 2)?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
[[device]]
name = "tor"
role = "element"

[[device]]
name = "s1"
role = "server"
mac = "02:00:00:00:00:01"
capacity = 500_000

[[device]]
name = "outside"
role = "network"

[[link]]
between = ["tor:4", "s1"]
interface = "eth4"

[[link]]
between = ["outside", "tor:0"]
"#;

    fn wrong(from: &str, to: &str) -> String {
        assert!(GOOD.contains(from), "{from}");
        Topology::parse("topo.toml", &GOOD.replacen(from, to, 1)).expect_err(to).to_string()
    }

    #[test]
    fn valid_topology_is_parsed() {
        let topology = Topology::parse("topo.toml", GOOD).expect("good");
        let s1 = TopologyDevice { name: "s1".to_owned(), port: 4, mac: [2, 0, 0, 0, 0, 1], capacity: 500_000 };
        assert_eq!((topology.element.as_str(), topology.servers.as_slice()), ("tor", [s1].as_slice()));
        assert_eq!(topology.interfaces, BTreeMap::from([(4, "eth4".to_owned())]));
        assert_eq!((topology.networks[0].port, topology.server("s1"), topology.server("s2")), (0, Some(0), None));
    }

    #[test]
    fn topology_errors_name_line_and_column() {
        assert_eq!(wrong("\"s1\"]", "\"s9\"]"), "topo.toml:17:21: no device is named \"s9\"");
        assert!(wrong("role = \"server\"", "role = \"sever\"").starts_with("topo.toml:8:8: unknown variant `sever`"));
        assert!(wrong("capacity = 500_000", "speed = 3").starts_with("topo.toml:10:1: unknown field `speed`"));
        assert_eq!(wrong("tor:4", "tor:0"), "topo.toml:21:12: port 0 of tor has a link already");
        assert_eq!(
            wrong("tor:4", "tor:511").split(": ").nth(1),
            Some("expected \"tor:PORT\" with a port below 511, got \"tor:511\"")
        );
        assert_eq!(wrong("name = \"outside\"", "name = \"s1\""), "topo.toml:13:8: two devices are named \"s1\"");
        assert_eq!(
            wrong("role = \"network\"", "role = \"element\""),
            "topo.toml:14:8: expected one element, this is a second"
        );
        assert!(wrong("00:00:00:00:01", "00:00:00:00").contains(":9:7: expected six bytes like"));
        assert_eq!(wrong("mac = \"02:00:00:00:00:01\"", ""), "topo.toml:7:8: server s1 needs a mac");
        assert_eq!(
            wrong("[\"outside\", \"tor:0\"]", "[\"outside\", \"s1\"]").split(": ").nth(1),
            Some("expected a link between a port of tor and another device")
        );
        assert_eq!(
            wrong("\n[[link]]\nbetween = [\"outside\", \"tor:0\"]\n", ""),
            "topo.toml:13:8: outside has no link to tor"
        );
        assert!(wrong("[[device]]", "[[device]").starts_with("topo.toml:2:"));
        assert!(Topology::parse("t", "").expect_err("empty").message.contains("role \"element\""));
    }
}
