//! Common queue of messages that wait for a device, by request type; it allocates nothing after its creation.

/// Index for "no message".
const NONE: u32 = u32::MAX;

/// Messages by request type, each list in order. Messages are indexes of the selector's table.
#[derive(Debug)]
pub(super) struct CommonQueue {
    links: Vec<QueueLink>,
    kinds: Vec<KindQueue>,
    /// Number of messages that have entered.
    entered: u64,
}

/// Neighbours of a message.
#[derive(Debug, Clone, Copy)]
struct QueueLink {
    before: u32,
    behind: u32,
    /// Number by which the oldest message is found.
    entered: u64,
}

#[derive(Debug, Clone, Copy)]
struct KindQueue {
    first: u32,
    last: u32,
    length: u32,
}

impl CommonQueue {
    /// Creates a queue for messages with indexes below `max`, of `kinds` types.
    pub(super) fn new(max: u32, kinds: usize) -> Self {
        Self {
            links: vec![QueueLink { before: NONE, behind: NONE, entered: 0 }; max as usize],
            kinds: vec![KindQueue { first: NONE, last: NONE, length: 0 }; kinds],
            entered: 0,
        }
    }

    /// Appends a message; or, if it has been sent before, puts it first.
    pub(super) fn push(&mut self, kind: usize, at: u32, again: bool) {
        let queue = &mut self.kinds[kind];
        let (before, behind) = if again { (NONE, queue.first) } else { (queue.last, NONE) };
        // A message that is put first is the oldest of all.
        let entered = if again { 0 } else { self.entered + 1 };
        self.entered += u64::from(!again);
        self.links[at as usize] = QueueLink { before, behind, entered };
        self.join(kind, before, at);
        self.join(kind, at, behind);
        self.kinds[kind].length += 1;
    }

    /// Removes a message.
    pub(super) fn remove(&mut self, kind: usize, at: u32) {
        let QueueLink { before, behind, .. } = self.links[at as usize];
        self.join(kind, before, behind);
        self.kinds[kind].length -= 1;
    }

    /// Type whose first message has waited longest, among those whose first message has waited less than that of
    /// `after`.
    pub(super) fn oldest(&self, after: Option<usize>) -> Option<usize> {
        let age = |kind: usize| Some((self.links.get(self.kinds[kind].first as usize)?.entered, kind));
        let from = after.and_then(age);
        (0..self.kinds.len()).filter_map(age).filter(|age| from.is_none_or(|from| *age > from)).min().map(|age| age.1)
    }

    /// First message of a type.
    pub(super) fn first(&self, kind: usize) -> Option<u32> {
        Some(self.kinds[kind].first).filter(|at| *at != NONE)
    }

    /// Last message of a type.
    pub(super) fn last(&self, kind: usize) -> Option<u32> {
        Some(self.kinds[kind].last).filter(|at| *at != NONE)
    }

    /// Number of messages of a type.
    pub(super) fn length(&self, kind: usize) -> u32 {
        self.kinds[kind].length
    }

    /// Number of all messages.
    pub(super) fn waiting(&self) -> u32 {
        self.kinds.iter().map(|queue| queue.length).sum()
    }

    /// Makes two messages neighbours; `NONE` is the end.
    fn join(&mut self, kind: usize, before: u32, behind: u32) {
        match before {
            NONE => self.kinds[kind].first = behind,
            before => self.links[before as usize].behind = behind,
        }
        match behind {
            NONE => self.kinds[kind].last = before,
            behind => self.links[behind as usize].before = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Each list equals a list with removal from anywhere.
        #[test]
        fn common_queue_equals_lists(steps in vec((0..3_usize, 0..4_u8, any::<prop::sample::Index>()), 1..120)) {
            let (mut queue, mut model) = (CommonQueue::new(120, 3), vec![VecDeque::new(); 3]);
            for (at, (kind, what, which)) in (0..).zip(steps) {
                match what {
                    0 if !model[kind].is_empty() => {
                        let removed = which.index(model[kind].len());
                        queue.remove(kind, model[kind].remove(removed).expect("a message"));
                    }
                    1 => {
                        queue.push(kind, at, true);
                        model[kind].push_front(at);
                    }
                    _ => {
                        queue.push(kind, at, false);
                        model[kind].push_back(at);
                    }
                }
                for (kind, list) in model.iter().enumerate() {
                    let ends = (queue.first(kind), queue.last(kind), queue.length(kind) as usize);
                    prop_assert_eq!(ends, (list.front().copied(), list.back().copied(), list.len()));
                }
                prop_assert_eq!(queue.waiting() as usize, model.iter().map(VecDeque::len).sum::<usize>());
            }
        }
    }
}
