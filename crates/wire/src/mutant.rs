//! Mutants: mistakes that a test plants in the code, one at a time, so that the simulator has to find each.
//!
//! Code with a mutant calls [`on`]. Only builds with the feature `mutants` can plant a mutant; otherwise [`on`] is
//! constantly false.

/// Declares the mutants and their lists.
macro_rules! mutants {
    (
        map { $( $(#[$doc:meta])* $name:ident, )* }
        filters { $( $(#[$filters_doc:meta])* $filters:ident, )* }
        levels { $( $(#[$levels_doc:meta])* $levels:ident, )* }
        delegate { $( $(#[$delegate_doc:meta])* $delegate:ident, )* }
        clone { $( $(#[$clone_doc:meta])* $clone:ident, )* }
        clone_hosts { $( $(#[$hosts_doc:meta])* $hosts:ident, )* }
        flow { $( $(#[$flow_doc:meta])* $flow:ident, )* }
        function { $( $(#[$function_doc:meta])* $function:ident, )* }
        held { $( $(#[$held_doc:meta])* $held:ident, )* }
        place { $( $(#[$place_doc:meta])* $place:ident, )* }
        together { $( $(#[$together_doc:meta])* $together:ident, )* }
    ) => {
        /// Mistake that a test can plant.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Mutant {
            $( $(#[$doc])* $name, )*
            $( $(#[$filters_doc])* $filters, )*
            $( $(#[$levels_doc])* $levels, )*
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
            /// Mutants of *map*.
            pub const MAP: &'static [Self] = &[ $( Self::$name, )* ];
            /// Mutants of *map* outside the simulator, in streams of calls; tests of streams find them.
            pub const FILTERS: &'static [Self] = &[ $( Self::$filters, )* ];
            /// Mutants of sums in levels; tests of levels find them.
            pub const LEVELS: &'static [Self] = &[ $( Self::$levels, )* ];
            /// Mutants of *delegate*.
            pub const DELEGATE: &'static [Self] = &[ $( Self::$delegate, )* ];
            /// Mutants of *clone* in the element.
            pub const CLONE: &'static [Self] = &[ $( Self::$clone, )* ];
            /// Mutants of *clone* in callers and workers.
            pub const CLONE_HOSTS: &'static [Self] = &[ $( Self::$hosts, )* ];
            /// Mutants of flows whose receivers acknowledge at once.
            pub const FLOW: &'static [Self] = &[ $( Self::$flow, )* ];
            /// Mutants of *function*.
            pub const FUNCTION: &'static [Self] = &[ $( Self::$function, )* ];
            /// Mutants of *function* outside the simulator; tests with whole functions find them.
            pub const HELD: &'static [Self] = &[ $( Self::$held, )* ];
            /// Mutants of *place*.
            pub const PLACE: &'static [Self] = &[ $( Self::$place, )* ];
            /// Mutants that only show with several abilities on one element.
            pub const TOGETHER: &'static [Self] = &[ $( Self::$together, )* ];
        }
    };
}

mutants! {
    map {
        /// An owner with a store acknowledges before the store has the change.
        AckBeforePersist,
        /// An owner that takes over forgets which notices a caller has not confirmed.
        NoticeForgotten,
        /// A notice of an earlier epoch confirms that the caller has heard of the last one.
        NoticeHeardEarly,
        /// A snapshot of an owner has no repeat filters.
        SnapshotWithoutFrames,
        /// The element treats each frame as new.
        ElementRepeats,
        /// The element treats a repeat that is a window late as the last frame of its window position.
        ElementLateRepeats,
        /// The element adds each copy of a worker's contribution.
        ElementWorkers,
        /// The element accepts frames of any epoch.
        ElementEpoch,
        /// The element accepts frames of any incarnation.
        ElementIncarnation,
        /// The element accepts frames of endpoints of other applications.
        ElementApplication,
        /// The element does not check tokens.
        ElementToken,
        /// The element checks the token after it has applied the frame.
        ElementTokenLate,
        /// The element adds contributions to a row without a check of their tags.
        ElementTag,
        /// The element clears a round's counter when it forwards the sums, before the server has stored them.
        ClearBeforeBackup,
        /// The element clears a row on the result of an older round.
        ClearOnOldResult,
        /// The element does not clear a row at the first contribution to the next round (*shadow*).
        LastRoundAdded,
        /// A worker accepts a saturated lane of the element as a sum.
        ShadowSaturated,
        /// A worker does not send requested sums that only workers have.
        ShadowForgotten,
        /// The server guesses the start chunk of a joining worker.
        ShadowGuessed,
        /// The server has not more rows than the element, though one worker may be a round ahead of another (*lazy*).
        LazyHalved,
        /// The server takes row and round of a frame as if the number of rows were that of the present epoch.
        RowsOfLaterEpoch,
        /// A caller takes row and round of a result as if the number of rows were that of its own epoch.
        RowsOfOwnEpoch,
        /// The element saturates a register and does not report the overflow.
        ClampOverflow,
        /// The element does not report overflowed lanes in the answer to a repeat.
        OverflowSaidOnce,
        /// The element adds to a closed generation while the server reads it.
        HarvestUnfrozen,
        /// The element clears a bank on a late request for an older generation.
        WipeOldGeneration,
        /// The element does not clear a committed bank.
        WipeForgotten,
        /// The server treats each frame as new.
        ServerRepeats,
        /// The server adds each copy of a worker's contribution to a software round.
        ServerWorkers,
        /// The server accepts frames of any epoch.
        ServerEpoch,
        /// The server accepts frames of any incarnation.
        ServerIncarnation,
        /// The server does not check tokens.
        ServerToken,
        /// The server does not answer a late frame of a complete round.
        DropBackup,
        /// The server sends the result of a round to a worker without a contribution to it.
        BackupForAnybody,
        /// A repeat of a reached sum is another sum for the handler.
        ReachedAgain,
        /// The server does not answer workers while the handler runs.
        ReachedUnheld,
        /// Parts that wait for the handler take the room of further parts.
        HeldFillsWindow,
        /// A worker that joins reopens the round whose sum is at the handler.
        ReachedReopened,
        /// The server does not announce software rounds that began without an element.
        BegunUnannounced,
        /// The server accepts a saturated lane of the element as a sum.
        SaturatedKept,
        /// The server announces a software round only once.
        AnnounceOnce,
        /// The server acknowledges lanes that it could not add.
        AckBeforeAdd,
        /// The server does not report refused pairs in the answer to a repeat.
        RefusalSaidOnce,
        /// The server does not answer a request for a lock that another caller holds.
        DropDenied,
        /// The server grants a lock to a repeat of a denied frame.
        RepeatTakesLock,
        /// The server answers a query from a harvest that began before the query.
        QueryFromOlderReading,
        /// The server announces the commit of a generation too early.
        CommitTooSoon,
        /// The server does not send a caller the record of its committed frames of an ended epoch.
        RecordIgnored,
        /// The server does not send a caller the last committed generation of an ended epoch.
        CommitsForgotten,
        /// The server answers a query before callers have repeated the lost additions of an ended epoch.
        QueryUnsettled,
        /// The server adds a register's value to the key that gets the register, not to the key that had it.
        EvictAtOnce,
        /// The server gives registers to other keys without a new mapping version.
        EvictUnversioned,
        /// The server requests a register row only once.
        ReadOnce,
        /// The client sends new frames without regard to the oldest unacknowledged frame.
        WindowUnbounded,
        /// The client never asks again about a held frame.
        HeldNeverProbed,
        /// The client accepts a result of any round for a row.
        ResultOfAnyRound,
        /// The client treats a held frame as done.
        HeldIsDone,
        /// The client acquires several locks in the order of the call, not of the keys.
        LocksUnordered,
        /// The client requests several locks at once, in several frames.
        LocksAtOnce,
        /// The client forgets additions that the element acknowledged and the server has not committed.
        ForgetUncommitted,
        /// The client closes without the notice that it leaves nothing uncommitted.
        LeavesNotSent,
        /// The client ignores changes of epoch while it closes.
        RenewalsUnheardInClosing,
        /// The client reports a call with `ack: server` as done when the element has it.
        AckTooSoon,
        /// The client repeats committed additions of an ended epoch, too.
        RepeatCommitted,
        /// The client writes the current mapping version into a repeat, not the version of the first copy.
        MappingRestamped,
        /// The client keeps using withdrawn registers.
        WithdrawnKept,
        /// The client keeps a lock that was granted to a cancelled call.
        CancelledLockKept,
        /// The element counts each copy of a vote.
        VoteRepeats,
        /// The element counts a vote for any ballot in the row.
        VoteForAnother,
        /// The element reports a decision before the server has recorded it.
        DecidedUnrecorded,
        /// The element decides a ballot and does not record it.
        DecidedForgotten,
        /// The element does not repeat the decision to the caller whose vote decided.
        DecisionSaidOnce,
        /// The element does not count the clearings of a ballot.
        ClearsUncounted,
        /// The server treats each vote after the threshold as the deciding one.
        DecidedTwice,
        /// A vote must be sent again if its ballot was cleared after it reached the threshold in the element.
        ClearedDecisionLost,
        /// The server adds each copy of a claim of votes.
        ClaimTwice,
        /// The server counts claimed votes of a ballot that was cleared since then.
        ClaimOfCleared,
        /// The server counts votes before callers have claimed the votes of an ended epoch.
        VotesUnsettled,
        /// The server lets the element count ballots of which the server has votes.
        RowsNotMoved,
        /// The server does not repeat `Moved` in the answer to a repeat.
        MovedSaidOnce,
        /// The server does not report the decision in the answer to a repeat of the deciding vote.
        WonSaidOnce,
        /// The client attributes a decision by one of a call's votes to the call's first key.
        WonForFirstKey,
        /// The client does not claim a vote that the element acknowledged.
        VoteForgotten,
        /// The client does not report to the server that its vote decided a ballot in the element.
        DecisionUnreported,
        /// The server treats a claimed decision as a claim of votes.
        DecisionUnclaimed,
        /// The client lets the element decide although the server must record the decision first (`ack: server`).
        DecisionTooSoon,
        /// The client gives an unacknowledged vote a new sequence number when the epoch changes.
        VoteRenumbered,
        /// The client treats locks as held after the end of their lease.
        LeaseNotChecked,
        /// The client counts the whole lease, without a margin for clock drift.
        LeaseWithoutDrift,
        /// The client accepts a grant of an earlier session.
        GrantOfOldSession,
        /// A release with any fencing token frees the lock.
        ReleaseOfAnyToken,
        /// Fencing tokens restart in each epoch, without the epoch's bits.
        TokenResetByEpoch,
        /// The element does not raise its grant count after grants by the server.
        GrantsNotRaised,
        /// The server never ends the lease of a silent holder.
        LeaseForEver,
        /// The client accepts frames for another incarnation.
        ClientIncarnation,
        /// The client does not check tokens.
        ClientToken,
        /// The server sums a contribution that no element admitted, although an element may admit its next copy.
        BareSummed,
        /// The client does not set `NOT_ADMITTED` on frames for an element on the route.
        InlineUnmarked,
        /// The element answers a repeated read with the generation of the first copy, and the values of the open one.
        ReadNamesFirstGeneration,
        /// The client adds registers of another generation to the base.
        ReadOfOtherGeneration,
        /// The client takes the register for the whole value.
        ReadWithoutBase,
        /// The client uses a base after the end of its lease.
        ReadAfterLease,
        /// The server changes a base that callers still combine with registers.
        ReadUnclaimed,
        /// The server lends bases for the open generation before it has committed the closed one.
        ReadInHarvest,
        /// The server answers a caller without the element from the bases, without a harvest.
        ReadUnharvested,
        /// The server answers a read before callers have repeated the lost additions of an ended epoch.
        ReadUnsettled,
        /// Small values of a worker use the whole range of their bits, so that sums leave it.
        PackedHeadroom,
        /// The reader of packed sums forgets that negative values have borrowed from those above them.
        PackedBorrow,
        /// Blocks whose workers used different scales count.
        ScalesUnchecked,
        /// What a step leaves of a gradient is forgotten.
        FeedbackDropped,
        /// An endpoint without flow slots resets the first slot, which belongs to another endpoint.
        SlotlessEndpointResets,
    }
    filters {
        /// Operations of a stream begin in any order.
        FilterStreamOvertakes,
        /// Replies of a stream that need no handler overtake those that do.
        FilterStreamUnordered,
        /// The handler gets messages of a stream that `CntFwd` drops.
        FilterStreamForwarded,
    }
    levels {
        /// A level passes sums up in the order in which they are reached.
        LevelUnordered,
        /// All chunks that a level passes up have the same tag.
        LevelUntagged,
        /// A level does not report above that its workers' sums have failed.
        LevelFailureKept,
        /// A level does not tell its workers that their sums have failed above.
        LevelFailureHidden,
    }
    delegate {
        /// The server executes each copy of a request.
        DelegateRepeats,
        /// Messages with a forged node id are accepted.
        DelegateStrangerHeard,
        /// The server deletes the record of an execution before the caller has stopped asking for it.
        DelegateGcTooSoon,
        /// A ping does not extend the lifetime of the record.
        DelegatePingKeepsNot,
        /// The server does not forward the manifest of the previous request.
        DelegateManifestDropped,
        /// The server makes the manifest at its second message, before the execution ends.
        DelegateManifestEarly,
        /// A request that is the only message of its predecessor does not inherit the branch.
        DelegateChainRenamed,
        /// A handler's error completes the request.
        DelegateErrorCompletes,
        /// The server continues aborted executions.
        DelegateAbortIgnored,
        /// The server does not report an abort.
        DelegateAbortNotSent,
        /// The server starts requests of aborted calls.
        DelegateLateBegun,
        /// The caller reports calls in progress as ended.
        DelegateEndedTooSoon,
        /// The caller reports a call complete when all requests are done, without a count of the responses.
        DelegateResponsesUncounted,
        /// The caller delivers each copy of a response.
        DelegateResponseTwice,
        /// The caller does not report the failure of a call.
        DelegateFailureUntold,
        /// The caller waits without limit for an unconfirmed request.
        DelegateNeverFails,
        /// The caller waits without limit for a lost response.
        DelegateLossUnnoticed,
        /// The caller ignores that a handler is stalled.
        DelegateStallIgnored,
        /// The caller grants only the first replies.
        DelegateGrantForgotten,
        /// The server does not report that a long request is arriving.
        DelegateArrivingNotSent,
        /// A node of several shards passes all pings to the first one.
        DelegateShardIgnored,
        /// Requests go to a server that has just failed, although others are there.
        DelegateCircuitIgnored,
        /// All requests go to a server that failed a while ago, not one as a probe.
        DelegateProbesUnlimited,
        /// Requests go to servers that the request names as to be avoided.
        DelegateAvoidIgnored,
        /// A load counts in full, however old the report is.
        DelegateLoadKept,
        /// The requests sent since a server's last report do not count.
        DelegateSentUncounted,
        /// Further attempts of calls ignore the budget.
        DelegateBudgetIgnored,
        /// The number of attempts has no limit.
        DelegateAttemptsUnlimited,
        /// The caller makes calls again that are not idempotent.
        DelegateAnyRepeated,
        /// The caller makes a call again although the application has a reply.
        DelegateRepliesMixed,
        /// The reply of a failed attempt stays and counts for the next one.
        DelegateReplyKept,
        /// The caller makes a call again although a server wishes that it waits.
        DelegatePushbackIgnored,
    }
    clone {
        /// The element does not update the shadow copy of the server-state table.
        CloneShadowKept,
        /// The element takes an old load report for a new one.
        CloneOldReportTaken,
        /// The element does not clear a filter entry after use: the next call with the same fingerprint is filtered,
        /// too.
        CloneFilterKept,
        /// The element filters no answer.
        CloneUnfiltered,
        /// The element filters a part of an answer because it forwarded another part of the same answer.
        ClonePartsFiltered,
        /// The element forwards parts of both answers.
        CloneAnswersMixed,
        /// The element clones a request although a server is busy.
        CloneWhileBusy,
        /// The element clones a request whose caller does not allow it.
        CloneUnasked,
        /// The element makes a separate decision for each part of a request.
        ClonePartsDecided,
        /// The element drops requests of another version of the group table.
        CloneStaleDropped,
        /// The element forwards a cancel of another version of the group table, possibly to a wrong server.
        CloneCancelStale,
        /// The element trusts a CLO field that a host set.
        CloneBelieved,
        /// The element processes a request that another element has decided on.
        CloneSwitchIgnored,
        /// The element accepts an answer with the SID of another server.
        CloneSidUnchecked,
        /// The element accepts a REQ_ID of another caller.
        CloneIdUnchecked,
        /// The element sends a request to the server with the longer queue.
        CloneLongest,
        /// The element steers a request that is addressed to one server.
        CloneDirectSteered,
    }
    clone_hosts {
        /// The caller reports each answer to a call.
        CloneAnsweredTwice,
        /// The caller combines parts of different answers.
        CloneAnswerPatched,
        /// The caller accepts answers for another incarnation.
        CloneIncarnation,
        /// The caller allows clones of calls that are not idempotent.
        CloneAnyCall,
        /// The caller repeats calls that are not idempotent.
        CloneAnyRepeated,
        /// The caller never repeats a call.
        CloneNeverRepeated,
        /// The caller never times out.
        CloneNeverFails,
        /// The caller ignores the hedge budget.
        CloneBudgetIgnored,
        /// The caller takes one unit of the hedge budget for each extra request, whatever its cost.
        CloneCostIgnored,
        /// The caller asks another server although a server wishes that it waits.
        ClonePushbackIgnored,
        /// The caller clones and hedges while all servers are slow.
        CloneOutageIgnored,
        /// The caller does so with calls whose policy it chooses.
        CloneAutomaticOutage,
        /// The caller keeps a policy that is worse than a random server.
        ClonePolicyKept,
        /// The caller counts calls of the policy before for a new one.
        ClonePolicyMixed,
        /// The caller uses one hedge budget for all methods.
        ClonePursesShared,
        /// The caller reports a failure although another server may succeed.
        CloneFailureTaken,
        /// The server sends a failure in a form that the element's response filter records.
        CloneFailureFiltered,
        /// The caller keeps using a silent element.
        CloneSilenceUnnoticed,
        /// The caller never tries a silent element again.
        CloneSilenceForEver,
        /// The server executes each copy of a request.
        CloneWorkedTwice,
        /// The server queues clones although other requests wait.
        CloneQueuedBusy,
        /// The server's queue has no limit.
        CloneQueueUnbounded,
        /// The server never deletes incomplete requests.
        ClonePartialKept,
        /// The element does not drop the held copy of a request when the call is answered.
        CloneHedgeKept,
        /// The element holds a copy of a repeat of a request whose copy it has dropped or sent.
        CloneHeldTwice,
        /// The element sends a held copy to the server that has the request.
        CloneHedgeToFirst,
        /// The element sends a held copy to the busiest of the other servers.
        CloneHedgeToBusy,
        /// The element sends a held copy at half of its time.
        CloneHedgeEarly,
        /// The element does not tell the caller that no copy was sent.
        CloneHedgeHidden,
        /// The caller sends a hedge although the element holds one.
        CloneHedgedToo,
        /// The caller lets the element send a hedge that it has not paid.
        CloneHedgeUnpaid,
        /// The server does not tell the caller that the element holds no copy of a request.
        CloneUnheldHidden,
        /// The streams of slower servers go on after the first message.
        StreamLosersKept,
        /// The caller asks another server for a stream although a server wishes that it waits.
        StreamPushbackIgnored,
        /// The caller takes the first failure for the result of a streaming call.
        StreamFailureTaken,
        /// The caller hedges streaming calls while all servers are slow.
        StreamOutageIgnored,
        /// The caller ignores the hedge budget of streaming calls.
        StreamBudgetIgnored,
        /// The caller never hedges a streaming call.
        StreamNeverHedged,
    }
    flow {
        /// The last item in flight is not probed before its timeout.
        FlowEndNotProbed,
        /// An item that later items have overtaken waits for its timeout, or until many have overtaken it.
        FlowOvertakenWaits,
    }
    function {
        /// The previous group is deleted although servers have flows of it.
        FunctionOldGroupForgotten,
        /// A third group version is installed while flows need the first.
        FunctionThirdVersion,
        /// The server accepts any register values in a request.
        FunctionTurnIgnored,
        /// The server does not report that it changed values in the element.
        FunctionChangeNotReported,
        /// The element serves packets of a flow while earlier packets of the flow are at a server.
        FunctionOvertakes,
        /// Values of a removed entry stay in the element.
        FunctionValuesKept,
        /// A prefix is placed in the element although it covers longer prefixes.
        FunctionPrefixUncleared,
        /// A longer prefix is added before the prefix that covers it has left the element.
        FunctionAddedAtOnce,
        /// Values are given to another server before the previous server has returned them.
        FunctionRangeShared,
        /// The server does not count its packets, so an older value may seem the newest.
        FunctionTurnKept,
        /// Values that arrived before their entry are used.
        FunctionEarlyValues,
        /// A repeated response is accepted.
        FunctionRepeatsTaken,
        /// A repeated request is executed.
        FunctionRepeatsWorkedOn,
        /// Remaining values of a flow whose packets go to another server may be placed in the element.
        FunctionAstrayKept,
        /// The response that arrives last is treated as the newest.
        FunctionLastNewest,
    }
    held {
        /// The element does not count the packets that it sends to servers.
        HeldUncounted,
        /// The element does not record the flows of a group.
        HeldUnremembered,
        /// A server does not report flows that only its variables know.
        HeldUnlistedForgotten,
        /// A server answers with the register values of another entry.
        HeldOtherCell,
    }
    place {
        /// A request starts although an earlier request of the same address or message is in flight.
        PlaceOvertakes,
        /// Reads overtake writes.
        PlaceReadsPass,
        /// A request follows its predecessor onto a different path.
        PlaceFollowsAnywhere,
        /// A request follows a predecessor on a path that may lose both.
        PlaceFollowsBroken,
        /// A request overtakes its failed predecessor.
        PlaceFailedPassed,
        /// A waiting request is never started.
        PlaceNeverReleased,
        /// A failed request is dropped.
        PlaceFailedForgotten,
        /// A failed request is repeated without limit.
        PlaceTriesForEver,
        /// An abandoned request keeps its slot.
        PlaceGivenUpKept,
        /// A request does not wait for the end of its abandoned predecessor.
        PlaceGivenUpPassed,
        /// Outcomes of ended requests are assigned to the requests that reuse their slots.
        PlaceOldTicket,
        /// An abandoned request stays in flight.
        PlaceAbandonedKept,
        /// The estimated queue is longer than the requests in flight.
        PlaceUnclamped,
        /// A failing path is not avoided.
        PlaceFailedKept,
        /// A slow path is treated as a fast one.
        PlaceSlowKept,
        /// An avoided path is never tried again.
        PlaceNeverProbed,
        /// Requests in the common queue are not sent when a device has room again.
        PlaceQueueForgotten,
        /// An abandoned request stays in the common queue.
        PlaceQueuedKept,
        /// A device takes requests from the common queue without limit.
        PlaceNoWindow,
        /// A device takes a request that another one would end sooner.
        PlaceTakesAnyway,
        /// The selector does not ask to be polled when a device that requests wait for may be stalled.
        PlaceStallUnpolled,
        /// A path that has stopped answering is not left.
        PlaceStallKept,
    }
    together {
        /// The element deletes its pools when an application is installed.
        TogetherPoolsForgotten,
        /// The element releases the registers of calls when an application leaves, although it has pools.
        TogetherCallsReleased,
        /// The element steers a call that names an application as if the application were a pool.
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

    /// Plants a mutant in this thread, or removes it.
    pub fn plant(mutant: Option<Mutant>) {
        PLANTED.set(mutant);
    }

    /// Whether this mutant is planted.
    #[must_use]
    pub fn on(mutant: Mutant) -> bool {
        PLANTED.get() == Some(mutant)
    }
}

#[cfg(feature = "mutants")]
pub use planted::{on, plant};

/// Whether this mutant is planted: never, in this build.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
#[must_use]
pub const fn on(_: Mutant) -> bool {
    false
}
