// A store in the order of the program's comparator, in the folder that the program is started in.

#include <cambium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "expect.h"

// Backwards, and without regard to case.
static int backwards(void* state, const char* left, size_t left_length, const char* right,
                     size_t right_length) {
  ++*(int*)state;
  const size_t least = left_length < right_length ? left_length : right_length;
  const int found = strncasecmp(right, left, least);
  if (found != 0) return found;
  return (right_length > left_length) - (right_length < left_length);
}

static int states_gone = 0;
static void gone(void* state) {
  (void)state;
  ++states_gone;
}

static cambium_options* with(const char* name, int* calls) {
  cambium_options* options;
  ANSWERS(OK, cambium_options_new(&options));
  ANSWERS(OK, cambium_options_set_comparator(options, name, calls, backwards, gone));
  return options;
}

// Shows these entries, in this order; elm is the last of them.
static void shows(cambium_store* store, cambium_snapshot* snapshot, const char* wanted) {
  cambium_iterator* iterator;
  ANSWERS(OK, cambium_iterator_new(store, snapshot, NULL, 0, NULL, 0, &iterator));
  char found[200] = "";
  for (cambium_code at = cambium_iterator_first(iterator); at == CAMBIUM_OK;
       at = cambium_iterator_next(iterator)) {
    const void *key, *value;
    size_t key_length, value_length;
    ANSWERS(OK, cambium_iterator_key(iterator, &key, &key_length));
    ANSWERS(OK, cambium_iterator_value(iterator, &value, &value_length));
    const size_t end = strlen(found);
    snprintf(found + end, sizeof found - end, "%.*s=%.*s ", (int)key_length, (const char*)key,
             (int)value_length, (const char*)value);
  }
  if (strcmp(found, wanted) != 0) {
    fprintf(stderr, "found %s, expected %s\n", found, wanted);
    exit(1);
  }
  ANSWERS(OK, cambium_iterator_seek(iterator, "F", 1));
  const void* key;
  size_t length;
  ANSWERS(OK, cambium_iterator_key(iterator, &key, &length));
  EXPECT(length == 3 && memcmp(key, "elm", 3) == 0);
  const int is_alone = strchr(wanted, ' ') == wanted + strlen(wanted) - 1;
  EXPECT(cambium_iterator_previous(iterator) == (is_alone ? CAMBIUM_NOT_FOUND : CAMBIUM_OK));
  ANSWERS(OK, cambium_iterator_last(iterator));
  ANSWERS(NOT_FOUND, cambium_iterator_next(iterator));
  cambium_iterator_free(iterator);
}

static void put(cambium_store* store, const char* key, const char* value) {
  ANSWERS(OK, cambium_put(store, key, strlen(key), value, strlen(value), CAMBIUM_SYNCED));
}

static void uses(cambium_store* store) {
  put(store, "ash", "Fraxinus");
  put(store, "oak", "tree");
  put(store, "OAK", "Quercus");
  cambium_batch* batch;
  ANSWERS(OK, cambium_batch_new(&batch));
  ANSWERS(OK, cambium_batch_put(batch, "elm", 3, "Ulmus", 5));
  ANSWERS(OK, cambium_batch_delete(batch, "ASH", 3));
  ANSWERS(OK, cambium_write(store, batch, CAMBIUM_WRITTEN));
  shows(store, NULL, "OAK=Quercus elm=Ulmus ");

  cambium_snapshot* snapshot;
  ANSWERS(OK, cambium_snapshot_new(store, &snapshot));
  ANSWERS(OK, cambium_delete(store, "oAk", 3, CAMBIUM_WRITTEN));
  ANSWERS(NOT_FOUND, cambium_get(store, "oak", 3, NULL, NULL));
  ANSWERS(OK, cambium_snapshot_get(snapshot, "oak", 3, NULL, NULL));
  shows(store, NULL, "elm=Ulmus ");
  shows(store, snapshot, "OAK=Quercus elm=Ulmus ");
  cambium_snapshot_free(snapshot);

  const void* keys[] = {"Elm", "yew"};
  const size_t lengths[] = {3, 3};
  void* values[2];
  size_t value_lengths[2];
  ANSWERS(OK, cambium_multi_get(store, 2, keys, lengths, values, value_lengths));
  EXPECT(value_lengths[0] == 5 && memcmp(values[0], "Ulmus", 5) == 0 && values[1] == NULL);
  cambium_free(values[0]);

  // Calls that go by the bytes of keys say so, and change nothing.
  cambium_transaction* transaction;
  cambium_store* people;
  cambium_iterator* iterator;
  ANSWERS(UNSUPPORTED, cambium_transaction_new(store, &transaction));
  ANSWERS(UNSUPPORTED, cambium_namespace(store, "people", &people));
  ANSWERS(UNSUPPORTED, cambium_pass_new(store, &iterator));
  cambium_snapshot* kept;
  ANSWERS(UNSUPPORTED, cambium_named_snapshot_open(store, "monday", &kept));
  ANSWERS(UNSUPPORTED, cambium_delete_range(store, NULL, 0, NULL, 0, CAMBIUM_WRITTEN));
  ANSWERS(UNSUPPORTED, cambium_put_expiring(store, "a", 1, "b", 1, 1, CAMBIUM_WRITTEN));
  ANSWERS(UNSUPPORTED, cambium_merge(store, "append", "a", 1, "b", 1, CAMBIUM_WRITTEN));
  ANSWERS(OK, cambium_batch_put_expiring(batch, "a", 1, "b", 1, 1));
  ANSWERS(UNSUPPORTED, cambium_write(store, batch, CAMBIUM_WRITTEN));
  cambium_batch_free(batch);
  ANSWERS(OK, cambium_batch_new(&batch));
  ANSWERS(OK, cambium_batch_put(batch, "a", 1, "b", 1));
  ANSWERS(OK, cambium_batch_require_absent(batch, "a", 1));
  ANSWERS(UNSUPPORTED, cambium_write(store, batch, CAMBIUM_WRITTEN));
  cambium_batch_free(batch);
  shows(store, NULL, "elm=Ulmus ");
  EXPECT(cambium_capabilities(store) == (CAMBIUM_ORDERED | CAMBIUM_CHANGES));
}

static void refused(cambium_options* options) {
  cambium_store* store;
  ANSWERS(INVALID_ARGUMENT, cambium_open("ordered", options, &store));
  ANSWERS(INVALID_ARGUMENT, cambium_open_read_only("ordered", options, &store));
  ANSWERS(INVALID_ARGUMENT, cambium_open_or_create("ordered", "forest", options, &store));
  EXPECT(store == NULL);
}

int main(void) {
  int calls = 0;
  cambium_options* options = with("backwards", &calls);
  cambium_options* others = with("another order", &calls);
  cambium_store* store;
  ANSWERS(OK, cambium_create("ordered", "wisckey", options, &store));
  uses(store);
  EXPECT(calls > 0);
  ANSWERS(OK, cambium_close(store));
  ANSWERS(CLOSED, cambium_get(store, "elm", 3, NULL, NULL));
  cambium_store_free(store);

  // Another name, or none, is refused; so is a comparator for a store that was made without.
  refused(others);
  refused(NULL);
  ANSWERS(OK, cambium_create("plain", "wisckey", NULL, &store));
  ANSWERS(OK, cambium_close(store));
  cambium_store_free(store);
  ANSWERS(INVALID_ARGUMENT, cambium_open("plain", options, &store));
  ANSWERS(ALREADY_EXISTS, cambium_create("ordered", "wisckey", options, &store));
  ANSWERS(NOT_A_STORE, cambium_open("nowhere", options, &store));

  ANSWERS(OK, cambium_open("ordered", options, &store));
  put(store, "Yew", "Taxus");
  shows(store, NULL, "Yew=Taxus elm=Ulmus ");
  EXPECT(states_gone == 0);
  cambium_options_free(others);
  EXPECT(states_gone == 1);
  cambium_options_free(options);
  EXPECT(states_gone == 1);
  ANSWERS(OK, cambium_close(store));
  cambium_store_free(store);
  EXPECT(states_gone == 2);

  // A call that fails gives the state back at once.
  ANSWERS(OK, cambium_options_new(&options));
  ANSWERS(INVALID_ARGUMENT, cambium_options_set_comparator(options, "x", &calls, NULL, gone));
  ANSWERS(INVALID_ARGUMENT, cambium_options_set_comparator(options, "", &calls, backwards, gone));
  ANSWERS(INVALID_ARGUMENT, cambium_options_set_comparator(options, NULL, &calls, backwards, gone));
  ANSWERS(INVALID_ARGUMENT, cambium_options_set_comparator(NULL, "x", &calls, backwards, gone));
  EXPECT(states_gone == 6);
  ANSWERS(OK, cambium_options_set_comparator(options, "x", NULL, backwards, NULL));
  cambium_options_free(options);
  puts("keys are in the program's order");
  return 0;
}
