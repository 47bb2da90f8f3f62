// Core library of P4_16. Its externs (packet_in, packet_out, verify) are built in.
#ifndef CORE_P4
#define CORE_P4

error {
    NoError,
    PacketTooShort,
    NoMatch,
    StackOutOfBounds,
    HeaderTooShort,
    ParserTimeout,
    ParserInvalidArgument
}

action NoAction() { }

#endif
