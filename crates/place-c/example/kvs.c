/* A key-value store: its index is looked up by processor or accelerator, whichever finishes it sooner; values are in the
 * host's memory. kvs APPLICATION.yaml HARDWARE.yaml KEYS: puts so many keys, gets each twice, changes every third
 * meanwhile, and says where the requests went. Ends with 1 where a value is wrong.
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

/* Keys are found in `index`, which says where in `values` each one's is. Both roles look it up, the processor changes it. */
struct store {
    pthread_mutex_t lock;
    uint64_t keys[BUCKETS];
    uint64_t places[BUCKETS]; /* from 1; 0: none */
    uint64_t count;
    uint8_t values[BUCKETS][VALUE];
};

static struct store store = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t word(const uint8_t *bytes) {
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

/* A key to the place of its value. */
static int64_t look_up(void *user, const uint8_t *request, size_t n, uint8_t *answer, size_t max) {
    struct store *s = user;
    uint64_t place;
    if (n < 8 || max < 8)
        return -1;
    pthread_mutex_lock(&s->lock);
    place = s->places[bucket(s, word(request))];
    pthread_mutex_unlock(&s->lock);
    memcpy(answer, &place, 8);
    return 8;
}

/* A key, new or not, to the place of its value. */
static int64_t insert(void *user, const uint8_t *request, size_t n, uint8_t *answer, size_t max) {
    struct store *s = user;
    size_t at;
    if (n < 8 || max < 8)
        return -1;
    pthread_mutex_lock(&s->lock);
    at = bucket(s, word(request));
    if (s->places[at] == 0) {
        s->keys[at] = word(request);
        s->places[at] = ++s->count;
    }
    memcpy(answer, &s->places[at], 8);
    pthread_mutex_unlock(&s->lock);
    return 8;
}

/* A place to its value; a place and a value change it. */
static int64_t reach(void *user, const uint8_t *request, size_t n, uint8_t *answer, size_t max) {
    struct store *s = user;
    uint64_t place = n < 8 ? 0 : word(request);
    if (place == 0 || place > BUCKETS || max < VALUE)
        return -2; /* there is no such key */
    pthread_mutex_lock(&s->lock);
    if (n == 8 + VALUE)
        memcpy(s->values[place - 1], request + 8, VALUE);
    memcpy(answer, s->values[place - 1], VALUE);
    pthread_mutex_unlock(&s->lock);
    return VALUE;
}

/* A put's second message: the place that its key has now, and the value. */
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

static void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, pathcall_place_error());
    exit(2);
}

static void must(int32_t code, const char *what) {
    if (code < 0)
        die(what);
}

static pathcall_place_context *begin(const char *application, const char *hardware) {
    pathcall_place_builder *b = pathcall_place_builder_new(application, hardware, hardware);
    pathcall_place_context *context;
    if (b == NULL)
        die("models");
    must(pathcall_place_device(b, PATHCALL_PLACE_CPU, "cpu:1"), "cpu");
    must(pathcall_place_device(b, PATHCALL_PLACE_ACC, "emulated:per-job=20us,slots=2"), "acc");
    must(pathcall_place_reg_app_func(b, look_up, &store, "look-up", PATHCALL_PLACE_CPU, VALUE), "look-up");
    must(pathcall_place_reg_app_func(b, look_up, &store, "look-up", PATHCALL_PLACE_ACC, VALUE), "look-up");
    must(pathcall_place_reg_app_func(b, insert, &store, "insert", PATHCALL_PLACE_CPU, VALUE), "insert");
    must(pathcall_place_reg_app_func(b, reach, &store, "access", PATHCALL_PLACE_CPU, VALUE), "access");
    must(pathcall_place_next(b, put_value, NULL, "PUT", 8 + VALUE), "PUT");
    must(pathcall_place_reg_comm_func(b, "itself", "itself", PATHCALL_PLACE_CPU), "communication");
    context = pathcall_place_init(b);
    if (context == NULL)
        die("init");
    return context;
}

static uint64_t wrong;

/* Takes an answer: a get's has to be the value of the version in its tag. */
static void take(pathcall_place_context *context, uint64_t keys) {
    pathcall_place_event event;
    uint8_t expected[VALUE];
    if (pathcall_place_wait(context, 30 * SECOND, &event) != PATHCALL_PLACE_OK)
        die("no answer");
    value_of(event.tag % keys, event.tag / keys, expected);
    if (event.status != PATHCALL_PLACE_OK || event.count != VALUE || memcmp(event.bytes, expected, VALUE) != 0) {
        fprintf(stderr, "key %" PRIu64 ": %s\n", event.tag % keys, *event.text ? event.text : "another value");
        wrong++;
    }
    pathcall_place_event_free(&event);
}

static void ask(pathcall_place_context *context, uint32_t kind, uint64_t key, uint64_t version, uint64_t keys, int put,
                uint64_t *flying) {
    uint8_t bytes[8 + VALUE];
    pathcall_place_message message = {0};
    if (*flying == WINDOW) {
        take(context, keys);
        --*flying;
    }
    memcpy(bytes, &key, 8);
    value_of(key, version, bytes + 8);
    message.address = key;
    message.tag = version * keys + key;
    message.bytes = bytes;
    message.count = put ? 8 + VALUE : 8;
    message.kind = kind;
    must(pathcall_place_send(context, &message), "send");
    ++*flying;
}

int main(int argc, char **argv) {
    uint64_t keys, key, flying = 0;
    uint32_t get, put;
    static char text[1 << 16];
    pathcall_place_context *context;
    if (argc != 4 || (keys = strtoull(argv[3], NULL, 10)) == 0 || keys > BUCKETS / 2) {
        fprintf(stderr, "usage: kvs APPLICATION.yaml HARDWARE.yaml KEYS, at most %d\n", BUCKETS / 2);
        return 2;
    }
    context = begin(argv[1], argv[2]);
    must(pathcall_place_kind(context, "GET", &get), "GET");
    must(pathcall_place_kind(context, "PUT", &put), "PUT");
    for (key = 0; key < keys; key++)
        ask(context, put, key, 0, keys, 1, &flying);
    for (key = 0; key < keys; key++) {
        ask(context, get, key, 0, keys, 0, &flying);
        if (key % 3 == 0)
            ask(context, put, key, 1, keys, 1, &flying);
        ask(context, get, key, key % 3 == 0, keys, 0, &flying);
    }
    for (; flying > 0; flying--)
        take(context, keys);
    pathcall_place_status(context, text, sizeof text);
    printf("%" PRIu64 " keys, %" PRIu64 " wrong\n%s", keys, wrong, text);
    pathcall_place_explain(context, 2, text, sizeof text);
    printf("%s", text);
    pathcall_place_free(context);
    return wrong != 0;
}
