// Cambium, an embeddable key-value store: the C interface.
//
// Generated from the sources of crate cambium-ffi; do not edit.
//
// Each call that can fail answers a cambium_code, CAMBIUM_OK or what went wrong;
// cambium_error_message() then says it in words, for the thread that called.
// Handles may be used from any number of threads. A handle that is null, was
// freed, or is one of something else is an error, never a crash. Keys and values
// are bytes with a length; a null pointer is fine where the length is 0. What a
// call answers in memory of its own is given back by cambium_free().
//
//     cambium_store *store;
//     if (cambium_open_or_create("trees", "forest", NULL, &store) != CAMBIUM_OK)
//       return fprintf(stderr, "%s\n", cambium_error_message());
//     cambium_put(store, "oak", 3, "Quercus", 7, CAMBIUM_SYNCED);
//     cambium_close(store);
//     cambium_store_free(store);

#ifndef CAMBIUM_H
#define CAMBIUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// How safe a write is when it is answered: kept by this process, lost with it.
#define CAMBIUM_BUFFERED 0

// With the operating system: survives the process, not a power cut.
#define CAMBIUM_WRITTEN 1

// On the device.
#define CAMBIUM_SYNCED 2

// What a store can do: keys are kept in order, so iterators with bounds work.
#define CAMBIUM_ORDERED 1

// Namespaces work.
#define CAMBIUM_NAMESPACES 2

// Named snapshots and rollback work.
#define CAMBIUM_NAMED_SNAPSHOTS 4

// Keys are unsigned 64-bit integers, 8 bytes big-endian.
#define CAMBIUM_INTEGER_KEYS 8

// Namespaces can be dropped.
#define CAMBIUM_DROPPABLE_NAMESPACES 16

// Changes and consumers work.
#define CAMBIUM_CHANGES 32

// Processes read the store beside one that writes, and `cambium_refresh` takes what it wrote.
#define CAMBIUM_READERS_BESIDE_WRITER 64

// The entry never expires.
#define CAMBIUM_NEVER UINT64_MAX

// What became of a call.
typedef enum {
  // It was done.
  CAMBIUM_OK = 0,
  // The key, snapshot or namespace is not there.
  CAMBIUM_NOT_FOUND = 1,
  // An argument or option makes no sense, or a handle is none.
  CAMBIUM_INVALID_ARGUMENT = 2,
  // The engine cannot do this.
  CAMBIUM_UNSUPPORTED = 3,
  // A key, a value or a batch is larger than its limit.
  CAMBIUM_LIMIT_EXCEEDED = 4,
  // A precondition of a batch did not hold; nothing was written.
  CAMBIUM_PRECONDITION_FAILED = 5,
  // The store was closed.
  CAMBIUM_CLOSED = 6,
  // Another process or handle owns the store.
  CAMBIUM_LOCKED = 7,
  // The path holds no store.
  CAMBIUM_NOT_A_STORE = 8,
  // A store, or something else, is there already.
  CAMBIUM_ALREADY_EXISTS = 9,
  // The store is of a newer format, or of an engine that is not in here.
  CAMBIUM_UNKNOWN_FORMAT = 10,
  // Bytes on the device are not what was written.
  CAMBIUM_CORRUPTION = 11,
  // The operating system failed.
  CAMBIUM_IO = 12,
  // The disk, or a quota, is full; the store is as it was before.
  CAMBIUM_NO_SPACE = 13,
  // An earlier write failed; the store takes no more.
  CAMBIUM_POISONED = 14,
  // Open snapshots hold too many old versions.
  CAMBIUM_SNAPSHOT_LIMIT = 15,
  // It was cancelled; the store is as it was.
  CAMBIUM_CANCELLED = 16,
  // Anything else; the message says what.
  CAMBIUM_OTHER = 17,
  // A sync failed: writes since the last one may be lost, and the store takes no more.
  CAMBIUM_SYNC_FAILED = 18,
  // Another writer changed what a transaction had read; nothing was written.
  CAMBIUM_CONFLICT = 19,
  // The log no longer has the changes that were asked for; `cambium_error_oldest` says from
  // where on it has them.
  CAMBIUM_HISTORY_LOST = 20,
} cambium_code;

// What a change did.
typedef enum {
  // It gave a key a value.
  CAMBIUM_PUT = 0,
  // It took a key away.
  CAMBIUM_DELETE = 1,
  // It took all keys of a range away.
  CAMBIUM_DELETE_RANGE = 2,
} cambium_operation;

// Changes that are made together.
typedef struct cambium_batch cambium_batch;

// A reader of what is written.
typedef struct cambium_changes cambium_changes;

// A walk over entries.
typedef struct cambium_iterator cambium_iterator;

// How a store is made or opened.
typedef struct cambium_options cambium_options;

// One moment of a store.
typedef struct cambium_snapshot cambium_snapshot;

// An open store.
typedef struct cambium_store cambium_store;

// Reads and writes of one moment.
typedef struct cambium_transaction cambium_transaction;

// One backup of a folder of backups.
typedef struct {
  // Its number in the folder, from 1 on.
  uint64_t number;
  // 1 for a full copy, 0 for an archive of what was written since the backup before.
  uint64_t full;
  // The sequence number where it begins.
  uint64_t after;
  // The sequence number of the last write in it.
  uint64_t through;
  // When it was taken, in milliseconds since 1970.
  uint64_t taken;
  // Bytes of its files.
  uint64_t bytes;
  // 1 if it cannot be restored, as its end or description shows; `cambium_check` reads all.
  uint64_t damaged;
} cambium_backup_entry;

// A change of a committed batch. Its pointers hold until the next call of
// `cambium_changes_next`, or until the changes are freed.
typedef struct {
  // What was done.
  cambium_operation operation;
  // The namespace, without a zero at its end; the default one's length is 0.
  const char *namespace_name;
  // Bytes of that name.
  size_t namespace_length;
  // The key; of a range its first one, or null where it is open.
  const void *key;
  // Bytes of the key.
  size_t key_length;
  // The value of a put; of a range the key behind its last one, or null where it is open.
  const void *value;
  // Bytes of the value.
  size_t value_length;
  // When the entry that was put expires, in milliseconds since 1970, or `CAMBIUM_NEVER`.
  uint64_t expires_at;
} cambium_change;

// Answers less than, equal to or more than 0, as the left key comes before the right one, is
// the same, or comes after it. `state` is that of `cambium_options_set_comparator`.
typedef int (*cambium_compare)(void *state,
                               const char *left,
                               size_t left_length,
                               const char *right,
                               size_t right_length);

// Called once, on any thread, when the library uses a state no more.
typedef void (*cambium_destructor)(void *state);

// Called once with the answer to a submitted request, on any thread: the argument that was
// submitted, `CAMBIUM_OK`, `CAMBIUM_NOT_FOUND` or what went wrong, and the value of a get,
// which is there until the call returns. `cambium_error_message()` has the words. It must
// not wait for anything.
typedef void (*cambium_completion)(void *argument,
                                   cambium_code code,
                                   const void *value,
                                   size_t value_length);

// `cambium_transact` calls this: it reads and writes through the transaction, which it neither
// commits nor frees. It answers `CAMBIUM_OK` (0) for a commit; anything else, be it a number of
// the program's own, ends the transaction, and nothing is written. It keeps nothing of an
// earlier call, and does not unwind.
typedef int32_t (*cambium_work)(void *argument, cambium_transaction *transaction);

// Makes the next value of a key's current one, null where the key is not there, and an operand:
// puts it, in memory from `malloc` that the library frees, into `*value`, and its length into
// `*value_length`. Answers 0, or anything else where it cannot use them: then the write answers
// `CAMBIUM_INVALID_ARGUMENT`, and nothing is written. `state` is that of
// `cambium_register_operator`.
typedef int (*cambium_merge_function)(void *state,
                                      const char *current,
                                      size_t current_length,
                                      const char *operand,
                                      size_t operand_length,
                                      char **value,
                                      size_t *value_length);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Copies the state now into a folder that is empty or not there, durable when it
// returns; reads and writes go on. On the same file system the copy shares files or
// blocks with the store, where engine and file system can.
//
// # Safety
// The path ends with a zero.
cambium_code cambium_backup(cambium_store *store, const char *destination);

// Takes a backup into a folder of backups, which is made if it is not there: a full copy
// the first time, then archives of what was written since the last backup. Durable when it
// returns. `*number` is that of the folder's newest backup, `*is_new` is 0 if nothing was
// written since it.
//
// # Safety
// The path ends with a zero; `number` and `is_new` are null or places for the answers.
cambium_code cambium_backup_incremental(cambium_store *store,
                                        const char *place,
                                        uint64_t *number,
                                        int32_t *is_new);

// The backups of a folder, oldest first, `*count` of them in
// `*backups`; to be given back by `cambium_free`. `cambium_check` verifies such a folder.
//
// # Safety
// The path ends with a zero; `backups` and `count` are null or places for the answers.
cambium_code cambium_backup_list(const char *place, cambium_backup_entry **backups, size_t *count);

// Makes a store in `target`, a folder that is empty or not there, of the backup with a
// number, or of the newest one if the number is 0. Durable when it returns. `options` are
// those of opening the store, and may be null.
//
// # Safety
// The paths end with a zero.
cambium_code cambium_backup_restore(const char *place,
                                    const char *target,
                                    uint64_t number,
                                    const cambium_options *options);

// Removes the oldest backups of a folder: those before the newest `chains` full copies, of
// which there must be one or more. `*removed` is how many went.
//
// # Safety
// The path ends with a zero; `removed` is null or a place for the answer.
cambium_code cambium_backup_keep(const char *place, size_t chains, size_t *removed);

// An empty batch, in `*batch`.
//
// # Safety
// `batch` is null or a place for the handle.
cambium_code cambium_batch_new(cambium_batch **batch);

// Lets a batch go.
void cambium_batch_free(cambium_batch *batch);

// Empties a batch, conditions too.
cambium_code cambium_batch_clear(cambium_batch *batch);

// How many operations a batch has; 0 for a wrong handle.
size_t cambium_batch_count(const cambium_batch *batch);

// Adds a put.
//
// # Safety
// The pointers are ones to as many bytes as their lengths say.
cambium_code cambium_batch_put(cambium_batch *batch,
                               const void *key,
                               size_t key_length,
                               const void *value,
                               size_t value_length);

// Adds a delete.
//
// # Safety
// As of `cambium_batch_put`.
cambium_code cambium_batch_delete(cambium_batch *batch, const void *key, size_t key_length);

// Adds the deletion of a range; a null pointer is an open bound.
//
// # Safety
// As of `cambium_batch_put`.
cambium_code cambium_batch_delete_range(cambium_batch *batch,
                                        const void *from,
                                        size_t from_length,
                                        const void *to,
                                        size_t to_length);

// Adds a put into a namespace of the store.
//
// # Safety
// As of `cambium_batch_put`; the name ends with a zero.
cambium_code cambium_batch_put_into(cambium_batch *batch,
                                    const char *name,
                                    const void *key,
                                    size_t key_length,
                                    const void *value,
                                    size_t value_length);

// Adds a delete in a namespace of the store.
//
// # Safety
// As of `cambium_batch_put_into`.
cambium_code cambium_batch_delete_into(cambium_batch *batch,
                                       const char *name,
                                       const void *key,
                                       size_t key_length);

// Adds the deletion of a range in a namespace of the store; a null pointer is an open bound.
//
// # Safety
// As of `cambium_batch_put_into`.
cambium_code cambium_batch_delete_range_into(cambium_batch *batch,
                                             const char *name,
                                             const void *from,
                                             size_t from_length,
                                             const void *to,
                                             size_t to_length);

// Writes the batch only if the key is not there.
//
// # Safety
// As of `cambium_batch_put`.
cambium_code cambium_batch_require_absent(cambium_batch *batch, const void *key, size_t key_length);

// Writes the batch only if the key is there, with any value.
//
// # Safety
// As of `cambium_batch_put`.
cambium_code cambium_batch_require_present(cambium_batch *batch,
                                           const void *key,
                                           size_t key_length);

// Writes the batch only if the key has this value.
//
// # Safety
// As of `cambium_batch_put`.
cambium_code cambium_batch_require_equal(cambium_batch *batch,
                                         const void *key,
                                         size_t key_length,
                                         const void *value,
                                         size_t value_length);

// Writes a batch, whole or not at all; the batch stays as it is. Where one of its
// conditions does not hold, `CAMBIUM_PRECONDITION_FAILED`.
cambium_code cambium_write(cambium_store *store, const cambium_batch *batch, int32_t durable);

// The last write that a snapshot sees, in `*sequence`: changes after it fit without a gap.
//
// # Safety
// `sequence` is null or a place for the answer.
cambium_code cambium_snapshot_sequence(cambium_snapshot *snapshot, uint64_t *sequence);

// A reader of the batches that were committed after a sequence number, of all namespaces,
// in order; 0 begins with the store's first. Unless `synced_only` is 0, batches that a crash
// could take back are left out until they are synced. `CAMBIUM_HISTORY_LOST` where the log no
// longer has what came right after the number: begin again with a snapshot.
//
// # Safety
// `changes` is null or a place for the handle.
cambium_code cambium_changes_new(cambium_store *store,
                                 uint64_t after,
                                 int32_t synced_only,
                                 cambium_changes **changes);

// Lets a reader of changes go.
void cambium_changes_free(cambium_changes *changes);

// Goes to the next batch, waiting up to so many milliseconds for it, or for ever if they are
// negative; `CAMBIUM_NOT_FOUND` where none came. A close of the store ends the wait.
// `*last` is where `cambium_changes_new` goes on behind the batch.
//
// # Safety
// `first`, `last`, `synced` and `count` are null or places for the answers: the numbers of
// the batch's first and last entry, whether it survives any crash, and how many changes it
// has.
cambium_code cambium_changes_next(cambium_changes *changes,
                                  int64_t wait_milliseconds,
                                  uint64_t *first,
                                  uint64_t *last,
                                  int32_t *synced,
                                  size_t *count);

// A change of the batch that the reader stands at, by its place from 0, in `*change`;
// `CAMBIUM_NOT_FOUND` past the last one.
//
// # Safety
// `change` is null or a place for the answer.
cambium_code cambium_changes_get(cambium_changes *changes, size_t place, cambium_change *change);

// The last change that a consumer is done with, in `*position`; `CAMBIUM_NOT_FOUND` where
// the store has none of that name.
//
// # Safety
// The name ends with a zero; `position` is null or a place for the answer.
cambium_code cambium_consumer_position(cambium_store *store, const char *name, uint64_t *position);

// Makes a consumer, or moves it: it is done with all changes up to a sequence number, and the
// store keeps the log behind it, up to the option history_bytes. Durable when it returns.
//
// # Safety
// The name ends with a zero.
cambium_code cambium_consumer_acknowledge(cambium_store *store, const char *name, uint64_t through);

// Takes a consumer away: the store keeps no history for it.
//
// # Safety
// The name ends with a zero.
cambium_code cambium_consumer_remove(cambium_store *store, const char *name);

// Names of all consumers, as of `cambium_named_snapshots`.
//
// # Safety
// As of `cambium_named_snapshots`.
cambium_code cambium_consumers(cambium_store *store, char **names, size_t *count);

// The words of the last error of the calling thread, or of its last `CAMBIUM_NOT_FOUND`; empty
// before the first. They stay until its next one.
const char *cambium_error_message(void);

// The sequence number after which the log still had everything at the last
// `CAMBIUM_HISTORY_LOST` of the calling thread; 0 before the first. A reader that goes on from
// it leaves a gap.
uint64_t cambium_error_oldest(void);

// Gives back what a call answered in memory of its own; null is fine.
//
// # Safety
// The pointer came from this library and was not given back before.
void cambium_free(void *memory);

// The library's version, such as 0.1.0.
const char *cambium_version(void);

// The state of a store now, in `*snapshot`, for as long as it is held.
//
// # Safety
// `snapshot` is null or a place for the handle.
cambium_code cambium_snapshot_new(cambium_store *store, cambium_snapshot **snapshot);

// Lets a snapshot go.
void cambium_snapshot_free(cambium_snapshot *snapshot);

// The state that was kept under a name, in `*snapshot`. It stays readable when its name is
// dropped, until it is freed.
//
// # Safety
// The name ends with a zero; `snapshot` is null or a place for the handle.
cambium_code cambium_named_snapshot_open(cambium_store *store,
                                         const char *name,
                                         cambium_snapshot **snapshot);

// The same moment of another namespace, in `*namespace_snapshot`, to be freed by itself;
// `CAMBIUM_NOT_FOUND`, and null, if there is none of that name. An empty name is the default
// one.
//
// # Safety
// The name ends with a zero; `namespace_snapshot` is null or a place for the handle.
cambium_code cambium_snapshot_namespace(cambium_snapshot *snapshot,
                                        const char *name,
                                        cambium_snapshot **namespace_snapshot);

// Names of the store's namespaces, as of `cambium_namespaces`; one that was made after the
// snapshot is empty in it.
//
// # Safety
// As of `cambium_named_snapshots`.
cambium_code cambium_snapshot_namespaces(cambium_snapshot *snapshot, char **names, size_t *count);

// As `cambium_get`, as of the snapshot.
//
// # Safety
// As of `cambium_get`.
cambium_code cambium_snapshot_get(cambium_snapshot *snapshot,
                                  const void *key,
                                  size_t key_length,
                                  void **value,
                                  size_t *value_length);

// An iterator over the keys from `from` up to, not including, `to` (null is open), in
// order, as of the snapshot, or of now where that is null. It stands at no entry
// until it is placed.
//
// # Safety
// The pointers are ones to as many bytes as their lengths say; `iterator` is null or
// a place for the handle.
cambium_code cambium_iterator_new(cambium_store *store,
                                  cambium_snapshot *snapshot,
                                  const void *from,
                                  size_t from_length,
                                  const void *to,
                                  size_t to_length,
                                  cambium_iterator **iterator);

// An iterator over every entry as of now, in the order that is cheapest for the
// engine; works on every engine. Only `cambium_iterator_next` moves it.
//
// # Safety
// `iterator` is null or a place for the handle.
cambium_code cambium_pass_new(cambium_store *store, cambium_iterator **iterator);

// Lets an iterator go.
void cambium_iterator_free(cambium_iterator *iterator);

// Goes to the first entry; `CAMBIUM_NOT_FOUND` where there is none. So do all moves.
cambium_code cambium_iterator_first(cambium_iterator *iterator);

// Goes to the last entry.
cambium_code cambium_iterator_last(cambium_iterator *iterator);

// Goes to the first entry at or behind a key.
//
// # Safety
// `key` is one to `key_length` bytes.
cambium_code cambium_iterator_seek(cambium_iterator *iterator, const void *key, size_t key_length);

// Goes to the next entry. A pass begins with it.
cambium_code cambium_iterator_next(cambium_iterator *iterator);

// Goes to the entry before.
cambium_code cambium_iterator_previous(cambium_iterator *iterator);

// The key where it stands, in `*bytes` and `*length`, until it moves or is freed;
// `CAMBIUM_NOT_FOUND`, and null, where it stands at no entry.
//
// # Safety
// `bytes` and `length` are null or places for the answer.
cambium_code cambium_iterator_key(const cambium_iterator *iterator,
                                  const void **bytes,
                                  size_t *length);

// The value where it stands; as `cambium_iterator_key`.
//
// # Safety
// As of `cambium_iterator_key`.
cambium_code cambium_iterator_value(const cambium_iterator *iterator,
                                    const void **bytes,
                                    size_t *length);

// Options at their defaults, in `*options`.
//
// # Safety
// `options` is null or a place for the handle.
cambium_code cambium_options_new(cambium_options **options);

// Lets options go.
void cambium_options_free(cambium_options *options);

// Sets one option of the engine, or `memory_budget`, which bounds the memory of all stores
// that are opened with these options. A name or value that the engine does not know is
// refused when a store is made or opened.
//
// # Safety
// The texts end with a zero.
cambium_code cambium_options_set(cambium_options *options, const char *name, const char *value);

// Orders the keys of stores that are made or opened with these options by a function of the
// program, not by their bytes. The name is kept with a store: from then on the store is opened
// with a comparator of the same name only. Keys that compare equal are one key. All keys of the
// store are in memory while it is open. Such a store answers `CAMBIUM_UNSUPPORTED` to
// transactions, namespaces, conditions, submitted requests, expiring and merged values, and
// deleted ranges.
//
// `destructor` may be null. It is called with the state when the options and all stores,
// snapshots and iterators that use the comparator are gone; at once if this call fails.
//
// # Safety
// The name ends with a zero. `compare` may be called on any thread, several times at once. It
// keeps neither key, calls nothing of this library, and does not unwind.
cambium_code cambium_options_set_comparator(cambium_options *options,
                                            const char *name,
                                            void *state,
                                            cambium_compare compare,
                                            cambium_destructor destructor);

// Asks for the value of a key. `completion` is called once, unless this call itself fails;
// the key is the caller's again when it returns. Requests that are submitted one after the
// other are under way together, and keep their order for each key. Engine `alphard` answers
// from threads of its own; others answer within this call.
//
// # Safety
// As of `cambium_put`; `completion` may be called with `argument` on any thread.
cambium_code cambium_submit_get(cambium_store *store,
                                const void *key,
                                size_t key_length,
                                cambium_completion completion,
                                void *argument);

// Gives a key a value, answered as of `cambium_submit_get`.
//
// # Safety
// As of `cambium_submit_get`.
cambium_code cambium_submit_put(cambium_store *store,
                                const void *key,
                                size_t key_length,
                                const void *value,
                                size_t value_length,
                                int32_t durable,
                                cambium_completion completion,
                                void *argument);

// Takes a key away, answered as of `cambium_submit_get`.
//
// # Safety
// As of `cambium_submit_get`.
cambium_code cambium_submit_delete(cambium_store *store,
                                   const void *key,
                                   size_t key_length,
                                   int32_t durable,
                                   cambium_completion completion,
                                   void *argument);

// Writes a batch without conditions, answered as of `cambium_submit_get`. The batch may be
// changed and freed when this call returns.
//
// # Safety
// As of `cambium_submit_get`.
cambium_code cambium_submit_write(cambium_store *store,
                                  const cambium_batch *batch,
                                  int32_t durable,
                                  cambium_completion completion,
                                  void *argument);

// Raises everything written so far to `CAMBIUM_SYNCED`, answered as of `cambium_submit_get`.
//
// # Safety
// As of `cambium_submit_get`.
cambium_code cambium_submit_sync(cambium_store *store,
                                 cambium_completion completion,
                                 void *argument);

// The values of `count` keys as of one moment, each in memory of its own, in `values` and
// `value_lengths`; null for a key that is not there. The reads go to the device together.
//
// # Safety
// `keys` and `key_lengths` point to `count` keys and their lengths, `values` and
// `value_lengths` to places for as many answers.
cambium_code cambium_multi_get(cambium_store *store,
                               size_t count,
                               const void *const *keys,
                               const size_t *key_lengths,
                               void **values,
                               size_t *value_lengths);

// As `cambium_multi_get`, as of the snapshot.
//
// # Safety
// As of `cambium_multi_get`.
cambium_code cambium_snapshot_multi_get(cambium_snapshot *snapshot,
                                        size_t count,
                                        const void *const *keys,
                                        const size_t *key_lengths,
                                        void **values,
                                        size_t *value_lengths);

// As `cambium_multi_get`, as this transaction sees the keys. They count as read.
//
// # Safety
// As of `cambium_multi_get`.
cambium_code cambium_transaction_multi_get(cambium_transaction *transaction,
                                           size_t count,
                                           const void *const *keys,
                                           const size_t *key_lengths,
                                           void **values,
                                           size_t *value_lengths);

// Makes a store in a folder that is empty or not there, by an engine (null is
// `forest`), and opens it. `options` may be null.
//
// # Safety
// The texts end with a zero; `store` is a place for the handle.
cambium_code cambium_create(const char *folder,
                            const char *engine,
                            const cambium_options *options,
                            cambium_store **store);

// Opens the store in a folder. `options` may be null.
//
// # Safety
// As of `cambium_create`.
cambium_code cambium_open(const char *folder,
                          const cambium_options *options,
                          cambium_store **store);

// Opens the store in a folder for reading alone: its data are not changed, and others may
// read beside it. A process may write a store of engine `forest` meanwhile: the reader shows
// the moment at which it was opened, until `cambium_refresh`. Writes answer
// `CAMBIUM_UNSUPPORTED`.
//
// # Safety
// As of `cambium_create`.
cambium_code cambium_open_read_only(const char *folder,
                                    const cambium_options *options,
                                    cambium_store **store);

// Opens the store in a folder, or makes one by the engine where none is.
//
// # Safety
// As of `cambium_create`.
cambium_code cambium_open_or_create(const char *folder,
                                    const char *engine,
                                    const cambium_options *options,
                                    cambium_store **store);

// Syncs and closes a store. Whatever is asked of it, of its iterators and its
// snapshots answers `CAMBIUM_CLOSED` from now on; the handles are still to be freed.
cambium_code cambium_close(cambium_store *store);

// Lets a handle go. A store that was not closed is closed when its last handle,
// iterator and snapshot are gone, and an error of that goes nowhere.
void cambium_store_free(cambium_store *store);

// A namespace of a store, made if it is not there, as a store of its own handle.
//
// # Safety
// The name ends with a zero; `namespace_store` is a place for the handle.
cambium_code cambium_namespace(cambium_store *store,
                               const char *name,
                               cambium_store **namespace_store);

// Takes a namespace away with everything in it, durable when it returns, where the
// engine can. Its snapshots and iterators go on; whatever else is asked of its handles
// answers `CAMBIUM_NOT_FOUND`, also when one of the same name is made.
//
// # Safety
// The name ends with a zero.
cambium_code cambium_namespace_drop(cambium_store *store, const char *name);

// What a store can do: a sum of `CAMBIUM_ORDERED` and the like, 0 for a wrong handle.
uint32_t cambium_capabilities(const cambium_store *store);

// Gives a key a value.
//
// # Safety
// The pointers are ones to as many bytes as their lengths say.
cambium_code cambium_put(cambium_store *store,
                         const void *key,
                         size_t key_length,
                         const void *value,
                         size_t value_length,
                         int32_t durable);

// Takes a key away; no error if it is not there.
//
// # Safety
// As of `cambium_put`.
cambium_code cambium_delete(cambium_store *store,
                            const void *key,
                            size_t key_length,
                            int32_t durable);

// Takes all keys from `from` up to, not including, `to` away. A null pointer is an
// open bound.
//
// # Safety
// As of `cambium_put`.
cambium_code cambium_delete_range(cambium_store *store,
                                  const void *from,
                                  size_t from_length,
                                  const void *to,
                                  size_t to_length,
                                  int32_t durable);

// The value of a key in memory of its own, in `*value` and `*value_length`;
// `CAMBIUM_NOT_FOUND`, and null, if there is none.
//
// # Safety
// As of `cambium_put`; `value` and `value_length` are null or places for the answer.
cambium_code cambium_get(cambium_store *store,
                         const void *key,
                         size_t key_length,
                         void **value,
                         size_t *value_length);

// Puts the value of a key into the caller's buffer, as much of it as fits, and the
// length of all of it into `*value_length`.
//
// # Safety
// As of `cambium_get`; `buffer` is a place for `capacity` bytes.
cambium_code cambium_get_into(cambium_store *store,
                              const void *key,
                              size_t key_length,
                              void *buffer,
                              size_t capacity,
                              size_t *value_length);

// Begins a transaction, in `*transaction`. It reads the state of this moment and its own
// writes. Its commit fails with `CAMBIUM_CONFLICT`, and writes nothing, if anything that
// it read was changed since.
//
// # Safety
// `transaction` is null or a place for the handle.
cambium_code cambium_transaction_new(cambium_store *store, cambium_transaction **transaction);

// Calls `work` with a transaction and commits it, as safe as `durable` says. After a conflict
// it calls `work` again with another transaction, after a pause, up to 64 times in all; one
// that has lost several times goes before those that begin. Answers what `work` answered, if
// that is not `CAMBIUM_OK`, or else the code of the last commit.
//
// # Safety
// `work` may be called with `argument`, on this thread, until this call returns.
int32_t cambium_transact(cambium_store *store, cambium_work work, void *argument, int32_t durable);

// Lets a transaction go; what it wrote and did not commit is forgotten.
void cambium_transaction_free(cambium_transaction *transaction);

// Makes all writes visible together, as safe as `durable` says. The transaction has ended
// then, whatever the answer; its handle is still to be freed. `CAMBIUM_CONFLICT`: begin
// another one, and do the same again.
cambium_code cambium_transaction_commit(cambium_transaction *transaction, int32_t durable);

// The namespace that later calls of this transaction go to, made if it is not there; an
// empty name is the default one.
//
// # Safety
// The name ends with a zero.
cambium_code cambium_transaction_namespace(cambium_transaction *transaction, const char *name);

// As `cambium_get`, as this transaction sees it. The key counts as read, also where it is
// not there.
//
// # Safety
// As of `cambium_get`.
cambium_code cambium_transaction_get(cambium_transaction *transaction,
                                     const void *key,
                                     size_t key_length,
                                     void **value,
                                     size_t *value_length);

// Puts a key when the transaction commits.
//
// # Safety
// As of `cambium_put`.
cambium_code cambium_transaction_put(cambium_transaction *transaction,
                                     const void *key,
                                     size_t key_length,
                                     const void *value,
                                     size_t value_length);

// Takes a key away when the transaction commits.
//
// # Safety
// As of `cambium_delete`.
cambium_code cambium_transaction_delete(cambium_transaction *transaction,
                                        const void *key,
                                        size_t key_length);

// Takes a range away when the transaction commits; a null pointer is an open bound.
//
// # Safety
// As of `cambium_batch_delete_range`.
cambium_code cambium_transaction_delete_range(cambium_transaction *transaction,
                                              const void *from,
                                              size_t from_length,
                                              const void *to,
                                              size_t to_length);

// A pass over the keys from `from` up to, not including, `to` (null is open), in order,
// or backwards if `backwards` is not 0, as this transaction sees them.
// `cambium_iterator_next` moves it. What it has passed counts as read.
//
// # Safety
// As of `cambium_iterator_new`.
cambium_code cambium_transaction_scan(cambium_transaction *transaction,
                                      const void *from,
                                      size_t from_length,
                                      const void *to,
                                      size_t to_length,
                                      int32_t backwards,
                                      cambium_iterator **iterator);

// A pass over every entry, in the order that is cheapest for the engine, with the writes of
// this transaction so far; works on every engine. `cambium_iterator_next` moves it. The whole
// namespace counts as read.
//
// # Safety
// As of `cambium_pass_new`.
cambium_code cambium_transaction_pass(cambium_transaction *transaction,
                                      cambium_iterator **iterator);

// Marks the writes so far.
cambium_code cambium_transaction_savepoint(cambium_transaction *transaction);

// Forgets the writes since the last savepoint, and that savepoint;
// `CAMBIUM_NOT_FOUND` where there is none.
cambium_code cambium_transaction_roll_back(cambium_transaction *transaction);

// Raises everything written so far to `CAMBIUM_SYNCED`.
cambium_code cambium_sync(cambium_store *store);

// Takes the newest moment of a store that was opened for reading alone beside a process that
// writes. Snapshots and iterators keep their moments. Every other store shows its newest
// state already.
cambium_code cambium_refresh(cambium_store *store);

// Rewrites what is live and gives space back; reads and writes go on.
cambium_code cambium_compact(cambium_store *store);

// About how many bytes on disk the entries of a range take, in `*bytes`: from a hundred
// entries on within a factor of 1.5 as a rule, and never more for a part than for the whole.
//
// # Safety
// The pointers are ones to as many bytes as their lengths say, null for an open
// bound; `bytes` is null or a place for the answer.
cambium_code cambium_approximate_size(cambium_store *store,
                                      const void *from,
                                      size_t from_length,
                                      const void *to,
                                      size_t to_length,
                                      uint64_t *bytes);

// The store's statistics, a name and a value a line, in `*words`; to be given back
// by `cambium_free`.
//
// # Safety
// `words` is null or a place for the answer.
cambium_code cambium_statistics(cambium_store *store, char **words);

// Verifies all that a store reaches, which nobody has open, or all backups of a folder of
// backups; damage is
// `CAMBIUM_CORRUPTION`, and `cambium_error_message` tells of the first.
//
// # Safety
// The path ends with a zero.
cambium_code cambium_check(const char *folder);

// Brings a damaged store back to what can be read; what was lost is
// `CAMBIUM_CORRUPTION`, with the first loss in `cambium_error_message`.
//
// # Safety
// The path ends with a zero.
cambium_code cambium_repair(const char *folder);

// Keeps the state now under a name, where the engine can.
//
// # Safety
// The name ends with a zero.
cambium_code cambium_named_snapshot_create(cambium_store *store, const char *name);

// Names of the states that are kept, in `*names`: each ends with a zero, one behind the
// other, `*count` of them; to be given back by `cambium_free`.
//
// # Safety
// `names` and `count` are null or places for the answer.
cambium_code cambium_named_snapshots(cambium_store *store, char **names, size_t *count);

// Names of all namespaces, as of `cambium_named_snapshots`; the default one, with an
// empty name, is the first.
//
// # Safety
// As of `cambium_named_snapshots`.
cambium_code cambium_namespaces(cambium_store *store, char **names, size_t *count);

// Lets a kept state go.
//
// # Safety
// The name ends with a zero.
cambium_code cambium_named_snapshot_drop(cambium_store *store, const char *name);

// Brings the store back to a kept state.
//
// # Safety
// The name ends with a zero.
cambium_code cambium_rollback(cambium_store *store, const char *name);

// The name of a code, such as `CAMBIUM_OK`.
const char *cambium_code_name(int32_t code);

// Gives a key a value that expires at `moment`, in milliseconds since 1970
// (`CAMBIUM_NEVER`: it does not). From then on the entry is not there.
//
// # Safety
// The pointers are ones to as many bytes as their lengths say.
cambium_code cambium_put_expiring(cambium_store *store,
                                  const void *key,
                                  size_t key_length,
                                  const void *value,
                                  size_t value_length,
                                  uint64_t moment,
                                  int32_t durable);

// Adds a put of an entry that expires at `moment`, in milliseconds since 1970
// (`CAMBIUM_NEVER`: it does not).
//
// # Safety
// As of `cambium_put_expiring`.
cambium_code cambium_batch_put_expiring(cambium_batch *batch,
                                        const void *key,
                                        size_t key_length,
                                        const void *value,
                                        size_t value_length,
                                        uint64_t moment);

// As `cambium_batch_put_expiring`, in a namespace of the store.
//
// # Safety
// As of `cambium_batch_put_into`.
cambium_code cambium_batch_put_expiring_into(cambium_batch *batch,
                                             const char *name,
                                             const void *key,
                                             size_t key_length,
                                             const void *value,
                                             size_t value_length,
                                             uint64_t moment);

// The moment at which a key's entry expires, in milliseconds since 1970, in `*moment`;
// `CAMBIUM_NEVER` if it does not, or is not there.
//
// # Safety
// As of `cambium_put_expiring`; `moment` is null or a place for a number.
cambium_code cambium_expires_at(cambium_store *store,
                                const void *key,
                                size_t key_length,
                                uint64_t *moment);

// Lets an entry expire at `moment`, in milliseconds since 1970, or stay
// (`CAMBIUM_NEVER`). `CAMBIUM_NOT_FOUND` if the key is not there.
//
// # Safety
// As of `cambium_put_expiring`.
cambium_code cambium_set_expiry(cambium_store *store,
                                const void *key,
                                size_t key_length,
                                uint64_t moment,
                                int32_t durable);

// Lets a merge operator make a key's next value of its current one and an operand,
// atomically: `add` (signed numbers of 8 bytes, little-endian), `append`, `maximum`, or one of
// `cambium_register_operator`.
//
// # Safety
// As of `cambium_put_expiring`; the text ends with a zero.
cambium_code cambium_merge(cambium_store *store,
                           const char *merge_operator,
                           const void *key,
                           size_t key_length,
                           const void *operand,
                           size_t operand_length,
                           int32_t durable);

// Adds a merge, as of `cambium_merge`.
//
// # Safety
// As of `cambium_merge`.
cambium_code cambium_batch_merge(cambium_batch *batch,
                                 const char *merge_operator,
                                 const void *key,
                                 size_t key_length,
                                 const void *operand,
                                 size_t operand_length);

// Adds a merge in a namespace of the store, as of `cambium_merge`.
//
// # Safety
// As of `cambium_merge`; the name ends with a zero.
cambium_code cambium_batch_merge_into(cambium_batch *batch,
                                      const char *name,
                                      const char *merge_operator,
                                      const void *key,
                                      size_t key_length,
                                      const void *operand,
                                      size_t operand_length);

// Puts a key when the transaction commits, of an entry that expires at `moment`, as of
// `cambium_put_expiring`.
//
// # Safety
// As of `cambium_put_expiring`.
cambium_code cambium_transaction_put_expiring(cambium_transaction *transaction,
                                              const void *key,
                                              size_t key_length,
                                              const void *value,
                                              size_t value_length,
                                              uint64_t moment);

// Merges into what this transaction sees, as of `cambium_merge`. The key counts as read.
//
// # Safety
// As of `cambium_merge`.
cambium_code cambium_transaction_merge(cambium_transaction *transaction,
                                       const char *merge_operator,
                                       const void *key,
                                       size_t key_length,
                                       const void *operand,
                                       size_t operand_length);

// Knows a merge operator by its name from now on, for all namespaces, until the store is closed;
// one of the same name goes. A write may call the function more than once, so the same current
// value and operand make the same value.
//
// `destructor` may be null. It is called with the state when the function is used no more; at
// once if this call fails.
//
// # Safety
// The name ends with a zero. `merge` may be called on any thread, several times at once. It
// keeps no pointer, and neither function calls anything of this library or unwinds.
cambium_code cambium_register_operator(cambium_store *store,
                                       const char *name,
                                       void *state,
                                       cambium_merge_function merge,
                                       cambium_destructor destructor);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* CAMBIUM_H */
