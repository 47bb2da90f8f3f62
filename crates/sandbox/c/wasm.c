/* Sandbox of a guest that was compiled to WebAssembly and then to C (wasm2c 1.0.32). The guest can access only its linear
 * memory, and call only its own functions. The memory is in 8 GiB of address space, all that a 32-bit address plus a
 * 32-bit offset can reach, so accesses need no checks: an access out of bounds faults, and the fault ends the call. */
#define _GNU_SOURCE
#include "sandbox.h"

#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>

#define WASM_RT_MEMCHECK_SIGNAL_HANDLER 1
#define WASM_RT_SKIP_SIGNAL_RECOVERY 1
#define WASM_RT_USE_STACK_DEPTH_COUNT 0
#include "guest.h"

#define RESERVED ((uint64_t)0x200010000)
/* Inaccessible range at the start of the memory, below its stack: null pointers and stack overflows fault. */
#define NULL_BYTES 65536u
#define TYPES_MAX 4096
#define SIGNATURE_MAX 32

struct Z_env_instance_t {
    struct pc_sandbox sandbox;
    Z_guest_instance_t guest;
};

/* Sandbox of the guest that runs in this thread. */
static __thread struct pc_sandbox *current;

#define PC_ENTER                                                                                   \
    if (UNLIKELY((uintptr_t)__builtin_frame_address(0) < instance->Z_env_instance->sandbox.stack_floor)) \
        wasm_rt_trap(WASM_RT_TRAP_EXHAUSTION);

#include "guest.c"

/* Functions called by the code from wasm2c. */

__attribute__((noinline)) void wasm_rt_trap(wasm_rt_trap_t trap)
{
    static const uint8_t reasons[] = {
        [WASM_RT_TRAP_OOB] = PC_BOUNDS,
        [WASM_RT_TRAP_INT_OVERFLOW] = PC_OVERFLOW,
        [WASM_RT_TRAP_DIV_BY_ZERO] = PC_DIVIDE,
        [WASM_RT_TRAP_INVALID_CONVERSION] = PC_CONVERSION,
        [WASM_RT_TRAP_UNREACHABLE] = PC_UNREACHABLE,
        [WASM_RT_TRAP_CALL_INDIRECT] = PC_INDIRECT,
        [WASM_RT_TRAP_EXHAUSTION] = PC_STACK,
    };
    uint8_t reason = (size_t)trap < sizeof reasons ? reasons[trap] : 0;
    /* Address of the call, not of the instruction after it. */
    current->at = (uintptr_t)__builtin_return_address(0) - 1;
    pc_leave(current, reason ? reason : PC_OTHER);
    __builtin_unreachable();
}

bool wasm_rt_is_initialized(void) { return true; }

uint32_t wasm_rt_register_func_type(uint32_t params, uint32_t results, ...)
{
    static uint8_t known[TYPES_MAX][SIGNATURE_MAX + 2];
    static uint32_t count;
    uint8_t type[SIGNATURE_MAX + 2] = {(uint8_t)params, (uint8_t)results};
    uint32_t i;
    if (params + results > SIGNATURE_MAX || count == TYPES_MAX)
        abort(); /* At load time, before any guest runs; `build.rs` refuses such guests. */
    va_list types;
    va_start(types, results);
    for (i = 0; i < params + results; i++)
        type[2 + i] = (uint8_t)va_arg(types, int);
    va_end(types);
    for (i = 0; i < count; i++)
        if (!memcmp(known[i], type, sizeof type))
            return i + 1;
    memcpy(known[count++], type, sizeof type);
    return count;
}

void wasm_rt_allocate_memory(wasm_rt_memory_t *memory, uint32_t pages, uint32_t pages_max)
{
    uint64_t bytes = (uint64_t)pages << 16;
    if (mprotect(current->guard, bytes, PROT_READ | PROT_WRITE))
        pc_leave(current, PC_OTHER);
    *memory = (wasm_rt_memory_t){current->guard, pages, pages_max, (uint32_t)bytes};
}

/* The memory has a fixed size. */
uint32_t wasm_rt_grow_memory(wasm_rt_memory_t *memory, uint32_t pages) { return pages ? (uint32_t)-1 : memory->pages; }

void wasm_rt_free_memory(wasm_rt_memory_t *memory) { (void)memory; }

void wasm_rt_allocate_funcref_table(wasm_rt_funcref_table_t *table, uint32_t elements, uint32_t elements_max)
{
    *table = (wasm_rt_funcref_table_t){calloc(elements + 1, sizeof *table->data), elements_max, elements};
    if (!table->data)
        pc_leave(current, PC_OTHER);
}

void wasm_rt_free_funcref_table(wasm_rt_funcref_table_t *table) { free(table->data); }

/* Host call of the guest; not inlined, so that the return address is in the guest's own line. */
__attribute__((noinline)) u64 Z_envZ_pc_host(struct Z_env_instance_t *env, u32 op, u32 which, u32 in, u32 in_bytes, u32 out, u32 out_bytes,
                   u64 value)
{
    wasm_rt_memory_t *memory = &env->guest.w2c_memory;
    env->sandbox.at = (uintptr_t)__builtin_return_address(0) - 1;
    if (in_bytes > PC_INPUT_MAX || (in_bytes && (in < NULL_BYTES || (u64)in + in_bytes > memory->size)) ||
        (out_bytes && (out < NULL_BYTES || (u64)out + out_bytes > memory->size)))
        pc_leave(&env->sandbox, PC_BOUNDS);
    return pc_ask(&env->sandbox, op, which, memory->data + in, in_bytes, memory->data + out, out_bytes, value);
}

/* Functions called by the host. */

PC_EXPORT void pc_sandbox_init(void) { Z_guest_init_module(); }

PC_EXPORT void pc_sandbox_close(struct pc_sandbox *sandbox)
{
    struct Z_env_instance_t *env = (struct Z_env_instance_t *)sandbox;
    munmap(sandbox->guard, RESERVED);
    if (env->guest.w2c_memory.size)
        Z_guest_free(&env->guest);
    free(env);
}

PC_EXPORT struct pc_sandbox *pc_sandbox_open(pc_host_function *host)
{
    struct Z_env_instance_t *env = calloc(1, sizeof *env);
    if (!env)
        return NULL;
    env->sandbox.host = host;
    env->sandbox.leave = pc_leave;
    env->sandbox.guard_bytes = RESERVED;
    env->sandbox.guard = mmap(NULL, RESERVED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (env->sandbox.guard == MAP_FAILED) {
        free(env);
        return NULL;
    }
    struct pc_sandbox *before = current;
    current = &env->sandbox;
    if (_setjmp(env->sandbox.out)) {
        current = before;
        pc_sandbox_close(&env->sandbox);
        return NULL;
    }
    Z_guest_instantiate(&env->guest, env);
    current = before;
    if (mprotect(env->sandbox.guard, NULL_BYTES, PROT_NONE)) {
        pc_sandbox_close(&env->sandbox);
        return NULL;
    }
    return &env->sandbox;
}

PC_EXPORT uint32_t pc_sandbox_call(struct pc_sandbox *sandbox, uint32_t entry, uint32_t argument)
{
    struct pc_sandbox *volatile before = current;
    int trap = _setjmp(sandbox->out);
    if (trap) {
        current = before;
        return (uint32_t)trap;
    }
    current = sandbox;
    pc_begin(sandbox);
    Z_guestZ_pc_enter(&((struct Z_env_instance_t *)sandbox)->guest, entry, argument);
    sandbox->inside = PC_IDLE;
    current = before;
    return 0;
}

/* Address of the guest's shared memory of `bytes` bytes; NULL if it is out of bounds. */
PC_EXPORT uint8_t *pc_sandbox_area(struct pc_sandbox *sandbox, uint32_t bytes)
{
    struct Z_env_instance_t *env = (struct Z_env_instance_t *)sandbox;
    struct pc_sandbox *volatile before = current;
    if (_setjmp(sandbox->out)) {
        current = before;
        return NULL;
    }
    current = sandbox;
    pc_begin(sandbox);
    u32 at = Z_guestZ_pc_area(&env->guest);
    sandbox->inside = PC_IDLE;
    current = before;
    return at < NULL_BYTES || (u64)at + bytes > env->guest.w2c_memory.size ? NULL : sandbox->guard + at;
}
