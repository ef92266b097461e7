// The Thrift service of cambium-server (`--thrift ADDR`), after the service of the ZDB paper
// ("ZDB store uses the thrift protocol to serve requests from clients").
//
// Framed and buffered transports, binary and compact protocol: the server recognizes which.
// All calls are about database 0: clients of Redis see the same keys with SELECT 0. On a node
// of a cluster the keys of a call belong to one slot, and `range`, `iterate` and `size` are
// unsupported. A call returns when its write is as safe as the server's --durability says. Calls
// of one connection run in order; send several without waiting, and they share one batch and one
// sync with those of other connections.

namespace cpp cambium
namespace java io.cambium
namespace py cambium_thrift

enum ErrorCode {
  FAILED = 1,           // the disk or the store failed: the text says how
  INVALID = 2,          // an argument is missing, too long or out of range
  UNSUPPORTED = 3,      // the store's engine cannot do it
  NO_SPACE = 4,         // the disk is full: nothing was written
  UNAUTHENTICATED = 5,  // call `auth` first
  WRONG_TYPE = 6,       // the key holds a hash, which a client of Redis made
  MOVED = 7,            // another node of the cluster has the keys: call it at `address`
  TRY_AGAIN = 8         // no node of the cluster serves the keys now: nothing was done
}

exception Failure {
  1: ErrorCode code
  2: string message
  3: optional string address  // HOST:PORT of the node's Thrift service, with MOVED
}

struct Entry {
  1: binary key
  2: binary value
}

// `value` is absent if the key is not there.
struct Found {
  1: optional binary value
}

// `resume` is absent behind the last entry; else it is what the next call goes on from.
struct Page {
  1: list<Entry> entries
  2: optional binary resume
}

service KVDataService {
  void ping()

  // The password of the server, which has to come first where there is one.
  void auth(1: string password) throws (1: Failure failure)

  void put(1: binary key, 2: binary value) throws (1: Failure failure)
  // All or none. Of two entries with one key the later one stays.
  void multiPut(1: list<Entry> entries) throws (1: Failure failure)

  Found get(1: binary key) throws (1: Failure failure)
  // One answer for each key, in their order, all of one moment.
  list<Found> multiGet(1: list<binary> keys) throws (1: Failure failure)

  // True if the key was there.
  bool remove(1: binary key) throws (1: Failure failure)
  // How many keys were there. All or none are removed.
  i64 multiRemove(1: list<binary> keys) throws (1: Failure failure)

  // Puts if the key is not there, and says whether it did.
  bool add(1: binary key, 2: binary value) throws (1: Failure failure)
  // Puts if the key is there, and says whether it did.
  bool update(1: binary key, 2: binary value) throws (1: Failure failure)
  // Puts `value`, or removes the key if it is absent, if the key holds `expected`, or is not
  // there if that is absent. Says whether it did.
  bool compareAndSet(1: binary key, 2: optional binary expected, 3: optional binary value)
      throws (1: Failure failure)

  // Entries from `startKey` up to, not including, `endKey`, in key order; from the end if `reverse`.
  // At most `limit` (1 to 10,000), and 16 MiB. To go on, call again with `resume` as `startKey`,
  // or as `endKey` if `reverse`. Engines with an order of keys: forest, wisckey.
  Page range(1: optional binary startKey, 2: optional binary endKey, 3: bool reverse, 4: i32 limit)
      throws (1: Failure failure)
  // All entries in an order that the server chooses. What is there throughout is returned
  // once. A token is valid after a restart too.
  Page iterate(1: optional binary token, 2: i32 limit) throws (1: Failure failure)

  // Integer keys are 8 bytes, big-endian, with the sign bit flipped, so that `range` has them
  // in the order of numbers.
  void putInteger(1: i64 key, 2: binary value) throws (1: Failure failure)
  Found getInteger(1: i64 key) throws (1: Failure failure)
  bool removeInteger(1: i64 key) throws (1: Failure failure)

  // Keys of database 0, exact.
  i64 size() throws (1: Failure failure)
  // The store's counters by the names of `cambium stats`.
  map<string, double> stats() throws (1: Failure failure)
}
