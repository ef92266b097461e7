// Namespaces in batches and snapshots, transactions that are repeated or pass over all, named
// snapshots that are read, history that is lost, and merge operators of the program, in the folder that the program is started
// in.

#include <pthread.h>

#include "expect.h"

// The values of "oak", "elm" and a key that is not there, in this order.
#define SEVERAL(of, call)                                                      \
  do {                                                                         \
    const void* keys[] = {"oak", "elm", "yew"};                                \
    const size_t key_lengths[] = {3, 3, 3};                                    \
    void* values[3];                                                           \
    size_t lengths[3];                                                         \
    ANSWERS(OK, call(of, 3, keys, key_lengths, values, lengths));              \
    EXPECT(lengths[0] == 7 && memcmp(values[0], "Quercus", 7) == 0);           \
    EXPECT(lengths[1] == 5 && memcmp(values[1], "Ulmus", 5) == 0);             \
    EXPECT(lengths[2] == 0 && values[2] == NULL);                              \
    cambium_free(values[0]);                                                   \
    cambium_free(values[1]);                                                   \
    ANSWERS(INVALID_ARGUMENT, call(of, 3, keys, NULL, values, lengths));       \
    ANSWERS(INVALID_ARGUMENT, call(NULL, 3, keys, key_lengths, values, lengths)); \
  } while (0)

static const uint64_t late = 95617584000000;

static void batches(cambium_store* store) {
  cambium_store* shrubs;
  cambium_batch* batch;
  ANSWERS(OK, cambium_namespace(store, "shrubs", &shrubs));
  for (const char* key = "abcd"; *key; key++)
    ANSWERS(OK, cambium_put(shrubs, key, 1, "1", 1, CAMBIUM_WRITTEN));
  ANSWERS(OK, cambium_batch_new(&batch));
  ANSWERS(OK, cambium_batch_delete_into(batch, "shrubs", "a", 1));
  ANSWERS(OK, cambium_batch_delete_range_into(batch, "shrubs", "c", 1, NULL, 0));
  ANSWERS(OK, cambium_batch_merge_into(batch, "shrubs", "append", "b", 1, "2", 1));
  ANSWERS(OK, cambium_batch_put_expiring_into(batch, "shrubs", "e", 1, "1", 1, late));
  ANSWERS(OK, cambium_batch_put_expiring_into(batch, "shrubs", "f", 1, "1", 1, CAMBIUM_NEVER));
  ANSWERS(OK, cambium_batch_put(batch, "here", 4, "1", 1));
  ANSWERS(INVALID_ARGUMENT, cambium_batch_delete_into(batch, NULL, "a", 1));
  ANSWERS(INVALID_ARGUMENT, cambium_batch_merge_into(batch, "shrubs", NULL, "a", 1, "", 0));
  ANSWERS(INVALID_ARGUMENT, cambium_batch_delete_range_into(NULL, "shrubs", NULL, 0, NULL, 0));
  ANSWERS(INVALID_ARGUMENT, cambium_batch_put_expiring_into(batch, "shrubs", NULL, 1, "", 0, 1));
  EXPECT(cambium_batch_count(batch) == 6);
  ANSWERS(OK, cambium_batch_require_present(batch, "here", 4));
  ANSWERS(PRECONDITION_FAILED, cambium_write(store, batch, CAMBIUM_WRITTEN));
  ANSWERS(OK, cambium_put(store, "here", 4, "0", 1, CAMBIUM_WRITTEN));
  ANSWERS(OK, cambium_write(store, batch, CAMBIUM_WRITTEN));
  cambium_batch_free(batch);
  has(store, "here", "1");
  has(shrubs, "a", NULL);
  has(shrubs, "b", "12");
  has(shrubs, "c", NULL);
  has(shrubs, "d", NULL);
  uint64_t moment;
  ANSWERS(OK, cambium_expires_at(shrubs, "e", 1, &moment));
  EXPECT(moment == late);
  ANSWERS(OK, cambium_expires_at(shrubs, "f", 1, &moment));
  EXPECT(moment == CAMBIUM_NEVER);
  cambium_store_free(shrubs);
}

// Keeps the longer one; refuses an empty operand, and makes nothing of "nothing".
static int longer(void* state, const char* current, size_t current_length, const char* operand,
                  size_t operand_length, char** value, size_t* value_length) {
  EXPECT(strcmp(state, "state") == 0 && (current != NULL || current_length == 0));
  const int keeps = current_length >= operand_length;
  *value_length = keeps ? current_length : operand_length;
  *value = malloc(*value_length + 1);
  if (*value_length > 0) memcpy(*value, keeps ? current : operand, *value_length);
  if (operand_length != 7 || memcmp(operand, "nothing", 7) != 0) return operand_length == 0;
  free(*value);
  *value = NULL;
  *value_length = current == NULL ? 1 : 0;
  return 0;
}

static int states_gone = 0;
static void gone(void* state) {
  EXPECT(strcmp(state, "state") == 0);
  states_gone++;
}

static void operators(cambium_store* store) {
  cambium_store* shrubs;
  cambium_transaction* transaction;
  ANSWERS(INVALID_ARGUMENT, cambium_register_operator(store, "longer", "state", NULL, gone));
  ANSWERS(INVALID_ARGUMENT, cambium_register_operator(NULL, "longer", "state", longer, gone));
  ANSWERS(INVALID_ARGUMENT, cambium_register_operator(store, NULL, "state", longer, gone));
  EXPECT(states_gone == 3);
  ANSWERS(OK, cambium_register_operator(store, "longer", "state", longer, NULL));
  ANSWERS(OK, cambium_register_operator(store, "longer", "state", longer, gone));
  ANSWERS(OK, cambium_merge(store, "longer", "o", 1, "two", 3, CAMBIUM_WRITTEN));
  ANSWERS(OK, cambium_merge(store, "longer", "o", 1, "three", 5, CAMBIUM_WRITTEN));
  ANSWERS(OK, cambium_merge(store, "longer", "o", 1, "four", 4, CAMBIUM_WRITTEN));
  has(store, "o", "three");
  ANSWERS(INVALID_ARGUMENT, cambium_merge(store, "longer", "o", 1, "", 0, CAMBIUM_WRITTEN));
  EXPECT(strstr(cambium_error_message(), "longer") != NULL);
  has(store, "o", "three");
  ANSWERS(OK, cambium_transaction_new(store, &transaction));
  ANSWERS(OK, cambium_transaction_merge(transaction, "longer", "o", 1, "longest", 7));
  ANSWERS(OK, cambium_transaction_commit(transaction, CAMBIUM_WRITTEN));
  cambium_transaction_free(transaction);
  has(store, "o", "longest");
  ANSWERS(OK, cambium_merge(store, "longer", "o", 1, "nothing", 7, CAMBIUM_WRITTEN));
  has(store, "o", "");
  ANSWERS(OK, cambium_delete(store, "o", 1, CAMBIUM_WRITTEN));
  ANSWERS(INVALID_ARGUMENT, cambium_merge(store, "longer", "o", 1, "nothing", 7, CAMBIUM_WRITTEN));
  ANSWERS(OK, cambium_namespace(store, "shrubs", &shrubs));
  ANSWERS(OK, cambium_merge(shrubs, "longer", "o", 1, "two", 3, CAMBIUM_WRITTEN));
  has(shrubs, "o", "two");
  cambium_store_free(shrubs);
  EXPECT(states_gone == 3);
}

static void snapshots(cambium_store* store) {
  cambium_snapshot *then, *shrubs, *kept;
  char* names;
  size_t count;
  ANSWERS(OK, cambium_put(store, "oak", 3, "Quercus", 7, CAMBIUM_WRITTEN));
  ANSWERS(OK, cambium_put(store, "elm", 3, "Ulmus", 5, CAMBIUM_WRITTEN));
  ANSWERS(OK, cambium_snapshot_new(store, &then));
  ANSWERS(OK, cambium_named_snapshot_create(store, "monday"));
  ANSWERS(OK, cambium_put(store, "oak", 3, "felled", 6, CAMBIUM_WRITTEN));
  SEVERAL(then, cambium_snapshot_multi_get);

  ANSWERS(OK, cambium_snapshot_namespaces(then, &names, &count));
  EXPECT(count == 2 && strcmp(names, "") == 0 && strcmp(names + 1, "shrubs") == 0);
  cambium_free(names);
  ANSWERS(OK, cambium_snapshot_namespace(then, "shrubs", &shrubs));
  cambium_snapshot_free(then);
  ANSWERS(OK, cambium_snapshot_get(shrubs, "b", 1, NULL, NULL));
  ANSWERS(NOT_FOUND, cambium_snapshot_get(shrubs, "oak", 3, NULL, NULL));
  ANSWERS(NOT_FOUND, cambium_snapshot_namespace(shrubs, "herbs", &then));
  EXPECT(then == NULL && strstr(cambium_error_message(), "namespace") != NULL);
  ANSWERS(INVALID_ARGUMENT, cambium_snapshot_namespace(shrubs, NULL, &then));
  ANSWERS(OK, cambium_snapshot_namespace(shrubs, "", &then));
  SEVERAL(then, cambium_snapshot_multi_get);
  cambium_snapshot_free(then);
  cambium_snapshot_free(shrubs);
  ANSWERS(INVALID_ARGUMENT, cambium_snapshot_namespaces(shrubs, NULL, NULL));

  // A kept state is read, also when its name is gone.
  ANSWERS(NOT_FOUND, cambium_named_snapshot_open(store, "tuesday", &kept));
  EXPECT(kept == NULL);
  ANSWERS(INVALID_ARGUMENT, cambium_named_snapshot_open(store, NULL, &kept));
  ANSWERS(OK, cambium_named_snapshot_open(store, "monday", &kept));
  ANSWERS(OK, cambium_named_snapshot_drop(store, "monday"));
  SEVERAL(kept, cambium_snapshot_multi_get);
  cambium_iterator* walk;
  ANSWERS(OK, cambium_iterator_new(store, kept, "o", 1, NULL, 0, &walk));
  ANSWERS(OK, cambium_iterator_first(walk));
  const void* value;
  ANSWERS(OK, cambium_iterator_value(walk, &value, &count));
  EXPECT(count == 7 && memcmp(value, "Quercus", 7) == 0);
  cambium_iterator_free(walk);
  cambium_snapshot_free(kept);
}

// History from before a rollback is lost, and the error has the number where it begins anew.
static void history(cambium_store* store) {
  cambium_snapshot* then;
  cambium_changes* changes;
  uint64_t at;
  EXPECT(cambium_error_oldest() == 0);
  EXPECT((cambium_capabilities(store) & CAMBIUM_CHANGES) != 0);
  ANSWERS(OK, cambium_snapshot_new(store, &then));
  ANSWERS(OK, cambium_snapshot_sequence(then, &at));
  cambium_snapshot_free(then);
  ANSWERS(OK, cambium_named_snapshot_create(store, "before"));
  ANSWERS(OK, cambium_put(store, "taken back", 10, "1", 1, CAMBIUM_WRITTEN));
  ANSWERS(OK, cambium_rollback(store, "before"));
  ANSWERS(HISTORY_LOST, cambium_changes_new(store, at, 0, &changes));
  EXPECT(changes == NULL);
  const uint64_t oldest = cambium_error_oldest();
  EXPECT(oldest > at);
  ANSWERS(NOT_FOUND, cambium_get(store, "taken back", 10, NULL, NULL));
  EXPECT(cambium_error_oldest() == oldest);
  ANSWERS(OK, cambium_changes_new(store, oldest, 0, &changes));
  cambium_changes_free(changes);
  ANSWERS(OK, cambium_named_snapshot_drop(store, "before"));
}

// A piece of work, and the answer that it shall give.
struct work {
  cambium_store* store;
  int answer, calls, conflicts;
};

// Counts up "n"; for so many times another writer comes between.
static int32_t count_up(void* argument, cambium_transaction* transaction) {
  struct work* work = argument;
  void* value;
  size_t length;
  char next = 'a';
  work->calls++;
  const cambium_code found = cambium_transaction_get(transaction, "n", 1, &value, &length);
  if (found == CAMBIUM_OK) {
    next = *(char*)value + 1;
    cambium_free(value);
  } else if (found != CAMBIUM_NOT_FOUND) {
    return found;
  }
  ANSWERS(OK, cambium_transaction_put(transaction, "n", 1, &next, 1));
  if (work->calls <= work->conflicts)
    ANSWERS(OK, cambium_put(work->store, "n", 1, "m", 1, CAMBIUM_WRITTEN));
  return work->answer;
}

static int32_t ends_itself(void* argument, cambium_transaction* transaction) {
  if (argument != NULL) cambium_transaction_free(transaction);
  return argument != NULL ? CAMBIUM_OK : cambium_transaction_commit(transaction, CAMBIUM_WRITTEN);
}

static void* counts(void* store) {
  struct work work = {.store = store};
  for (int round = 0; round < 8; round++)
    ANSWERS(OK, cambium_transact(store, count_up, &work, CAMBIUM_BUFFERED));
  return NULL;
}

static void transactions(cambium_store* store) {
  struct work work = {.store = store};
  ANSWERS(OK, cambium_transact(store, count_up, &work, CAMBIUM_SYNCED));
  EXPECT(work.calls == 1);
  has(store, "n", "a");
  work = (struct work){.store = store, .conflicts = 3};
  ANSWERS(OK, cambium_transact(store, count_up, &work, CAMBIUM_WRITTEN));
  EXPECT(work.calls == 4);
  has(store, "n", "n");
  work = (struct work){.store = store, .conflicts = 1000};
  ANSWERS(CONFLICT, cambium_transact(store, count_up, &work, CAMBIUM_WRITTEN));
  EXPECT(work.calls == 64 && strstr(cambium_error_message(), "key n ") != NULL);
  has(store, "n", "m");
  work = (struct work){.store = store, .answer = -7};
  EXPECT(cambium_transact(store, count_up, &work, CAMBIUM_WRITTEN) == -7);
  EXPECT(work.calls == 1);
  has(store, "n", "m");
  ANSWERS(INVALID_ARGUMENT, cambium_transact(store, NULL, NULL, CAMBIUM_WRITTEN));
  ANSWERS(INVALID_ARGUMENT, cambium_transact(store, count_up, &work, 7));
  ANSWERS(INVALID_ARGUMENT, cambium_transact(NULL, count_up, &work, CAMBIUM_WRITTEN));
  ANSWERS(INVALID_ARGUMENT, cambium_transact(store, ends_itself, NULL, CAMBIUM_WRITTEN));
  ANSWERS(INVALID_ARGUMENT, cambium_transact(store, ends_itself, &work, CAMBIUM_WRITTEN));

  ANSWERS(OK, cambium_put(store, "n", 1, "A", 1, CAMBIUM_WRITTEN));
  pthread_t threads[3];
  for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, counts, store);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  has(store, "n", "Y");

  // A pass sees the transaction's own writes, and makes everything count as read.
  cambium_transaction* transaction;
  cambium_iterator* pass;
  ANSWERS(OK, cambium_put(store, "oak", 3, "Quercus", 7, CAMBIUM_WRITTEN));
  ANSWERS(OK, cambium_transaction_new(store, &transaction));
  ANSWERS(OK, cambium_transaction_put(transaction, "elm", 3, "Ulmus", 5));
  ANSWERS(OK, cambium_transaction_delete(transaction, "n", 1));
  SEVERAL(transaction, cambium_transaction_multi_get);
  ANSWERS(OK, cambium_transaction_pass(transaction, &pass));
  int seen = 0;
  while (cambium_iterator_next(pass) == CAMBIUM_OK) {
    const void* key;
    size_t length;
    ANSWERS(OK, cambium_iterator_key(pass, &key, &length));
    EXPECT(length != 1 || memcmp(key, "n", 1) != 0);
    seen += length == 3;
  }
  EXPECT(seen == 2);
  ANSWERS(INVALID_ARGUMENT, cambium_iterator_previous(pass));
  cambium_iterator_free(pass);
  ANSWERS(OK, cambium_put(store, "late", 4, "", 0, CAMBIUM_WRITTEN));
  ANSWERS(CONFLICT, cambium_transaction_commit(transaction, CAMBIUM_WRITTEN));
  cambium_transaction_free(transaction);
  ANSWERS(INVALID_ARGUMENT, cambium_transaction_pass(transaction, &pass));
  EXPECT(pass == NULL);
}

int main(void) {
  cambium_store* store;
  ANSWERS(OK, cambium_create("store", "forest", NULL, &store));
  batches(store);
  operators(store);
  snapshots(store);
  history(store);
  transactions(store);
  ANSWERS(OK, cambium_close(store));
  ANSWERS(CLOSED, cambium_transact(store, ends_itself, NULL, CAMBIUM_WRITTEN));
  cambium_store_free(store);
  EXPECT(states_gone == 4);

  // Engines without an order have passes.
  cambium_options* options;
  ANSWERS(OK, cambium_options_new(&options));
  ANSWERS(OK, cambium_options_set(options, "size", "16MiB"));
  ANSWERS(OK, cambium_options_set(options, "history", "on"));
  ANSWERS(OK, cambium_create("unordered", "alphard", options, &store));
  cambium_options_free(options);
  EXPECT(cambium_capabilities(store) == CAMBIUM_CHANGES);
  transactions(store);
  ANSWERS(OK, cambium_close(store));
  cambium_store_free(store);
  printf("all of these answer\n");
  return 0;
}
