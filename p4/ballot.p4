/* SPDX-License-Identifier: Apache-2.0 */
/* Ballot stage: CntFwd on keys with a threshold above one (NetRPC 4, Table 2; crates/program, ballot.rs).
 *
 * A row belongs to a key: its length, and eight words. The first key keeps the row until the epoch ends. */

/* Compares two words of the row's key with those of a vote's key, the first of which begins at byte `at` of the key. */
control BallotWords(in key_word_t first, in key_word_t second, in bit<16> at, in bit<16> key_len, inout metadata md) {
    register<bit<64>>(PC_ROWS) words;
    bit<64> held = 0;
    bit<32> own_first = 0;
    bit<32> own_second = 0;

    apply {
        if (first.isValid()) {
            own_first = first.bytes;
        } else if (key_len > at) {
            own_first = md.key_tail;
        }
        if (second.isValid()) {
            own_second = second.bytes;
        } else if (key_len > at + 4) {
            own_second = md.key_tail;
        }
        words.read(held, md.row);
        if (md.taken) {
            words.write(md.row, own_first ++ own_second);
        } else if (held != own_first ++ own_second) {
            md.ours = false;
        }
    }
}

control Ballot(inout headers hdr, inout metadata md) {
    /* BALLOT_MOVED, and the length of the key. */
    register<bit<9>>(PC_ROWS) holders;
    /* Votes since the last clear; whether the ballot is decided; number of clears. */
    register<bit<64>>(PC_ROWS) standings;
    BallotWords() words_0;
    BallotWords() words_1;
    BallotWords() words_2;
    BallotWords() words_3;
    bit<9> holder = 0;
    bit<9> key_len = 0;
    bit<64> standing = 0;
    bit<32> votes = 0;
    bit<1> decided = 0;
    bit<31> round = 0;
    bool votes_now = false;
    bool asks_now = false;
    bool clears = false;

    apply {
        if (hdr.map.to == PC_TO_SERVER) {
            md.decider = DECIDER_HANDLER;
        } else if ((md.map_flags & PC_MAP_WAIT) != 0) {
            md.decider = DECIDER_SERVER;
        } else {
            md.decider = DECIDER_ELEMENT;
        }
        votes_now = md.way == WAY_VOTE && (md.repeat_status == STATUS_NEW || md.repeat_status == STATUS_REPEAT);
        asks_now = md.way == WAY_BALLOT_QUERY && (md.repeat_status == STATUS_NEW || md.repeat_status == STATUS_REPEAT);
        if (votes_now || asks_now || md.way == WAY_DECIDED || md.way == WAY_MOVE) {
            key_len = (bit<9>) hdr.entry.key_len;
            holders.read(holder, md.row);
            md.taken = votes_now && md.repeat_status == STATUS_NEW && holder == 0;
            if (md.way == WAY_MOVE) {
                holders.write(md.row, holder | BALLOT_MOVED);
            } else if (md.taken) {
                holders.write(md.row, key_len);
            }
            /* Not moved, and of the same length. */
            md.ours = md.taken || holder == key_len;
        }
        if (votes_now || asks_now) {
            if (hdr.key_tail1.isValid()) {
                md.key_tail = hdr.key_tail1.bytes ++ 24w0;
            } else if (hdr.key_tail2.isValid()) {
                md.key_tail = hdr.key_tail2.bytes ++ 16w0;
            } else if (hdr.key_tail3.isValid()) {
                md.key_tail = hdr.key_tail3.bytes ++ 8w0;
            }
            words_0.apply(hdr.key_words[0], hdr.key_words[1], 0, hdr.entry.key_len, md);
            words_1.apply(hdr.key_words[2], hdr.key_words[3], 8, hdr.entry.key_len, md);
            words_2.apply(hdr.key_words[4], hdr.key_words[5], 16, hdr.entry.key_len, md);
            words_3.apply(hdr.key_words[6], hdr.key_words[7], 24, hdr.entry.key_len, md);
        }
        if (votes_now || asks_now || md.way == WAY_DECIDED) {
            standings.read(standing, md.row);
            votes = standing[63:32];
            decided = standing[31:31];
            round = standing[30:0];
            clears = (md.map_flags & PC_MAP_CLEAR) != 0;
            if (md.way == WAY_DECIDED) {
                /* A late message about a ballot that was cleared does not apply to the current round. */
                if ((holder & ~BALLOT_MOVED) != 0 && (bit<32>) round == hdr.base.round) {
                    decided = 1;
                }
            } else if (votes_now && md.ours && md.repeat_status == STATUS_NEW) {
                if (clears) {
                    votes = 0;
                    decided = 0;
                    round = round + 1;
                } else {
                    votes = votes |+| 1;
                    md.settles = votes == hdr.map.threshold && decided == 0 && md.decider == DECIDER_ELEMENT;
                }
            }
            md.reached = votes >= hdr.map.threshold;
            /* NetRPC Table 2: frames below the threshold end here; the first to reach the threshold decides. If the
             * server lost that one, with its caller, a later vote takes its place. */
            md.decides = !md.ours || clears || md.settles || (md.reached && decided == 0
                && (votes == hdr.map.threshold || md.decider == DECIDER_SERVER));
            if (md.settles) {
                decided = 1;
            }
            standings.write(md.row, votes ++ decided ++ round);
            md.decided = decided == 1;
            md.ballot_round = round;
        }
    }
}
