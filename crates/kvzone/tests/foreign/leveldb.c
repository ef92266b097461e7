/* The same work as `kvzone run --stores leveldb`, by a loop that shares nothing with it:
 * what KVZone measures is held against this (scripts/beside-c.sh).
 *
 *   leveldb LIBRARY FOLDER KEYS SECONDS
 *
 * Fills KEYS entries of 16 + 100 bytes in random order, each by a put of its own; then
 * gets keys at random, and scans 100 entries from random keys on, SECONDS each. Prints
 * "fill-random RATE", "read-random RATE", "scan-random RATE", in calls a second.
 * Settings are those of profile equal with a budget of 64 MiB. */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KEY 16
#define VALUE 100
#define SCANNED 100
#define BUDGET (64u << 20)

typedef struct opaque opaque;

/* What is called of LevelDB's C interface (leveldb/c.h 1.23). */
static opaque *(*options_create)(void);
static void (*options_set_create_if_missing)(opaque *, unsigned char);
static void (*options_set_compression)(opaque *, int);
static void (*options_set_write_buffer_size)(opaque *, size_t);
static void (*options_set_cache)(opaque *, opaque *);
static void (*options_set_filter_policy)(opaque *, opaque *);
static opaque *(*cache_create_lru)(size_t);
static opaque *(*filterpolicy_create_bloom)(int);
static opaque *(*db_open)(opaque *, const char *, char **);
static void (*db_close)(opaque *);
static opaque *(*writeoptions_create)(void);
static opaque *(*readoptions_create)(void);
static void (*readoptions_set_verify_checksums)(opaque *, unsigned char);
static void (*put)(opaque *, opaque *, const char *, size_t, const char *, size_t, char **);
static char *(*get)(opaque *, opaque *, const char *, size_t, size_t *, char **);
static opaque *(*create_iterator)(opaque *, opaque *);
static void (*iter_destroy)(opaque *);
static void (*iter_seek)(opaque *, const char *, size_t);
static unsigned char (*iter_valid)(opaque *);
static void (*iter_next)(opaque *);
static const char *(*iter_key)(opaque *, size_t *);
static const char *(*iter_value)(opaque *, size_t *);
static void (*release)(void *);

static void *library;

static void *find(const char *name) {
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "%s: %s\n", name, dlerror());
        exit(3);
    }
    return found;
}

static void check(const char *what, char *problem) {
    if (problem) {
        fprintf(stderr, "%s: %s\n", what, problem);
        exit(3);
    }
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

/* SplitMix64: key numbers are its images, so that they are spread and all differ. */
static uint64_t mix(uint64_t number) {
    number += 0x9e3779b97f4a7c15u;
    number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9u;
    number = (number ^ (number >> 27)) * 0x94d049bb133111ebu;
    return number ^ (number >> 31);
}

static void make_key(uint64_t number, char key[KEY]) {
    uint64_t image = mix(number);
    for (int byte = 0; byte < 8; byte++) {
        key[byte] = (char)(image >> (56 - 8 * byte));
        key[8 + byte] = (char)('a' + (number >> (4 * byte)) % 16);
    }
}

static void load_library(const char *path) {
    library = dlopen(path, RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(3);
    }
#define FIND(variable, name) *(void **)&variable = find("leveldb_" name)
    FIND(options_create, "options_create");
    FIND(options_set_create_if_missing, "options_set_create_if_missing");
    FIND(options_set_compression, "options_set_compression");
    FIND(options_set_write_buffer_size, "options_set_write_buffer_size");
    FIND(options_set_cache, "options_set_cache");
    FIND(options_set_filter_policy, "options_set_filter_policy");
    FIND(cache_create_lru, "cache_create_lru");
    FIND(filterpolicy_create_bloom, "filterpolicy_create_bloom");
    FIND(db_open, "open");
    FIND(db_close, "close");
    FIND(writeoptions_create, "writeoptions_create");
    FIND(readoptions_create, "readoptions_create");
    FIND(readoptions_set_verify_checksums, "readoptions_set_verify_checksums");
    FIND(put, "put");
    FIND(get, "get");
    FIND(create_iterator, "create_iterator");
    FIND(iter_destroy, "iter_destroy");
    FIND(iter_seek, "iter_seek");
    FIND(iter_valid, "iter_valid");
    FIND(iter_next, "iter_next");
    FIND(iter_key, "iter_key");
    FIND(iter_value, "iter_value");
    FIND(release, "free");
}

static opaque *open_store(const char *folder, uint64_t keys) {
    opaque *options = options_create();
    char *problem = NULL;
    options_set_create_if_missing(options, 1);
    options_set_compression(options, 0);
    options_set_write_buffer_size(options, BUDGET / 8);
    options_set_cache(options, cache_create_lru(BUDGET - BUDGET / 4 - keys * 10 / 8));
    options_set_filter_policy(options, filterpolicy_create_bloom(10));
    opaque *store = db_open(options, folder, &problem);
    check("open", problem);
    return store;
}

int main(int count, char **arguments) {
    if (count != 5) {
        fprintf(stderr, "usage: leveldb LIBRARY FOLDER KEYS SECONDS\n");
        return 2;
    }
    uint64_t keys = strtoull(arguments[3], NULL, 10);
    double length = strtod(arguments[4], NULL);
    load_library(arguments[1]);
    opaque *store = open_store(arguments[2], keys);
    opaque *writing = writeoptions_create(), *reading = readoptions_create();
    readoptions_set_verify_checksums(reading, 1);
    char key[KEY], value[VALUE], *problem = NULL;
    double began = seconds();
    for (uint64_t number = 0; number < keys; number++) {
        make_key(number, key);
        for (int byte = 0; byte < VALUE; byte += 4) {
            uint32_t piece = (uint32_t)mix(number + byte);
            memcpy(value + byte, &piece, 4);
        }
        put(store, writing, key, KEY, value, VALUE, &problem);
        check("put", problem);
    }
    printf("fill-random %.0f\n", keys / (seconds() - began));

    /* Until levels are in order, as KVZone waits for them: nothing says when. */
    struct timespec pause = {3, 0};
    nanosleep(&pause, NULL);

    uint64_t calls = 0, random = 1, bytes = 0;
    began = seconds();
    while (seconds() - began < length) {
        size_t size = 0;
        random = mix(random);
        make_key(random % keys, key);
        char *found = get(store, reading, key, KEY, &size, &problem);
        check("get", problem);
        if (!found || size != VALUE) {
            fprintf(stderr, "a key is not there\n");
            return 3;
        }
        bytes += found[0];
        release(found);
        calls++;
    }
    printf("read-random %.0f\n", calls / (seconds() - began));

    calls = 0;
    began = seconds();
    while (seconds() - began < length) {
        random = mix(random);
        make_key(random % keys, key);
        opaque *iterator = create_iterator(store, reading);
        iter_seek(iterator, key, KEY);
        for (int entry = 0; entry < SCANNED && iter_valid(iterator); entry++) {
            size_t size = 0;
            bytes += iter_key(iterator, &size)[0];
            bytes += iter_value(iterator, &size)[0];
            iter_next(iterator);
        }
        iter_destroy(iterator);
        calls++;
    }
    printf("scan-random %.0f\n", calls / (seconds() - began));
    db_close(store);
    return bytes == 1;
}
