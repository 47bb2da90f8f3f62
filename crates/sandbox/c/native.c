/* Sandbox without containment, for trusted guests. Faults and endless loops end the call, but nothing keeps the guest
 * from writing to the host's memory. Each instance has a copy of this library, and so of the guest's variables. */
#include "sandbox.h"

extern void pc_enter(uint32_t entry, uint32_t argument);
extern void *pc_area(void);

static struct pc_sandbox the_sandbox;

uint64_t pc_host(uint32_t op, uint32_t which, const void *in, uint32_t in_bytes, void *out, uint32_t out_bytes,
                 uint64_t value)
{
    if (in_bytes > PC_INPUT_MAX)
        pc_leave(&the_sandbox, PC_BOUNDS);
    return pc_ask(&the_sandbox, op, which, in, in_bytes, out, out_bytes, value);
}

PC_EXPORT void pc_sandbox_init(void) {}

PC_EXPORT void pc_sandbox_close(struct pc_sandbox *sandbox) { (void)sandbox; }

PC_EXPORT struct pc_sandbox *pc_sandbox_open(pc_host_function *host)
{
    the_sandbox.host = host;
    the_sandbox.leave = pc_leave;
    return &the_sandbox;
}

PC_EXPORT uint32_t pc_sandbox_call(struct pc_sandbox *sandbox, uint32_t entry, uint32_t argument)
{
    int trap = _setjmp(sandbox->out);
    if (trap)
        return (uint32_t)trap;
    pc_begin(sandbox);
    pc_enter(entry, argument);
    sandbox->inside = PC_IDLE;
    return 0;
}

PC_EXPORT uint8_t *pc_sandbox_area(struct pc_sandbox *sandbox, uint32_t bytes)
{
    (void)sandbox;
    (void)bytes;
    return pc_area();
}
