//! Routes of logical links over physical ones: least latency, then fewest links.

use super::DeviceRole;
use super::hardware::{Hardware, HostLink, NodeRole};

/// Finds a route for each logical link that has none yet and whose ends exist; or returns the node that lacks a link,
/// with the error's message.
pub(super) fn fill(hardware: &mut Hardware) -> Result<(), (usize, String)> {
    for (number, acc) in DeviceRole::ALL[1..].iter().enumerate().take(hardware.accelerators().max(1)) {
        for link in HostLink::ALL {
            let [Some(from), Some(to)] = ends(hardware, link, *acc) else { continue };
            let is_shared = number > 0 && !link.has_acc();
            if hardware.routes[number][link as usize].is_none() && !is_shared {
                let Some(route) = shortest_route(hardware, from, to) else {
                    let [first, last] = [from, to].map(|at| &hardware.nodes[at].name);
                    return Err((from, format!("no route from `{first}` to `{last}`; add links")));
                };
                hardware.routes[number][link as usize] = Some(route);
            }
        }
    }
    for (at, node) in hardware.nodes.iter().enumerate() {
        if !hardware.links.iter().any(|link| link.between.contains(&at)) {
            return Err((at, format!("no link to `{}`; add a link, or remove the node", node.name)));
        }
    }
    Ok(())
}

/// First and last node of a logical link, if `A` is this accelerator; `None` if the host lacks one.
pub(super) fn ends(hardware: &Hardware, link: HostLink, acc: DeviceRole) -> [Option<usize>; 2] {
    let (from, to) = link.ends();
    [from, to].map(|role| if role == NodeRole::Acc { hardware.device(acc) } else { hardware.node(role) })
}

/// Shortest path by Dijkstra's algorithm.
fn shortest_route(hardware: &Hardware, from: usize, to: usize) -> Option<Vec<usize>> {
    let count = hardware.nodes.len();
    let mut cost = vec![None; count];
    let mut before = vec![from; count];
    let mut settled = vec![false; count];
    cost[from] = Some((0_u64, 0_u32));
    loop {
        let open = (0..count).filter(|at| !settled[*at]);
        let (here, (latency, links)) =
            open.filter_map(|at| Some((at, cost[at]?))).min_by_key(|(at, cost)| (*cost, *at))?;
        if here == to {
            break;
        }
        settled[here] = true;
        for link in &hardware.links {
            let next = match link.between {
                [one, other] if one == here => other,
                [one, other] if other == here => one,
                _ => continue,
            };
            let new = (latency + link.latency_ns, links + 1);
            if !settled[next] && cost[next].is_none_or(|known| new < known) {
                cost[next] = Some(new);
                before[next] = here;
            }
        }
    }
    let mut route = vec![to];
    while let Some(&at) = route.last()
        && at != from
    {
        route.push(before[at]);
    }
    route.reverse();
    Some(route)
}
