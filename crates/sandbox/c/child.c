/* Guest in a process of its own, without libc. Before any of the guest's code runs, the process is confined to reading
 * and writing on two pipes, and to its exit (seccomp's strict mode). */
#include <stddef.h>
#include <stdint.h>

extern void pc_enter(uint32_t entry, uint32_t argument);
extern void *pc_area(void);
extern const uint32_t pc_area_bytes;
extern void *memset(void *, int, size_t);

/* `src/process.rs` has the same numbers and struct. */
enum { ENTER = 1, ANSWER, READY, ASK, DONE, FAULT, REFUSED };
struct message {
    uint32_t kind, op, which, in_bytes, out_bytes, error;
    uint64_t value;
};
#define INPUT_MAX 1024

#if defined(__x86_64__)
enum { SYS_read, SYS_write, SYS_rt_sigaction = 13, SYS_exit = 60, SYS_sigaltstack = 131, SYS_prctl = 157,
       SYS_setrlimit = 160, SYS_close_range = 436 };
static long syscall4(long number, long a, long b, long c, long d)
{
    long result;
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = 0;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    return result;
}
__asm__(".globl _start\n_start:\n xor %ebp, %ebp\n and $-16, %rsp\n call pc_main\n hlt\n"
        "pc_restore:\n mov $15, %eax\n syscall\n");
#define PROGRAM_COUNTER 168 /* ucontext_t.uc_mcontext.gregs[REG_RIP] */
#define RESTORER 0x04000000ul
#elif defined(__aarch64__)
enum { SYS_read = 63, SYS_write, SYS_exit = 93, SYS_sigaltstack = 132, SYS_rt_sigaction = 134, SYS_setrlimit = 164,
       SYS_prctl = 167, SYS_close_range = 436 };
static long syscall4(long number, long a, long b, long c, long d)
{
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c,
                      x3 __asm__("x3") = d, x4 __asm__("x4") = 0;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
    return x0;
}
__asm__(".globl _start\n_start:\n mov x29, #0\n mov x30, #0\n bl pc_main\n"
        "pc_restore:\n mov x8, #139\n svc 0\n");
#define PROGRAM_COUNTER 440 /* ucontext_t.uc_mcontext.pc */
#define RESTORER 0x04000000ul
#else
#error "handlers in a process of their own are made for x86_64 and aarch64"
#endif

extern void pc_restore(void);

static void __attribute__((noreturn)) end(int status)
{
    for (;;)
        syscall4(SYS_exit, status, 0, 0, 0);
}

/* An invalid pointer was passed to the kernel: trap as if the guest had accessed it. */
#define EFAULT 14
static void end_of(long result)
{
    if (result == -EFAULT)
        *(volatile int *)0 = 0;
    end(0);
}

static void get(void *to, size_t bytes)
{
    while (bytes) {
        long got = syscall4(SYS_read, 0, (long)to, (long)bytes, 0);
        if (got <= 0)
            end_of(got);
        to = (char *)to + got;
        bytes -= (size_t)got;
    }
}

static void put(const void *from, size_t bytes)
{
    while (bytes) {
        long put = syscall4(SYS_write, 1, (long)from, (long)bytes, 0);
        if (put <= 0)
            end_of(put);
        from = (const char *)from + put;
        bytes -= (size_t)put;
    }
}

uint64_t pc_host(uint32_t op, uint32_t which, const void *in, uint32_t in_bytes, void *out, uint32_t out_bytes,
                 uint64_t value)
{
    if (in_bytes > INPUT_MAX)
        __builtin_trap();
    struct message message = {ASK, op, which, in_bytes, out_bytes, 0, value};
    put(&message, sizeof message);
    put(in, in_bytes);
    get(&message, sizeof message);
    get(out, out_bytes);
    return message.value;
}

static void fault(int signal, void *info, char *context)
{
    (void)info;
    struct message message = {FAULT, (uint32_t)signal, 0, 0, 0, 0, *(uint64_t *)(context + PROGRAM_COUNTER)};
    put(&message, sizeof message);
    end(1);
}

static char fault_stack[16384] __attribute__((aligned(16)));

/* Confines the process, and reports faults to the host before the exit. Returns 0, or the number of the failed step. */
static uint32_t confine(void)
{
    struct { void *base; int flags; size_t bytes; } stack = {fault_stack, 0, sizeof fault_stack};
    struct { void *handler; unsigned long flags; void *restorer; uint64_t mask; } action = {
        fault, 0x08000004ul | RESTORER, pc_restore, 0}; /* SA_ONSTACK, SA_SIGINFO */
    struct { unsigned long soft, hard; } none = {0, 0};
    const int signals[] = {4, 7, 8, 11}; /* ILL, BUS, FPE, SEGV */
    if (syscall4(SYS_sigaltstack, (long)&stack, 0, 0, 0))
        return 1;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (syscall4(SYS_rt_sigaction, signals[i], (long)&action, 0, 8))
            return 2;
    syscall4(SYS_close_range, 2, ~0u, 0, 0);
    if (syscall4(SYS_setrlimit, 4, (long)&none, 0, 0)) /* no core files */
        return 3;
    if (syscall4(SYS_prctl, 1, 9, 0, 0)) /* dies with its host */
        return 4;
    if (syscall4(SYS_prctl, 38, 1, 0, 0)) /* no new privileges */
        return 5;
    return syscall4(SYS_prctl, 22, 1, 0, 0) ? 6 : 0; /* seccomp, strict */
}

__attribute__((used)) void pc_main(void)
{
    struct message message = {READY, 0, 0, 0, pc_area_bytes, confine(), 0};
    if (message.error)
        message.kind = REFUSED;
    put(&message, sizeof message);
    if (message.error)
        end(1);
    for (;;) {
        get(&message, sizeof message);
        get(pc_area(), pc_area_bytes);
        pc_enter(message.op, message.which);
        message = (struct message){DONE, 0, 0, 0, pc_area_bytes, 0, 0};
        put(&message, sizeof message);
        put(pc_area(), pc_area_bytes);
    }
}
