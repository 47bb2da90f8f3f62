//! Ways of logical links over physical ones: those with the least latency, then the fewest links.

use super::hardware::{Hardware, LogicalLink};
use crate::Mistake;

/// Finds a route for each logical link that has none yet and whose ends the host has.
pub(super) fn fill(hardware: &mut Hardware) -> Result<(), Mistake> {
    for link in LogicalLink::ALL {
        let (from, to) = link.ends();
        let (Some(from), Some(to)) = (hardware.node(from), hardware.node(to)) else { continue };
        if hardware.routes[link as usize].is_none() {
            let Some(route) = least(hardware, from, to) else {
                let [from, to] = [from, to].map(|at| &hardware.nodes[at].name);
                let said = format!("no links lead from `{from}` to `{to}`; join them");
                return Err(Mistake::new(&hardware.file, None, said));
            };
            hardware.routes[link as usize] = Some(route);
        }
    }
    for (at, node) in hardware.nodes.iter().enumerate() {
        if !hardware.links.iter().any(|link| link.between.contains(&at)) {
            let said = format!("no link leads to `{}`; join it, or leave it out", node.name);
            return Err(Mistake::new(&hardware.file, None, said));
        }
    }
    Ok(())
}

/// Dijkstra over a handful of nodes.
fn least(hardware: &Hardware, from: usize, to: usize) -> Option<Vec<usize>> {
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
