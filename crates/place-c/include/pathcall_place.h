/* C interface of place: each request is sent to the processor or an accelerator, whichever answers it sooner.
 *
 *   builder: files, devices, functions, memory, clocks -- init --> context: send, recv, write, read, handle
 *                                                                    `----> event: an answer, an access, a request
 *
 * Functions that return int32_t return PATHCALL_PLACE_OK, PATHCALL_PLACE_NOTHING or one of the negative codes;
 * functions that return a pointer return null on failure. pathcall_place_error returns the error text, one line.
 *
 * The caller owns all arguments; the library copies the data that it needs after the call. Exceptions: `user` pointers
 * and functions must stay valid until the context (or a builder without a context) is freed, and several threads may
 * use them at the same time. The library owns all data that it returns, until the named function frees the data. One
 * thread at a time may use a builder, a context or an event. Functions that the library calls must return normally:
 * not by longjmp or an exception. Such a function must not call functions of its own context or builder; freeing them
 * from it fails, and nothing is freed.
 *
 * docs/place-c.md has an example program; a test compares this file with the library.
 */
#ifndef PATHCALL_PLACE_H
#define PATHCALL_PLACE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Roles: the processor, and accelerator 0. Accelerator 1 is PATHCALL_PLACE_ACC + 1, and so on. */
#define PATHCALL_PLACE_CPU 0
#define PATHCALL_PLACE_ACC 1
#define PATHCALL_PLACE_ACCELERATORS_MAX 7

/* Return codes of calls, and status of a request. */
#define PATHCALL_PLACE_OK 0
/* No event within the given time. */
#define PATHCALL_PLACE_NOTHING 1
/* Invalid argument: a null pointer, text that is not UTF-8, an unknown role. */
#define PATHCALL_PLACE_INVALID (-1)
/* Unknown name. */
#define PATHCALL_PLACE_UNKNOWN (-2)
/* Too many requests in flight: receive answers first. */
#define PATHCALL_PLACE_FULL (-3)
/* Message too long. */
#define PATHCALL_PLACE_TOO_LONG (-4)
/* The application's own function rejected the request. */
#define PATHCALL_PLACE_REFUSED (-5)
/* Failure; the error text states the cause. */
#define PATHCALL_PLACE_FAILED (-6)
/* A bug in the library. The object that the call was made on should not be used again. */
#define PATHCALL_PLACE_PANICKED (-7)

/* Kinds of events. */
#define PATHCALL_PLACE_ANSWER 1
#define PATHCALL_PLACE_ACCESSED 2
#define PATHCALL_PLACE_REQUEST 3
#define PATHCALL_PLACE_HANDLED 4

/* Kernel languages. */
#define PATHCALL_PLACE_OPENCL 0
#define PATHCALL_PLACE_CUDA 1

/* Length of a kernel's answers: equal to the request's; set by the kernel. */
#define PATHCALL_PLACE_AS_INPUT (-1)
#define PATHCALL_PLACE_ANY (-2)

/* Value of a time that was not measured. */
#define PATHCALL_PLACE_UNMEASURED UINT64_MAX

typedef struct pathcall_place_builder pathcall_place_builder;
typedef struct pathcall_place_context pathcall_place_context;
typedef struct pathcall_place_event_data pathcall_place_event_data;

/* Function of a task. Returns the number of answer bytes that it wrote, or a negative number to refuse the request. */
typedef int64_t (*pathcall_place_function)(void *user, const uint8_t *request, size_t request_bytes, uint8_t *answer,
                                           size_t answer_max);
/* Writes a requester's message of a trip after the first. Returns the number of bytes that it wrote. */
typedef int64_t (*pathcall_place_next_function)(void *user, uint32_t trip, const uint8_t *request, size_t request_bytes,
                                                const uint8_t *answer, size_t answer_bytes, uint8_t *message,
                                                size_t message_max);
/* Read and write registered memory, for the other side; `at` and `count` are within the memory. */
typedef void (*pathcall_place_read_function)(void *user, size_t at, uint8_t *to, size_t count);
typedef void (*pathcall_place_write_function)(void *user, size_t at, const uint8_t *from, size_t count);
/* Clock: returns a monotonic time in nanoseconds. */
typedef uint64_t (*pathcall_place_clock)(void *user);

typedef struct pathcall_place_bytes {
    const uint8_t *bytes;
    size_t count;
} pathcall_place_bytes;

/* Kernel: source text that a device compiles. docs/devices.md describes the entry function's arguments. */
typedef struct pathcall_place_kernel {
    uint32_t language;
    uint32_t group;        /* work items per group */
    const char *source;
    const char *entry;
    const char *options;   /* compiler options; null: none */
    size_t bytes_per_item; /* request bytes per work item; 0: `items` work items */
    size_t items;
    int64_t answer_bytes;  /* bytes, PATHCALL_PLACE_AS_INPUT or PATHCALL_PLACE_ANY */
    const pathcall_place_bytes *tables; /* copied to the device before the first request */
    size_t tables_count;
} pathcall_place_kernel;

typedef struct pathcall_place_message {
    uint64_t address; /* for requests that keep their order per address */
    uint64_t message; /* for requests that keep their order per message */
    uint64_t tag;     /* returned with the answer */
    const uint8_t *bytes;
    size_t count;
    uint32_t kind;    /* from pathcall_place_kind */
} pathcall_place_message;

/* The library owns the bytes and the text, until pathcall_place_event_free. */
typedef struct pathcall_place_event {
    uint32_t what;
    int32_t status;       /* PATHCALL_PLACE_OK, PATHCALL_PLACE_REFUSED, PATHCALL_PLACE_FAILED */
    uint64_t tag;
    const uint8_t *bytes; /* of the answer, the memory read, or the request that has arrived */
    size_t count;
    const char *text;     /* error text; empty with PATHCALL_PLACE_OK */
    int32_t path;         /* of the answer, from 0; -1: all paths failed and the processor answered */
    uint32_t attempts;
    uint64_t intra_ns;    /* within the hosts, or PATHCALL_PLACE_UNMEASURED */
    uint64_t total_ns;
    uint32_t kind;        /* of a request that has arrived */
    uint32_t trip;
    uint32_t role;
    pathcall_place_event_data *held;
} pathcall_place_event;

/* Error text of this thread's last failed call. Never null; valid until this thread's next failed call. */
const char *pathcall_place_error(void);

/* Arguments: paths of three YAML files. pathcall_place_init or pathcall_place_builder_free frees the builder. */
pathcall_place_builder *pathcall_place_builder_new(const char *application, const char *requester,
                                                   const char *responder);
void pathcall_place_builder_free(pathcall_place_builder *builder);
/* Path selection strategy: leo (default), all-cpu, all-acc, shortest-queue and others. */
int32_t pathcall_place_strategy(pathcall_place_builder *builder, const char *name);
/* Device of a role: cpu:2, opencl:0, cuda:0, emulated:per-job=10us,slots=2. */
int32_t pathcall_place_device(pathcall_place_builder *builder, uint32_t of, const char *device);
/* Communication function to that role of the other side: itself, udp:HERE or udp:HERE,SERVER (127.0.0.1:7000). */
int32_t pathcall_place_reg_comm_func(pathcall_place_builder *builder, const char *what, const char *name, uint32_t of);
/* `count` bytes of the processor's memory that the other side can read and write by this name. */
int32_t pathcall_place_reg_mem_func(pathcall_place_builder *builder, pathcall_place_read_function read,
                                    pathcall_place_write_function write, void *user, size_t count, const char *name,
                                    uint32_t of);
/* Clock named cpu (for times t1, t4 and t6) or nic (for t2, t3 and t5). */
int32_t pathcall_place_reg_ts_func(pathcall_place_builder *builder, pathcall_place_clock clock, void *user,
                                   const char *name);
/* Function of a task on a role. `answer_max`: maximum bytes of an answer, if it can be longer than its request. */
int32_t pathcall_place_reg_app_func(pathcall_place_builder *builder, pathcall_place_function function, void *user,
                                    const char *task, uint32_t of, size_t answer_max);
/* Kernel of a task on accelerator 0, or on a role. */
int32_t pathcall_place_reg_app_kernel(pathcall_place_builder *builder, const pathcall_place_kernel *kernel,
                                      const char *task, size_t answer_max);
int32_t pathcall_place_reg_app_kernel_of(pathcall_place_builder *builder, const pathcall_place_kernel *kernel,
                                         const char *task, uint32_t of, size_t answer_max);
/* Messages of later trips, of at most `message_max` bytes. Default: the answer of the trip before. */
int32_t pathcall_place_next(pathcall_place_builder *builder, pathcall_place_next_function function, void *user,
                            const char *kind, size_t message_max);
/* Sample request. pathcall_place_init runs it on all devices, requires equal answers, and measures unknown times. */
int32_t pathcall_place_sample(pathcall_place_builder *builder, const char *task, const uint8_t *request,
                              size_t request_bytes);
/* Report requests that arrive as events, for pathcall_place_handle. Default: they are handled immediately. */
int32_t pathcall_place_requests_as_events(pathcall_place_builder *builder);
/* Admin socket at this path, a new file, for `pathcall place explain` and `status`. */
int32_t pathcall_place_admin_socket(pathcall_place_builder *builder, const char *path);
/* Frees the builder, also on failure. pathcall_place_free frees the context. */
pathcall_place_context *pathcall_place_init(pathcall_place_builder *builder);
/* Waits for calls in progress of registered functions; no thread calls such a function afterwards. */
void pathcall_place_free(pathcall_place_context *context);

int32_t pathcall_place_kind(pathcall_place_context *context, const char *name, uint32_t *kind);
int32_t pathcall_place_send(pathcall_place_context *context, const pathcall_place_message *message);
/* PATHCALL_PLACE_OK: an event, which the caller frees. PATHCALL_PLACE_NOTHING: no event. */
int32_t pathcall_place_recv(pathcall_place_context *context, pathcall_place_event *event);
int32_t pathcall_place_wait(pathcall_place_context *context, uint64_t timeout_ns, pathcall_place_event *event);
/* One-sided access: no function of the other side runs. An event reports the end. */
int32_t pathcall_place_write(pathcall_place_context *context, const char *memory, uint64_t at, const uint8_t *from,
                             size_t count, uint64_t tag);
int32_t pathcall_place_read(pathcall_place_context *context, const char *memory, uint64_t at, uint64_t count,
                            uint64_t tag);
/* Run the function of a request that has arrived, or refuse the request. The event is freed. */
int32_t pathcall_place_handle(pathcall_place_context *context, pathcall_place_event *event, uint32_t of);
int32_t pathcall_place_refuse(pathcall_place_event *event, const char *reason);
void pathcall_place_event_free(pathcall_place_event *event);

/* Text, truncated to `room` bytes and always terminated. Return the length of the whole text without the terminator. */
size_t pathcall_place_explain(pathcall_place_context *context, size_t count, char *to, size_t room);
size_t pathcall_place_status(pathcall_place_context *context, char *to, size_t room);

#ifdef __cplusplus
}
#endif

#endif
