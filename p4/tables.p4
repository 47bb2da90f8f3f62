/* SPDX-License-Identifier: Apache-2.0 */
/* Admission tables, set by the controller (crates/program, tables.rs and clone/pools.rs). A miss leaves the metadata
 * unchanged: nothing is known. */

control Tables(inout headers hdr, inout metadata md) {
#ifndef PC_NO_MAP
    /* `index`: index of the application's counters and group. */
    action application(bit<32> index, bit<32> epoch, bit<32> owner, bit<32> row_base, bit<32> rows, bit<32> width) {
        md.installed = true;
        md.index = index;
        md.epoch = epoch;
        md.owner = owner;
        md.row_base = row_base;
        md.rows = rows;
        md.width = width;
    }

    table applications {
        key = { hdr.base.gaid: exact; }
        actions = { application; NoAction; }
        default_action = NoAction();
        size = PC_APPLICATIONS;
    }
#endif

#ifndef PC_NO_CALLS
    /* `index`: index of the pool's loads and counters. `groups`: number of ordered pairs of servers. */
    action pool(bit<32> index, bit<32> version, bit<32> groups) {
        md.installed = true;
        md.index = index;
        md.epoch = version;
        md.groups = groups;
    }

    table pools {
        key = { hdr.base.gaid: exact; }
        actions = { pool; NoAction; }
        default_action = NoAction();
        size = PC_POOLS;
    }
#endif

    /* `egress`: egress port of the endpoint, here and for the addressee. */
    action sender(bit<32> incarnation, bit<32> slot_base, bit<32> slots, bit<32> server, bit<9> egress) {
        md.sender_known = true;
        md.incarnation = incarnation;
        md.slot_base = slot_base;
        md.slots = slots;
        md.sender_server = server;
        md.sender_egress = egress;
    }

    table senders {
        key = { hdr.base.gaid: exact; hdr.base.src: exact; }
        actions = { sender; NoAction; }
        default_action = NoAction();
        size = PC_ENDPOINTS;
    }

    /* `server`: SID, counted from 1; 0 if it is not a server. `ip`, `port`: address of the endpoint, for inline frames;
     * 0 if unknown. */
    action addressee(bit<32> server, bit<32> ip, bit<16> port, bit<9> egress) {
        md.known = true;
        md.addressee_server = server;
        md.addressee_egress = egress;
        md.passing = hdr.ipv4.dst == ip && hdr.udp.dst == port && hdr.ipv4.ttl > 1 && hdr.ethernet.dst[40:40] == 0;
    }

    table addressees {
        key = { hdr.base.gaid: exact; hdr.base.dst: exact; }
        actions = { addressee; NoAction; }
        default_action = NoAction();
        size = PC_ENDPOINTS;
    }

    apply {
#ifdef PC_NO_CALLS
        applications.apply();
#elif defined(PC_NO_MAP)
        pools.apply();
#else
        if (hdr.call.isValid()) {
            pools.apply();
        } else {
            applications.apply();
        }
#endif
        senders.apply();
        addressees.apply();
    }
}
