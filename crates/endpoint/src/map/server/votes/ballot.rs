//! One ballot as the server knows it.

#[derive(Debug, Default)]
pub(super) struct Ballot {
    /// Votes counted here, or claimed.
    pub(super) count: i64,
    decided: bool,
    /// How often the element has cleared it in this epoch, as far as heard of.
    pub(super) round: u32,
}

impl Ballot {
    /// Counts a vote here; whether it is the one that decides.
    pub(super) fn vote(&mut self, threshold: u32) -> bool {
        self.count += 1;
        let decides = self.count == i64::from(threshold) && !self.decided;
        self.decided |= decides;
        decides
    }

    /// Records that the threshold is reached.
    pub(super) fn decide(&mut self, threshold: u32) {
        self.count = self.count.max(threshold.into());
        self.decided = true;
    }

    pub(super) fn is_decided(&self) -> bool {
        self.decided
    }

    /// Whether those who wait for this threshold may go on: methods may name different ones.
    pub(super) fn has_reached(&self, threshold: u32) -> bool {
        self.count >= i64::from(threshold)
    }

    /// Whether votes for it are here that the element would not count.
    pub(super) fn is_open(&self) -> bool {
        self.count > 0 && !self.decided
    }

    /// Counts from zero again. Who waits goes on waiting: its vote is gone with the ballot.
    pub(super) fn clear(&mut self) {
        (self.count, self.decided) = (0, false);
    }

    /// Hears of a round in the element: every further one is a clearing.
    pub(super) fn observe(&mut self, round: u32) {
        if round > self.round {
            self.round = round;
            self.clear();
        }
    }
}
