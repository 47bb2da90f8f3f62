/* Place, for C: each message takes the processor or the accelerator, whichever finishes it sooner.
 *
 *   builder: files, devices, functions, memory, clocks -- init --> context: send, recv, write, read, handle
 *                                                                    `----> event: an answer, an access, a request
 *
 * Functions that return int32_t return PATHCALL_PLACE_OK, PATHCALL_PLACE_NOTHING or one of the codes below zero; those
 * that return a pointer return null when they fail. pathcall_place_error says why, in a line.
 *
 * What is passed in stays the caller's, and is copied where it is needed after the call; but for `user` pointers and
 * functions, which have to stay until the context, or the builder that none came of, is freed and may be used by several
 * threads at the same time. What is given out is the library's, until it is freed by the function that is named. One thread
 * at a time may use a builder, a context or an event. Functions that the library calls must return: not by longjmp, nor by
 * an exception. They must not call back into the context, or the builder, that they are registered with; one that frees it
 * is refused, and nothing is freed.
 *
 * docs/place-c.md has a program; a test holds this file to the library.
 */
#ifndef PATHCALL_PLACE_H
#define PATHCALL_PLACE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Roles. */
#define PATHCALL_PLACE_CPU 0
#define PATHCALL_PLACE_ACC 1

/* What calls return, and how a request ended. */
#define PATHCALL_PLACE_OK 0
/* Nothing has happened, in the time that there was. */
#define PATHCALL_PLACE_NOTHING 1
/* An argument is wrong: a null pointer, text that is not UTF-8, a role that there is not. */
#define PATHCALL_PLACE_INVALID (-1)
/* There is nothing of that name. */
#define PATHCALL_PLACE_UNKNOWN (-2)
/* Too many requests are in flight: take answers first. */
#define PATHCALL_PLACE_FULL (-3)
/* A message is too long. */
#define PATHCALL_PLACE_TOO_LONG (-4)
/* The application's own function refuses the request. */
#define PATHCALL_PLACE_REFUSED (-5)
/* It can't be done: the text says why. */
#define PATHCALL_PLACE_FAILED (-6)
/* The library has a bug. What was called should not be used any more. */
#define PATHCALL_PLACE_PANICKED (-7)

/* What an event is. */
#define PATHCALL_PLACE_ANSWER 1
#define PATHCALL_PLACE_ACCESSED 2
#define PATHCALL_PLACE_REQUEST 3
#define PATHCALL_PLACE_HANDLED 4

/* Languages of kernels. */
#define PATHCALL_PLACE_OPENCL 0
#define PATHCALL_PLACE_CUDA 1

/* Bytes of a kernel's answers: as many as the request has; as many as it says. */
#define PATHCALL_PLACE_AS_INPUT (-1)
#define PATHCALL_PLACE_ANY (-2)

/* A time that was not measured. */
#define PATHCALL_PLACE_UNMEASURED UINT64_MAX

typedef struct pathcall_place_builder pathcall_place_builder;
typedef struct pathcall_place_context pathcall_place_context;
typedef struct pathcall_place_held pathcall_place_held;

/* What a task does: the bytes of the answer that it wrote, or a negative number: it refuses the request. */
typedef int64_t (*pathcall_place_function)(void *user, const uint8_t *request, size_t request_bytes, uint8_t *answer,
                                           size_t answer_max);
/* What a requester sends in a trip after the first: the bytes of the message that it wrote, or a negative number. */
typedef int64_t (*pathcall_place_next_function)(void *user, uint32_t trip, const uint8_t *request, size_t request_bytes,
                                                const uint8_t *answer, size_t answer_bytes, uint8_t *message,
                                                size_t message_max);
/* Memory that the other side reads and writes; the place is in it. */
typedef void (*pathcall_place_read_function)(void *user, size_t at, uint8_t *to, size_t count);
typedef void (*pathcall_place_write_function)(void *user, size_t at, const uint8_t *from, size_t count);
/* Tells the time, in nanoseconds; never back. */
typedef uint64_t (*pathcall_place_clock)(void *user);

typedef struct pathcall_place_bytes {
    const uint8_t *bytes;
    size_t count;
} pathcall_place_bytes;

/* Text that a device compiles: docs/devices.md has its arguments. */
typedef struct pathcall_place_kernel {
    uint32_t language;
    uint32_t group;        /* work items of a group */
    const char *source;
    const char *entry;
    const char *options;   /* for the compiler; null: nothing */
    size_t bytes_per_item; /* a work item for each so many bytes of the request; 0: `items` of them */
    size_t items;
    int64_t answer_bytes;  /* or PATHCALL_PLACE_AS_INPUT, PATHCALL_PLACE_ANY */
    const pathcall_place_bytes *tables; /* on the device before the first request */
    size_t tables_count;
} pathcall_place_kernel;

typedef struct pathcall_place_message {
    uint64_t address; /* for requests that keep their order per address */
    uint64_t message; /* for those that keep it per message */
    uint64_t tag;     /* comes back with the answer */
    const uint8_t *bytes;
    size_t count;
    uint32_t kind;    /* from pathcall_place_kind */
} pathcall_place_message;

/* Its bytes and its text are the library's, until pathcall_place_event_free. */
typedef struct pathcall_place_event {
    uint32_t what;
    int32_t status;       /* PATHCALL_PLACE_OK, PATHCALL_PLACE_REFUSED, PATHCALL_PLACE_FAILED */
    uint64_t tag;
    const uint8_t *bytes; /* of an answer, of what was read, of a request that has come */
    size_t count;
    const char *text;     /* why there are none */
    int32_t path;         /* that an answer came by, from 0; -1: the processor did it in place of paths that failed */
    uint32_t attempts;
    uint64_t intra_ns;    /* within the hosts, or PATHCALL_PLACE_UNMEASURED */
    uint64_t total_ns;
    uint32_t kind;        /* of a request that has come */
    uint32_t trip;
    uint32_t role;
    pathcall_place_held *held;
} pathcall_place_event;

/* What the last call of this thread that failed says. Never null; valid until the next that fails. */
const char *pathcall_place_error(void);

/* Three files of YAML. Free the builder, or have pathcall_place_init take it. */
pathcall_place_builder *pathcall_place_builder_new(const char *application, const char *requester,
                                                   const char *responder);
void pathcall_place_builder_free(pathcall_place_builder *builder);
/* leo, which it is unless it is said, all-cpu, all-acc, shortest-queue and others. */
int32_t pathcall_place_strategy(pathcall_place_builder *builder, const char *name);
/* cpu:2, opencl:0, cuda:0, emulated:per-job=10us,slots=2 */
int32_t pathcall_place_device(pathcall_place_builder *builder, uint32_t of, const char *device);
/* What carries messages to that role of the other side: itself, udp:HERE or udp:HERE,SERVER (127.0.0.1:7000). */
int32_t pathcall_place_reg_comm_func(pathcall_place_builder *builder, const char *what, const char *name, uint32_t of);
/* Memory of so many bytes that the other side may read and write under that name, in the memory of the processor. */
int32_t pathcall_place_reg_mem_func(pathcall_place_builder *builder, pathcall_place_read_function read,
                                    pathcall_place_write_function write, void *user, size_t count, const char *name,
                                    uint32_t of);
/* cpu: t1, t4 and t6; nic: t2, t3 and t5. */
int32_t pathcall_place_reg_ts_func(pathcall_place_builder *builder, pathcall_place_clock clock, void *user,
                                   const char *name);
/* What a task does on a role. `answer_max`: bytes of an answer, if they may be more than the request's. */
int32_t pathcall_place_reg_app_func(pathcall_place_builder *builder, pathcall_place_function function, void *user,
                                    const char *task, uint32_t of, size_t answer_max);
int32_t pathcall_place_reg_app_kernel(pathcall_place_builder *builder, const pathcall_place_kernel *kernel,
                                      const char *task, size_t answer_max);
/* Messages of later trips, of `message_max` bytes at most; each is the answer to the trip before it otherwise. */
int32_t pathcall_place_next(pathcall_place_builder *builder, pathcall_place_next_function function, void *user,
                            const char *kind, size_t message_max);
/* Both roles work on it at the start, and must give the same; times that are not known are measured with it. */
int32_t pathcall_place_sample(pathcall_place_builder *builder, const char *task, const uint8_t *request,
                              size_t request_bytes);
/* Requests that come are given out as events, for pathcall_place_handle; they are handled at once otherwise. */
int32_t pathcall_place_gives_out(pathcall_place_builder *builder);
/* A socket, a new file, for `pathcall place explain` and `status`. */
int32_t pathcall_place_door(pathcall_place_builder *builder, const char *path);
/* The builder is freed, also when it fails. Free the context. */
pathcall_place_context *pathcall_place_init(pathcall_place_builder *builder);
/* Waits for functions that the library has called and that run; none is called afterwards, by whatever thread. */
void pathcall_place_free(pathcall_place_context *context);

int32_t pathcall_place_kind(pathcall_place_context *context, const char *name, uint32_t *kind);
int32_t pathcall_place_send(pathcall_place_context *context, const pathcall_place_message *message);
/* PATHCALL_PLACE_OK: an event, to be freed. PATHCALL_PLACE_NOTHING: none. Only pathcall_place_wait waits. */
int32_t pathcall_place_recv(pathcall_place_context *context, pathcall_place_event *event);
int32_t pathcall_place_wait(pathcall_place_context *context, uint64_t timeout_ns, pathcall_place_event *event);
/* One-sided: nobody at the other side is asked. Done, each is an event. */
int32_t pathcall_place_write(pathcall_place_context *context, const char *memory, uint64_t at, const uint8_t *from,
                             size_t count, uint64_t tag);
int32_t pathcall_place_read(pathcall_place_context *context, const char *memory, uint64_t at, uint64_t count,
                            uint64_t tag);
/* Works on a request that has come, or refuses it. The event is freed. */
int32_t pathcall_place_handle(pathcall_place_context *context, pathcall_place_event *event, uint32_t of);
int32_t pathcall_place_refuse(pathcall_place_event *event, const char *why);
void pathcall_place_event_free(pathcall_place_event *event);

/* Text, cut where there is no more room and always ended: the bytes that all of it has, without the end. */
size_t pathcall_place_explain(pathcall_place_context *context, size_t count, char *to, size_t room);
size_t pathcall_place_status(pathcall_place_context *context, char *to, size_t room);

#ifdef __cplusplus
}
#endif

#endif
