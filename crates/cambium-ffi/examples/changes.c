// Follows what is written: a consumer keeps its place, and the log behind it.
//
//     cc changes.c $(pkg-config --cflags --libs cambium) && ./a.out

#include <cambium.h>
#include <stdio.h>

static int failed(const char* doing) {
  fprintf(stderr, "%s: %s\n", doing, cambium_error_message());
  return 1;
}

int main(void) {
  cambium_store* store;
  if (cambium_open_or_create("trees", "zdb", NULL, &store) != CAMBIUM_OK)
    return failed("open");

  // A new consumer begins with a snapshot, which a mirror would copy now.
  uint64_t position;
  if (cambium_consumer_position(store, "mirror", &position) == CAMBIUM_NOT_FOUND) {
    cambium_snapshot* snapshot;
    if (cambium_snapshot_new(store, &snapshot) != CAMBIUM_OK) return failed("snapshot");
    cambium_snapshot_sequence(snapshot, &position);
    cambium_snapshot_free(snapshot);
    if (cambium_consumer_acknowledge(store, "mirror", position) != CAMBIUM_OK)
      return failed("make a consumer");
  }
  cambium_put(store, "oak", 3, "Quercus", 7, CAMBIUM_SYNCED);
  cambium_delete(store, "oak", 3, CAMBIUM_SYNCED);

  // Synced batches alone; CAMBIUM_HISTORY_LOST would ask for a new snapshot.
  cambium_changes* changes;
  if (cambium_changes_new(store, position, 1, &changes) != CAMBIUM_OK)
    return failed("follow");
  size_t count;
  cambium_code code;
  while ((code = cambium_changes_next(changes, 0, NULL, &position, NULL, &count)) == CAMBIUM_OK) {
    for (size_t place = 0; place < count; place++) {
      cambium_change change;
      cambium_changes_get(changes, place, &change);
      printf("%s %.*s\n", change.operation == CAMBIUM_PUT ? "put" : "delete",
             (int)change.key_length, (const char*)change.key);
    }
  }
  if (code != CAMBIUM_NOT_FOUND) return failed("next");
  cambium_changes_free(changes);

  // Done with all of these: the store need not keep them.
  if (cambium_consumer_acknowledge(store, "mirror", position) != CAMBIUM_OK)
    return failed("acknowledge");
  if (cambium_close(store) != CAMBIUM_OK) return failed("close");
  cambium_store_free(store);
  return 0;
}
