// LevelDB's C interface as libcambium_leveldb.so has it: the functions of
// LevelDB 1.23, on Cambium's engines.
//
// Generated from the sources of crate cambium-leveldb; do not edit.

#ifndef CAMBIUM_LEVELDB_C_H
#define CAMBIUM_LEVELDB_C_H

#include <stddef.h>
#include <stdint.h>

enum { leveldb_no_compression = 0, leveldb_snappy_compression = 1 };

// A cache.
typedef struct leveldb_cache_t leveldb_cache_t;

// An order of keys.
typedef struct leveldb_comparator_t leveldb_comparator_t;

// An environment.
typedef struct leveldb_env_t leveldb_env_t;

// A filter policy.
typedef struct leveldb_filterpolicy_t leveldb_filterpolicy_t;

// An iterator.
typedef struct leveldb_iterator_t leveldb_iterator_t;

// A logger; none can be made.
typedef struct leveldb_logger_t leveldb_logger_t;

// How to open.
typedef struct leveldb_options_t leveldb_options_t;

// How to read.
typedef struct leveldb_readoptions_t leveldb_readoptions_t;

// One moment of a database.
typedef struct leveldb_snapshot_t leveldb_snapshot_t;

// A database.
typedef struct leveldb_t leveldb_t;

// Changes to be made together.
typedef struct leveldb_writebatch_t leveldb_writebatch_t;

// How to write.
typedef struct leveldb_writeoptions_t leveldb_writeoptions_t;

// Told of a put: state, key and length, value and length.
typedef void (*leveldb_put_callback_t)(void*, const char*, uintptr_t, const char*, uintptr_t);

// Told of a delete: state, key and length.
typedef void (*leveldb_deleted_callback_t)(void*, const char*, uintptr_t);

// Called when a state is used no more.
typedef void (*leveldb_destructor_t)(void*);

// Answers less than, equal to or more than 0.
typedef int (*leveldb_compare_t)(void*, const char*, uintptr_t, const char*, uintptr_t);

// Answers the name.
typedef const char *(*leveldb_name_t)(void*);

// Answers a filter of keys in memory from `malloc`.
typedef char *(*leveldb_create_filter_t)(void*,
                                         const char*const *,
                                         const uintptr_t*,
                                         int,
                                         uintptr_t*);

// Answers 0 where a key is not among those of a filter.
typedef uint8_t (*leveldb_key_may_match_t)(void*, const char*, uintptr_t, const char*, uintptr_t);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// An empty batch.
leveldb_writebatch_t *leveldb_writebatch_create(void);

// Lets a batch go.
void leveldb_writebatch_destroy(leveldb_writebatch_t *batch);

// Empties a batch.
void leveldb_writebatch_clear(leveldb_writebatch_t *batch);

// Adds a put.
//
// # Safety
// As `leveldb/c.h` has it: pointers with their lengths.
void leveldb_writebatch_put(leveldb_writebatch_t *batch,
                            const char *key,
                            uintptr_t klen,
                            const char *val,
                            uintptr_t vlen);

// Adds a delete.
//
// # Safety
// As of [`leveldb_writebatch_put`].
void leveldb_writebatch_delete(leveldb_writebatch_t *batch, const char *key, uintptr_t klen);

// Tells the callbacks of each operation, in order. They may use the batch.
//
// # Safety
// The callbacks take `state`, and pointers with their lengths that they do not
// keep.
void leveldb_writebatch_iterate(const leveldb_writebatch_t *batch,
                                void *state,
                                leveldb_put_callback_t put,
                                leveldb_deleted_callback_t deleted);

// Adds the operations of another batch, which stays as it is.
void leveldb_writebatch_append(leveldb_writebatch_t *destination,
                               const leveldb_writebatch_t *source);

// Makes a comparator of the program's functions.
leveldb_comparator_t *leveldb_comparator_create(void *state,
                                                leveldb_destructor_t destructor,
                                                leveldb_compare_t compare,
                                                leveldb_name_t name);

// Lets a comparator go. Its destructor is called when the last database opened
// with it is closed.
void leveldb_comparator_destroy(leveldb_comparator_t *comparator);

// Makes a filter policy of the program's functions.
leveldb_filterpolicy_t *leveldb_filterpolicy_create(void *state,
                                                    leveldb_destructor_t destructor,
                                                    leveldb_create_filter_t create_filter,
                                                    leveldb_key_may_match_t key_may_match,
                                                    leveldb_name_t _name);

// A Bloom filter of so many bits a key: the engine's own.
leveldb_filterpolicy_t *leveldb_filterpolicy_create_bloom(int bits_per_key);

// Lets a filter policy go. Its destructor is called when the last database
// opened with it is closed.
void leveldb_filterpolicy_destroy(leveldb_filterpolicy_t *policy);

// Opens, or makes, a database.
//
// # Safety
// As `leveldb/c.h` has it: `name` ends with a zero, `errptr` is null or a place for
// null or memory from `malloc`.
leveldb_t *leveldb_open(const leveldb_options_t *options, const char *name, char **errptr);

// Closes a database. Its iterators and snapshots answer errors from now on; they
// are still to be destroyed.
void leveldb_close(leveldb_t *db);

// Gives a key a value.
//
// # Safety
// As `leveldb/c.h` has it: pointers with their lengths, and `errptr` as of
// [`leveldb_open`].
void leveldb_put(leveldb_t *db,
                 const leveldb_writeoptions_t *options,
                 const char *key,
                 uintptr_t keylen,
                 const char *val,
                 uintptr_t vallen,
                 char **errptr);

// Takes a key away; no error where it is not there.
//
// # Safety
// As of [`leveldb_put`].
void leveldb_delete(leveldb_t *db,
                    const leveldb_writeoptions_t *options,
                    const char *key,
                    uintptr_t keylen,
                    char **errptr);

// Writes a batch, whole or not at all. The batch stays as it is.
//
// # Safety
// `errptr` as of [`leveldb_open`].
void leveldb_write(leveldb_t *db,
                   const leveldb_writeoptions_t *options,
                   leveldb_writebatch_t *batch,
                   char **errptr);

// The value of a key in memory from `malloc`, its length in `*vallen`, or null.
//
// # Safety
// As of [`leveldb_put`]; `vallen` is null or a place for the length.
char *leveldb_get(leveldb_t *db,
                  const leveldb_readoptions_t *options,
                  const char *key,
                  uintptr_t keylen,
                  uintptr_t *vallen,
                  char **errptr);

// The state now, until it is released; null for a database that is closed.
const leveldb_snapshot_t *leveldb_create_snapshot(leveldb_t *db);

// Lets a snapshot go.
void leveldb_release_snapshot(leveldb_t *_db, const leveldb_snapshot_t *snapshot);

// A property by name, in memory from `malloc`, or null where it is unknown.
//
// # Safety
// `propname` ends with a zero.
char *leveldb_property_value(leveldb_t *db, const char *propname);

// About how many bytes on disk each of several ranges takes; 0 after an error.
//
// # Safety
// As `leveldb/c.h` has it: the arrays have `num_ranges` elements.
void leveldb_approximate_sizes(leveldb_t *db,
                               int num_ranges,
                               const char *const *range_start_key,
                               const uintptr_t *range_start_key_len,
                               const char *const *range_limit_key,
                               const uintptr_t *range_limit_key_len,
                               uint64_t *sizes);

// Gives space back, wherever it pays.
//
// # Safety
// As `leveldb/c.h` has it: pointers with their lengths.
void leveldb_compact_range(leveldb_t *db,
                           const char *_start_key,
                           uintptr_t _start_key_len,
                           const char *_limit_key,
                           uintptr_t _limit_key_len);

// Takes a database off the disk; does nothing where none is.
//
// # Safety
// As of [`leveldb_open`].
void leveldb_destroy_db(const leveldb_options_t *options, const char *name, char **errptr);

// Brings a damaged database back to what can be read.
//
// # Safety
// As of [`leveldb_open`].
void leveldb_repair_db(const leveldb_options_t *options, const char *name, char **errptr);

// An iterator over the snapshot of the options, or over the state now; unplaced
// at first. One that could not be made is invalid, and its error says why.
leveldb_iterator_t *leveldb_create_iterator(leveldb_t *db, const leveldb_readoptions_t *options);

// Lets an iterator go.
void leveldb_iter_destroy(leveldb_iterator_t *iterator);

// 1 if the iterator stands at an entry.
uint8_t leveldb_iter_valid(const leveldb_iterator_t *iterator);

// Goes to the first entry.
void leveldb_iter_seek_to_first(leveldb_iterator_t *iterator);

// Goes to the last entry.
void leveldb_iter_seek_to_last(leveldb_iterator_t *iterator);

// Goes to the first entry at or behind a key.
//
// # Safety
// `k` is one to `klen` bytes.
void leveldb_iter_seek(leveldb_iterator_t *iterator, const char *k, uintptr_t klen);

// Goes to the next entry. An iterator that stands nowhere, after an error too, stays as it is.
void leveldb_iter_next(leveldb_iterator_t *iterator);

// Goes to the entry before.
void leveldb_iter_prev(leveldb_iterator_t *iterator);

// The key where it stands, its length in `*klen`, until the iterator moves; null
// where it is invalid.
//
// # Safety
// `klen` is null or a place for the length.
const char *leveldb_iter_key(const leveldb_iterator_t *iterator, uintptr_t *klen);

// The value where it stands; as of [`leveldb_iter_key`].
//
// # Safety
// As of [`leveldb_iter_key`].
const char *leveldb_iter_value(const leveldb_iterator_t *iterator, uintptr_t *vlen);

// The error that made the iterator invalid, if one did.
//
// # Safety
// `errptr` is null or a place for null or memory from `malloc`.
void leveldb_iter_get_error(const leveldb_iterator_t *iterator, char **errptr);

// Options at their defaults.
leveldb_options_t *leveldb_options_create(void);

// Lets options go.
void leveldb_options_destroy(leveldb_options_t *options);

// The order of keys; null is the order of bytes.
void leveldb_options_set_comparator(leveldb_options_t *options, leveldb_comparator_t *comparator);

// The filter policy; null is what the engine does by itself.
void leveldb_options_set_filter_policy(leveldb_options_t *options, leveldb_filterpolicy_t *policy);

// Make the database where none is.
void leveldb_options_set_create_if_missing(leveldb_options_t *options, uint8_t on);

// Refuse a database that is there.
void leveldb_options_set_error_if_exists(leveldb_options_t *options, uint8_t on);

// Every byte is verified whether this is set or not.
void leveldb_options_set_paranoid_checks(leveldb_options_t *_options, uint8_t _on);

// There is one environment.
void leveldb_options_set_env(leveldb_options_t *_options, leveldb_env_t *_env);

// The library writes no log for people.
void leveldb_options_set_info_log(leveldb_options_t *_options, leveldb_logger_t *_logger);

// Bytes that gather in memory before they are sorted into the store.
void leveldb_options_set_write_buffer_size(leveldb_options_t *options, uintptr_t bytes);

// Engines bound the files they hold open by themselves.
void leveldb_options_set_max_open_files(leveldb_options_t *_options, int _files);

// A cache for blocks, of its size; databases do not share it.
void leveldb_options_set_cache(leveldb_options_t *options, leveldb_cache_t *cache);

// Bytes of a table's blocks.
void leveldb_options_set_block_size(leveldb_options_t *options, uintptr_t bytes);

// Keys in blocks are not laid out so.
void leveldb_options_set_block_restart_interval(leveldb_options_t *_options, int _interval);

// Bytes at which a table ends.
void leveldb_options_set_max_file_size(leveldb_options_t *options, uintptr_t bytes);

// `leveldb_no_compression` (0) and `leveldb_snappy_compression` (1): the engine compresses
// nothing either way, unless its own option says so.
void leveldb_options_set_compression(leveldb_options_t *_options, int _compression);

// Read options at their defaults.
leveldb_readoptions_t *leveldb_readoptions_create(void);

// Lets read options go.
void leveldb_readoptions_destroy(leveldb_readoptions_t *options);

// Every byte is verified whether this is set or not.
void leveldb_readoptions_set_verify_checksums(leveldb_readoptions_t *_options, uint8_t _on);

// The cache decides by itself what it keeps.
void leveldb_readoptions_set_fill_cache(leveldb_readoptions_t *_options, uint8_t _on);

// Read this moment; null is now. Reads answer an error once it is released.
void leveldb_readoptions_set_snapshot(leveldb_readoptions_t *options,
                                      const leveldb_snapshot_t *snapshot);

// Write options at their defaults.
leveldb_writeoptions_t *leveldb_writeoptions_create(void);

// Lets write options go.
void leveldb_writeoptions_destroy(leveldb_writeoptions_t *options);

// Answer when the write is on the device; otherwise when the operating system
// has it.
void leveldb_writeoptions_set_sync(leveldb_writeoptions_t *options, uint8_t on);

// A cache of so many bytes.
leveldb_cache_t *leveldb_cache_create_lru(uintptr_t capacity);

// Lets a cache go; a database opened with it keeps its own.
void leveldb_cache_destroy(leveldb_cache_t *cache);

// The one environment.
leveldb_env_t *leveldb_create_default_env(void);

// Lets an environment go.
void leveldb_env_destroy(leveldb_env_t *env);

// A folder for tests, made if it is not there, in memory from `malloc`.
char *leveldb_env_get_test_directory(leveldb_env_t *env);

// Frees what this library answered in memory from `malloc`.
//
// # Safety
// The pointer is null, or such memory, and was not freed since.
void leveldb_free(void *ptr);

// The major version of the interface.
int leveldb_major_version(void);

// The minor version of the interface.
int leveldb_minor_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* CAMBIUM_LEVELDB_C_H */
