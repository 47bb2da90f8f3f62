/* SPDX-License-Identifier: Apache-2.0 */
/* Switch program for a P4 pipeline (v1model): processing of a frame as in crates/program.
 *
 *   packet -> check -> tables -> admit -> way -> generation -> repeat_filter -> round -> count, ballot -> lock -> grant
 *                                         -> map -> overflow -> emit -> leave -> counters -> egress -> packet
 *
 * One control per stage, with the names of crates/program, which is the reference; frames of calls to pools of servers
 * take the stages of call.p4. A pass visits each register array once, in this order. Profiles (constants.p4) leave out
 * stages. */
#include <core.p4>
#include <v1model.p4>

#include "constants.p4"
#include "wire.p4"
#include "headers.p4"
#include "parser.p4"
#include "checksum.p4"
#include "tables.p4"
#include "check.p4"
#include "admit.p4"
#ifndef PC_NO_MAP
#include "way.p4"
#include "generation.p4"
#include "repeat_filter.p4"
#include "round.p4"
#include "count.p4"
#include "ballot.p4"
#include "lock.p4"
#include "modify.p4"
#include "lane.p4"
#include "map.p4"
#include "passes.p4"
#include "emit.p4"
#endif
#ifndef PC_NO_CALLS
#include "slot.p4"
#include "number.p4"
#include "group.p4"
#include "load.p4"
#include "request.p4"
#include "address.p4"
#include "filter.p4"
#include "call.p4"
#endif
#include "strip.p4"
#include "leave.p4"
#include "counters.p4"
#include "egress.p4"

#ifndef PC_NO_MAP
/* Stages of an admitted map frame. */
control MapStages(inout headers hdr, inout metadata md) {
    Admit() admit;
    Way() way;
    GenerationStage() generation;
    RepeatFilter() repeat_filter;
    Round() round;
    Count() count;
    Ballot() ballot;
    Lock() lock;
    Grant() grant;
    Map() map;
    Overflow() overflow;
    Emit() emit;
#ifdef PC_TWO_PASSES
    Suspend() suspend;
#endif

    apply {
        admit.apply(hdr, md);
        if (md.fate == FATE_NONE) {
            way.apply(hdr, md);
        }
        if (md.fate == FATE_NONE) {
#ifdef PC_TWO_PASSES
            if (md.half == 0) {
#endif
            generation.apply(hdr, md);
            repeat_filter.apply(hdr, md);
            round.apply(hdr, md);
            count.apply(hdr, md);
            ballot.apply(hdr, md);
            lock.apply(hdr, md);
            grant.apply(hdr, md);
#ifdef PC_TWO_PASSES
            }
#endif
            map.apply(hdr, md);
#ifdef PC_TWO_PASSES
            if (md.half == 0 && (md.work == WORK_ZERO || (md.work != WORK_NONE && hdr.map.lanes > PC_ARRAYS))) {
                suspend.apply(hdr, md);
            } else {
#endif
            overflow.apply(hdr, md);
            emit.apply(hdr, md);
#ifdef PC_TWO_PASSES
            }
#endif
        }
    }
}
#endif

control SwitchIngress(inout headers hdr, inout metadata md, inout standard_metadata_t sm) {
    Tables() tables;
    Check() check;
#ifndef PC_NO_MAP
    MapStages() map_stages;
    ApplicationCounters() application_counters;
#endif
#ifndef PC_NO_CALLS
    CallStages() call_stages;
    PoolCounters() pool_counters;
#endif
#ifdef PC_TWO_PASSES
    Resume() resume;
#endif
    Leave() leave;
    ElementCounters() element_counters;

    apply {
#ifdef PC_TWO_PASSES
        resume.apply(hdr, md);
#else
        md.second_pass = sm.instance_type == INSTANCE_RECIRCULATED;
#endif
        if (hdr.base.isValid()) {
            tables.apply(hdr, md);
        }
        check.apply(hdr, md, sm);
        if (md.fate == FATE_NONE) {
#ifdef PC_NO_CALLS
            map_stages.apply(hdr, md);
#elif defined(PC_NO_MAP)
            call_stages.apply(hdr, md);
#else
            if (hdr.call.isValid()) {
                call_stages.apply(hdr, md);
            } else {
                map_stages.apply(hdr, md);
            }
#endif
        }
        /* A frame is sent and counted in its last pass. */
        if (md.fate != FATE_AGAIN) {
            leave.apply(hdr, md, sm);
#ifdef PC_NO_CALLS
            application_counters.apply(hdr, md);
#elif defined(PC_NO_MAP)
            pool_counters.apply(hdr, md);
#else
            if (hdr.call.isValid()) {
                pool_counters.apply(hdr, md);
            } else {
                application_counters.apply(hdr, md);
            }
#endif
            if (md.fate != FATE_ROUTE) {
                element_counters.apply(hdr, md);
            }
        }
    }
}

V1Switch(SwitchParser(), SwitchVerify(), SwitchIngress(), SwitchEgress(), SwitchCompute(), SwitchDeparser()) main;
