/* Freed contexts: no registered function is called after its context is freed. */
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

/* `user` argument of the registered functions. */
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
    expect(strstr(pathcall_place_error(), "function cannot free its own context or builder") != NULL, "frees");
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

static pathcall_place_context *start(pathcall_place_builder *b, struct user *user) {
    pathcall_place_context *context = pathcall_place_init(b);
    if (context == NULL) {
        fprintf(stderr, "%s\n", pathcall_place_error());
        exit(2);
    }
    atomic_store(&user->context, context);
    return context;
}

static void send_requests(pathcall_place_context *context, int count) {
    pathcall_place_message message = {0};
    expect(pathcall_place_kind(context, "GET", &message.kind) == PATHCALL_PLACE_OK, "kind");
    message.bytes = (const uint8_t *)"k";
    message.count = 1;
    for (; count > 0; count--, message.tag++, message.address++)
        expect(pathcall_place_send(context, &message) == PATHCALL_PLACE_OK, "send");
}

/* Context freed while a task runs and other requests wait. */
static void tasks(void) {
    static struct user user;
    pathcall_place_context *context = start(builder(slow, &user), &user);
    pathcall_place_event event;
    int calls;
    send_requests(context, 3);
    while (!atomic_load(&user.inside))
        if (pathcall_place_wait(context, 1000000, &event) == PATHCALL_PLACE_OK)
            pathcall_place_event_free(&event);
    pathcall_place_free(context);
    calls = atomic_load(&user.calls);
    expect(calls > 0, "did not wait for the task in progress");
    sleep_ms(1000);
    expect(atomic_load(&user.calls) == calls, "a task was called after its context was freed");
}

/* Request that outlives its context: the clock is not read when the request fails. */
static void clocks(void) {
    static struct user user;
    pathcall_place_builder *b = builder(slow, &user);
    pathcall_place_context *context;
    pathcall_place_event event;
    int calls;
    expect(pathcall_place_reg_ts_func(b, counts, &user, "cpu") == PATHCALL_PLACE_OK, "clock");
    expect(pathcall_place_requests_as_events(b) == PATHCALL_PLACE_OK, "requests as events");
    context = start(b, &user);
    send_requests(context, 1);
    expect(pathcall_place_wait(context, 180000000000ull, &event) == PATHCALL_PLACE_OK, "no event");
    expect(event.what == PATHCALL_PLACE_REQUEST, "not a request");
    pathcall_place_free(context);
    calls = atomic_load(&user.calls);
    expect(calls > 0, "the clock was not read");
    pathcall_place_event_free(&event);
    expect(atomic_load(&user.calls) == calls, "the clock was read after its context was freed");
}

/* Task that frees its own context: the call fails. */
static void own(void) {
    static struct user user;
    pathcall_place_context *context = start(builder(frees, &user), &user);
    pathcall_place_event event;
    send_requests(context, 1);
    expect(pathcall_place_wait(context, 180000000000ull, &event) == PATHCALL_PLACE_OK, "no event");
    expect(event.what == PATHCALL_PLACE_ANSWER && event.status == PATHCALL_PLACE_OK, "no answer");
    expect(atomic_load(&user.calls) > 0, "no function was called");
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
