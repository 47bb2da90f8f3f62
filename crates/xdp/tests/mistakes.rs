//! Mistakes that a test plants in the program, one at a time, to see that the comparison with the
//! reference finds each: `bpf/planted.h`. Names are those of `pathcall_wire::Mutant` where the
//! reference makes the same one.

macro_rules! mistakes {
    ($( $file:literal: $( $(#[$doc:meta])* $name:ident, )* )*) => {
        /// A mistake: what the program then does wrong.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Mistake {
            /// None is made.
            None,
            $( $( $(#[$doc])* $name, )* )*
            /// It locks no row. Only frames on two processors at once show it.
            Unlocked,
        }

        impl Mistake {
            /// All that frames one after the other show, and the files that they are in.
            pub const ALL: &'static [(&'static str, Self)] = &[ $( $( ($file, Self::$name), )* )* ];
        }
    };
}

mistakes! {
    "admit.h":
    /// It works on frames of any epoch.
    ElementEpoch,
    /// It works on frames of any incarnation.
    ElementIncarnation,
    /// It works on frames of endpoints of other applications.
    ElementApplication,
    /// It works on frames in any flow slot.
    ElementSlot,
    "context.h":
    /// It believes a sender what only an element may say.
    SenderBelieved,
    "generation.h":
    /// It wipes a bank for a generation that it held long before.
    WipeOldGeneration,
    /// It keeps the version of the mapping when a generation is closed.
    VersionKept,
    "once.h":
    /// It takes every frame for new.
    ElementRepeats,
    /// It takes a repeat that is a window late for new.
    ElementLateRepeats,
    /// It applies what is packed by another mapping.
    RefusedApplied,
    "round.h":
    /// It adds a worker's part each time that it comes.
    ElementWorkers,
    /// It sums whatever shares a row, what it is part of aside.
    ElementTag,
    /// It forgets the mark of a round when the next part is not marked.
    MarkForgotten,
    /// It clears on a result of an older round.
    ClearOnOldResult,
    "linear.h":
    /// It adds to what a row that clears itself held of its last round.
    LastRoundAdded,
    "count.h":
    /// It forgets a round's count once it has forwarded the sums.
    ClearBeforeBackup,
    /// It counts a frame each time that it comes.
    CountRepeats,
    /// It has every frame above the threshold say that it reached it.
    ReachedTwice,
    "lock.h":
    /// It takes a lock back from who does not have it.
    ReleaseOfAnyOwner,
    /// It does not note that another wants a lock.
    WantedForgotten,
    /// It goes on with its own count of grants.
    GrantsNotRaised,
    "ballot.h":
    /// It counts a vote each time that it comes.
    VoteRepeats,
    /// It counts a vote for whatever ballot has the row.
    VoteForAnother,
    /// It says that a ballot is decided before the server has recorded it.
    DecidedUnrecorded,
    /// It does not count how often a ballot was cleared.
    ClearsUncounted,
    "lanes.h":
    /// It lets a sum beyond the range of a register begin at its other end.
    LanesWrap,
    /// It shifts by 32 as by 0.
    ShiftModulo,
    /// It zeroes all lanes but the first.
    FirstLaneKept,
    "map.h":
    /// It has a register stay at the end of its range and says nothing.
    ClampOverflow,
    /// It adds pairs each time that they come.
    PairsRepeats,
    /// It modifies pairs that are not its own.
    UnmarkedModified,
    "keyed.h":
    /// It adds to a generation that is closed.
    HarvestUnfrozen,
    /// It does not say again, on a repeat, which pairs overflowed.
    OverflowSaidOnce,
    /// It keeps what it has when the server has made it its own.
    WipeForgotten,
    "emit.h":
    /// It answers with all that came.
    StripForgotten,
    /// It answers in the name of another incarnation.
    IncarnationKept,
    /// It marks the last lanes of a frame one off.
    MarksShifted,
    "number.h":
    /// It lets a caller number requests in another's name.
    IdUnchecked,
    "group.h":
    /// It takes the first pair for whatever group is of another version.
    StaleClamped,
    /// It passes on a cancel of another version of the table.
    CancelStale,
    "load.h":
    /// It does not note a server's state in the shadow of its table.
    ShadowKept,
    /// It clones what its caller does not want cloned.
    CloneUnasked,
    /// It clones although a server is busy.
    CloneWhileBusy,
    /// It prefers the second of two queues that are alike.
    TieToSecond,
    "request.h":
    /// It does not look up what the first part of a request has left.
    PartsForgotten,
    "address.h":
    /// It takes any endpoint for a server that a request is addressed to.
    DirectToAnybody,
    "filter.h":
    /// It filters no answer.
    Unfiltered,
    /// It lets parts of both answers pass.
    AnswersMixed,
    /// It keeps what it has filtered.
    FilterKept,
    "clone.h":
    /// It takes an answer in the name of another server.
    SidUnchecked,
    /// It believes a host that a request was cloned already.
    HostBelieved,
    /// It steers what is addressed to one server.
    DirectSteered,
    /// It works on what another element has decided.
    SwitchIgnored,
    "egress.h":
    /// It leaves the packet as long as it was.
    TailKept,
    /// It adds the old checksum into the new.
    SumOfBefore,
    /// It sends the mark of congestion on in the IP header.
    MarkPassedOn,
}

/// The two lists are one: a number means the same to both sides.
#[test]
fn mistakes_are_those_of_the_header() {
    let header = include_str!("../bpf/planted.h");
    let names = header.lines().filter_map(|line| line.trim().strip_suffix(',')).skip(1);
    let plain = |name: &str| name.replace('_', "").to_lowercase();
    let theirs: Vec<_> = names.map(plain).collect();
    let ours: Vec<_> = Mistake::ALL
        .iter()
        .map(|(_, mistake)| mistake)
        .chain([&Mistake::Unlocked])
        .map(|mistake| plain(&format!("{mistake:?}")))
        .collect();
    assert_eq!(ours, theirs);
}
