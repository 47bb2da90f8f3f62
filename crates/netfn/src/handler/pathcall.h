/* What every handler may use; what is the function's own follows. There is no libc: this is all. */
#include <float.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "handlers run on little-endian machines"
#endif

#define memcpy __builtin_memcpy
#define memmove __builtin_memmove
#define memset __builtin_memset
#define memcmp __builtin_memcmp
#define sqrt __builtin_sqrt
#define sqrtf __builtin_sqrtf
#define fabs __builtin_fabs
#define fabsf __builtin_fabsf
#define floor __builtin_floor
#define floorf __builtin_floorf
#define ceil __builtin_ceil
#define ceilf __builtin_ceilf
#define trunc __builtin_trunc
#define truncf __builtin_truncf
#define copysign __builtin_copysign
#define copysignf __builtin_copysignf
#define isnan(x) __builtin_isnan(x)
#define isinf(x) __builtin_isinf(x)
#define NAN __builtin_nanf("")
#define INFINITY __builtin_inff()

/* How the host is asked (host.rs); handlers use the functions below and those of their tables. */
enum {
    PC_LOOKUP, PC_INSERT, PC_REMOVE, PC_TIMEOUT, PC_ENTRIES, PC_NEXT, PC_READ, PC_WRITE, PC_PACKET, PC_REASON, PC_COUNT,
    PC_RANGES,
};
enum { PC_START, PC_CALL, PC_EXPIRED, PC_CHANGED };
#ifdef __wasm__
__attribute__((import_module("env"), import_name("pc_host")))
#endif
extern uint64_t pc_host(uint32_t op, uint32_t which, const void *in, uint32_t in_bytes, void *out, uint32_t out_bytes,
                        uint64_t value);
void pc_enter(uint32_t entry, uint32_t argument);
void *pc_area(void);

#define PC_PACKET_MAX 2048
#define PC_RANGES_MAX 64

/* The start of the memory that the host sees as well. */
struct pc_front {
    uint64_t now_ms;
    uint32_t packet_bytes;
    uint32_t dropped;
};

struct pc_range { uint64_t first, last; };

static uint8_t pc_packet[PC_PACKET_MAX];
static bool pc_packet_is_here;

static inline uint32_t pc_reason(uint32_t *site, const char *name, uint32_t bytes)
{
    if (!*site)
        *site = (uint32_t)pc_host(PC_REASON, 0, name, bytes, 0, 0, 0);
    return *site;
}

/* Counts a reason, a word of the handler's own. */
#define count(reason)                                                                                              \
    ((void)({                                                                                                      \
        static uint32_t pc_site;                                                                                   \
        pc_host(PC_COUNT, pc_reason(&pc_site, #reason, sizeof #reason - 1), 0, 0, 0, 0, 1);                         \
    }))
/* The packet ends when the handler returns; with a reason, or without, it is counted. */
#define drop(...)                                                                                                  \
    ((void)({                                                                                                      \
        static uint32_t pc_site;                                                                                   \
        pc_the_area.front.dropped = pc_reason(&pc_site, #__VA_ARGS__, sizeof #__VA_ARGS__ - 1);                     \
    }))
