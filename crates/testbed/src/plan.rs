//! Plan of a testbed: names of namespaces and interfaces, IP and MAC addresses, derived from a few numbers.
//!
//! | what | namespace | address |
//! |---|---|---|
//! | host k | `pc-BED-hK`, interface `eth0` | 10.77.k.2/30 |
//! | its element's end | `pc-BED-e1`, interface `hK` | 10.77.k.1/30 |
//! | element n, from everywhere | `pc-BED-eN`, interface `lo` | 10.77.0.n |
//! | between elements, element n | `pc-BED-eN`, interface `e2` or `e1`: the other's name | 10.77.255.n/30 |
//! | middles of links | `pc-BED-w` | none |
//!
//! With two elements, hosts of odd numbers are at the first and hosts of even numbers at the second.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use crate::error::Error;
use crate::profile::LinkProfile;

/// Limit of hosts of a testbed.
pub const HOSTS_MAX: usize = 64;
/// Limit of elements of a testbed.
pub const ELEMENTS_MAX: usize = 2;
/// Default bytes of an IP packet.
pub const MTU_DEFAULT: u32 = 1500;
/// Interface of a host.
pub(crate) const HOST_INTERFACE: &str = "eth0";
/// Link between two elements: its name, the first element's interface, and the wire's interface towards that.
pub(crate) const CHAIN: &str = "chain";
pub(crate) const CHAIN_INTERFACE: &str = "e2";
pub(crate) const CHAIN_SIDE: &str = "chain-e1";
/// Wire's interface towards the second element.
pub(crate) const CHAIN_FAR_SIDE: &str = "chain-e2";

const BED_NAME_MAX: usize = 20;
/// Prefix of the names of all namespaces.
const PREFIX: &str = "pc-";

/// Host, element, or the namespace of the wires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeName {
    /// Number of the element, from 1.
    Element(usize),
    /// Number of the host, from 1.
    Host(usize),
    /// Namespace with the middles of all links that are not bare.
    Wire,
}

/// Complete description of a testbed.
#[derive(Debug, Clone)]
pub(crate) struct TestbedPlan {
    pub(crate) bed: String,
    /// Links of hosts, in order.
    pub(crate) links: Vec<LinkProfile>,
    pub(crate) elements: usize,
    /// Link between the elements.
    pub(crate) chain: LinkProfile,
    pub(crate) mtu: u32,
}

/// Wire's interface towards host `k`.
pub(crate) fn host_side(k: usize) -> String {
    format!("h{k}-host")
}

/// Wire's interface towards the element of host `k`.
pub(crate) fn element_side(k: usize) -> String {
    format!("h{k}-element")
}

/// One end of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CableEnd {
    pub(crate) node: NodeName,
    pub(crate) interface: String,
    pub(crate) address: Ipv4Addr,
    pub(crate) mac: String,
}

/// Link with all its interfaces.
#[derive(Debug, Clone)]
pub(crate) struct Cable {
    /// Name of the link: `h1`, or `chain`.
    pub(crate) name: String,
    /// Host; of the chain, the first element.
    pub(crate) near: CableEnd,
    /// Element; of the chain, the second one.
    pub(crate) far: CableEnd,
    pub(crate) profile: LinkProfile,
    /// Interfaces of the wire, towards near and far; `None` on a bare link.
    pub(crate) middle: Option<(String, String)>,
}

/// Direction from the near end of a link to the far end: to the element.
pub(crate) const UP: &str = "up";
/// Direction from the far end to the near end: from the element.
pub(crate) const DOWN: &str = "down";

/// Path on which frames of one direction are delayed: they leave by `inlet` and arrive at `outlet`, where a packet socket
/// receives them; frames sent by the socket return by `inlet`.
#[derive(Debug, Clone)]
pub(crate) struct Detour {
    pub(crate) inlet: String,
    pub(crate) outlet: String,
}

impl Cable {
    /// Detour of a direction; `None` where frames are not delayed.
    pub(crate) fn detour(&self, direction: &str) -> Option<Detour> {
        let name = |end: &str| format!("{}-{direction}-{end}", self.name);
        self.profile.delay.is_some().then(|| Detour { inlet: name("in"), outlet: name("out") })
    }
}

impl TestbedPlan {
    /// Every link; the one between elements last.
    pub(crate) fn cables(&self) -> impl Iterator<Item = Cable> {
        let hosts = self.links.iter().enumerate().map(|(at, profile)| {
            let k = at + 1;
            let near = CableEnd::new(NodeName::Host(k), HOST_INTERFACE, k, 2);
            let far = CableEnd::new(self.home(k), &format!("h{k}"), k, 1);
            let middle = (!profile.is_bare()).then(|| (host_side(k), element_side(k)));
            Cable { name: format!("h{k}"), near, far, profile: *profile, middle }
        });
        let chain = (self.elements == 2).then(|| Cable {
            name: CHAIN.to_owned(),
            near: CableEnd::new(NodeName::Element(1), CHAIN_INTERFACE, CHAIN_NET, 1),
            far: CableEnd::new(NodeName::Element(2), "e1", CHAIN_NET, 2),
            profile: self.chain,
            // Never bare: both ends of a single veth pair would carry programs of elements, and reflected frames need a
            // pass program at the receiving end.
            middle: Some((CHAIN_SIDE.to_owned(), CHAIN_FAR_SIDE.to_owned())),
        });
        hosts.chain(chain)
    }

    /// Element of host `k`.
    pub(crate) fn home(&self, k: usize) -> NodeName {
        NodeName::Element(if self.elements == 1 { 1 } else { 2 - k % 2 })
    }

    /// Every node; the first is an element.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeName> {
        let elements = (1..=self.elements).map(NodeName::Element);
        let wire = self.cables().any(|cable| cable.middle.is_some()).then_some(NodeName::Wire);
        elements.chain((1..=self.links.len()).map(NodeName::Host)).chain(wire)
    }
}

/// Third byte of the addresses between elements.
const CHAIN_NET: usize = 255;

impl CableEnd {
    fn new(node: NodeName, interface: &str, net: usize, host: u8) -> Self {
        let net = u8::try_from(net).expect("at most HOSTS_MAX hosts");
        // Locally administered address, with "PC" in the middle.
        let mac = format!("02:50:43:00:{net:02x}:{host:02x}");
        Self { node, interface: interface.to_owned(), address: Ipv4Addr::new(10, 77, net, host), mac }
    }
}

impl NodeName {
    /// Address that all nodes of the testbed can reach; a wire has none.
    pub(crate) fn address(self) -> Option<Ipv4Addr> {
        match self {
            Self::Element(n) => Some(Ipv4Addr::new(10, 77, 0, u8::try_from(n).ok()?)),
            Self::Host(k) => Some(Ipv4Addr::new(10, 77, u8::try_from(k).ok()?, 2)),
            Self::Wire => None,
        }
    }

    /// True if programs can run on the node: it is not a wire.
    #[must_use]
    pub fn has_address(self) -> bool {
        self.address().is_some()
    }

    /// True for a host.
    #[must_use]
    pub fn is_host(self) -> bool {
        self.host().is_some()
    }

    /// Number of the host; `None` for other nodes.
    pub(crate) fn host(self) -> Option<usize> {
        if let Self::Host(k) = self { Some(k) } else { None }
    }

    /// Namespace of the node in this testbed.
    pub(crate) fn namespace(self, bed: &str) -> String {
        format!("{PREFIX}{bed}-{self}")
    }

    /// Testbed and node of a namespace; `None` for other namespaces.
    pub(crate) fn of_namespace(name: &str) -> Option<(&str, Self)> {
        let (bed, node) = name.strip_prefix(PREFIX)?.split_once('-')?;
        let node = if node == "w" { Self::Wire } else { node.parse().ok()? };
        // Only names that `namespace` makes: no leading zeros, no number alone.
        (check_bed_name(bed).is_ok() && node.namespace(bed) == name).then_some((bed, node))
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Element(n) => write!(f, "e{n}"),
            Self::Host(k) => write!(f, "h{k}"),
            Self::Wire => f.write_str("w"),
        }
    }
}

/// Parses `3` and `h3` as host 3, `e1` as the first element.
impl FromStr for NodeName {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self, Error> {
        let number = |digits: &str| digits.parse().ok().filter(|n| *n > 0);
        let node = match word.strip_prefix('e') {
            Some(digits) => number(digits).map(Self::Element),
            None => number(word.strip_prefix('h').unwrap_or(word)).map(Self::Host),
        };
        node.ok_or_else(|| Error::NodeName { got: word.to_owned() })
    }
}

/// Refuses names that do not fit in a namespace's name or could be confused with another testbed's.
pub(crate) fn check_bed_name(name: &str) -> Result<(), Error> {
    let plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    if plain && (1..=BED_NAME_MAX).contains(&name.len()) {
        Ok(())
    } else {
        Err(Error::InvalidTestbedName { got: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn plan(hosts: usize, elements: usize) -> TestbedPlan {
        TestbedPlan {
            bed: "b".to_owned(),
            links: vec![LinkProfile::default(); hosts],
            elements,
            chain: LinkProfile::default(),
            mtu: MTU_DEFAULT,
        }
    }

    #[test]
    fn names_and_addresses_are_unique_in_largest_testbed() {
        let mut plan = plan(HOSTS_MAX, ELEMENTS_MAX);
        let delay = "1ms".parse().unwrap();
        plan.links.iter_mut().chain([&mut plan.chain]).for_each(|link| link.delay = delay);
        let cables: Vec<Cable> = plan.cables().collect();
        assert_eq!(cables.len(), HOSTS_MAX + 1);
        let ends = || cables.iter().flat_map(|cable| [&cable.near, &cable.far]);
        let count = ends().count();
        let mut addresses: BTreeSet<Ipv4Addr> = ends().map(|end| end.address).collect();
        assert_eq!(addresses.len(), count);
        addresses.extend((1..=ELEMENTS_MAX).filter_map(|n| NodeName::Element(n).address()));
        assert_eq!(addresses.len(), count + ELEMENTS_MAX);
        assert_eq!(ends().map(|end| &end.mac).collect::<BTreeSet<_>>().len(), count);
        assert_eq!(ends().map(|end| (end.node, &end.interface)).collect::<BTreeSet<_>>().len(), count);
        // Limit of the kernel.
        assert!(ends().all(|end| end.interface.len() <= 15));
        let detours = cables.iter().filter_map(|cable| cable.detour(DOWN)).flat_map(|d| [d.inlet, d.outlet]);
        assert_eq!(detours.filter(|interface| interface.len() <= 15).count(), 2 * (HOSTS_MAX + 1));
        let namespaces: BTreeSet<String> = plan.nodes().map(|node| node.namespace("b")).collect();
        assert_eq!(namespaces.len(), HOSTS_MAX + ELEMENTS_MAX + 1);
    }

    #[test]
    fn hosts_alternate_between_two_elements() {
        let home = |elements, k| plan(4, elements).home(k);
        assert_eq!([1, 2, 3, 4].map(|k| home(1, k)), [NodeName::Element(1); 4]);
        let (first, second) = (NodeName::Element(1), NodeName::Element(2));
        assert_eq!([1, 2, 3, 4].map(|k| home(2, k)), [first, second, first, second]);
    }

    #[test]
    fn testbed_of_bare_links_has_no_wire() {
        assert!(!plan(2, 1).nodes().any(|node| node == NodeName::Wire));
        assert!(plan(2, 2).nodes().any(|node| node == NodeName::Wire));
    }

    #[test]
    fn namespace_name_round_trips() {
        for node in [NodeName::Element(1), NodeName::Host(64), NodeName::Wire] {
            assert_eq!(NodeName::of_namespace(&node.namespace("bed7")), Some(("bed7", node)));
        }
        for other in ["", "pc-", "pc-bed", "pc-bed-", "pc-bed-x1", "pc-bed-h0", "pc-bed-h01", "pc-bed-1", "pc-a-b-h1"] {
            assert_eq!(NodeName::of_namespace(other), None, "{other}");
        }
    }

    #[test]
    fn node_names_are_parsed() {
        assert_eq!("3".parse::<NodeName>().unwrap(), NodeName::Host(3));
        assert_eq!("h3".parse::<NodeName>().unwrap(), NodeName::Host(3));
        assert_eq!("e2".parse::<NodeName>().unwrap(), NodeName::Element(2));
        for word in ["", "0", "h", "e", "e0", "w", "host", "-1", "1.5"] {
            assert!(word.parse::<NodeName>().is_err(), "{word}");
        }
    }

    #[test]
    fn testbed_names_are_validated() {
        assert!(check_bed_name("bed2").is_ok());
        for name in ["", "Bed", "a-b", "a/b", "..", "a b", "abcdefghijklmnopqrstu"] {
            assert!(check_bed_name(name).is_err(), "{name}");
        }
    }
}
