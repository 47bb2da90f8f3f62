/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of the program (crates/program, counters.rs). Lanes that were added or left out are counted in lane.p4. */

/* Counters of one application, by its index. */
control ApplicationCounters(inout headers hdr, inout metadata md) {
    counter(PC_APPLICATIONS, CounterType.packets) admitted;
    counter(PC_APPLICATIONS, CounterType.packets) not_admitted;
    counter(PC_APPLICATIONS, CounterType.packets) unauthentic;
    counter(PC_APPLICATIONS, CounterType.packets) applied;
    counter(PC_APPLICATIONS, CounterType.packets) repeats;
    counter(PC_APPLICATIONS, CounterType.packets) stale;
    counter(PC_APPLICATIONS, CounterType.packets) refused;
    counter(PC_APPLICATIONS, CounterType.packets) old;
    counter(PC_APPLICATIONS, CounterType.packets) diverted;
    counter(PC_APPLICATIONS, CounterType.packets) held;
    counter(PC_APPLICATIONS, CounterType.packets) denied;
    counter(PC_APPLICATIONS, CounterType.packets) reached;
    counter(PC_APPLICATIONS, CounterType.packets) results;
    counter(PC_APPLICATIONS, CounterType.packets) clears;
    counter(PC_APPLICATIONS, CounterType.packets) reads;
    counter(PC_APPLICATIONS, CounterType.packets) harvests;
    counter(PC_APPLICATIONS, CounterType.packets) ecn_marked;
    counter(PC_APPLICATIONS, CounterType.packets) cross;

    apply {
        if (md.counted.admitted) {
            admitted.count(md.index);
        }
        if (md.counted.not_admitted) {
            not_admitted.count(md.index);
        }
        if (md.counted.unauthentic) {
            unauthentic.count(md.index);
        }
        if (md.counted.applied) {
            applied.count(md.index);
        }
        if (md.counted.repeats) {
            repeats.count(md.index);
        }
        if (md.counted.stale) {
            stale.count(md.index);
        }
        if (md.counted.refused) {
            refused.count(md.index);
        }
        if (md.counted.old) {
            old.count(md.index);
        }
        if (md.counted.diverted) {
            diverted.count(md.index);
        }
        if (md.counted.held) {
            held.count(md.index);
        }
        if (md.counted.denied) {
            denied.count(md.index);
        }
        if (md.counted.reached) {
            reached.count(md.index);
        }
        if (md.counted.results) {
            results.count(md.index);
        }
        if (md.counted.clears) {
            clears.count(md.index);
        }
        if (md.counted.reads) {
            reads.count(md.index);
        }
        if (md.counted.harvests) {
            harvests.count(md.index);
        }
        if (md.counted.ecn_marked) {
            ecn_marked.count(md.index);
        }
        if (md.counted.cross) {
            cross.count(md.index);
        }
    }
}

/* Counters of one pool of servers, by its index. */
control PoolCounters(inout headers hdr, inout metadata md) {
    counter(PC_POOLS, CounterType.packets) admitted;
    counter(PC_POOLS, CounterType.packets) not_admitted;
    counter(PC_POOLS, CounterType.packets) unauthentic;
    counter(PC_POOLS, CounterType.packets) passed;
    counter(PC_POOLS, CounterType.packets) requests;
    counter(PC_POOLS, CounterType.packets) clones;
    counter(PC_POOLS, CounterType.packets) shorter;
    counter(PC_POOLS, CounterType.packets) direct;
    counter(PC_POOLS, CounterType.packets) stale_groups;
    counter(PC_POOLS, CounterType.packets) replies;
    counter(PC_POOLS, CounterType.packets) filtered;
    counter(PC_POOLS, CounterType.packets) cancels;
    counter(PC_POOLS, CounterType.packets) ecn_marked;

    apply {
        if (md.counted_call.admitted) {
            admitted.count(md.index);
        }
        if (md.counted_call.not_admitted) {
            not_admitted.count(md.index);
        }
        if (md.counted_call.unauthentic) {
            unauthentic.count(md.index);
        }
        if (md.counted_call.passed) {
            passed.count(md.index);
        }
        if (md.counted_call.requests) {
            requests.count(md.index);
        }
        if (md.counted_call.clones) {
            clones.count(md.index);
        }
        if (md.counted_call.shorter) {
            shorter.count(md.index);
        }
        if (md.counted_call.direct) {
            direct.count(md.index);
        }
        if (md.counted_call.stale_groups) {
            stale_groups.count(md.index);
        }
        if (md.counted_call.replies) {
            replies.count(md.index);
        }
        if (md.counted_call.filtered) {
            filtered.count(md.index);
        }
        if (md.counted_call.cancels) {
            cancels.count(md.index);
        }
        if (md.counted_call.ecn_marked) {
            ecn_marked.count(md.index);
        }
    }
}

/* Element-wide counters: received frames, and their actions by FATE_. */
control ElementCounters(inout headers hdr, inout metadata md) {
    counter(1, CounterType.packets) frames_in;
    counter(32, CounterType.packets) fates;

    apply {
        if (!md.second_pass) {
            frames_in.count(0);
        }
        fates.count((bit<32>) md.fate);
    }
}
