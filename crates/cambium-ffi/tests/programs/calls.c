// Uses every function of cambium.h, rightly and wrongly, in the folder it is
// started in; further.c has those on namespaces in batches and snapshots, and more.

#include <cambium.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expect.h"

static void reads_and_writes(cambium_store* store) {
  ANSWERS(OK, cambium_put(store, "oak", 3, "Quercus", 7, CAMBIUM_SYNCED));
  ANSWERS(OK, cambium_put(store, NULL, 0, NULL, 0, CAMBIUM_BUFFERED));
  has(store, "oak", "Quercus");
  has(store, "", "");
  has(store, "elm", NULL);
  ANSWERS(OK, cambium_delete(store, NULL, 0, CAMBIUM_WRITTEN));
  has(store, "", NULL);

  char buffer[4] = "....";
  size_t length = 0;
  ANSWERS(OK, cambium_get_into(store, "oak", 3, buffer, 3, &length));
  EXPECT(length == 7 && memcmp(buffer, "Que.", 4) == 0);
  ANSWERS(OK, cambium_get_into(store, "oak", 3, NULL, 3, &length));
  ANSWERS(NOT_FOUND, cambium_get_into(store, "elm", 3, buffer, 3, &length));
  ANSWERS(OK, cambium_get(store, "oak", 3, NULL, NULL));

  char* longest = calloc(1, 65536);
  ANSWERS(LIMIT_EXCEEDED, cambium_put(store, longest, 65536, "", 0, CAMBIUM_WRITTEN));
  ANSWERS(OK, cambium_put(store, longest, 65535, "", 0, CAMBIUM_WRITTEN));
  ANSWERS(OK, cambium_delete(store, longest, 65535, CAMBIUM_WRITTEN));
  free(longest);
  ANSWERS(INVALID_ARGUMENT, cambium_put(store, "k", 1, "v", 1, 7));
}

static void batches(cambium_store* store) {
  cambium_batch* batch;
  ANSWERS(OK, cambium_batch_new(&batch));
  ANSWERS(OK, cambium_batch_put(batch, "lost", 4, "", 0));
  ANSWERS(OK, cambium_batch_clear(batch));
  ANSWERS(OK, cambium_batch_put(batch, "ash", 3, "Fraxinus", 8));
  ANSWERS(OK, cambium_batch_put(batch, "elm", 3, "Ulmus", 5));
  ANSWERS(OK, cambium_batch_delete(batch, "oak", 3));
  ANSWERS(OK, cambium_batch_put_into(batch, "shrubs", "hazel", 5, "Corylus", 7));
  ANSWERS(OK, cambium_batch_require_absent(batch, "ash", 3));
  ANSWERS(OK, cambium_batch_require_equal(batch, "oak", 3, "Quercus", 7));
  EXPECT(cambium_batch_count(batch) == 4);
  cambium_store* shrubs;
  ANSWERS(OK, cambium_namespace(store, "shrubs", &shrubs));
  ANSWERS(OK, cambium_write(store, batch, CAMBIUM_SYNCED));
  ANSWERS(PRECONDITION_FAILED, cambium_write(store, batch, CAMBIUM_SYNCED));
  has(store, "lost", NULL);
  has(store, "oak", NULL);
  has(store, "elm", "Ulmus");
  has(shrubs, "hazel", "Corylus");
  cambium_store_free(shrubs);
  ANSWERS(OK, cambium_batch_clear(batch));
  ANSWERS(OK, cambium_batch_delete_range(batch, "b", 1, "f", 1));
  ANSWERS(OK, cambium_write(store, batch, CAMBIUM_WRITTEN));
  has(store, "elm", NULL);
  ANSWERS(OK, cambium_put(store, "elm", 3, "Ulmus", 5, CAMBIUM_WRITTEN));
  ANSWERS(OK, cambium_delete_range(store, "x", 1, NULL, 0, CAMBIUM_WRITTEN));
  cambium_batch_free(batch);
  ANSWERS(INVALID_ARGUMENT, cambium_batch_put(batch, "k", 1, "v", 1));
  EXPECT(cambium_batch_count(batch) == 0);
}

static void dropping(cambium_store* store) {
  cambium_store *herbs, *again;
  cambium_snapshot* then;
  cambium_iterator* walk;
  ANSWERS(OK, cambium_namespace(store, "herbs", &herbs));
  ANSWERS(OK, cambium_put(herbs, "thyme", 5, "Thymus", 6, CAMBIUM_WRITTEN));
  ANSWERS(OK, cambium_snapshot_new(herbs, &then));
  ANSWERS(OK, cambium_iterator_new(herbs, NULL, NULL, 0, NULL, 0, &walk));
  ANSWERS(OK, cambium_namespace_drop(store, "herbs"));
  ANSWERS(NOT_FOUND, cambium_namespace_drop(store, "herbs"));
  EXPECT(strstr(cambium_error_message(), "herbs") != NULL);
  ANSWERS(INVALID_ARGUMENT, cambium_namespace_drop(store, ""));
  ANSWERS(NOT_FOUND, cambium_put(herbs, "thyme", 5, "Thymus", 6, CAMBIUM_WRITTEN));
  ANSWERS(OK, cambium_namespace(store, "herbs", &again));
  ANSWERS(NOT_FOUND, cambium_get(again, "thyme", 5, NULL, NULL));
  ANSWERS(NOT_FOUND, cambium_delete(herbs, "thyme", 5, CAMBIUM_WRITTEN));
  ANSWERS(OK, cambium_snapshot_get(then, "thyme", 5, NULL, NULL));
  ANSWERS(OK, cambium_iterator_first(walk));
  ANSWERS(OK, cambium_namespace_drop(store, "herbs"));
  cambium_iterator_free(walk);
  cambium_snapshot_free(then);
  cambium_store_free(again);
  cambium_store_free(herbs);
}

static void at(cambium_iterator* iterator, const char* key) {
  const void* bytes;
  size_t length;
  ANSWERS(OK, cambium_iterator_key(iterator, &bytes, &length));
  EXPECT(length == strlen(key) && memcmp(bytes, key, length) == 0);
  ANSWERS(OK, cambium_iterator_value(iterator, &bytes, &length));
  EXPECT(length > 0);
}

static void iterators(cambium_store* store) {
  cambium_snapshot* then;
  ANSWERS(OK, cambium_snapshot_new(store, &then));
  ANSWERS(OK, cambium_put(store, "yew", 3, "Taxus", 5, CAMBIUM_WRITTEN));
  void* value;
  size_t length;
  ANSWERS(NOT_FOUND, cambium_snapshot_get(then, "yew", 3, &value, &length));
  cambium_iterator *walk, *now, *pass;
  ANSWERS(OK, cambium_iterator_new(store, then, NULL, 0, NULL, 0, &walk));
  ANSWERS(NOT_FOUND, cambium_iterator_key(walk, NULL, NULL));
  ANSWERS(OK, cambium_iterator_first(walk));
  at(walk, "ash");
  ANSWERS(OK, cambium_iterator_next(walk));
  at(walk, "elm");
  ANSWERS(OK, cambium_iterator_previous(walk));
  at(walk, "ash");
  ANSWERS(NOT_FOUND, cambium_iterator_previous(walk));
  ANSWERS(OK, cambium_iterator_seek(walk, "b", 1));
  at(walk, "elm");
  ANSWERS(NOT_FOUND, cambium_iterator_next(walk));
  ANSWERS(OK, cambium_iterator_new(store, NULL, "b", 1, NULL, 0, &now));
  ANSWERS(OK, cambium_iterator_last(now));
  at(now, "yew");
  ANSWERS(OK, cambium_iterator_seek(now, "a", 1));
  at(now, "elm");
  ANSWERS(OK, cambium_pass_new(store, &pass));
  ANSWERS(INVALID_ARGUMENT, cambium_iterator_first(pass));
  int entries = 0;
  while (cambium_iterator_next(pass) == CAMBIUM_OK) entries++;
  EXPECT(entries == 3);
  cambium_iterator_free(walk);
  cambium_iterator_free(now);
  cambium_iterator_free(pass);
  cambium_iterator_free(pass);
  ANSWERS(INVALID_ARGUMENT, cambium_iterator_next(pass));
  cambium_snapshot_free(then);
  ANSWERS(INVALID_ARGUMENT, cambium_snapshot_get(then, "k", 1, &value, &length));
}

static void upkeep(cambium_store* store) {
  ANSWERS(OK, cambium_sync(store));
  ANSWERS(OK, cambium_named_snapshot_create(store, "before"));
  char* names;
  size_t count;
  ANSWERS(OK, cambium_named_snapshots(store, &names, &count));
  EXPECT(count == 1 && strcmp(names, "before") == 0);
  cambium_free(names);
  ANSWERS(OK, cambium_namespaces(store, &names, &count));
  EXPECT(count == 2 && strcmp(names, "") == 0 && strcmp(names + 1, "shrubs") == 0);
  cambium_free(names);
  ANSWERS(OK, cambium_namespaces(store, NULL, NULL));
  ANSWERS(OK, cambium_delete(store, "ash", 3, CAMBIUM_WRITTEN));
  ANSWERS(OK, cambium_rollback(store, "before"));
  has(store, "ash", "Fraxinus");
  ANSWERS(OK, cambium_named_snapshot_drop(store, "before"));
  ANSWERS(NOT_FOUND, cambium_named_snapshot_drop(store, "before"));
  ANSWERS(OK, cambium_compact(store));
  uint64_t bytes;
  ANSWERS(OK, cambium_approximate_size(store, NULL, 0, NULL, 0, &bytes));
  EXPECT(bytes > 0);
  char* words;
  ANSWERS(OK, cambium_statistics(store, &words));
  EXPECT(strstr(words, "entries 4\n") != NULL);
  cambium_free(words);
  ANSWERS(OK, cambium_backup(store, "copy"));
  ANSWERS(OK, cambium_check("copy"));
  ANSWERS(LOCKED, cambium_check("store"));
  ANSWERS(NOT_A_STORE, cambium_repair("nowhere"));
  ANSWERS(OK, cambium_repair("copy"));
  cambium_store *copy, *beside;
  ANSWERS(OK, cambium_open_read_only("copy", NULL, &copy));
  ANSWERS(OK, cambium_open_read_only("copy", NULL, &beside));
  has(beside, "ash", "Fraxinus");
  ANSWERS(UNSUPPORTED, cambium_put(copy, "k", 1, "v", 1, CAMBIUM_WRITTEN));
  cambium_store* writable;
  ANSWERS(OK, cambium_open("copy", NULL, &writable));
  ANSWERS(OK, cambium_put(writable, "fir", 3, "Abies", 5, CAMBIUM_WRITTEN));
  has(copy, "fir", NULL);
  ANSWERS(OK, cambium_refresh(copy));
  has(copy, "fir", "Abies");
  has(beside, "fir", NULL);
  ANSWERS(OK, cambium_close(writable));
  cambium_store_free(writable);
  ANSWERS(OK, cambium_close(copy));
  ANSWERS(CLOSED, cambium_refresh(copy));
  ANSWERS(OK, cambium_close(beside));
  cambium_store_free(copy);
  cambium_store_free(beside);
  ANSWERS(NOT_A_STORE, cambium_open_read_only("nowhere", NULL, &copy));
  EXPECT(cambium_capabilities(store) ==
         (CAMBIUM_ORDERED | CAMBIUM_NAMESPACES | CAMBIUM_NAMED_SNAPSHOTS |
          CAMBIUM_DROPPABLE_NAMESPACES | CAMBIUM_CHANGES | CAMBIUM_READERS_BESIDE_WRITER));
}

static void null_and_wrong(cambium_store* store) {
  cambium_store* none = (cambium_store*)&store;
  ANSWERS(INVALID_ARGUMENT, cambium_put(NULL, "k", 1, "v", 1, CAMBIUM_WRITTEN));
  ANSWERS(INVALID_ARGUMENT, cambium_put(none, "k", 1, "v", 1, CAMBIUM_WRITTEN));
  ANSWERS(INVALID_ARGUMENT, cambium_put(store, NULL, 1, "v", 1, CAMBIUM_WRITTEN));
  ANSWERS(INVALID_ARGUMENT, cambium_put(store, "k", 1, NULL, 1, CAMBIUM_WRITTEN));
  ANSWERS(INVALID_ARGUMENT, cambium_put(store, "k", (size_t)-1, "v", 1, CAMBIUM_WRITTEN));
  ANSWERS(INVALID_ARGUMENT, cambium_write(store, NULL, CAMBIUM_WRITTEN));
  ANSWERS(INVALID_ARGUMENT, cambium_write(store, (cambium_batch*)store, CAMBIUM_WRITTEN));
  ANSWERS(INVALID_ARGUMENT, cambium_close((cambium_store*)-1));
  ANSWERS(INVALID_ARGUMENT, cambium_snapshot_new(NULL, NULL));
  ANSWERS(INVALID_ARGUMENT, cambium_iterator_new(NULL, NULL, NULL, 0, NULL, 0, NULL));
  ANSWERS(INVALID_ARGUMENT, cambium_iterator_seek(NULL, NULL, 0));
  ANSWERS(INVALID_ARGUMENT, cambium_open(NULL, NULL, &none));
  EXPECT(none == NULL);
  ANSWERS(INVALID_ARGUMENT, cambium_open("store", NULL, NULL));
  ANSWERS(INVALID_ARGUMENT, cambium_open("", NULL, &none));
  ANSWERS(INVALID_ARGUMENT, cambium_options_set(NULL, "a", "b"));
  ANSWERS(INVALID_ARGUMENT, cambium_options_set_comparator(NULL, "a", NULL, NULL, NULL));
  ANSWERS(INVALID_ARGUMENT, cambium_namespace(store, NULL, &none));
  ANSWERS(INVALID_ARGUMENT, cambium_namespace_drop(store, NULL));
  ANSWERS(INVALID_ARGUMENT, cambium_namespace_drop(NULL, "herbs"));
  ANSWERS(INVALID_ARGUMENT, cambium_backup(store, NULL));
  ANSWERS(INVALID_ARGUMENT, cambium_backup_incremental(store, NULL, NULL, NULL));
  ANSWERS(INVALID_ARGUMENT, cambium_backup_incremental(NULL, "b", NULL, NULL));
  ANSWERS(INVALID_ARGUMENT, cambium_backup_list(NULL, NULL, NULL));
  ANSWERS(INVALID_ARGUMENT, cambium_backup_restore("b", NULL, 0, NULL));
  ANSWERS(INVALID_ARGUMENT, cambium_backup_restore(NULL, "r", 0, NULL));
  ANSWERS(INVALID_ARGUMENT, cambium_backup_keep(NULL, 1, NULL));
  ANSWERS(INVALID_ARGUMENT, cambium_open_read_only("store", NULL, NULL));
  ANSWERS(INVALID_ARGUMENT, cambium_named_snapshots(NULL, NULL, NULL));
  ANSWERS(INVALID_ARGUMENT, cambium_rollback(store, NULL));
  EXPECT(cambium_capabilities(NULL) == 0);
  cambium_free(NULL);
  cambium_store_free(NULL);
  cambium_options_free(NULL);
  cambium_batch_free(NULL);
  cambium_snapshot_free(NULL);
  cambium_iterator_free(NULL);
}

static void* writes(void* store) {
  cambium_code code = CAMBIUM_OK;
  for (int round = 0; round < 5000 && code == CAMBIUM_OK; round++)
    code = cambium_put(store, "thread", 6, "v", 1, CAMBIUM_WRITTEN);
  EXPECT(code == CAMBIUM_OK || code == CAMBIUM_CLOSED);
  return NULL;
}

// A store is closed while threads write to it, and outlived by what was made of it.
static void closing(cambium_store* store) {
  cambium_snapshot* then;
  cambium_iterator* walk;
  ANSWERS(OK, cambium_snapshot_new(store, &then));
  ANSWERS(OK, cambium_iterator_new(store, NULL, NULL, 0, NULL, 0, &walk));
  ANSWERS(OK, cambium_iterator_first(walk));
  pthread_t writers[3];
  for (int i = 0; i < 3; i++) pthread_create(&writers[i], NULL, writes, store);
  ANSWERS(OK, cambium_close(store));
  for (int i = 0; i < 3; i++) pthread_join(writers[i], NULL);
  ANSWERS(OK, cambium_close(store));
  ANSWERS(CLOSED, cambium_get(store, "k", 1, NULL, NULL));
  ANSWERS(CLOSED, cambium_iterator_next(walk));
  ANSWERS(CLOSED, cambium_snapshot_get(then, "k", 1, NULL, NULL));
  cambium_store_free(store);
  ANSWERS(CLOSED, cambium_get(store, "k", 1, NULL, NULL));
  ANSWERS(CLOSED, cambium_iterator_first(walk));
  cambium_iterator_free(walk);
  cambium_snapshot_free(then);
}

// Transactions: own writes, conflicts, savepoints, scans.
static void transactions(cambium_store* store) {
  cambium_transaction* first;
  void* value;
  size_t length;
  ANSWERS(OK, cambium_put(store, "t1", 2, "one", 3, CAMBIUM_WRITTEN));
  ANSWERS(OK, cambium_transaction_new(store, &first));
  ANSWERS(OK, cambium_transaction_get(first, "t1", 2, &value, &length));
  EXPECT(length == 3 && memcmp(value, "one", 3) == 0);
  cambium_free(value);
  ANSWERS(NOT_FOUND, cambium_transaction_get(first, "t2", 2, &value, &length));
  ANSWERS(OK, cambium_transaction_put(first, "t3", 2, "three", 5));
  ANSWERS(OK, cambium_put(store, "t2", 2, "two", 3, CAMBIUM_WRITTEN));
  ANSWERS(CONFLICT, cambium_transaction_commit(first, CAMBIUM_WRITTEN));
  EXPECT(strstr(cambium_error_message(), "t2") != NULL);
  ANSWERS(INVALID_ARGUMENT, cambium_transaction_commit(first, CAMBIUM_WRITTEN));
  ANSWERS(INVALID_ARGUMENT, cambium_transaction_put(first, "t3", 2, "", 0));
  cambium_transaction_free(first);
  has(store, "t3", NULL);

  ANSWERS(OK, cambium_transaction_new(store, &first));
  ANSWERS(OK, cambium_transaction_put(first, "t3", 2, "three", 5));
  ANSWERS(OK, cambium_transaction_savepoint(first));
  ANSWERS(OK, cambium_transaction_delete_range(first, "t", 1, "u", 1));
  ANSWERS(NOT_FOUND, cambium_transaction_get(first, "t1", 2, &value, &length));
  ANSWERS(OK, cambium_transaction_roll_back(first));
  ANSWERS(NOT_FOUND, cambium_transaction_roll_back(first));
  EXPECT(strcmp(cambium_error_message(), "the transaction has no savepoint") == 0);
  ANSWERS(OK, cambium_transaction_delete(first, "t1", 2));
  cambium_iterator* walk;
  ANSWERS(OK, cambium_transaction_scan(first, "t", 1, "u", 1, 1, &walk));
  const void* key;
  ANSWERS(OK, cambium_iterator_next(walk));
  ANSWERS(OK, cambium_iterator_key(walk, &key, &length));
  EXPECT(length == 2 && memcmp(key, "t3", 2) == 0);
  ANSWERS(OK, cambium_iterator_next(walk));
  ANSWERS(NOT_FOUND, cambium_iterator_next(walk));
  cambium_iterator_free(walk);
  ANSWERS(OK, cambium_transaction_namespace(first, "shrubs"));
  ANSWERS(OK, cambium_transaction_put(first, "rose", 4, "Rosa", 4));
  ANSWERS(OK, cambium_transaction_commit(first, CAMBIUM_SYNCED));
  cambium_transaction_free(first);
  has(store, "t1", NULL);
  has(store, "t3", "three");
  has(store, "rose", NULL);
  cambium_store* shrubs;
  ANSWERS(OK, cambium_namespace(store, "shrubs", &shrubs));
  has(shrubs, "rose", "Rosa");
  ANSWERS(OK, cambium_delete(shrubs, "rose", 4, CAMBIUM_WRITTEN));
  cambium_store_free(shrubs);
  ANSWERS(OK, cambium_delete(store, "t2", 2, CAMBIUM_WRITTEN));
  ANSWERS(OK, cambium_delete(store, "t3", 2, CAMBIUM_WRITTEN));
}

static void values(cambium_store* store) {
  uint64_t moment = 0;
  ANSWERS(OK, cambium_put_expiring(store, "v", 1, "1", 1, 1, CAMBIUM_WRITTEN));
  has(store, "v", NULL);
  ANSWERS(NOT_FOUND, cambium_set_expiry(store, "v", 1, CAMBIUM_NEVER, CAMBIUM_WRITTEN));
  const uint64_t late = 95617584000000;
  ANSWERS(OK, cambium_put_expiring(store, "v", 1, "1", 1, late, CAMBIUM_WRITTEN));
  ANSWERS(OK, cambium_expires_at(store, "v", 1, &moment));
  EXPECT(moment == late);
  ANSWERS(OK, cambium_merge(store, "append", "v", 1, "2", 1, CAMBIUM_WRITTEN));
  has(store, "v", "12");
  ANSWERS(OK, cambium_set_expiry(store, "v", 1, CAMBIUM_NEVER, CAMBIUM_WRITTEN));
  ANSWERS(OK, cambium_expires_at(store, "v", 1, &moment));
  EXPECT(moment == CAMBIUM_NEVER);
  ANSWERS(INVALID_ARGUMENT, cambium_merge(store, "sum", "v", 1, "2", 1, CAMBIUM_WRITTEN));
  ANSWERS(INVALID_ARGUMENT, cambium_merge(store, "add", "v", 1, "2", 1, CAMBIUM_WRITTEN));

  cambium_batch* batch;
  ANSWERS(OK, cambium_batch_new(&batch));
  ANSWERS(OK, cambium_batch_put_expiring(batch, "w", 1, "1", 1, late));
  ANSWERS(OK, cambium_batch_merge(batch, "append", "w", 1, "2", 1));
  ANSWERS(OK, cambium_write(store, batch, CAMBIUM_WRITTEN));
  has(store, "w", "12");
  ANSWERS(OK, cambium_expires_at(store, "w", 1, &moment));
  EXPECT(moment == late);
  cambium_batch_free(batch);

  cambium_transaction* transaction;
  ANSWERS(OK, cambium_transaction_new(store, &transaction));
  ANSWERS(OK, cambium_transaction_put_expiring(transaction, "v", 1, "3", 1, late));
  ANSWERS(OK, cambium_transaction_merge(transaction, "append", "v", 1, "4", 1));
  ANSWERS(INVALID_ARGUMENT, cambium_transaction_merge(transaction, "sum", "v", 1, "4", 1));
  ANSWERS(OK, cambium_transaction_commit(transaction, CAMBIUM_WRITTEN));
  cambium_transaction_free(transaction);
  has(store, "v", "34");
  ANSWERS(OK, cambium_expires_at(store, "v", 1, &moment));
  EXPECT(moment == late);
  ANSWERS(OK, cambium_delete(store, "v", 1, CAMBIUM_WRITTEN));
  ANSWERS(OK, cambium_delete(store, "w", 1, CAMBIUM_WRITTEN));
}

struct tally {
  pthread_mutex_t lock;
  int count, found;
  char value[16];
};

static void answered(void* argument, cambium_code code, const void* value, size_t length) {
  struct tally* tally = argument;
  pthread_mutex_lock(&tally->lock);
  EXPECT(code == CAMBIUM_OK || code == CAMBIUM_NOT_FOUND);
  if (value) {
    EXPECT(length < sizeof(tally->value));
    memcpy(tally->value, value, length);
    tally->value[length] = 0;
    tally->found++;
  }
  tally->count++;
  pthread_mutex_unlock(&tally->lock);
}

static void requests(cambium_store* store) {
  struct tally tally = {.lock = PTHREAD_MUTEX_INITIALIZER};
  ANSWERS(INVALID_ARGUMENT, cambium_submit_sync(store, NULL, NULL));
  ANSWERS(OK, cambium_submit_put(store, "r1", 2, "one", 3, CAMBIUM_WRITTEN, answered, &tally));
  ANSWERS(OK, cambium_submit_get(store, "r1", 2, answered, &tally));
  ANSWERS(OK, cambium_submit_get(store, "r9", 2, answered, &tally));
  cambium_batch* batch;
  ANSWERS(OK, cambium_batch_new(&batch));
  ANSWERS(OK, cambium_batch_put(batch, "r2", 2, "two", 3));
  ANSWERS(OK, cambium_submit_write(store, batch, CAMBIUM_WRITTEN, answered, &tally));
  ANSWERS(OK, cambium_batch_require_absent(batch, "r2", 2));
  ANSWERS(INVALID_ARGUMENT, cambium_submit_write(store, batch, CAMBIUM_WRITTEN, answered, &tally));
  cambium_batch_free(batch);
  ANSWERS(OK, cambium_submit_sync(store, answered, &tally));
  int count = 0;
  while (count < 5) {
    pthread_mutex_lock(&tally.lock);
    count = tally.count;
    pthread_mutex_unlock(&tally.lock);
    sched_yield();
  }
  EXPECT(tally.found == 1 && strcmp(tally.value, "one") == 0);

  const void* keys[] = {"r1", "r9", "r2"};
  const size_t key_lengths[] = {2, 2, 2};
  void* values[3];
  size_t lengths[3];
  ANSWERS(OK, cambium_multi_get(store, 3, keys, key_lengths, values, lengths));
  EXPECT(lengths[0] == 3 && memcmp(values[0], "one", 3) == 0);
  EXPECT(lengths[1] == 0 && values[1] == NULL);
  EXPECT(lengths[2] == 3 && memcmp(values[2], "two", 3) == 0);
  cambium_free(values[0]);
  cambium_free(values[2]);
  ANSWERS(OK, cambium_multi_get(store, 0, NULL, NULL, NULL, NULL));
  ANSWERS(INVALID_ARGUMENT, cambium_multi_get(store, 3, NULL, key_lengths, values, lengths));
  count = 0;
  ANSWERS(OK, cambium_submit_delete(store, "r1", 2, CAMBIUM_WRITTEN, answered, &tally));
  ANSWERS(OK, cambium_submit_delete(store, "r2", 2, CAMBIUM_WRITTEN, answered, &tally));
  while (count < 7) {
    pthread_mutex_lock(&tally.lock);
    count = tally.count;
    pthread_mutex_unlock(&tally.lock);
    sched_yield();
  }
}

static void* writes_late(void* store) {
  ANSWERS(OK, cambium_put(store, "late", 4, "1", 1, CAMBIUM_WRITTEN));
  return NULL;
}

static void changes(cambium_store* store) {
  cambium_snapshot* snapshot;
  cambium_changes* changes;
  uint64_t before, first, last, position;
  int32_t synced;
  size_t count;
  cambium_change change;
  // An engine may leave out the delete of a key that is not there.
  ANSWERS(OK, cambium_put(store, "c2", 2, "two", 3, CAMBIUM_WRITTEN));
  ANSWERS(OK, cambium_snapshot_new(store, &snapshot));
  ANSWERS(OK, cambium_snapshot_sequence(snapshot, &before));
  cambium_snapshot_free(snapshot);
  ANSWERS(INVALID_ARGUMENT, cambium_changes_new(store, before + 1, 0, &changes));
  EXPECT(changes == NULL);
  ANSWERS(OK, cambium_changes_new(store, before, 0, &changes));
  ANSWERS(NOT_FOUND, cambium_changes_next(changes, 0, &first, &last, &synced, &count));
  ANSWERS(NOT_FOUND, cambium_changes_get(changes, 0, &change));

  cambium_batch* batch;
  ANSWERS(OK, cambium_batch_new(&batch));
  ANSWERS(OK, cambium_batch_put_expiring(batch, "c1", 2, "one", 3, 4102444800000u));
  ANSWERS(OK, cambium_batch_delete(batch, "c2", 2));
  ANSWERS(OK, cambium_write(store, batch, CAMBIUM_SYNCED));
  cambium_batch_free(batch);
  ANSWERS(OK, cambium_changes_next(changes, 0, &first, &last, &synced, &count));
  EXPECT(first > before && last >= first && synced == 1 && count == 2);
  // Changes of different keys come in an order of the engine's.
  ANSWERS(OK, cambium_changes_get(changes, 0, &change));
  const size_t put_at = change.operation == CAMBIUM_PUT ? 0 : 1;
  ANSWERS(OK, cambium_changes_get(changes, put_at, &change));
  EXPECT(change.operation == CAMBIUM_PUT && change.namespace_length == 0);
  EXPECT(change.key_length == 2 && memcmp(change.key, "c1", 2) == 0);
  EXPECT(change.value_length == 3 && memcmp(change.value, "one", 3) == 0);
  EXPECT(change.expires_at == 4102444800000u);
  ANSWERS(OK, cambium_changes_get(changes, 1 - put_at, &change));
  EXPECT(change.operation == CAMBIUM_DELETE && memcmp(change.key, "c2", 2) == 0);
  EXPECT(change.value == NULL && change.expires_at == CAMBIUM_NEVER);
  ANSWERS(NOT_FOUND, cambium_changes_get(changes, 2, &change));

  // It waits for what another thread writes.
  pthread_t thread;
  EXPECT(pthread_create(&thread, NULL, writes_late, store) == 0);
  ANSWERS(OK, cambium_changes_next(changes, -1, NULL, &last, NULL, NULL));
  EXPECT(pthread_join(thread, NULL) == 0);
  ANSWERS(NOT_FOUND, cambium_changes_next(changes, 5, NULL, NULL, NULL, NULL));

  ANSWERS(NOT_FOUND, cambium_consumer_position(store, "mirror", &position));
  ANSWERS(OK, cambium_consumer_acknowledge(store, "mirror", last));
  ANSWERS(INVALID_ARGUMENT, cambium_consumer_acknowledge(store, "mirror", last + 1));
  ANSWERS(OK, cambium_consumer_position(store, "mirror", &position));
  EXPECT(position == last);
  char* names;
  ANSWERS(OK, cambium_consumers(store, &names, &count));
  EXPECT(count == 1 && strcmp(names, "mirror") == 0);
  cambium_free(names);
  ANSWERS(OK, cambium_consumer_remove(store, "mirror"));
  ANSWERS(NOT_FOUND, cambium_consumer_remove(store, "mirror"));
  cambium_changes_free(changes);
  ANSWERS(INVALID_ARGUMENT, cambium_changes_next(changes, 0, NULL, NULL, NULL, NULL));
  ANSWERS(OK, cambium_changes_new(store, last, 0, NULL));
  EXPECT(strcmp(cambium_code_name(CAMBIUM_HISTORY_LOST), "CAMBIUM_HISTORY_LOST") == 0);
  ANSWERS(OK, cambium_delete(store, "c1", 2, CAMBIUM_WRITTEN));
  ANSWERS(OK, cambium_delete(store, "late", 4, CAMBIUM_WRITTEN));
}

static void restored(uint64_t number, const char* target, const char* elm) {
  cambium_store* store;
  ANSWERS(OK, cambium_backup_restore("backups", target, number, NULL));
  ANSWERS(OK, cambium_open_read_only(target, NULL, &store));
  has(store, "ash", "Fraxinus");
  has(store, "backed up", elm);
  ANSWERS(OK, cambium_close(store));
  cambium_store_free(store);
}

static void backups(cambium_store* store) {
  uint64_t number = 9;
  int32_t is_new = 9;
  ANSWERS(OK, cambium_put(store, "ash", 3, "Fraxinus", 8, CAMBIUM_WRITTEN));
  ANSWERS(NOT_FOUND, cambium_backup_list("backups", NULL, NULL));
  ANSWERS(OK, cambium_backup_incremental(store, "backups", &number, &is_new));
  EXPECT(number == 1 && is_new == 1);
  ANSWERS(OK, cambium_backup_incremental(store, "backups", NULL, &is_new));
  EXPECT(is_new == 0);
  ANSWERS(OK, cambium_put(store, "backed up", 9, "twice", 5, CAMBIUM_WRITTEN));
  ANSWERS(OK, cambium_backup_incremental(store, "backups", &number, NULL));
  EXPECT(number == 2);

  cambium_backup_entry* entries;
  size_t count = 0;
  ANSWERS(OK, cambium_backup_list("backups", &entries, &count));
  EXPECT(count == 2 && entries[0].number == 1 && entries[0].full == 1);
  EXPECT(entries[1].number == 2 && entries[1].full == 0 && entries[1].bytes > 0);
  EXPECT(entries[0].damaged == 0 && entries[1].damaged == 0);
  EXPECT(entries[1].after == entries[0].through && entries[1].taken >= entries[0].taken);
  cambium_free(entries);
  ANSWERS(OK, cambium_check("backups"));
  restored(1, "restored-1", NULL);
  restored(0, "restored-2", "twice");
  ANSWERS(NOT_FOUND, cambium_backup_restore("backups", "restored-3", 3, NULL));
  ANSWERS(ALREADY_EXISTS, cambium_backup_restore("backups", "restored-1", 1, NULL));
  ANSWERS(ALREADY_EXISTS, cambium_backup_incremental(store, "restored-1", NULL, NULL));
  ANSWERS(OK, cambium_backup_keep("backups", 1, &count));
  EXPECT(count == 0);
  ANSWERS(OK, cambium_delete(store, "backed up", 9, CAMBIUM_WRITTEN));
}

// A budget of memory counts for every store that is opened with it.
static void memory_budget(void) {
  cambium_options* options;
  cambium_store* store;
  char* words;
  ANSWERS(OK, cambium_options_new(&options));
  ANSWERS(OK, cambium_options_set(options, "memory_budget", "1MiB"));
  ANSWERS(LIMIT_EXCEEDED, cambium_create("bounded", NULL, options, &store));
  EXPECT(strstr(cambium_error_message(), "would do") != NULL);
  ANSWERS(OK, cambium_options_set(options, "memory_budget", "64MiB"));
  ANSWERS(OK, cambium_create("bounded", NULL, options, &store));
  ANSWERS(OK, cambium_statistics(store, &words));
  EXPECT(strstr(words, "environment_memory_limit_bytes 67108864\n") != NULL);
  cambium_free(words);
  ANSWERS(OK, cambium_close(store));
  cambium_store_free(store);
  cambium_options_free(options);
}

int main(void) {
  EXPECT(strlen(cambium_version()) >= 5);
  EXPECT(strcmp(cambium_error_message(), "") == 0);
  cambium_options* options;
  cambium_store *store, *second;
  ANSWERS(NOT_A_STORE, cambium_open("store", NULL, &store));
  EXPECT(store == NULL);
  ANSWERS(INVALID_ARGUMENT, cambium_create("store", "zbd", NULL, &store));
  ANSWERS(OK, cambium_options_new(&options));
  ANSWERS(OK, cambium_options_set(options, "cache_bytes", "lots"));
  ANSWERS(INVALID_ARGUMENT, cambium_create("store", NULL, options, &store));
  ANSWERS(OK, cambium_options_set(options, "cache_bytes", "1MiB"));
  ANSWERS(OK, cambium_create("store", NULL, options, &store));
  cambium_options_free(options);
  ANSWERS(LOCKED, cambium_open("store", NULL, &second));
  ANSWERS(ALREADY_EXISTS, cambium_create("store", "forest", NULL, &second));
  reads_and_writes(store);
  batches(store);
  transactions(store);
  requests(store);
  values(store);
  changes(store);
  dropping(store);
  iterators(store);
  upkeep(store);
  backups(store);
  memory_budget();
  null_and_wrong(store);
  closing(store);

  // An engine without an order says so.
  ANSWERS(OK, cambium_open_or_create("unordered", "zdb", NULL, &store));
  cambium_iterator* walk;
  ANSWERS(UNSUPPORTED, cambium_iterator_new(store, NULL, NULL, 0, NULL, 0, &walk));
  ANSWERS(UNSUPPORTED, cambium_namespace_drop(store, "herbs"));
  EXPECT(strstr(cambium_error_message(), "forest") != NULL);
  changes(store);
  ANSWERS(OK, cambium_close(store));
  cambium_store_free(store);
  printf("all calls answer\n");
  return 0;
}
