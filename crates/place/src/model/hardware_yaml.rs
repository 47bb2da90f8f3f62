//! A hardware model's file.

use serde::Deserialize;

use super::hardware::{Hardware, Link, LogicalLink, Node, NodeRole};
use super::yaml::{Named, Reader, Text, given, position, read};
use super::{routes, units};
use crate::Mistake;

/// Most slots of a node.
const SLOTS_MAX: u64 = 65_536;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    hardware: Text,
    nodes: Named<NodeFile>,
    links: Vec<LinkFile>,
    #[serde(default)]
    routes: Named<Vec<Text>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeFile {
    role: Text,
    #[serde(default, deserialize_with = "given")]
    slots: Option<Text>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkFile {
    between: Vec<Text>,
    bandwidth: Text,
    messages: Text,
    latency: Text,
}

pub(super) fn parse(file: &str, text: &str) -> Result<Hardware, Mistake> {
    let reader = Reader { file };
    let parsed: File = read(file, text)?;
    let name = reader.name(&parsed.hardware)?;
    let nodes = nodes(reader, &parsed.nodes)?;
    let links = links(reader, &nodes, &parsed.links)?;
    let mut hardware = Hardware { name, file: file.to_owned(), nodes, links, routes: Default::default() };
    for (link, way) in &parsed.routes.0 {
        given_route(reader, &mut hardware, link, way)?;
    }
    routes::fill(&mut hardware)?;
    Ok(hardware)
}

fn nodes(reader: Reader<'_>, given: &Named<NodeFile>) -> Result<Vec<Node>, Mistake> {
    reader.few("nodes", &given.0)?;
    let mut nodes: Vec<Node> = Vec::with_capacity(given.0.len());
    for (text, node) in &given.0 {
        let role = reader.word("role", &NodeRole::WORDS, &node.role)?;
        if let Some(other) = nodes.iter().find(|other| other.role == role && role != NodeRole::Switch) {
            let said =
                format!("there are two nodes with role {}, `{}` is the other; a host has one", role.name(), other.name);
            return reader.wrong(&node.role, said);
        }
        let slots = node.slots.as_ref().map_or(Ok(1), |slots| count(reader, slots))?;
        nodes.push(Node { name: reader.name(text)?, role, slots });
    }
    for role in [NodeRole::Cpu, NodeRole::Nic] {
        if !nodes.iter().any(|node| node.role == role) {
            let said = format!("no node has role {}; each host needs one", role.name());
            return Err(Mistake::new(reader.file, given.0.first().and_then(|(at, _)| position(&at.referenced)), said));
        }
    }
    Ok(nodes)
}

fn count(reader: Reader<'_>, text: &Text) -> Result<u32, Mistake> {
    match text.value.parse::<u64>() {
        Ok(n) if (1..=SLOTS_MAX).contains(&n) => Ok(n as u32),
        _ => reader.wrong(text, format!("`{}` are no slots; write a number from 1 to {SLOTS_MAX}", text.value)),
    }
}

fn node(reader: Reader<'_>, nodes: &[Node], text: &Text) -> Result<usize, Mistake> {
    match nodes.iter().position(|node| node.name == text.value) {
        Some(at) => Ok(at),
        None => {
            let known: Vec<&str> = nodes.iter().map(|node| &node.name[..]).collect();
            reader.wrong(text, format!("there is no node `{}`; nodes are {}", text.value, known.join(", ")))
        }
    }
}

fn links(reader: Reader<'_>, nodes: &[Node], given: &[LinkFile]) -> Result<Vec<Link>, Mistake> {
    reader.few("links", given)?;
    let mut links: Vec<Link> = Vec::with_capacity(given.len());
    for link in given {
        let [one, other] = &link.between[..] else {
            let said = format!("a link is between two nodes, not {}; write `between: [cpu, nic]`", link.between.len());
            return reader.wrong(link.between.first().unwrap_or(&link.bandwidth), said);
        };
        let between = [node(reader, nodes, one)?, node(reader, nodes, other)?];
        let [from, to] = between;
        if from == to {
            return reader.wrong(other, format!("the link joins `{}` to itself; name two nodes", other.value));
        }
        if links.iter().any(|known| known.between == [from, to] || known.between == [to, from]) {
            let said = format!("`{}` and `{}` are joined twice; give one link", one.value, other.value);
            return reader.wrong(one, said);
        }
        links.push(Link {
            between,
            bytes_per_second: reader.quantity(&units::BANDWIDTH, &link.bandwidth)?,
            messages_per_second: reader.quantity(&units::MESSAGES, &link.messages)?,
            latency_ns: reader.quantity(&units::TIME, &link.latency)?,
        });
    }
    Ok(links)
}

fn given_route(reader: Reader<'_>, hardware: &mut Hardware, link: &Text, way: &[Text]) -> Result<(), Mistake> {
    let words = LogicalLink::ALL.map(|link| (link.name(), link));
    let logical = reader.word("logical link", &words, link)?;
    let (from, to) = logical.ends();
    let mut route = Vec::with_capacity(way.len());
    for text in way {
        let at = node(reader, &hardware.nodes, text)?;
        if route.contains(&at) {
            return reader.wrong(text, format!("the route goes in a loop: it comes to `{}` twice", text.value));
        }
        if let Some(&before) = route.last()
            && hardware.link(before, at).is_none()
        {
            let said = format!(
                "no link joins `{}` and `{}`; add one, or take another way",
                hardware.nodes[before].name, text.value
            );
            return reader.wrong(text, said);
        }
        route.push(at);
    }
    let role = |at: Option<&usize>| at.map(|at| hardware.nodes[*at].role);
    if role(route.first()) != Some(from) || role(route.last()) != Some(to) {
        let said = format!("{} goes from the {} to the {}; so must its route", logical.name(), from.name(), to.name());
        return reader.wrong(link, said);
    }
    hardware.routes[logical as usize] = Some(route);
    Ok(())
}
