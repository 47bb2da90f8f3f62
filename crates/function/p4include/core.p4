// P4_16's core library. What it declares as externs (packet_in, packet_out, verify) is built in.
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
