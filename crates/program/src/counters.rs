//! What the program has done, by application and element-wide.

use crate::{Action, Reason};

macro_rules! counters {
    ($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name { $($(#[$fdoc])* pub $field: u64,)* }

        impl $name {
            /// Every counter with its name.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Element-wide: frames, and drops by reason.
    Counters {
        /// Frames that came.
        frames_in,
        /// Frames that left, a multicast counting once.
        frames_out,
        /// Not frames, or contradicting their application's layout.
        drop_malformed,
        /// Said that they came from the server.
        drop_forged,
        /// Repeats of something acknowledged long ago.
        drop_stale,
        /// Worked on; `CntFwd` waits for more. Not a loss.
        drop_counted,
        /// Not admitted, and nobody to pass them on to.
        drop_not_admitted,
        /// Addressed to an endpoint that the application does not have.
        drop_unknown_endpoint,
        /// Without their application's token, or with one where there is none.
        drop_unauthentic,
        /// Answers of calls that were cloned and are answered. Not a loss.
        drop_filtered,
    }
}

counters! {
    /// Of one application.
    ApplicationCounters {
        /// Frames admitted.
        admitted,
        /// Frames of the application that were not.
        not_admitted,
        /// Frames that named the application and did not carry its token, or carried one where it has none.
        unauthentic,
        /// Frames whose work was done, each once.
        applied,
        /// Lanes added.
        lanes_added,
        /// Repeats, not worked on again.
        repeats,
        /// Repeats of something acknowledged long ago.
        stale,
        /// Not applied: the mapping of keys has changed since they were packed.
        refused,
        /// Late questions about a round that is over.
        old,
        /// Passed on to the server to be done there.
        diverted,
        /// Answers that a round or a count waits.
        held,
        /// Answers that somebody else holds a lock.
        denied,
        /// Frames that left with the sums of a round.
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
        /// Frames that met congestion here.
        ecn_marked,
        /// Frames passed on untouched because they asked for it.
        cross,
    }
}

counters! {
    /// Of one pool of servers.
    PoolCounters {
        /// Frames admitted.
        admitted,
        /// Frames of the pool that were not.
        not_admitted,
        /// Frames that named the pool and did not carry its token, or carried one where it has none.
        unauthentic,
        /// Frames passed on as they came: because they asked for it, or another element has decided.
        passed,
        /// Requests steered, each part counting.
        requests,
        /// Of those, cloned.
        clones,
        /// Of those, sent to the second of their servers, whose queue is shorter.
        shorter,
        /// Requests for the server that they were addressed to.
        direct,
        /// Requests whose group is of another version of the table, or none, and so became another one.
        stale_groups,
        /// Answers that came, those that say that a server is working included.
        replies,
        /// Of those, stopped: another server had answered, or this answer had passed.
        filtered,
        /// Cancels passed on.
        cancels,
        /// Frames that met congestion here.
        ecn_marked,
    }
}

impl Counters {
    pub(crate) fn verdict(&mut self, action: Action) {
        let counter = match action {
            Action::Forward(_) | Action::Multicast(_) | Action::Clone(_) => &mut self.frames_out,
            Action::Drop(Reason::Malformed) => &mut self.drop_malformed,
            Action::Drop(Reason::Forged) => &mut self.drop_forged,
            Action::Drop(Reason::Stale) => &mut self.drop_stale,
            Action::Drop(Reason::Counted) => &mut self.drop_counted,
            Action::Drop(Reason::NotAdmitted) => &mut self.drop_not_admitted,
            Action::Drop(Reason::Unauthentic) => &mut self.drop_unauthentic,
            Action::Drop(Reason::UnknownEndpoint) => &mut self.drop_unknown_endpoint,
            Action::Drop(Reason::Filtered) => &mut self.drop_filtered,
        };
        *counter += 1;
    }
}
