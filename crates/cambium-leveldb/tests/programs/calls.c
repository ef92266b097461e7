// Uses every function of LevelDB's C interface as a program written for LevelDB
// does, in the folder it is started in.

#include <assert.h>
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

static void expect_no_error(char* error, int line) {
  if (error != NULL) {
    fprintf(stderr, "%s:%d: %s\n", __FILE__, line, error);
    exit(1);
  }
}
#define SOUND(error) expect_no_error(error, __LINE__)

static void expect_value(leveldb_t* db, const leveldb_readoptions_t* how,
                         const char* key, const char* wanted, int line) {
  char* error = NULL;
  size_t length = 77;
  char* value = leveldb_get(db, how, key, strlen(key), &length, &error);
  expect_no_error(error, line);
  const int same =
      wanted == NULL ? value == NULL
                     : value != NULL && length == strlen(wanted) &&
                           memcmp(value, wanted, length) == 0;
  if (!same) {
    fprintf(stderr, "%s:%d: %s is %.*s, expected %s\n", __FILE__, line, key,
            (int)length, value ? value : "nothing", wanted ? wanted : "nothing");
    exit(1);
  }
  leveldb_free(value);
}
#define VALUE(key, wanted) expect_value(db, reading, key, wanted, __LINE__)

static void expect_entry(leveldb_iterator_t* at, const char* key,
                         const char* value, int line) {
  size_t key_length = 0, value_length = 0;
  const char* k = leveldb_iter_key(at, &key_length);
  const char* v = leveldb_iter_value(at, &value_length);
  if (!leveldb_iter_valid(at) || key_length != strlen(key) ||
      memcmp(k, key, key_length) != 0 || value_length != strlen(value) ||
      memcmp(v, value, value_length) != 0) {
    fprintf(stderr, "%s:%d: not at %s\n", __FILE__, line, key);
    exit(1);
  }
}
#define AT(key, value) expect_entry(at, key, value, __LINE__)

// Comparator: keys from the last to the first. It counts how it is used.
struct comparing {
  int compared, destroyed;
};
static int reversed(void* state, const char* a, size_t a_length, const char* b,
                    size_t b_length) {
  ((struct comparing*)state)->compared++;
  const size_t common = a_length < b_length ? a_length : b_length;
  const int bytes = memcmp(b, a, common);
  return bytes != 0 ? bytes : (b_length > a_length) - (b_length < a_length);
}
static void comparator_gone(void* state) {
  ((struct comparing*)state)->destroyed++;
}
static const char* comparator_name(void* state) { return "reversed"; }

// Filter policy: says what it is told to say.
struct filtering {
  unsigned char answer;
  int destroyed;
};
static char* make_filter(void* state, const char* const* keys,
                         const size_t* lengths, int count, size_t* length) {
  EXPECT(count > 0 && keys[0] != NULL && lengths[0] > 0);
  *length = 3;
  char* filter = malloc(3);
  memcpy(filter, "oak", 3);
  return filter;
}
static unsigned char may_match(void* state, const char* key, size_t key_length,
                               const char* filter, size_t length) {
  EXPECT(length == 3 && memcmp(filter, "oak", 3) == 0);
  return ((struct filtering*)state)->answer;
}
static void filter_gone(void* state) {
  ((struct filtering*)state)->destroyed++;
}
static const char* filter_name(void* state) { return "told"; }

// Batches: what their operations are, as text.
static void saw_put(void* state, const char* k, size_t k_length, const char* v,
                    size_t v_length) {
  char* text = state;
  sprintf(text + strlen(text), "+%.*s=%.*s ", (int)k_length, k, (int)v_length, v);
}
static void saw_delete(void* state, const char* k, size_t k_length) {
  char* text = state;
  sprintf(text + strlen(text), "-%.*s ", (int)k_length, k);
}

static leveldb_options_t* opening;
static leveldb_readoptions_t* reading;
static leveldb_writeoptions_t* writing;

static void databases_are_made_on_request(void) {
  char* error = NULL;
  EXPECT(leveldb_open(opening, "trees", &error) == NULL && error != NULL);
  // An error takes the place of one that was there.
  EXPECT(leveldb_open(opening, "trees", &error) == NULL);
  EXPECT(strstr(error, "Invalid argument: ") == error);
  leveldb_free(error);
  error = NULL;
  leveldb_options_set_create_if_missing(opening, 1);
  leveldb_t* db = leveldb_open(opening, "trees", &error);
  SOUND(error);
  // A second owner is refused.
  EXPECT(leveldb_open(opening, "trees", &error) == NULL);
  EXPECT(strstr(error, "IO error: ") == error);
  leveldb_free(error);
  error = NULL;
  leveldb_close(db);
  leveldb_options_set_error_if_exists(opening, 1);
  EXPECT(leveldb_open(opening, "trees", &error) == NULL && error != NULL);
  leveldb_free(error);
  leveldb_options_set_error_if_exists(opening, 0);
}

static void keys_have_values(leveldb_t* db) {
  char* error = NULL;
  VALUE("oak", NULL);
  leveldb_put(db, writing, "oak", 3, "Quercus", 7, &error);
  leveldb_put(db, writing, "", 0, "the empty key", 13, &error);
  leveldb_put(db, writing, "empty", 5, NULL, 0, &error);
  SOUND(error);
  VALUE("oak", "Quercus");
  VALUE("", "the empty key");
  VALUE("empty", "");
  leveldb_delete(db, writing, "", 0, &error);
  leveldb_delete(db, writing, "empty", 5, &error);
  leveldb_delete(db, writing, "never", 5, &error);
  SOUND(error);
  VALUE("empty", NULL);

  // Longer than the engines' keys.
  char* longest = malloc(100000);
  memset(longest, 'l', 100000);
  leveldb_put(db, writing, longest, 100000, "long", 4, &error);
  SOUND(error);
  size_t length = 0;
  char* value = leveldb_get(db, reading, longest, 100000, &length, &error);
  EXPECT(length == 4 && memcmp(value, "long", 4) == 0);
  leveldb_free(value);
  EXPECT(leveldb_get(db, reading, longest, 99999, &length, &error) == NULL);
  leveldb_delete(db, writing, longest, 100000, &error);
  SOUND(error);
  free(longest);
}

static void batches_are_atomic_and_can_be_read(leveldb_t* db) {
  char* error = NULL;
  leveldb_writebatch_t* batch = leveldb_writebatch_create();
  leveldb_writebatch_put(batch, "oak", 3, "lost", 4);
  leveldb_writebatch_clear(batch);
  leveldb_writebatch_put(batch, "ash", 3, "Fraxinus", 8);
  leveldb_writebatch_put(batch, "elm", 3, "Ulmus", 5);
  leveldb_writebatch_t* more = leveldb_writebatch_create();
  leveldb_writebatch_delete(more, "ash", 3);
  leveldb_writebatch_append(batch, more);
  leveldb_writebatch_destroy(more);
  leveldb_write(db, writing, batch, &error);
  SOUND(error);
  char text[200] = "";
  leveldb_writebatch_iterate(batch, text, saw_put, saw_delete);
  EXPECT(strcmp(text, "+ash=Fraxinus +elm=Ulmus -ash ") == 0);
  leveldb_writebatch_append(batch, batch);
  text[0] = 0;
  leveldb_writebatch_iterate(batch, text, saw_put, saw_delete);
  EXPECT(strlen(text) == 60);
  leveldb_writebatch_destroy(batch);
  VALUE("oak", "Quercus");
  VALUE("ash", NULL);
  VALUE("elm", "Ulmus");
}

static void iterators_go_both_ways(leveldb_t* db) {
  char* error = NULL;
  leveldb_iterator_t* at = leveldb_create_iterator(db, reading);
  EXPECT(!leveldb_iter_valid(at));
  leveldb_put(db, writing, "later", 5, "", 0, &error);
  leveldb_iter_seek_to_first(at);
  AT("elm", "Ulmus");
  leveldb_iter_next(at);
  AT("oak", "Quercus");
  leveldb_iter_prev(at);
  AT("elm", "Ulmus");
  leveldb_iter_prev(at);
  EXPECT(!leveldb_iter_valid(at));
  leveldb_iter_seek_to_last(at);
  AT("oak", "Quercus");
  leveldb_iter_seek(at, "f", 1);
  AT("oak", "Quercus");
  leveldb_iter_next(at);
  EXPECT(!leveldb_iter_valid(at));
  leveldb_iter_get_error(at, &error);
  SOUND(error);
  leveldb_iter_destroy(at);
  leveldb_delete(db, writing, "later", 5, &error);
  SOUND(error);
}

static void snapshots_see_one_moment(leveldb_t* db) {
  char* error = NULL;
  const leveldb_snapshot_t* then = leveldb_create_snapshot(db);
  leveldb_delete(db, writing, "oak", 3, &error);
  leveldb_readoptions_set_snapshot(reading, then);
  VALUE("oak", "Quercus");
  leveldb_iterator_t* at = leveldb_create_iterator(db, reading);
  leveldb_iter_seek_to_last(at);
  AT("oak", "Quercus");
  leveldb_iter_destroy(at);
  leveldb_readoptions_set_snapshot(reading, NULL);
  VALUE("oak", NULL);
  // A snapshot that was released is an error.
  leveldb_readoptions_set_snapshot(reading, then);
  leveldb_release_snapshot(db, then);
  EXPECT(leveldb_get(db, reading, "elm", 3, NULL, &error) == NULL);
  EXPECT(error != NULL);
  leveldb_free(error);
  leveldb_readoptions_set_snapshot(reading, NULL);
}

static void sizes_and_properties(leveldb_t* db) {
  char* error = NULL;
  char value[1000];
  memset(value, 'v', sizeof value);
  leveldb_writeoptions_set_sync(writing, 0);
  for (int tree = 0; tree < 2000; tree++) {
    char key[20];
    sprintf(key, "k%08d", tree);
    leveldb_put(db, writing, key, 9, value, sizeof value, &error);
    SOUND(error);
  }
  const char* starts[] = {"k", "k00001000", "z"};
  const char* limits[] = {"k00001000", "l", "a"};
  const size_t lengths[] = {1, 9, 1}, limit_lengths[] = {9, 1, 1};
  uint64_t sizes[] = {7, 7, 7};
  leveldb_approximate_sizes(db, 3, starts, lengths, limits, limit_lengths, sizes);
  EXPECT(sizes[0] > 100000 && sizes[1] > 100000 && sizes[2] == 0);
  leveldb_compact_range(db, NULL, 0, NULL, 0);
  leveldb_compact_range(db, "a", 1, "z", 1);
  VALUE("elm", "Ulmus");

  EXPECT(leveldb_property_value(db, "nothing") == NULL);
  char* stats = leveldb_property_value(db, "leveldb.stats");
  EXPECT(stats != NULL && strlen(stats) > 0);
  leveldb_free(stats);
  char* files = leveldb_property_value(db, "leveldb.num-files-at-level0");
  EXPECT(files != NULL);
  leveldb_free(files);
}

static void comparators_decide_the_order(void) {
  char* error = NULL;
  struct comparing state = {0, 0};
  leveldb_comparator_t* comparator = leveldb_comparator_create(
      &state, comparator_gone, reversed, comparator_name);
  leveldb_options_set_comparator(opening, comparator);
  // The database was made with another order.
  EXPECT(leveldb_open(opening, "trees", &error) == NULL);
  EXPECT(strstr(error, "reversed") != NULL);
  leveldb_free(error);
  error = NULL;
  leveldb_t* db = leveldb_open(opening, "backwards", &error);
  SOUND(error);
  leveldb_put(db, writing, "ash", 3, "1", 1, &error);
  leveldb_put(db, writing, "oak", 3, "2", 1, &error);
  SOUND(error);
  leveldb_iterator_t* at = leveldb_create_iterator(db, reading);
  leveldb_iter_seek_to_first(at);
  AT("oak", "2");
  leveldb_iter_next(at);
  AT("ash", "1");
  leveldb_iter_seek(at, "b", 1);
  AT("ash", "1");
  leveldb_iter_destroy(at);
  VALUE("oak", "2");
  EXPECT(state.compared > 0);
  leveldb_options_set_comparator(opening, NULL);
  leveldb_comparator_destroy(comparator);
  // The open database still needs it.
  EXPECT(state.destroyed == 0);
  leveldb_close(db);
  EXPECT(state.destroyed == 1);

  // One without functions is refused.
  comparator = leveldb_comparator_create(NULL, NULL, NULL, NULL);
  leveldb_options_set_comparator(opening, comparator);
  EXPECT(leveldb_open(opening, "none", &error) == NULL && error != NULL);
  leveldb_free(error);
  leveldb_options_set_comparator(opening, NULL);
  leveldb_comparator_destroy(comparator);
}

static void filter_policies_are_asked(void) {
  char* error = NULL;
  struct filtering state = {1, 0};
  leveldb_filterpolicy_t* policy = leveldb_filterpolicy_create(
      &state, filter_gone, make_filter, may_match, filter_name);
  leveldb_options_set_filter_policy(opening, policy);
  leveldb_t* db = leveldb_open(opening, "filtered", &error);
  SOUND(error);
  leveldb_put(db, writing, "oak", 3, "Quercus", 7, &error);
  SOUND(error);
  VALUE("oak", "Quercus");
  state.answer = 0;
  VALUE("oak", NULL);
  leveldb_options_set_filter_policy(opening, NULL);
  leveldb_filterpolicy_destroy(policy);
  leveldb_close(db);
  EXPECT(state.destroyed == 1);

  policy = leveldb_filterpolicy_create_bloom(12);
  leveldb_options_set_filter_policy(opening, policy);
  db = leveldb_open(opening, "filtered", &error);
  SOUND(error);
  VALUE("oak", "Quercus");
  leveldb_close(db);
  leveldb_options_set_filter_policy(opening, NULL);
  leveldb_filterpolicy_destroy(policy);
}

static void databases_are_repaired_and_destroyed(void) {
  char* error = NULL;
  leveldb_repair_db(opening, "trees", &error);
  SOUND(error);
  leveldb_t* db = leveldb_open(opening, "trees", &error);
  SOUND(error);
  VALUE("elm", "Ulmus");
  leveldb_destroy_db(opening, "trees", &error);
  EXPECT(error != NULL);  // It is open.
  leveldb_free(error);
  error = NULL;
  leveldb_close(db);
  leveldb_destroy_db(opening, "trees", &error);
  leveldb_destroy_db(opening, "trees", &error);
  leveldb_destroy_db(opening, "never", &error);
  SOUND(error);
  leveldb_options_set_create_if_missing(opening, 0);
  EXPECT(leveldb_open(opening, "trees", &error) == NULL && error != NULL);
  leveldb_free(error);
}

int main(void) {
  char* error = NULL;
  EXPECT(leveldb_major_version() == 1 && leveldb_minor_version() == 23);
  leveldb_env_t* env = leveldb_create_default_env();
  leveldb_cache_t* cache = leveldb_cache_create_lru(100000);
  char* folder = leveldb_env_get_test_directory(env);
  EXPECT(folder != NULL);
  leveldb_free(folder);

  opening = leveldb_options_create();
  leveldb_options_set_cache(opening, cache);
  leveldb_options_set_env(opening, env);
  leveldb_options_set_info_log(opening, NULL);
  leveldb_options_set_write_buffer_size(opening, 100000);
  leveldb_options_set_paranoid_checks(opening, 1);
  leveldb_options_set_max_open_files(opening, 10);
  leveldb_options_set_block_size(opening, 1);  // Brought into its bounds.
  leveldb_options_set_block_restart_interval(opening, 8);
  leveldb_options_set_max_file_size(opening, 3 << 20);
  leveldb_options_set_compression(opening, leveldb_snappy_compression);
  reading = leveldb_readoptions_create();
  leveldb_readoptions_set_verify_checksums(reading, 1);
  leveldb_readoptions_set_fill_cache(reading, 0);
  writing = leveldb_writeoptions_create();
  leveldb_writeoptions_set_sync(writing, 1);

  databases_are_made_on_request();
  leveldb_t* db = leveldb_open(opening, "trees", &error);
  SOUND(error);
  keys_have_values(db);
  batches_are_atomic_and_can_be_read(db);
  iterators_go_both_ways(db);
  snapshots_see_one_moment(db);
  sizes_and_properties(db);
  leveldb_close(db);
  comparators_decide_the_order();
  filter_policies_are_asked();
  databases_are_repaired_and_destroyed();

  leveldb_options_destroy(opening);
  leveldb_readoptions_destroy(reading);
  leveldb_writeoptions_destroy(writing);
  leveldb_cache_destroy(cache);
  leveldb_env_destroy(env);
  printf("all calls are as LevelDB's\n");
  return 0;
}
