/* Invalid calls: each returns a code and sets a line of error text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pathcall_place.h"

static int failures;

static void expect(int32_t got, int32_t code, const char *text, int line) {
    if (got == code && (code >= 0 || strstr(pathcall_place_error(), text) != NULL))
        return;
    fprintf(stderr, "line %d: %d, not %d: %s\n", line, got, code, pathcall_place_error());
    failures++;
}

#define EXPECT(call, code, text) expect((call), (code), (text), __LINE__)

static int64_t echo(void *user, const uint8_t *request, size_t n, uint8_t *answer, size_t max) {
    (void)user;
    if (n > max || (n > 0 && request[0] == 9))
        return -7;
    memcpy(answer, request, n);
    return (int64_t)n;
}

struct memory {
    uint8_t bytes[16];
};

static void reads(void *user, size_t at, uint8_t *to, size_t n) { memcpy(to, ((struct memory *)user)->bytes + at, n); }
static void writes(void *user, size_t at, const uint8_t *from, size_t n) {
    memcpy(((struct memory *)user)->bytes + at, from, n);
}

static pathcall_place_event wait_for(pathcall_place_context *context) {
    pathcall_place_event event;
    if (pathcall_place_wait(context, 180000000000ull, &event) != PATHCALL_PLACE_OK) {
        fprintf(stderr, "no event: %s\n", pathcall_place_error());
        exit(2);
    }
    return event;
}

int main(int argc, char **argv) {
    static struct memory memory;
    pathcall_place_event event;
    pathcall_place_message message = {0};
    pathcall_place_kernel kernel = {0};
    pathcall_place_context *context;
    pathcall_place_builder *b;
    uint8_t nine = 9;
    uint32_t kind;
    char text[8];
    if (argc != 3)
        return 2;
    if (pathcall_place_builder_new(NULL, argv[2], argv[2]) != NULL ||
        strcmp(pathcall_place_error(), "application is null") != 0 ||
        pathcall_place_builder_new(argv[2], argv[2], argv[2]) != NULL || *pathcall_place_error() == 0)
        failures++;
    b = pathcall_place_builder_new(argv[1], argv[2], argv[2]);
    EXPECT(pathcall_place_strategy(NULL, "leo"), PATHCALL_PLACE_INVALID, "builder is null");
    EXPECT(pathcall_place_strategy(b, "best"), PATHCALL_PLACE_UNKNOWN, "unknown strategy `best`: expected one of leo,");
    EXPECT(pathcall_place_strategy(b, "\xff"), PATHCALL_PLACE_INVALID, "name is not UTF-8");
    EXPECT(pathcall_place_device(b, PATHCALL_PLACE_ACC + PATHCALL_PLACE_ACCELERATORS_MAX, "cpu"), PATHCALL_PLACE_INVALID,
           "invalid role 8");
    EXPECT(pathcall_place_device(b, PATHCALL_PLACE_ACC, "abacus"), PATHCALL_PLACE_UNKNOWN, "invalid device `abacus`");
    EXPECT(pathcall_place_device(b, PATHCALL_PLACE_ACC, "opencl:99"), PATHCALL_PLACE_FAILED, "not found");
    EXPECT(pathcall_place_reg_app_func(b, NULL, NULL, "look-up", 0, 0), PATHCALL_PLACE_INVALID, "function is null");
    EXPECT(pathcall_place_reg_app_kernel(b, NULL, "look-up", 0), PATHCALL_PLACE_INVALID, "kernel is null");
    EXPECT(pathcall_place_reg_app_kernel(b, &kernel, "look-up", 0), PATHCALL_PLACE_INVALID, "source is null");
    EXPECT(pathcall_place_reg_app_kernel_of(b, &kernel, "look-up", 9, 0), PATHCALL_PLACE_INVALID, "invalid role 9");
    EXPECT(pathcall_place_reg_comm_func(b, "pigeon", "p", 0), PATHCALL_PLACE_INVALID,
           "invalid communication function `pigeon`: expected itself");
    EXPECT(pathcall_place_sample(b, "look-up", NULL, 3), PATHCALL_PLACE_INVALID,
           "request is null or invalid, with a count of 3");
    /* The rejected calls have not changed the builder. */
    EXPECT(pathcall_place_device(b, PATHCALL_PLACE_CPU, "cpu:1"), PATHCALL_PLACE_OK, "");
    EXPECT(pathcall_place_device(b, PATHCALL_PLACE_ACC, "emulated:per-job=5us"), PATHCALL_PLACE_OK, "");
    EXPECT(pathcall_place_reg_app_func(b, echo, NULL, "look-up", PATHCALL_PLACE_CPU, 0), PATHCALL_PLACE_OK, "");
    EXPECT(pathcall_place_reg_app_func(b, echo, NULL, "look-up", PATHCALL_PLACE_ACC, 0), PATHCALL_PLACE_OK, "");
    EXPECT(pathcall_place_reg_app_func(b, echo, NULL, "access", PATHCALL_PLACE_CPU, 0), PATHCALL_PLACE_OK, "");
    EXPECT(pathcall_place_reg_app_func(b, echo, NULL, "insert", PATHCALL_PLACE_CPU, 0), PATHCALL_PLACE_OK, "");
    EXPECT(pathcall_place_reg_mem_func(b, reads, writes, &memory, sizeof memory, "m", 0), PATHCALL_PLACE_OK, "");
    EXPECT(pathcall_place_reg_comm_func(b, "itself", "itself", 0), PATHCALL_PLACE_OK, "");
    context = pathcall_place_init(b);
    if (context == NULL) {
        fprintf(stderr, "%s\n", pathcall_place_error());
        return 2;
    }
    EXPECT(pathcall_place_kind(context, "DROP", &kind), PATHCALL_PLACE_UNKNOWN, "no request type `DROP`");
    EXPECT(pathcall_place_kind(context, "GET", NULL), PATHCALL_PLACE_INVALID, "kind is null");
    EXPECT(pathcall_place_kind(context, "GET", &kind), PATHCALL_PLACE_OK, "");
    EXPECT(pathcall_place_send(context, NULL), PATHCALL_PLACE_INVALID, "message is null");
    EXPECT(pathcall_place_recv(context, NULL), PATHCALL_PLACE_INVALID, "event is null");
    EXPECT(pathcall_place_recv(context, &event), PATHCALL_PLACE_NOTHING, "");
    message.kind = 70000;
    EXPECT(pathcall_place_send(context, &message), PATHCALL_PLACE_UNKNOWN, "no request type 70000");
    message.kind = 99;
    EXPECT(pathcall_place_send(context, &message), PATHCALL_PLACE_UNKNOWN, "no request type 99");
    /* The event reports that the function has refused the request. */
    message.kind = kind;
    message.tag = 5;
    message.bytes = &nine;
    message.count = 1;
    EXPECT(pathcall_place_send(context, &message), PATHCALL_PLACE_OK, "");
    event = wait_for(context);
    if (event.what != PATHCALL_PLACE_ANSWER || event.status != PATHCALL_PLACE_REFUSED || event.tag != 5 ||
        event.count != 0 || strcmp(event.text, "the function refused the request: -7") != 0)
        expect(event.status, PATHCALL_PLACE_REFUSED, event.text, __LINE__), failures++;
    EXPECT(pathcall_place_handle(context, &event, 0), PATHCALL_PLACE_INVALID, "the event is not a request");
    pathcall_place_event_free(&event);
    pathcall_place_event_free(&event);
    /* Memory of the other side: accesses within its bounds and beyond. */
    EXPECT(pathcall_place_write(context, "m", 4, (const uint8_t *)"abcd", 4, 1), PATHCALL_PLACE_OK, "");
    event = wait_for(context);
    EXPECT(event.what == PATHCALL_PLACE_ACCESSED ? event.status : -99, PATHCALL_PLACE_OK, "");
    pathcall_place_event_free(&event);
    EXPECT(pathcall_place_read(context, "m", 4, 4, 2), PATHCALL_PLACE_OK, "");
    event = wait_for(context);
    EXPECT(event.tag == 2 && event.count == 4 && memcmp(event.bytes, "abcd", 4) == 0 ? 0 : -99, 0, "");
    pathcall_place_event_free(&event);
    EXPECT(pathcall_place_read(context, "m", 14, 4, 3), PATHCALL_PLACE_OK, "");
    event = wait_for(context);
    EXPECT(event.status, PATHCALL_PLACE_FAILED, "");
    pathcall_place_event_free(&event);
    /* Text is truncated, and always terminated. */
    memset(text, 1, sizeof text);
    if (pathcall_place_status(context, text, sizeof text) <= sizeof text || strlen(text) != sizeof text - 1 ||
        pathcall_place_explain(context, 9, NULL, 0) == 0)
        failures++;
    pathcall_place_free(context);
    pathcall_place_free(NULL);
    pathcall_place_builder_free(NULL);
    if (pathcall_place_init(NULL) != NULL)
        failures++;
    return failures != 0;
}
