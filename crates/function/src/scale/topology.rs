//! The file that says which devices there are and how they are linked (the paper's `topo.conf`, §III-A).
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
//! One element, servers beside it, and networks, which need no more than a name.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::ServerId;

/// Devices and links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// The element's name.
    pub element: String,
    /// Servers; a [`ServerId`] is an index here.
    pub servers: Vec<Device>,
    /// Networks.
    pub networks: Vec<Device>,
    /// The element's interfaces by port, as far as links name them.
    pub interfaces: BTreeMap<u16, String>,
}

/// A server or a network at a port of the element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// The element's port.
    pub port: u16,
    /// A server's address on that link.
    pub mac: [u8; 6],
    /// Packets a second that a server can work on; of a network: 0.
    pub capacity: u64,
}

/// What a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The network element; there is one.
    Element,
    /// A server of the function.
    Server,
    /// Where packets come from and go to.
    Network,
}

/// Why a topology is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {what}")]
pub struct TopologyError {
    /// The file's name, as it was given.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// What is wrong, in a line.
    pub what: String,
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
    role: Spanned<Role>,
    mac: Option<Spanned<String>>,
    capacity: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLink {
    between: [Spanned<String>; 2],
    interface: Option<Spanned<String>>,
}

/// What is wrong, at this byte.
type Wrong = (usize, String);

/// Packets a second that a server is taken to bear when the file does not say.
const CAPACITY: u64 = 1_000_000;
/// The element's ports: v1model's 9 bits, without that which means to drop.
const PORTS: u16 = 511;

impl Topology {
    /// Reads the text of `file`.
    ///
    /// # Errors
    /// What is wrong first, with its place.
    pub fn parse(file: &str, text: &str) -> Result<Self, TopologyError> {
        read(text).map_err(|(at, what)| {
            // Spans of the parser end where characters do; anything else points at the file's beginning.
            let before = text.get(..at).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
            TopologyError { file: file.to_owned(), line, column, what }
        })
    }

    /// The server of this name.
    #[must_use]
    pub fn server(&self, name: &str) -> Option<ServerId> {
        self.servers.iter().position(|server| server.name == name).map(|index| index as ServerId)
    }
}

fn read(text: &str) -> Result<Topology, Wrong> {
    let parsed: Result<File, _> = toml::from_str(text);
    let file = parsed.map_err(|error| {
        let what = error.message().lines().next().unwrap_or("not TOML").to_owned();
        (error.span().map_or(0, |span| span.start), what)
    })?;
    let element = the_element(&file.device)?;
    let (mut servers, mut networks) = (Vec::new(), Vec::new());
    let (mut ports, mut interfaces) = (Vec::new(), BTreeMap::new());
    for link in &file.link {
        let (device, port) = ends(&file.device, element, link)?;
        if ports.contains(&port) {
            return Err((link.between[0].span().start, format!("port {port} of {element} has a link already")));
        }
        ports.push(port);
        if let Some(interface) = &link.interface {
            let name = interface.get_ref();
            if interfaces.values().any(|other| other == name) {
                return Err((interface.span().start, format!("interface {name:?} is another port's already")));
            }
            interfaces.insert(port, name.clone());
        }
        let device = linked(device, port)?;
        let of = if device.1 == Role::Server { &mut servers } else { &mut networks };
        if of.iter().any(|other: &Device| other.name == device.0.name) {
            return Err((link.between[1].span().start, format!("{} has a link already", device.0.name)));
        }
        of.push(device.0);
    }
    let linked = |name: &str| servers.iter().chain(&networks).any(|device| device.name == name);
    let alone =
        file.device.iter().find(|device| *device.role.get_ref() != Role::Element && !linked(device.name.get_ref()));
    match alone {
        Some(device) => Err((device.name.span().start, format!("{} has no link to {element}", device.name.get_ref()))),
        None if servers.is_empty() => Err((0, "expected a device with role \"server\", there is none".to_owned())),
        None => Ok(Topology { element: element.to_owned(), servers, networks, interfaces }),
    }
}

/// The one element's name, if names are unique.
fn the_element(devices: &[RawDevice]) -> Result<&str, Wrong> {
    let mut element = None;
    for (index, device) in devices.iter().enumerate() {
        let (name, at) = (device.name.get_ref(), device.name.span().start);
        if name.is_empty() || name.contains(':') {
            return Err((at, format!("expected a name without a colon, got {name:?}")));
        }
        if devices[..index].iter().any(|other| other.name.get_ref() == name) {
            return Err((at, format!("two devices are named {name:?}")));
        }
        if *device.role.get_ref() == Role::Element && element.replace(name.as_str()).is_some() {
            return Err((device.role.span().start, "expected one element, this is a second".to_owned()));
        }
    }
    element.ok_or((0, "expected a device with role \"element\", there is none".to_owned()))
}

/// What a link joins: the device, and the element's port.
fn ends<'a>(devices: &'a [RawDevice], element: &str, link: &RawLink) -> Result<(&'a RawDevice, u16), Wrong> {
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

fn linked(device: &RawDevice, port: u16) -> Result<(Device, Role), Wrong> {
    let (name, role) = (device.name.get_ref().clone(), *device.role.get_ref());
    let mac = match &device.mac {
        Some(text) => {
            let wrong =
                || (text.span().start, format!("expected six bytes like 02:00:00:00:00:01, got {:?}", text.get_ref()));
            parse_mac(text.get_ref()).ok_or_else(wrong)?
        }
        None if role == Role::Server => return Err((device.name.span().start, format!("server {name} needs a mac"))),
        None => [0; 6],
    };
    let capacity = device.capacity.unwrap_or(if role == Role::Server { CAPACITY } else { 0 });
    if role == Role::Server && capacity == 0 {
        return Err((device.name.span().start, format!("server {name}: expected a capacity above 0")));
    }
    Ok((Device { name, port, mac, capacity }, role))
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
    fn a_topology_is_read() {
        let topology = Topology::parse("topo.toml", GOOD).expect("good");
        let s1 = Device { name: "s1".to_owned(), port: 4, mac: [2, 0, 0, 0, 0, 1], capacity: 500_000 };
        assert_eq!((topology.element.as_str(), topology.servers.as_slice()), ("tor", [s1].as_slice()));
        assert_eq!(topology.interfaces, BTreeMap::from([(4, "eth4".to_owned())]));
        assert_eq!((topology.networks[0].port, topology.server("s1"), topology.server("s2")), (0, Some(0), None));
    }

    #[test]
    fn mistakes_are_pointed_at() {
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
        assert!(Topology::parse("t", "").expect_err("empty").what.contains("role \"element\""));
    }
}
