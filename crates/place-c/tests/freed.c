/* What is registered may be gone when its context is freed: nothing calls it any more. */
#define _POSIX_C_SOURCE 200809L
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pathcall_place.h"

static const char *application, *hardware;
static int failures;

static void expect(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "%s: %s\n", what, pathcall_place_error());
        failures++;
    }
}

static void sleep_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* What functions are registered with. */
struct user {
    atomic_int inside;
    atomic_int calls;
    pathcall_place_context *_Atomic context;
};

static int64_t echo(const uint8_t *request, size_t n, uint8_t *answer, size_t max) {
    if (n > max)
        return -1;
    memcpy(answer, request, n);
    return (int64_t)n;
}

static int64_t slow(void *user, const uint8_t *request, size_t n, uint8_t *answer, size_t max) {
    struct user *u = user;
    atomic_store(&u->inside, 1);
    sleep_ms(200);
    atomic_fetch_add(&u->calls, 1);
    return echo(request, n, answer, max);
}

static int64_t frees(void *user, const uint8_t *request, size_t n, uint8_t *answer, size_t max) {
    struct user *u = user;
    pathcall_place_free(atomic_load(&u->context));
    expect(strstr(pathcall_place_error(), "a function that was registered with it can't free it") != NULL, "frees");
    atomic_fetch_add(&u->calls, 1);
    return echo(request, n, answer, max);
}

static uint64_t counts(void *user) { return (uint64_t)atomic_fetch_add(&((struct user *)user)->calls, 1); }

static pathcall_place_builder *builder(pathcall_place_function function, struct user *user) {
    pathcall_place_builder *b = pathcall_place_builder_new(application, hardware, hardware);
    expect(pathcall_place_strategy(b, "all-cpu") == PATHCALL_PLACE_OK, "strategy");
    expect(pathcall_place_device(b, PATHCALL_PLACE_CPU, "cpu:1") == PATHCALL_PLACE_OK, "device");
    expect(pathcall_place_reg_app_func(b, function, user, "look-up", PATHCALL_PLACE_CPU, 0) == PATHCALL_PLACE_OK, "task");
    expect(pathcall_place_reg_app_func(b, function, user, "access", PATHCALL_PLACE_CPU, 0) == PATHCALL_PLACE_OK, "task");
    expect(pathcall_place_reg_app_func(b, function, user, "insert", PATHCALL_PLACE_CPU, 0) == PATHCALL_PLACE_OK, "task");
    expect(pathcall_place_reg_comm_func(b, "itself", "itself", PATHCALL_PLACE_CPU) == PATHCALL_PLACE_OK, "comm");
    return b;
}

static pathcall_place_context *begin(pathcall_place_builder *b, struct user *user) {
    pathcall_place_context *context = pathcall_place_init(b);
    if (context == NULL) {
        fprintf(stderr, "%s\n", pathcall_place_error());
        exit(2);
    }
    atomic_store(&user->context, context);
    return context;
}

static void ask(pathcall_place_context *context, int count) {
    pathcall_place_message message = {0};
    expect(pathcall_place_kind(context, "GET", &message.kind) == PATHCALL_PLACE_OK, "kind");
    message.bytes = (const uint8_t *)"k";
    message.count = 1;
    for (; count > 0; count--, message.tag++, message.address++)
        expect(pathcall_place_send(context, &message) == PATHCALL_PLACE_OK, "send");
}

/* A task runs, and others wait for it. */
static void tasks(void) {
    static struct user user;
    pathcall_place_context *context = begin(builder(slow, &user), &user);
    pathcall_place_event event;
    int calls;
    ask(context, 3);
    while (!atomic_load(&user.inside))
        if (pathcall_place_wait(context, 1000000, &event) == PATHCALL_PLACE_OK)
            pathcall_place_event_free(&event);
    pathcall_place_free(context);
    calls = atomic_load(&user.calls);
    expect(calls > 0, "what ran was not waited for");
    sleep_ms(1000);
    expect(atomic_load(&user.calls) == calls, "a task was called after its context was freed");
}

/* A request outlives its context: when it fails, the time is asked. */
static void clocks(void) {
    static struct user user;
    pathcall_place_builder *b = builder(slow, &user);
    pathcall_place_context *context;
    pathcall_place_event event;
    int calls;
    expect(pathcall_place_reg_ts_func(b, counts, &user, "cpu") == PATHCALL_PLACE_OK, "clock");
    expect(pathcall_place_gives_out(b) == PATHCALL_PLACE_OK, "gives out");
    context = begin(b, &user);
    ask(context, 1);
    expect(pathcall_place_wait(context, 180000000000ull, &event) == PATHCALL_PLACE_OK, "nothing comes");
    expect(event.what == PATHCALL_PLACE_REQUEST, "no request");
    pathcall_place_free(context);
    calls = atomic_load(&user.calls);
    expect(calls > 0, "nobody has asked the clock");
    pathcall_place_event_free(&event);
    expect(atomic_load(&user.calls) == calls, "a clock was asked after its context was freed");
}

/* A task that frees its own context would wait for itself. */
static void own(void) {
    static struct user user;
    pathcall_place_context *context = begin(builder(frees, &user), &user);
    pathcall_place_event event;
    ask(context, 1);
    expect(pathcall_place_wait(context, 180000000000ull, &event) == PATHCALL_PLACE_OK, "nothing comes");
    expect(event.what == PATHCALL_PLACE_ANSWER && event.status == PATHCALL_PLACE_OK, "no answer");
    expect(atomic_load(&user.calls) > 0, "nothing was called");
    pathcall_place_event_free(&event);
    pathcall_place_free(context);
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    application = argv[1];
    hardware = argv[2];
    tasks();
    clocks();
    own();
    return failures != 0;
}
