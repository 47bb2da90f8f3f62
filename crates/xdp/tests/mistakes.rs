//! Planted mistakes of the kernel's program (`bpf/planted.h`), one at a time, each of which the comparison with the
//! reference has to find. Names are those of `pathcall_wire::Mutant` where the reference has the same mistake.

macro_rules! mistakes {
    ($( $file:literal: $( $(#[$doc:meta])* $name:ident, )* )*) => {
        /// Mistake: the wrong behaviour of the program.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Mistake {
            /// No mistake.
            None,
            $( $( $(#[$doc])* $name, )* )*
            /// Locks no row. Only simultaneous frames on two processors show it.
            Unlocked,
        }

        impl Mistake {
            /// Mistakes that sequential frames show, with their files.
            pub const ALL: &'static [(&'static str, Self)] = &[ $( $( ($file, Self::$name), )* )* ];
        }
    };
}

mistakes! {
    "admit.h":
    /// Processes frames of any epoch.
    ElementEpoch,
    /// Processes frames of any incarnation.
    ElementIncarnation,
    /// Processes frames of endpoints of other applications.
    ElementApplication,
    /// Processes frames in any flow slot.
    ElementSlot,
    "context.h":
    /// Accepts from senders flags that only an element may set.
    SenderBelieved,
    "generation.h":
    /// Wipes a bank for a generation that the bank held long before.
    WipeOldGeneration,
    /// Keeps the version of the mapping when a generation is closed.
    VersionKept,
    "repeat_filter.h":
    /// Takes every frame for new.
    ElementRepeats,
    /// Takes a repeat that is a window late for new.
    ElementLateRepeats,
    /// Applies pairs of another mapping.
    RefusedApplied,
    "round.h":
    /// Adds every repeat of a worker's part.
    ElementWorkers,
    /// Sums parts of different sums that share a row.
    ElementTag,
    /// Loses the congestion mark of a round when the next part is not marked.
    MarkForgotten,
    /// Clears a row on the result of an older round.
    ClearOnOldResult,
    "linear.h":
    /// Adds to the sums of the last round in a row that clears itself.
    LastRoundAdded,
    "count.h":
    /// Resets a round's count once the sums are forwarded.
    ClearBeforeBackup,
    /// Counts repeats of a frame.
    CountRepeats,
    /// Marks every frame above the threshold as the one that reached it.
    ReachedTwice,
    "lock.h":
    /// Accepts the release of a lock by a caller that does not hold it.
    ReleaseOfAnyOwner,
    /// Does not record that another caller wants a lock.
    WantedForgotten,
    /// Continues with the element's own count of grants.
    GrantsNotRaised,
    "ballot.h":
    /// Counts repeats of a vote.
    VoteRepeats,
    /// Counts a vote for another ballot in the row.
    VoteForAnother,
    /// Reports a ballot as decided before the server has recorded the decision.
    DecidedUnrecorded,
    /// Decides a ballot and does not record it.
    DecidedForgotten,
    /// Does not repeat the decision to the caller whose vote decided.
    DecisionSaidOnce,
    /// Does not count the clears of a ballot.
    ClearsUncounted,
    "lanes.h":
    /// Wraps a sum that overflows a register.
    LanesWrap,
    /// Shifts by 32 as by 0.
    ShiftModulo,
    /// Does not zero the first lane.
    FirstLaneKept,
    "map.h":
    /// Saturates an overflowing register without a flag.
    ClampOverflow,
    /// Adds repeats of pairs.
    PairsRepeats,
    /// Modifies pairs that are not marked for the element.
    UnmarkedModified,
    "keyed.h":
    /// Adds to a closed generation.
    HarvestUnfrozen,
    /// Omits the overflow flags on a repeat.
    OverflowSaidOnce,
    /// Names the generation of the first copy in the answer to a repeated read.
    ReadNamesFirstGeneration,
    /// Keeps the values after the server's harvest.
    WipeForgotten,
    "emit.h":
    /// Answers with the lanes that should be stripped.
    StripForgotten,
    /// Answers with the wrong incarnation.
    IncarnationKept,
    /// Shifts the marks of the last lanes by one.
    MarksShifted,
    "number.h":
    /// Accepts request ids of another caller.
    IdUnchecked,
    "group.h":
    /// Uses the first pair for a group of another version.
    StaleClamped,
    /// Forwards a cancel of another version of the table.
    CancelStale,
    "load.h":
    /// Does not write a server's state to the shadow copy of the table.
    ShadowKept,
    OldReportTaken,
    /// Clones requests whose caller does not permit clones.
    CloneUnasked,
    /// Clones although a server is busy.
    CloneWhileBusy,
    /// Prefers the second of two queues of the same length.
    TieToSecond,
    "request.h":
    /// Does not look up the decision for the first part of a request.
    PartsForgotten,
    "address.h":
    /// Accepts any endpoint as the server of a directly addressed request.
    DirectToAnybody,
    "filter.h":
    /// Filters no answer.
    Unfiltered,
    /// Lets parts of both answers pass.
    AnswersMixed,
    /// Keeps the filter entry after filtering the slower answer.
    FilterKept,
    "clone.h":
    /// Accepts an answer in the name of another server.
    SidUnchecked,
    /// Trusts a host's flag that a request was cloned already.
    HostBelieved,
    /// Steers requests that are addressed to one server.
    DirectSteered,
    /// Processes requests that another element has decided.
    SwitchIgnored,
    "egress.h":
    /// Leaves the packet at its old length.
    TailKept,
    /// Adds the old checksum to the new one.
    SumOfBefore,
    /// Forwards the congestion mark in the IP header.
    MarkPassedOn,
}

/// The list here and the list in the header have the same order, so that numbers agree.
#[test]
fn mistake_list_matches_header() {
    let header = include_str!("../bpf/planted.h");
    let names = header.lines().filter_map(|line| line.trim().strip_suffix(',')).skip(1);
    let plain = |name: &str| name.replace('_', "").to_lowercase();
    let expected: Vec<_> = names.map(plain).collect();
    let listed: Vec<_> = Mistake::ALL
        .iter()
        .map(|(_, mistake)| mistake)
        .chain([&Mistake::Unlocked])
        .map(|mistake| plain(&format!("{mistake:?}")))
        .collect();
    assert_eq!(listed, expected);
}
