/* Key-value store: the processor or the accelerator, whichever is sooner, looks up the index; values are in the host's
 * memory. Usage: kvs APPLICATION.yaml HARDWARE.yaml KEYS. Puts KEYS keys, gets each key twice, changes every third key
 * in between, and prints the paths of the requests. Exit status 1: a value was wrong.
 *
 * cc kvs.c -lpathcall_place_c -lpthread -o kvs
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pathcall_place.h"

#define BUCKETS 4096
#define VALUE 48
#define WINDOW 16
#define SECOND 1000000000ull

/* Hash table of each key's place in `values`. Both roles read the table, the processor changes it. */
struct store {
    pthread_mutex_t lock;
    uint64_t keys[BUCKETS];
    uint64_t places[BUCKETS]; /* from 1; 0: none */
    uint64_t count;
    uint8_t values[BUCKETS][VALUE];
};

static struct store store = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t read_u64(const uint8_t *bytes) {
    uint64_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static size_t bucket(const struct store *s, uint64_t key) {
    size_t at = (size_t)(key * 0x9e3779b97f4a7c15ull >> 52);
    while (s->places[at] != 0 && s->keys[at] != key)
        at = (at + 1) % BUCKETS;
    return at;
}

/* Input: a key. Answer: the place of its value. */
static int64_t look_up(void *user, const uint8_t *request, size_t n, uint8_t *answer, size_t max) {
    struct store *s = user;
    uint64_t place;
    if (n < 8 || max < 8)
        return -1;
    pthread_mutex_lock(&s->lock);
    place = s->places[bucket(s, read_u64(request))];
    pthread_mutex_unlock(&s->lock);
    memcpy(answer, &place, 8);
    return 8;
}

/* Input: a key, which is inserted if it is new. Answer: the place of its value. */
static int64_t insert(void *user, const uint8_t *request, size_t n, uint8_t *answer, size_t max) {
    struct store *s = user;
    size_t at;
    if (n < 8 || max < 8)
        return -1;
    pthread_mutex_lock(&s->lock);
    at = bucket(s, read_u64(request));
    if (s->places[at] == 0) {
        s->keys[at] = read_u64(request);
        s->places[at] = ++s->count;
    }
    memcpy(answer, &s->places[at], 8);
    pthread_mutex_unlock(&s->lock);
    return 8;
}

/* Input: a place, or a place and a new value. Answer: the value. */
static int64_t access_value(void *user, const uint8_t *request, size_t n, uint8_t *answer, size_t max) {
    struct store *s = user;
    uint64_t place = n < 8 ? 0 : read_u64(request);
    if (place == 0 || place > BUCKETS || max < VALUE)
        return -2; /* unknown key */
    pthread_mutex_lock(&s->lock);
    if (n == 8 + VALUE)
        memcpy(s->values[place - 1], request + 8, VALUE);
    memcpy(answer, s->values[place - 1], VALUE);
    pthread_mutex_unlock(&s->lock);
    return VALUE;
}

/* Second message of a put: the place of its key, and the value. */
static int64_t put_value(void *user, uint32_t trip, const uint8_t *request, size_t n, const uint8_t *place, size_t places,
                         uint8_t *message, size_t max) {
    (void)user;
    (void)trip;
    if (n != 8 + VALUE || places != 8 || max < 8 + VALUE)
        return -1;
    memcpy(message, place, 8);
    memcpy(message + 8, request + 8, VALUE);
    return 8 + VALUE;
}

static void value_of(uint64_t key, uint64_t version, uint8_t *to) {
    for (size_t i = 0; i < VALUE; i++)
        to[i] = (uint8_t)(key * 31 + version * 7 + i);
}

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, pathcall_place_error());
    exit(2);
}

static void check(int32_t code, const char *what) {
    if (code < 0)
        fail(what);
}

static pathcall_place_context *start(const char *application, const char *hardware) {
    pathcall_place_builder *b = pathcall_place_builder_new(application, hardware, hardware);
    pathcall_place_context *context;
    if (b == NULL)
        fail("models");
    check(pathcall_place_device(b, PATHCALL_PLACE_CPU, "cpu:1"), "cpu");
    check(pathcall_place_device(b, PATHCALL_PLACE_ACC, "emulated:per-job=20us,slots=2"), "acc");
    check(pathcall_place_reg_app_func(b, look_up, &store, "look-up", PATHCALL_PLACE_CPU, VALUE), "look-up");
    check(pathcall_place_reg_app_func(b, look_up, &store, "look-up", PATHCALL_PLACE_ACC, VALUE), "look-up");
    check(pathcall_place_reg_app_func(b, insert, &store, "insert", PATHCALL_PLACE_CPU, VALUE), "insert");
    check(pathcall_place_reg_app_func(b, access_value, &store, "access", PATHCALL_PLACE_CPU, VALUE), "access");
    check(pathcall_place_next(b, put_value, NULL, "PUT", 8 + VALUE), "PUT");
    check(pathcall_place_reg_comm_func(b, "itself", "itself", PATHCALL_PLACE_CPU), "communication");
    context = pathcall_place_init(b);
    if (context == NULL)
        fail("init");
    return context;
}

static uint64_t wrong;

/* Receives an answer and compares it with the value of the version in its tag. */
static void receive_answer(pathcall_place_context *context, uint64_t keys) {
    pathcall_place_event event;
    uint8_t expected[VALUE];
    if (pathcall_place_wait(context, 30 * SECOND, &event) != PATHCALL_PLACE_OK)
        fail("no answer");
    value_of(event.tag % keys, event.tag / keys, expected);
    if (event.status != PATHCALL_PLACE_OK || event.count != VALUE || memcmp(event.bytes, expected, VALUE) != 0) {
        fprintf(stderr, "key %" PRIu64 ": %s\n", event.tag % keys, *event.text ? event.text : "wrong value");
        wrong++;
    }
    pathcall_place_event_free(&event);
}

static void send_request(pathcall_place_context *context, uint32_t kind, uint64_t key, uint64_t version, uint64_t keys,
                         int put, uint64_t *in_flight) {
    uint8_t bytes[8 + VALUE];
    pathcall_place_message message = {0};
    if (*in_flight == WINDOW) {
        receive_answer(context, keys);
        --*in_flight;
    }
    memcpy(bytes, &key, 8);
    value_of(key, version, bytes + 8);
    message.address = key;
    message.tag = version * keys + key;
    message.bytes = bytes;
    message.count = put ? 8 + VALUE : 8;
    message.kind = kind;
    check(pathcall_place_send(context, &message), "send");
    ++*in_flight;
}

int main(int argc, char **argv) {
    uint64_t keys, key, in_flight = 0;
    uint32_t get, put;
    static char text[1 << 16];
    pathcall_place_context *context;
    if (argc != 4 || (keys = strtoull(argv[3], NULL, 10)) == 0 || keys > BUCKETS / 2) {
        fprintf(stderr, "usage: kvs APPLICATION.yaml HARDWARE.yaml KEYS, at most %d\n", BUCKETS / 2);
        return 2;
    }
    context = start(argv[1], argv[2]);
    check(pathcall_place_kind(context, "GET", &get), "GET");
    check(pathcall_place_kind(context, "PUT", &put), "PUT");
    for (key = 0; key < keys; key++)
        send_request(context, put, key, 0, keys, 1, &in_flight);
    for (key = 0; key < keys; key++) {
        send_request(context, get, key, 0, keys, 0, &in_flight);
        if (key % 3 == 0)
            send_request(context, put, key, 1, keys, 1, &in_flight);
        send_request(context, get, key, key % 3 == 0, keys, 0, &in_flight);
    }
    for (; in_flight > 0; in_flight--)
        receive_answer(context, keys);
    pathcall_place_status(context, text, sizeof text);
    printf("%" PRIu64 " keys, %" PRIu64 " wrong\n%s", keys, wrong, text);
    pathcall_place_explain(context, 2, text, sizeof text);
    printf("%s", text);
    pathcall_place_free(context);
    return wrong != 0;
}
