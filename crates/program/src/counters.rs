//! Counters of the program, by application, by pool and element-wide.

use crate::{FrameAction, FrameDropReason};

macro_rules! counters {
    ($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name { $($(#[$fdoc])* pub $field: u64,)* }

        impl $name {
            /// All counters with their names.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Element-wide counters: frames, and drops by reason.
    Counters {
        /// Frames received.
        frames_in,
        /// Frames sent; a multicast counts once.
        frames_out,
        /// Dropped: not frames, or fields that contradict the application's layout.
        drop_malformed,
        /// Dropped: server's flag with another sender.
        drop_forged,
        /// Dropped: repeats of frames acknowledged long ago.
        drop_stale,
        /// Processed, while `CntFwd` waits for more. Not a loss.
        drop_counted,
        /// Dropped: not admitted, and without a known endpoint to forward them to.
        drop_not_admitted,
        /// Dropped: addressed to an endpoint that the application does not have.
        drop_unknown_endpoint,
        /// Dropped: no token or a wrong one, or a token in an application without tokens.
        drop_unauthentic,
        /// Dropped: slower answers of cloned calls. Not a loss.
        drop_filtered,
    }
}

counters! {
    /// Counters of one application.
    ApplicationCounters {
        /// Frames admitted.
        admitted,
        /// Frames of the application that were not admitted.
        not_admitted,
        /// Frames of the application with a missing, wrong or unexpected token.
        unauthentic,
        /// Frames applied, each once.
        applied,
        /// Lanes added.
        lanes_added,
        /// Repeats, which were not applied again.
        repeats,
        /// Repeats of frames acknowledged long ago.
        stale,
        /// Frames refused because the mapping of keys changed after they were packed.
        refused,
        /// Late frames of a round that is over.
        old,
        /// Frames forwarded to the server to be processed there.
        diverted,
        /// Answers that a round or a count waits for more frames.
        held,
        /// Answers that another caller holds a lock.
        denied,
        /// Frames sent with the sums of a round.
        reached,
        /// Lanes left out because they would have overflowed.
        overflow_lanes,
        /// Results of rounds that passed.
        results,
        /// Rounds cleared.
        clears,
        /// Rows read by the server.
        reads,
        /// Requests to close a generation.
        harvests,
        /// Frames marked for congestion here.
        ecn_marked,
        /// Frames that asked to be forwarded without processing.
        cross,
    }
}

counters! {
    /// Counters of one pool of servers.
    PoolCounters {
        /// Frames admitted.
        admitted,
        /// Frames of the pool that were not admitted.
        not_admitted,
        /// Frames of the pool with a missing, wrong or unexpected token.
        unauthentic,
        /// Frames forwarded unchanged: by their own request, or because another element has decided.
        passed,
        /// Requests steered, counted by part.
        requests,
        /// Requests cloned.
        clones,
        /// Requests sent to the second server of their pair, because its queue was shorter.
        shorter,
        /// Requests forwarded to the server that they were addressed to.
        direct,
        /// Requests whose group was missing or of another version of the table, and was replaced.
        stale_groups,
        /// Answers received, including reports of servers that work on a call.
        replies,
        /// Answers filtered: another server had answered, or the same answer had passed.
        filtered,
        /// Cancels forwarded.
        cancels,
        /// Frames marked for congestion here.
        ecn_marked,
    }
}

counters! {
    /// Counters of the hedges of one pool that an element holds.
    HedgeCounters {
        /// Requests of which the element held a copy.
        hedges_held,
        /// Copies sent to another server after their delay.
        hedges_sent,
        /// Copies dropped, because the call was answered or cancelled before.
        hedges_dropped,
        /// Copies dropped at their time, because there was no other server or the caller was gone.
        hedges_lost,
        /// Requests of which no copy was held, because the pool's part of the memory was full.
        hedges_full,
    }
}

impl Counters {
    pub(crate) fn verdict(&mut self, action: FrameAction) {
        let counter = match action {
            FrameAction::Forward(_) | FrameAction::Multicast(_) | FrameAction::Clone(_) => &mut self.frames_out,
            FrameAction::Drop(FrameDropReason::Malformed) => &mut self.drop_malformed,
            FrameAction::Drop(FrameDropReason::Forged) => &mut self.drop_forged,
            FrameAction::Drop(FrameDropReason::Stale) => &mut self.drop_stale,
            FrameAction::Drop(FrameDropReason::Counted) => &mut self.drop_counted,
            FrameAction::Drop(FrameDropReason::NotAdmitted) => &mut self.drop_not_admitted,
            FrameAction::Drop(FrameDropReason::Unauthentic) => &mut self.drop_unauthentic,
            FrameAction::Drop(FrameDropReason::UnknownEndpoint) => &mut self.drop_unknown_endpoint,
            FrameAction::Drop(FrameDropReason::Filtered) => &mut self.drop_filtered,
        };
        *counter += 1;
    }
}
