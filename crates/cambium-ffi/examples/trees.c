// The first steps: a store is made, written, read and walked.
//
//     cc trees.c $(pkg-config --cflags --libs cambium) && ./a.out

#include <cambium.h>
#include <stdio.h>

static int failed(const char* doing) {
  fprintf(stderr, "%s: %s\n", doing, cambium_error_message());
  return 1;
}

int main(void) {
  cambium_store* store;
  if (cambium_open_or_create("trees", "forest", NULL, &store) != CAMBIUM_OK)
    return failed("open");

  // On the device when it returns.
  if (cambium_put(store, "oak", 3, "Quercus", 7, CAMBIUM_SYNCED) != CAMBIUM_OK)
    return failed("put");

  // Several changes, whole or not at all.
  cambium_batch* batch;
  cambium_batch_new(&batch);
  cambium_batch_put(batch, "ash", 3, "Fraxinus", 8);
  cambium_batch_put(batch, "elm", 3, "Ulmus", 5);
  if (cambium_write(store, batch, CAMBIUM_WRITTEN) != CAMBIUM_OK)
    return failed("write");
  cambium_batch_free(batch);

  void* value;
  size_t length;
  if (cambium_get(store, "oak", 3, &value, &length) != CAMBIUM_OK)
    return failed("get");
  printf("oak is %.*s\n", (int)length, (char*)value);
  cambium_free(value);

  // In the order of keys, from `b` on.
  cambium_iterator* at;
  if (cambium_iterator_new(store, NULL, "b", 1, NULL, 0, &at) != CAMBIUM_OK)
    return failed("iterate");
  cambium_code code = cambium_iterator_first(at);
  for (; code == CAMBIUM_OK; code = cambium_iterator_next(at)) {
    const void* key;
    cambium_iterator_key(at, &key, &length);
    printf("%.*s\n", (int)length, (const char*)key);
  }
  if (code != CAMBIUM_NOT_FOUND) return failed("iterate");
  cambium_iterator_free(at);

  if (cambium_close(store) != CAMBIUM_OK) return failed("close");
  cambium_store_free(store);
  return 0;
}
