//! Mistakes that a test plants in the code, one at a time, to see that the simulator catches each.
//!
//! A decisive line asks [`on`] whether its mistake is to be made. Only builds with the feature
//! `mutants` can say yes; in all others [`on`] is a constant and nothing of this is left.

/// Declares the mistakes and the list of them.
macro_rules! mutants {
    (
        map { $( $(#[$doc:meta])* $name:ident, )* }
        delegate { $( $(#[$delegate_doc:meta])* $delegate:ident, )* }
        clone { $( $(#[$clone_doc:meta])* $clone:ident, )* }
        clone_hosts { $( $(#[$hosts_doc:meta])* $hosts:ident, )* }
        flow { $( $(#[$flow_doc:meta])* $flow:ident, )* }
        function { $( $(#[$function_doc:meta])* $function:ident, )* }
        held { $( $(#[$held_doc:meta])* $held:ident, )* }
        place { $( $(#[$place_doc:meta])* $place:ident, )* }
        together { $( $(#[$together_doc:meta])* $together:ident, )* }
    ) => {
        /// A mistake: what the code then does wrong.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Mutant {
            $( $(#[$doc])* $name, )*
            $( $(#[$delegate_doc])* $delegate, )*
            $( $(#[$clone_doc])* $clone, )*
            $( $(#[$hosts_doc])* $hosts, )*
            $( $(#[$flow_doc])* $flow, )*
            $( $(#[$function_doc])* $function, )*
            $( $(#[$held_doc])* $held, )*
            $( $(#[$place_doc])* $place, )*
            $( $(#[$together_doc])* $together, )*
        }

        impl Mutant {
            /// All of *map*.
            pub const MAP: &'static [Self] = &[ $( Self::$name, )* ];
            /// All of *delegate*.
            pub const DELEGATE: &'static [Self] = &[ $( Self::$delegate, )* ];
            /// All of *clone* in the element.
            pub const CLONE: &'static [Self] = &[ $( Self::$clone, )* ];
            /// All of *clone* in hosts: callers, workers.
            pub const CLONE_HOSTS: &'static [Self] = &[ $( Self::$hosts, )* ];
            /// All of flows whose receivers acknowledge at once.
            pub const FLOW: &'static [Self] = &[ $( Self::$flow, )* ];
            /// All of *function*.
            pub const FUNCTION: &'static [Self] = &[ $( Self::$function, )* ];
            /// Of *function*, in parts that the simulator has not: whole functions show them.
            pub const HELD: &'static [Self] = &[ $( Self::$held, )* ];
            /// All of *place*.
            pub const PLACE: &'static [Self] = &[ $( Self::$place, )* ];
            /// Of several abilities on one element: none of them shows them alone.
            pub const TOGETHER: &'static [Self] = &[ $( Self::$together, )* ];
        }
    };
}

mutants! {
    map {
        /// The element takes every frame for new.
        ElementRepeats,
        /// The element takes a repeat that is a window late for the last frame of its place.
        ElementLateRepeats,
        /// The element adds a worker's part each time that it comes.
        ElementWorkers,
        /// The element works on frames of any epoch.
        ElementEpoch,
        /// The element works on frames of any incarnation.
        ElementIncarnation,
        /// The element works on frames of endpoints of other applications.
        ElementApplication,
        /// The element does not look at tokens.
        ElementToken,
        /// The element looks at a frame's token when its work is done.
        ElementTokenLate,
        /// The element sums whatever shares a row, what it is part of aside.
        ElementTag,
        /// The element forgets a round's count once it has forwarded the sums, before the server has them.
        ClearBeforeBackup,
        /// The element clears on a result of an older round.
        ClearOnOldResult,
        /// The element adds to what a row that clears itself held of its last round.
        LastRoundAdded,
        /// A worker takes an element's lane at the end of its range for a sum.
        ShadowSaturated,
        /// A worker does not hand out sums that only workers have.
        ShadowForgotten,
        /// The server lets a worker begin where it guesses that the others stand.
        ShadowGuessed,
        /// The element has a register stay at the end of its range and says nothing.
        ClampOverflow,
        /// The element does not say again, on a repeat, which lanes overflowed.
        OverflowSaidOnce,
        /// The element adds to a generation that is closed, while the server reads it.
        HarvestUnfrozen,
        /// The element wipes a bank for a generation that it held long before.
        WipeOldGeneration,
        /// The element keeps what it has when the server has made it its own.
        WipeForgotten,
        /// The server takes every frame for new.
        ServerRepeats,
        /// The server adds a worker's part of a software round each time that it comes.
        ServerWorkers,
        /// The server takes frames of any epoch.
        ServerEpoch,
        /// The server takes frames of any incarnation.
        ServerIncarnation,
        /// The server does not look at tokens.
        ServerToken,
        /// The server does not answer a question about a round that is over.
        DropBackup,
        /// The server answers a worker's question about a round that it had no part in.
        BackupForAnybody,
        /// The server does not announce rounds that were begun while there was no element.
        BegunUnannounced,
        /// The server takes an element's lane at the end of its range for a sum.
        SaturatedKept,
        /// The server announces a software round once.
        AnnounceOnce,
        /// The server acknowledges lanes before it knows whether it can add them.
        AckBeforeAdd,
        /// The server does not say again, on a repeat, which pairs it refused.
        RefusalSaidOnce,
        /// The server does not answer a lock that another holds.
        DropDenied,
        /// The server lets a repeat take a lock that the first copy was denied.
        RepeatTakesLock,
        /// The server answers a query from a reading that began before it.
        QueryFromOlderReading,
        /// The server tells callers that a generation is committed which is not.
        CommitTooSoon,
        /// The server does not tell a caller which of its frames an ended epoch's commits hold.
        RecordIgnored,
        /// The server does not tell a caller up to where an ended epoch was committed.
        CommitsForgotten,
        /// The server answers a query before callers have repeated what an ended epoch had.
        QueryUnsettled,
        /// The server counts what a register held for the key that gets it, not for the one that had it.
        EvictAtOnce,
        /// The server gives registers to other keys under the mapping version that callers have.
        EvictUnversioned,
        /// The server asks for a register row once.
        ReadOnce,
        /// The client numbers new frames however old the oldest unacknowledged one is.
        WindowUnbounded,
        /// The client never asks again about what is held.
        HeldNeverProbed,
        /// The client takes a row's result whatever its round.
        ResultOfAnyRound,
        /// The client takes what is held for done.
        HeldIsDone,
        /// The client takes several locks in the order in which they were named.
        LocksUnordered,
        /// The client asks for several locks at once, in several frames.
        LocksAtOnce,
        /// The client forgets what the element acknowledged, though the server does not have it.
        ForgetUncommitted,
        /// The client closes and does not say that it leaves nothing behind.
        LeavesUnsaid,
        /// The client hears of no other epoch while it closes.
        RenewalsUnheardInClosing,
        /// The client reports what must be acknowledged by the server when the element has it.
        AckTooSoon,
        /// The client repeats all that an ended epoch had, the committed included.
        RepeatCommitted,
        /// The client says on a repeat that it was packed by the mapping of now.
        MappingRestamped,
        /// The client goes on by the registers that were withdrawn.
        WithdrawnKept,
        /// The client keeps a lock that was granted after its caller gave up.
        CancelledLockKept,
        /// The element counts a vote each time that it comes.
        VoteRepeats,
        /// The element counts a vote for whatever ballot has the row.
        VoteForAnother,
        /// The element says that a ballot is decided before the server has recorded it.
        DecidedUnrecorded,
        /// The element does not count how often a ballot was cleared.
        ClearsUncounted,
        /// The server takes every vote that finds the threshold reached for the one that decides.
        DecidedTwice,
        /// The server adds a claim of votes each time that it comes.
        ClaimTwice,
        /// The server counts claimed votes of a ballot that was cleared since.
        ClaimOfCleared,
        /// The server counts votes before callers have claimed what an ended epoch had.
        VotesUnsettled,
        /// The server lets the element count ballots that it has votes of itself.
        RowsNotMoved,
        /// The server does not say again, on a repeat, that the element counts a key.
        MovedSaidOnce,
        /// The server does not say again, on a repeat, that a vote has decided its ballot.
        WonSaidOnce,
        /// The client forgets a vote that the element has acknowledged.
        VoteForgotten,
        /// The client gives a vote on its way another number when the epoch changes.
        VoteRenumbered,
        /// The client believes that it holds locks although their lease has run out.
        LeaseNotChecked,
        /// The client counts its lease as the server does: with clocks that drift it ends later there.
        LeaseWithoutDrift,
        /// The client takes a grant of an earlier session for one of this.
        GrantOfOldSession,
        /// A release frees the lock, whichever grant it names.
        ReleaseOfAnyToken,
        /// The server counts the grants of a lock anew in every epoch, without the epoch's part.
        TokenResetByEpoch,
        /// The element goes on with its own count of grants after the server has granted the lock.
        GrantsNotRaised,
        /// The server never takes a lock from a holder that is silent.
        LeaseForEver,
        /// The client takes frames that are addressed to another incarnation.
        ClientIncarnation,
        /// The client does not look at tokens.
        ClientToken,
        /// The server sums what no element has admitted, though its next copy may meet one.
        BareSummed,
        /// The client does not say of what an element on the way is to work on that none has.
        InlineUnmarked,
    }
    delegate {
        /// The server works on a request each time that it comes.
        DelegateRepeats,
        /// Messages are taken from nodes that say they are another.
        DelegateStrangerHeard,
        /// The server forgets what it did before the caller can be done asking for it.
        DelegateGcTooSoon,
        /// A ping does not make the server keep what it did.
        DelegatePingKeepsNot,
        /// The server does not pass on the manifest of the request before.
        DelegateManifestDropped,
        /// The server makes its manifest of what it has sent by its second message.
        DelegateManifestEarly,
        /// A request that is all that its predecessor led to does not inherit its branch.
        DelegateChainRenamed,
        /// A handler's error ends its request as if it had finished.
        DelegateErrorCompletes,
        /// The server goes on working on what was aborted.
        DelegateAbortIgnored,
        /// The server does not say that it has aborted.
        DelegateAbortUnsaid,
        /// The server begins requests of calls that were aborted.
        DelegateLateBegun,
        /// The caller says that all calls before one have ended.
        DelegateEndedTooSoon,
        /// The caller takes a call for complete when all requests are done, whatever came of them.
        DelegateResponsesUncounted,
        /// The caller takes a response each time that it comes.
        DelegateResponseTwice,
        /// The caller tells nobody that a call has failed.
        DelegateFailureUntold,
        /// The caller waits for ever for what nobody confirms.
        DelegateNeverFails,
        /// The caller waits for ever for a response that was sent.
        DelegateLossUnnoticed,
        /// The caller takes a handler that gets nowhere for one that works.
        DelegateStallIgnored,
        /// The caller grants no more than the first replies.
        DelegateGrantForgotten,
        /// The server does not say that a long request is on its way to it.
        DelegateArrivingUnsaid,
    }
    clone {
        /// The element does not note a server's state in the shadow of its table.
        CloneShadowKept,
        /// The element keeps what it has filtered: the next call with such an id is filtered, too.
        CloneFilterKept,
        /// The element filters no answer.
        CloneUnfiltered,
        /// The element filters a part of an answer because it has passed another part of it.
        ClonePartsFiltered,
        /// The element lets parts of both answers pass.
        CloneAnswersMixed,
        /// The element clones although a server is busy.
        CloneWhileBusy,
        /// The element clones what its caller does not want cloned.
        CloneUnasked,
        /// The element decides about each part of a request anew.
        ClonePartsDecided,
        /// The element drops requests whose group is of another version of the table.
        CloneStaleDropped,
        /// The element passes on a cancel of another version of the table: to a server that may be any.
        CloneCancelStale,
        /// The element believes a host that a request was cloned already.
        CloneBelieved,
        /// The element works on what another element has decided.
        CloneSwitchIgnored,
        /// The element takes an answer in the name of another server.
        CloneSidUnchecked,
        /// The element lets a caller number requests in another's name.
        CloneIdUnchecked,
        /// The element sends a request to the longer of two queues.
        CloneLongest,
        /// The element steers what is addressed to one server.
        CloneDirectSteered,
    }
    clone_hosts {
        /// The caller tells of every answer to a call.
        CloneAnsweredTwice,
        /// The caller puts parts of several answers together.
        CloneAnswerPatched,
        /// The caller takes answers for another incarnation.
        CloneIncarnation,
        /// The caller lets calls be cloned that may take effect only once.
        CloneAnyCall,
        /// The caller sends calls again that may take effect only once.
        CloneAnyRepeated,
        /// The caller sends no call a second time.
        CloneNeverRepeated,
        /// The caller waits for ever.
        CloneNeverFails,
        /// The caller sends as many extra requests as it likes.
        CloneBudgetIgnored,
        /// The caller pays for calls of every kind from one purse.
        ClonePursesShared,
        /// The caller takes a failure for the answer that another server may do better than.
        CloneFailureTaken,
        /// The server has the element remember a failure as the call's answer.
        CloneFailureFiltered,
        /// The caller goes on by way of an element that is silent.
        CloneSilenceUnnoticed,
        /// The caller never tries an element again that was silent.
        CloneSilenceForEver,
        /// The server works on every copy of a request.
        CloneWorkedTwice,
        /// The server queues clones although others wait.
        CloneQueuedBusy,
        /// The server queues whatever comes.
        CloneQueueUnbounded,
        /// The server keeps for ever what has come in part.
        ClonePartialKept,
    }
    flow {
        /// Nothing is sent again before its time-out if nothing is acknowledged.
        FlowEndNotProbed,
        /// What later ones have overtaken waits for its time-out, or until many have.
        FlowOvertakenWaits,
    }
    function {
        /// The group before is forgotten although servers have flows of it.
        FunctionOldGroupForgotten,
        /// A third version comes while flows need the first.
        FunctionThirdVersion,
        /// The server takes whatever values of registers a request carries.
        FunctionTurnIgnored,
        /// The server does not say that it has changed what the element has.
        FunctionChangeUnsaid,
        /// Hits count although packets of the flow are at a server.
        FunctionOvertakes,
        /// A removed entry's values stay in the element.
        FunctionValuesKept,
        /// A prefix goes into the element although longer ones lie beneath it.
        FunctionPrefixUncleared,
        /// What is added beneath a prefix in the element is added before it has left.
        FunctionAddedAtOnce,
        /// Values are given to another server before the one that has them has returned them.
        FunctionRangeShared,
        /// The server does not count the packets that it worked on, so an older value may seem the newest.
        FunctionTurnKept,
        /// Values that came before their entry are used with it.
        FunctionEarlyValues,
        /// A response that came before is taken once more.
        FunctionRepeatsTaken,
        /// A request that came before is worked on once more.
        FunctionRepeatsWorkedOn,
        /// What is left of a flow whose packets go elsewhere may go into the element.
        FunctionAstrayKept,
        /// The last response to come back is taken for the newest.
        FunctionLastNewest,
    }
    held {
        /// The element does not count the packets that it sends to servers.
        HeldUncounted,
        /// The element does not remember which flows came with a group.
        HeldUnremembered,
        /// A server does not say that its variables alone know of flows.
        HeldUnlistedForgotten,
        /// The values of registers that a server answers with are another entry's.
        HeldOtherCell,
    }
    place {
        /// A request goes although one before it, of its address or message, is on its way.
        PlaceOvertakes,
        /// Reads pass writes.
        PlaceReadsPass,
        /// A request follows one onto another path.
        PlaceFollowsAnywhere,
        /// A request follows one that may be lost with others on its path.
        PlaceFollowsBroken,
        /// What follows one that failed goes before it.
        PlaceFailedPassed,
        /// Who waits is forgotten.
        PlaceNeverReleased,
        /// A request that failed is forgotten.
        PlaceFailedForgotten,
        /// A request is sent again as often as it fails.
        PlaceTriesForEver,
        /// A request that was given up keeps its place.
        PlaceGivenUpKept,
        /// What follows one that was given up does not wait until that is over.
        PlaceGivenUpPassed,
        /// Outcomes of requests that have ended are taken for those of the ones in their places.
        PlaceOldTicket,
        /// What was abandoned stays in flight.
        PlaceAbandonedKept,
        /// More seems to be queued than is in flight.
        PlaceUnclamped,
        /// A path that fails is not left.
        PlaceFailedKept,
        /// A path that is slow is taken for one that is not.
        PlaceSlowKept,
        /// A path that was left is never tried again.
        PlaceNeverProbed,
    }
    together {
        /// The element forgets its pools when an application is installed.
        TogetherPoolsForgotten,
        /// The element gives the registers of calls back when an application leaves, though it has pools.
        TogetherCallsReleased,
        /// An endpoint that has no flow slots starts the first slot anew, whosever that is.
        TogetherSlotsReset,
        /// The element steers a call that names an application as if it named a pool.
        TogetherApplicationSteered,
    }
}

#[cfg(feature = "mutants")]
mod planted {
    extern crate std;

    use core::cell::Cell;

    use super::Mutant;

    std::thread_local! {
        static PLANTED: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Plants a mistake in this thread, or none.
    pub fn plant(mutant: Option<Mutant>) {
        PLANTED.set(mutant);
    }

    /// Whether this mistake is to be made.
    #[must_use]
    pub fn on(mutant: Mutant) -> bool {
        PLANTED.get() == Some(mutant)
    }
}

#[cfg(feature = "mutants")]
pub use planted::{on, plant};

/// Whether this mistake is to be made: never, in this build.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
#[must_use]
pub const fn on(_: Mutant) -> bool {
    false
}
