//! Assignment of buckets to the servers of a group: even, with as few moves as possible.

use std::collections::BTreeMap;

use super::ServerId;

/// Assigns buckets evenly to `servers`, give or take one; a server keeps its buckets where that is possible. All
/// buckets are unassigned if there is no server.
#[must_use]
pub fn assign(before: &[Option<ServerId>], servers: &[ServerId]) -> Vec<Option<ServerId>> {
    if servers.is_empty() {
        return vec![None; before.len()];
    }
    let (each, more) = (before.len() / servers.len(), before.len() % servers.len());
    let mut had: BTreeMap<ServerId, usize> = servers.iter().map(|server| (*server, 0)).collect();
    for server in before.iter().flatten() {
        had.entry(*server).and_modify(|count| *count += 1);
    }
    // Servers that have most buckets already get the remainder.
    let mut by_count: Vec<_> = had.into_iter().collect();
    by_count.sort_by_key(|(server, count)| (std::cmp::Reverse(*count), *server));
    let share = |(at, (server, _)): (usize, (ServerId, usize))| (server, each + usize::from(at < more));
    let mut room: BTreeMap<ServerId, usize> = by_count.into_iter().enumerate().map(share).collect();
    let mut keep = |server: &Option<ServerId>| {
        let left = server.as_ref().and_then(|server| room.get_mut(server))?;
        *left = left.checked_sub(1)?;
        *server
    };
    let mut after: Vec<Option<ServerId>> = before.iter().map(&mut keep).collect();
    for bucket in after.iter_mut().filter(|bucket| bucket.is_none()) {
        let Some((server, left)) = room.iter_mut().find(|(_, left)| **left > 0) else { break };
        *left -= 1;
        *bucket = Some(*server);
    }
    after
}

/// Buckets whose server changes.
pub fn moved<'a>(before: &'a [Option<ServerId>], after: &'a [Option<ServerId>]) -> impl Iterator<Item = u16> + 'a {
    let differs = |(_, (before, after)): &(usize, (&Option<ServerId>, &Option<ServerId>))| before != after;
    before.iter().zip(after).enumerate().filter(differs).map(|(bucket, _)| bucket as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(of: &[Option<ServerId>]) -> BTreeMap<ServerId, usize> {
        let mut counts = BTreeMap::new();
        of.iter().flatten().for_each(|server| *counts.entry(*server).or_default() += 1);
        counts
    }

    #[test]
    fn assignment_is_even_and_moves_few_buckets() {
        let mut now = assign(&[None; 256], &[0, 1]);
        assert_eq!(counts(&now), [(0, 128), (1, 128)].into());
        let next = assign(&now, &[0, 1, 2]);
        assert_eq!(counts(&next).values().sum::<usize>(), 256);
        assert!(counts(&next).values().all(|count| (85..=86).contains(count)), "{:?}", counts(&next));
        assert_eq!(moved(&now, &next).count(), counts(&next)[&2], "only buckets for the third server");
        now = next;
        let next = assign(&now, &[0, 2]);
        let of_removed = now.iter().filter(|server| **server == Some(1)).count();
        assert_eq!(moved(&now, &next).count(), of_removed, "only buckets of the removed server");
        assert!(assign(&now, &[]).iter().all(Option::is_none));
    }
}
