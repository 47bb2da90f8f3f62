/* Two accelerators: requests in turn run on the processor and on both of them. */
#include <stdio.h>
#include <string.h>

#include "pathcall_place.h"

static unsigned runs[3];

/* Counts the runs of the device that `user` is for. Each device has one thread. */
static int64_t echo(void *user, const uint8_t *request, size_t n, uint8_t *answer, size_t max) {
    if (n > max)
        return -1;
    ++*(unsigned *)user;
    memcpy(answer, request, n);
    return (int64_t)n;
}

int main(int argc, char **argv) {
    static const char *devices[3] = {"cpu:1", "emulated:per-job=5us", "emulated:per-job=10us"};
    pathcall_place_message message = {0};
    pathcall_place_context *context;
    pathcall_place_builder *b;
    unsigned roles[3] = {0};
    int failed;
    if (argc != 3)
        return 2;
    b = pathcall_place_builder_new(argv[1], argv[2], argv[2]);
    failed = pathcall_place_strategy(b, "round-robin") != PATHCALL_PLACE_OK;
    for (uint32_t role = PATHCALL_PLACE_CPU; role <= PATHCALL_PLACE_ACC + 1; role++) {
        failed |= pathcall_place_device(b, role, devices[role]) != PATHCALL_PLACE_OK;
        failed |= pathcall_place_reg_app_func(b, echo, &runs[role], "look-up", role, 0) != PATHCALL_PLACE_OK;
    }
    failed |= pathcall_place_reg_app_func(b, echo, &runs[0], "access", PATHCALL_PLACE_CPU, 0) != PATHCALL_PLACE_OK;
    failed |= pathcall_place_reg_app_func(b, echo, &runs[0], "insert", PATHCALL_PLACE_CPU, 0) != PATHCALL_PLACE_OK;
    failed |= pathcall_place_reg_comm_func(b, "itself", "itself", PATHCALL_PLACE_CPU) != PATHCALL_PLACE_OK;
    failed |= pathcall_place_requests_as_events(b) != PATHCALL_PLACE_OK;
    context = pathcall_place_init(b);
    if (failed || context == NULL || pathcall_place_kind(context, "GET", &message.kind) != PATHCALL_PLACE_OK) {
        fprintf(stderr, "%s\n", pathcall_place_error());
        return 2;
    }
    for (uint64_t sent = 0; sent < 9; sent++) {
        pathcall_place_event event = {0};
        message.address = message.tag = sent;
        message.bytes = (const uint8_t *)&sent;
        message.count = sizeof sent;
        failed |= pathcall_place_send(context, &message) != PATHCALL_PLACE_OK;
        while (event.what != PATHCALL_PLACE_ANSWER) {
            pathcall_place_event_free(&event);
            if (pathcall_place_wait(context, 180000000000ull, &event) != PATHCALL_PLACE_OK)
                return 3;
            if (event.what == PATHCALL_PLACE_REQUEST) {
                if (event.trip == 0 && event.role <= 2)
                    roles[event.role]++;
                failed |= pathcall_place_handle(context, &event, event.role) != PATHCALL_PLACE_OK;
            }
        }
        failed |= event.status != PATHCALL_PLACE_OK || event.tag != sent || event.count != sizeof sent;
        pathcall_place_event_free(&event);
    }
    pathcall_place_free(context);
    /* A stop of the machine may have repeated a request. */
    for (int role = 0; role < 3; role++)
        if (roles[role] < 2 || runs[role] < 2)
            failed = fprintf(stderr, "role %d: %u requests, %u runs\n", role, roles[role], runs[role]) > 0;
    return failed;
}
