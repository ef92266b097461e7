// Threads that share a database: each writes its own keys, ten at a time and alike, and
// whatever it sees of any thread's, by a snapshot or an iterator, are ten that are alike.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "leveldb/c.h"

#define THREADS 4
#define KEYS 10
#define EXPECT(what) \
  if (!(what)) { fprintf(stderr, "line %d: %s\n", __LINE__, #what); abort(); }

static leveldb_t* db;
static leveldb_writeoptions_t* writes;
static int rounds;

static void ok(char* error) {
  if (error != NULL) { fprintf(stderr, "%s\n", error); abort(); }
}

static void write_alike(int thread, const char* value) {
  leveldb_writebatch_t* batch = leveldb_writebatch_create();
  for (int i = 0; i < KEYS; i++) {
    char key[16];
    int length = snprintf(key, sizeof key, "%d-%d", thread, i);
    leveldb_writebatch_put(batch, key, length, value, strlen(value));
  }
  char* error = NULL;
  leveldb_write(db, writes, batch, &error);
  ok(error);
  leveldb_writebatch_destroy(batch);
}

// All keys of a thread as of a snapshot, forwards or backwards.
static void expect_alike(leveldb_iterator_t* at, int thread, int forwards) {
  char edge[16];
  snprintf(edge, sizeof edge, "%d-%c", thread, forwards ? '0' : '9');
  char first[32] = "";
  leveldb_iter_seek(at, edge, strlen(edge));
  for (int i = 0; i < KEYS; i++) {
    EXPECT(leveldb_iter_valid(at));
    size_t length;
    const char* key = leveldb_iter_key(at, &length);
    EXPECT(length == 3 && key[0] == '0' + thread && key[2] == '0' + (forwards ? i : 9 - i));
    const char* value = leveldb_iter_value(at, &length);
    if (i == 0) memcpy(first, value, length);
    EXPECT(length == strlen(first) && memcmp(value, first, length) == 0);
    forwards ? leveldb_iter_next(at) : leveldb_iter_prev(at);
  }
  char* error = NULL;
  leveldb_iter_get_error(at, &error);
  ok(error);
}

static void* work(void* number) {
  int thread = (int)(size_t)number;
  for (int round = 0; round < rounds; round++) {
    char value[32], key[16];
    snprintf(value, sizeof value, "%d of %d", round, thread);
    write_alike(thread, value);
    const leveldb_snapshot_t* then = leveldb_create_snapshot(db);
    leveldb_readoptions_t* reads = leveldb_readoptions_create();
    leveldb_readoptions_set_snapshot(reads, then);
    leveldb_iterator_t* at = leveldb_create_iterator(db, reads);
    write_alike(thread, "later");
    for (int other = 0; other < THREADS; other++) expect_alike(at, other, (round + other) % 2);
    leveldb_iter_destroy(at);
    char* error = NULL;
    size_t length;
    snprintf(key, sizeof key, "%d-%d", thread, round % KEYS);
    char* found = leveldb_get(db, reads, key, strlen(key), &length, &error);
    ok(error);
    EXPECT(length == strlen(value) && memcmp(found, value, length) == 0);
    leveldb_free(found);
    leveldb_release_snapshot(db, then);
    leveldb_readoptions_destroy(reads);
    if (round % 50 == thread) {
      leveldb_compact_range(db, NULL, 0, NULL, 0);
      leveldb_free(leveldb_property_value(db, "leveldb.stats"));
    }
  }
  return NULL;
}

int main(void) {
  EXPECT(getenv("ROUNDS") != NULL);
  rounds = atoi(getenv("ROUNDS"));
  char* error = NULL;
  leveldb_options_t* options = leveldb_options_create();
  leveldb_options_set_create_if_missing(options, 1);
  leveldb_options_set_write_buffer_size(options, 64 << 10);
  db = leveldb_open(options, "shared", &error);
  ok(error);
  writes = leveldb_writeoptions_create();
  for (int thread = 0; thread < THREADS; thread++) write_alike(thread, "before");
  pthread_t threads[THREADS];
  for (size_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void*)i);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  leveldb_close(db);
  leveldb_destroy_db(options, "shared", &error);
  ok(error);
  leveldb_writeoptions_destroy(writes);
  leveldb_options_destroy(options);
  printf("all threads saw what is alike\n");
  return 0;
}
