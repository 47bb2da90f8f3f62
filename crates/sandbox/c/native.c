/* The room of a guest that runs as it is: fast, and trusted. Faults and endless loops still end the call, but nothing
 * keeps it from writing where it should not. Each room has a copy of this library, and so of the guest's variables. */
#include "room.h"

extern void pc_enter(uint32_t entry, uint32_t argument);
extern void *pc_area(void);

static struct pc_room the_room;

uint64_t pc_host(uint32_t op, uint32_t which, const void *in, uint32_t in_bytes, void *out, uint32_t out_bytes,
                 uint64_t value)
{
    if (in_bytes > PC_INPUT_MAX)
        pc_leave(&the_room, PC_BOUNDS);
    return pc_ask(&the_room, op, which, in, in_bytes, out, out_bytes, value);
}

PC_EXPORT void pc_room_init(void) {}

PC_EXPORT void pc_room_close(struct pc_room *room) { (void)room; }

PC_EXPORT struct pc_room *pc_room_open(pc_host_function *host)
{
    the_room.host = host;
    the_room.leave = pc_leave;
    return &the_room;
}

PC_EXPORT uint32_t pc_room_call(struct pc_room *room, uint32_t entry, uint32_t argument)
{
    int trap = _setjmp(room->out);
    if (trap)
        return (uint32_t)trap;
    pc_begin(room);
    pc_enter(entry, argument);
    room->inside = PC_IDLE;
    return 0;
}

PC_EXPORT uint8_t *pc_room_area(struct pc_room *room, uint32_t bytes)
{
    (void)room;
    (void)bytes;
    return pc_area();
}
