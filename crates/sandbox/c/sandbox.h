/* Sandbox in this process, between a guest (compiled C) and its host. `src/in_process.rs` has the same struct. */
#ifndef PATHCALL_SANDBOX_H
#define PATHCALL_SANDBOX_H

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* State of the thread: a signal may take it out of the guest, but not out of the host. */
enum { PC_IDLE, PC_GUEST, PC_HOST };

/* Reason of a trap; `src/lib.rs` has the same numbers. */
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

/* Longest input of a host call. The input is copied, so that input and output may overlap in the guest. */
#define PC_INPUT_MAX 1024
/* Most native stack of a guest. */
#define PC_STACK_BYTES (256 << 10)

struct pc_sandbox {
    uint64_t (*host)(void *context, uint32_t op, uint32_t which, const uint8_t *in, uint32_t in_bytes, uint8_t *out,
                     uint32_t out_bytes, uint64_t value);
    void *context;
    /* Leaves the guest, called by signal handlers. */
    void (*leave)(struct pc_sandbox *, uint32_t trap);
    /* Address range in which a fault is the guest's; with 0 bytes every fault is. */
    uint8_t *guard;
    uint64_t guard_bytes;
    /* Code address at which the guest was left, if known. */
    uintptr_t at;
    volatile uint32_t inside;
    /* Set if the time limit was exceeded while the thread was in the host. */
    volatile uint32_t stop;
    /* The fields from here on are used in C only. */
    uintptr_t stack_floor;
    jmp_buf out;
};

typedef uint64_t pc_host_function(void *, uint32_t, uint32_t, const uint8_t *, uint32_t, uint8_t *, uint32_t, uint64_t);

#define PC_EXPORT __attribute__((visibility("default")))

static void pc_leave(struct pc_sandbox *sandbox, uint32_t trap)
{
    sandbox->inside = PC_IDLE;
    _longjmp(sandbox->out, (int)trap);
}

static void pc_begin(struct pc_sandbox *sandbox)
{
    sandbox->at = 0;
    sandbox->stop = 0;
    sandbox->stack_floor = (uintptr_t)__builtin_frame_address(0) - PC_STACK_BYTES;
    sandbox->inside = PC_GUEST;
}

/* Calls the host with pointers that were checked. */
static uint64_t pc_ask(struct pc_sandbox *sandbox, uint32_t op, uint32_t which, const uint8_t *in, uint32_t in_bytes,
                       uint8_t *out, uint32_t out_bytes, uint64_t value)
{
    uint8_t copy[PC_INPUT_MAX];
    if (in_bytes)
        memcpy(copy, in, in_bytes);
    sandbox->inside = PC_HOST;
    value = sandbox->host(sandbox->context, op, which, copy, in_bytes, out, out_bytes, value);
    sandbox->inside = PC_GUEST;
    if (sandbox->stop)
        pc_leave(sandbox, PC_TIME);
    return value;
}

#endif
