/* A room in this process: what stands between a guest (compiled C) and its host. `src/room.rs` has the same struct. */
#ifndef PATHCALL_ROOM_H
#define PATHCALL_ROOM_H

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Where the thread is: signals may pull it out of the guest, but not out of the host. */
enum { PC_IDLE, PC_GUEST, PC_HOST };

/* Why a guest was left; `src/lib.rs` has the same. */
enum {
    PC_BOUNDS = 1,
    PC_DIVIDE,
    PC_OVERFLOW,
    PC_CONVERSION,
    PC_UNREACHABLE,
    PC_INDIRECT,
    PC_STACK,
    PC_TIME,
    PC_OTHER,
};

/* The longest input of a call to the host: it is copied, so that input and output may overlap in the guest. */
#define PC_INPUT_MAX 1024
/* Native stack that a guest may take. */
#define PC_STACK_BYTES (256 << 10)

struct pc_room {
    uint64_t (*host)(void *context, uint32_t op, uint32_t which, const uint8_t *in, uint32_t in_bytes, uint8_t *out,
                     uint32_t out_bytes, uint64_t value);
    void *context;
    /* Leaves the guest: for signals. */
    void (*leave)(struct pc_room *, uint32_t trap);
    /* A fault here is the guest's; with 0 bytes any is. */
    uint8_t *guard;
    uint64_t guard_bytes;
    /* Where in the code it was left, if that is known. */
    uintptr_t at;
    volatile uint32_t inside;
    /* Its time was over while it was at the host. */
    volatile uint32_t stop;
    /* From here on it is this side's alone. */
    uintptr_t stack_floor;
    jmp_buf out;
};

typedef uint64_t pc_host_function(void *, uint32_t, uint32_t, const uint8_t *, uint32_t, uint8_t *, uint32_t, uint64_t);

#define PC_EXPORT __attribute__((visibility("default")))

static void pc_leave(struct pc_room *room, uint32_t trap)
{
    room->inside = PC_IDLE;
    _longjmp(room->out, (int)trap);
}

static void pc_begin(struct pc_room *room)
{
    room->at = 0;
    room->stop = 0;
    room->stack_floor = (uintptr_t)__builtin_frame_address(0) - PC_STACK_BYTES;
    room->inside = PC_GUEST;
}

/* Calls the host, with pointers that are good. */
static uint64_t pc_ask(struct pc_room *room, uint32_t op, uint32_t which, const uint8_t *in, uint32_t in_bytes,
                       uint8_t *out, uint32_t out_bytes, uint64_t value)
{
    uint8_t copy[PC_INPUT_MAX];
    if (in_bytes)
        memcpy(copy, in, in_bytes);
    room->inside = PC_HOST;
    value = room->host(room->context, op, which, copy, in_bytes, out, out_bytes, value);
    room->inside = PC_GUEST;
    if (room->stop)
        pc_leave(room, PC_TIME);
    return value;
}

#endif
