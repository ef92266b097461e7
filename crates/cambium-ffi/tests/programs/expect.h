// Test programs check the answers of calls with these.

#include <cambium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(condition)                                                       \
  do {                                                                          \
    if (!(condition)) {                                                         \
      fprintf(stderr, "%s:%d: expected %s; last error: %s\n", __FILE__, __LINE__, \
              #condition, cambium_error_message());                             \
      exit(1);                                                                  \
    }                                                                           \
  } while (0)

// A call answers a code, and words where it is an error.
static inline void answers(cambium_code wanted, cambium_code found, const char* file, int line) {
  if (wanted != found || (found > CAMBIUM_NOT_FOUND && !*cambium_error_message())) {
    fprintf(stderr, "%s:%d: %s, expected %s; last error: %s\n", file, line,
            cambium_code_name(found), cambium_code_name(wanted), cambium_error_message());
    exit(1);
  }
}
#define ANSWERS(code, call) answers(CAMBIUM_##code, call, __FILE__, __LINE__)

static inline void has(cambium_store* store, const char* key, const char* wanted) {
  void* value;
  size_t length;
  const cambium_code code = cambium_get(store, key, strlen(key), &value, &length);
  if (wanted == NULL) {
    EXPECT(code == CAMBIUM_NOT_FOUND && value == NULL && length == 0);
    return;
  }
  EXPECT(code == CAMBIUM_OK && length == strlen(wanted));
  EXPECT(memcmp(value, wanted, length) == 0);
  cambium_free(value);
}
