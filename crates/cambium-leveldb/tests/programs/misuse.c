// Does what a program must not do. LevelDB may crash then; here each is an error,
// or does nothing.

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "leveldb/c.h"

#define EXPECT(condition)                                                     \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: expected %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                \
    }                                                                         \
  } while (0)

static leveldb_options_t* opening;
static leveldb_readoptions_t* reading;
static leveldb_writeoptions_t* writing;

// An error was answered, and is freed.
static void refused(char** error, int line) {
  if (*error == NULL) {
    fprintf(stderr, "%s:%d: expected an error\n", __FILE__, line);
    exit(1);
  }
  leveldb_free(*error);
  *error = NULL;
}
#define REFUSED refused(&error, __LINE__)

static void use(leveldb_t* db) {
  char* error = NULL;
  size_t length = 7;
  leveldb_put(db, writing, "k", 1, "v", 1, &error);
  REFUSED;
  leveldb_delete(db, writing, "k", 1, &error);
  REFUSED;
  EXPECT(leveldb_get(db, reading, "k", 1, &length, &error) == NULL && length == 0);
  REFUSED;
  leveldb_write(db, writing, NULL, &error);
  REFUSED;
  EXPECT(leveldb_create_snapshot(db) == NULL);
  EXPECT(leveldb_property_value(db, "leveldb.stats") == NULL);
  leveldb_compact_range(db, NULL, 0, NULL, 0);
  const char* key = "k";
  uint64_t size = 7;
  length = 1;
  leveldb_approximate_sizes(db, 1, &key, &length, &key, &length, &size);
  EXPECT(size == 0);
  leveldb_iterator_t* at = leveldb_create_iterator(db, reading);
  leveldb_iter_seek_to_first(at);
  leveldb_iter_next(at);
  EXPECT(!leveldb_iter_valid(at) && leveldb_iter_key(at, &length) == NULL);
  leveldb_iter_get_error(at, &error);
  REFUSED;
  leveldb_iter_destroy(at);
}

static void null_pointers(leveldb_t* db) {
  char* error = NULL;
  use(NULL);
  leveldb_close(NULL);
  EXPECT(leveldb_open(NULL, "x", &error) == NULL);
  REFUSED;
  EXPECT(leveldb_open(opening, NULL, &error) == NULL);
  REFUSED;
  EXPECT(leveldb_open(opening, "", &error) == NULL);
  REFUSED;
  EXPECT(leveldb_open(opening, "missing/below", NULL) == NULL);
  leveldb_put(db, NULL, "k", 1, "v", 1, &error);
  REFUSED;
  leveldb_put(db, writing, NULL, 1, "v", 1, &error);
  REFUSED;
  leveldb_put(db, writing, "k", 1, NULL, 1, &error);
  REFUSED;
  leveldb_put(db, writing, "k", (size_t)-1, "v", 1, &error);
  REFUSED;
  EXPECT(leveldb_get(db, NULL, "k", 1, NULL, &error) == NULL);
  REFUSED;
  leveldb_put(db, writing, NULL, 1, NULL, 1, NULL);
  leveldb_destroy_db(NULL, "x", &error);
  REFUSED;
  leveldb_repair_db(opening, NULL, &error);
  REFUSED;
  EXPECT(leveldb_property_value(db, NULL) == NULL);
  leveldb_approximate_sizes(db, 1, NULL, NULL, NULL, NULL, NULL);
  leveldb_writebatch_put(NULL, "k", 1, "v", 1);
  leveldb_writebatch_append(NULL, NULL);
  leveldb_writebatch_iterate(NULL, NULL, NULL, NULL);
  leveldb_writebatch_clear(NULL);
  leveldb_iter_seek(NULL, NULL, 1);
  leveldb_iter_get_error(NULL, &error);
  REFUSED;
  leveldb_options_set_cache(NULL, NULL);
  leveldb_readoptions_set_snapshot(NULL, NULL);
  leveldb_writeoptions_set_sync(NULL, 1);
  leveldb_writebatch_t* batch = leveldb_writebatch_create();
  leveldb_writebatch_put(batch, "n", 1, "v", 1);
  leveldb_writebatch_put(batch, NULL, 1, NULL, 1);
  leveldb_writebatch_iterate(batch, NULL, NULL, NULL);
  leveldb_writebatch_destroy(batch);
  leveldb_writebatch_destroy(NULL);
  leveldb_iter_destroy(NULL);
  leveldb_options_destroy(NULL);
  leveldb_readoptions_destroy(NULL);
  leveldb_writeoptions_destroy(NULL);
  leveldb_cache_destroy(NULL);
  leveldb_env_destroy(NULL);
  leveldb_comparator_destroy(NULL);
  leveldb_filterpolicy_destroy(NULL);
  leveldb_release_snapshot(NULL, NULL);
  leveldb_free(NULL);
}

static void wrong_handles(leveldb_t* db) {
  use((leveldb_t*)opening);
  use((leveldb_t*)&opening);  // The address of something.
  use((leveldb_t*)-1);
  leveldb_iterator_t* at = leveldb_create_iterator(db, reading);
  leveldb_close((leveldb_t*)at);
  leveldb_iter_seek_to_first(at);
  EXPECT(leveldb_iter_valid(at));
  leveldb_iter_destroy(at);
  leveldb_iter_destroy(at);  // Twice.
  EXPECT(!leveldb_iter_valid(at));
}

static void* closes(void* db) {
  leveldb_close(db);
  return NULL;
}

static void* writes(void* db) {
  for (int round = 0; round < 2000; round++) {
    char* error = NULL;
    leveldb_put(db, writing, "thread", 6, "v", 1, &error);
    leveldb_free(error);
    leveldb_free(leveldb_get(db, reading, "thread", 6, NULL, NULL));
  }
  return NULL;
}

// A database is closed by another thread while threads write and read it, and an
// iterator and a snapshot outlive it.
static void outlived(leveldb_t* db) {
  char* error = NULL;
  leveldb_iterator_t* at = leveldb_create_iterator(db, reading);
  leveldb_iter_seek_to_first(at);
  EXPECT(leveldb_iter_valid(at));
  const leveldb_snapshot_t* then = leveldb_create_snapshot(db);
  leveldb_readoptions_t* earlier = leveldb_readoptions_create();
  leveldb_readoptions_set_snapshot(earlier, then);

  pthread_t writers[4], closer;
  for (int i = 0; i < 4; i++) pthread_create(&writers[i], NULL, writes, db);
  pthread_create(&closer, NULL, closes, db);
  for (int i = 0; i < 4; i++) pthread_join(writers[i], NULL);
  pthread_join(closer, NULL);

  use(db);
  leveldb_close(db);
  leveldb_iter_next(at);
  leveldb_iter_seek_to_first(at);
  EXPECT(!leveldb_iter_valid(at));
  leveldb_iter_get_error(at, &error);
  REFUSED;
  leveldb_iter_destroy(at);
  EXPECT(leveldb_get(db, earlier, "k", 1, NULL, &error) == NULL);
  REFUSED;
  leveldb_release_snapshot(db, then);
  leveldb_release_snapshot(db, then);
  leveldb_readoptions_destroy(earlier);
}

static leveldb_t* compared;
static leveldb_iterator_t* walked;
static int asked;

// Asks the database whose keys it compares, which would wait for itself.
static int asks(void* state, const char* a, size_t alen, const char* b, size_t blen) {
  if (compared != NULL) {
    char* error = NULL;
    EXPECT(leveldb_get(compared, reading, "k", 1, NULL, &error) == NULL);
    REFUSED;
    leveldb_put(compared, writing, "k", 1, "v", 1, &error);
    REFUSED;
    leveldb_iter_next(walked);
    asked++;
  }
  const int order = memcmp(a, b, alen < blen ? alen : blen);
  return order != 0 ? order : (alen > blen) - (alen < blen);
}

static const char* asks_name(void* state) { return "asks"; }
static const char* no_name(void* state) { return NULL; }
static const char* empty_name(void* state) { return ""; }

static void comparators(void) {
  char* error = NULL;
  const struct {
    int (*compare)(void*, const char*, size_t, const char*, size_t);
    const char* (*name)(void*);
  } incomplete[] = {{NULL, asks_name}, {asks, NULL}, {asks, no_name}, {asks, empty_name}};
  for (int i = 0; i < 4; i++) {
    leveldb_comparator_t* order =
        leveldb_comparator_create(NULL, NULL, incomplete[i].compare, incomplete[i].name);
    leveldb_options_set_comparator(opening, order);
    EXPECT(leveldb_open(opening, "incomplete", &error) == NULL);
    REFUSED;
    leveldb_comparator_destroy(order);
  }
  leveldb_comparator_t* order = leveldb_comparator_create(NULL, NULL, asks, asks_name);
  leveldb_options_set_comparator(opening, order);
  leveldb_t* db = leveldb_open(opening, "asking", &error);
  EXPECT(error == NULL);
  leveldb_put(db, writing, "a", 1, "1", 1, &error);
  leveldb_put(db, writing, "b", 1, "2", 1, &error);
  walked = leveldb_create_iterator(db, reading);
  compared = db;
  leveldb_put(db, writing, "c", 1, "3", 1, &error);
  EXPECT(error == NULL && asked > 0);
  leveldb_iter_seek(walked, "b", 1);
  EXPECT(leveldb_iter_valid(walked));
  compared = NULL;
  leveldb_iter_destroy(walked);
  leveldb_close(db);
  leveldb_options_set_comparator(opening, NULL);
  EXPECT(leveldb_open(opening, "asking", &error) == NULL);  // Of another order.
  REFUSED;
  leveldb_comparator_destroy(order);
}

int main(void) {
  char* error = NULL;
  opening = leveldb_options_create();
  leveldb_options_set_create_if_missing(opening, 1);
  reading = leveldb_readoptions_create();
  writing = leveldb_writeoptions_create();
  leveldb_t* db = leveldb_open(opening, "misused", &error);
  EXPECT(error == NULL);
  leveldb_put(db, writing, "k", 1, "v", 1, &error);
  EXPECT(error == NULL);
  null_pointers(db);
  wrong_handles(db);
  outlived(db);
  comparators();
  leveldb_options_destroy(opening);
  leveldb_readoptions_destroy(reading);
  leveldb_writeoptions_destroy(writing);
  printf("misuse is an error\n");
  return 0;
}
