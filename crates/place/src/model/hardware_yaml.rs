//! Parser of hardware models.

use serde::Deserialize;
use serde_saphyr::Spanned;

use super::hardware::{Hardware, HardwareLink, HardwareNode, HostLink, NodeRole};
use super::yaml::{FieldReader, NamedEntries, SpannedText, given, position, read};
use super::{ACCELERATORS_MAX, DeviceRole, SLOTS_MAX, routes, units};
use crate::ModelError;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    hardware: SpannedText,
    nodes: Spanned<NamedEntries<NodeFile>>,
    links: Spanned<Vec<LinkFile>>,
    #[serde(default)]
    routes: NamedEntries<Vec<SpannedText>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeFile {
    role: SpannedText,
    #[serde(default, deserialize_with = "given")]
    slots: Option<SpannedText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkFile {
    between: Vec<SpannedText>,
    bandwidth: SpannedText,
    messages: SpannedText,
    latency: SpannedText,
}

pub(super) fn parse(file: &str, text: &str) -> Result<Hardware, ModelError> {
    let reader = FieldReader { file };
    let parsed: File = read(file, text)?;
    let name = reader.name(&parsed.hardware)?;
    let nodes = nodes(reader, &parsed.nodes)?;
    let links = links(reader, &nodes, &parsed.links)?;
    let mut hardware = Hardware { name, file: file.to_owned(), nodes, links, routes: Default::default() };
    for (link, way) in &parsed.routes.0 {
        explicit_route(reader, &mut hardware, link, way)?;
    }
    routes::fill(&mut hardware).map_err(|(node, message)| {
        ModelError::new(file, position(&parsed.nodes.value.0[node].0.referenced), message)
    })?;
    Ok(hardware)
}

fn nodes(reader: FieldReader<'_>, given: &Spanned<NamedEntries<NodeFile>>) -> Result<Vec<HardwareNode>, ModelError> {
    let given_nodes = &given.value.0;
    reader.check_count("nodes", given, given_nodes.len())?;
    let mut nodes: Vec<HardwareNode> = Vec::with_capacity(given_nodes.len());
    for (text, node) in given_nodes {
        let role = reader.word("role", &NodeRole::NAMES, &node.role)?;
        let with_role = |nodes: &[HardwareNode]| nodes.iter().filter(|other| other.role == role).count();
        if role == NodeRole::Acc && with_role(&nodes) == ACCELERATORS_MAX {
            let message = format!("a host has at most {ACCELERATORS_MAX} nodes with role acc: remove one");
            return reader.fail(&node.role, message);
        }
        let is_single = matches!(role, NodeRole::Cpu | NodeRole::Nic);
        if let Some(other) = nodes.iter().position(|other| other.role == role && is_single) {
            let (other, line) = (&nodes[other].name, given_nodes[other].0.referenced.line());
            let message = format!(
                "there are two nodes with role {}, the first is `{other}` in line {line}; a host has one: remove one",
                role.name()
            );
            return reader.fail(&node.role, message);
        }
        let slots = node.slots.as_ref().map_or(Ok(1), |slots| count(reader, slots))?;
        nodes.push(HardwareNode { name: reader.name(text)?, role, slots });
    }
    for role in [NodeRole::Cpu, NodeRole::Nic] {
        if !nodes.iter().any(|node| node.role == role) {
            let message = format!("no node has role {0}; each host needs one: add `{0}: {{ role: {0} }}`", role.name());
            return Err(ModelError::new(
                reader.file,
                given_nodes.first().and_then(|(at, _)| position(&at.referenced)),
                message,
            ));
        }
    }
    Ok(nodes)
}

fn count(reader: FieldReader<'_>, text: &SpannedText) -> Result<u32, ModelError> {
    match text.value.parse::<usize>() {
        Ok(n) if (1..=SLOTS_MAX).contains(&n) => Ok(n as u32),
        _ => reader.fail(text, format!("invalid slots `{}`; write a number from 1 to {SLOTS_MAX}", text.value)),
    }
}

fn node(reader: FieldReader<'_>, nodes: &[HardwareNode], text: &SpannedText) -> Result<usize, ModelError> {
    match nodes.iter().position(|node| node.name == text.value) {
        Some(at) => Ok(at),
        None => {
            let known: Vec<&str> = nodes.iter().map(|node| &node.name[..]).collect();
            reader.fail(text, format!("there is no node `{}`; nodes are {}", text.value, known.join(", ")))
        }
    }
}

fn links(
    reader: FieldReader<'_>,
    nodes: &[HardwareNode],
    given: &Spanned<Vec<LinkFile>>,
) -> Result<Vec<HardwareLink>, ModelError> {
    reader.check_count("links", given, given.value.len())?;
    let mut links: Vec<HardwareLink> = Vec::with_capacity(given.value.len());
    for link in &given.value {
        let [one, other] = &link.between[..] else {
            let message =
                format!("a link is between two nodes, not {}; write `between: [cpu, nic]`", link.between.len());
            return reader.fail(link.between.first().unwrap_or(&link.bandwidth), message);
        };
        let between = [node(reader, nodes, one)?, node(reader, nodes, other)?];
        let [from, to] = between;
        if from == to {
            return reader.fail(other, format!("the link joins `{}` to itself; name two nodes", other.value));
        }
        let joined = |known: &HardwareLink| known.between == [from, to] || known.between == [to, from];
        if let Some(first) = links.iter().position(joined) {
            let line = given.value[first].bandwidth.referenced.line();
            let message = format!(
                "`{}` and `{}` are joined twice, first in line {line}; give one link, which carries both directions",
                one.value, other.value
            );
            return reader.fail(one, message);
        }
        links.push(HardwareLink {
            between,
            bytes_per_second: reader.quantity(&units::BANDWIDTH, &link.bandwidth)?,
            messages_per_second: reader.quantity(&units::MESSAGES, &link.messages)?,
            latency_ns: reader.quantity(&units::TIME, &link.latency)?,
        });
    }
    Ok(links)
}

fn explicit_route(
    reader: FieldReader<'_>,
    hardware: &mut Hardware,
    link: &SpannedText,
    way: &[SpannedText],
) -> Result<(), ModelError> {
    let (logical, number) = logical_link(reader, link)?;
    let mut route = Vec::with_capacity(way.len());
    for text in way {
        let at = node(reader, &hardware.nodes, text)?;
        if route.contains(&at) {
            return reader.fail(text, format!("the route visits `{}` twice", text.value));
        }
        if let Some(&before) = route.last()
            && hardware.link(before, at).is_none()
        {
            let message = format!(
                "no link joins `{}` and `{}`; add one, or use another route",
                hardware.nodes[before].name, text.value
            );
            return reader.fail(text, message);
        }
        route.push(at);
    }
    let acc = DeviceRole::acc(number).unwrap_or(DeviceRole::Acc);
    let [first, last] = routes::ends(hardware, logical, acc);
    if first.is_none() || last.is_none() || [route.first(), route.last()] != [first.as_ref(), last.as_ref()] {
        let (from, to) = logical.ends();
        let [from, to] = [from, to].map(|role| if role == NodeRole::Acc { acc.name() } else { role.name() });
        let message = format!("{} goes from the {from} to the {to}; so must its route", link.value);
        return reader.fail(link, message);
    }
    hardware.routes[number][logical as usize] = Some(route);
    Ok(())
}

/// Reads a logical link with the number of its accelerator: `CA`, `CA1`.
fn logical_link(reader: FieldReader<'_>, text: &SpannedText) -> Result<(HostLink, usize), ModelError> {
    for link in HostLink::ALL.into_iter().filter(|link| link.has_acc()) {
        let number = text.value.strip_prefix(link.name()).filter(|rest| rest.len() == 1).and_then(|n| n.parse().ok());
        if let Some(number) = number.filter(|number| (1..ACCELERATORS_MAX).contains(number)) {
            return Ok((link, number));
        }
    }
    Ok((reader.word("logical link", &HostLink::ALL.map(|link| (link.name(), link)), text)?, 0))
}
