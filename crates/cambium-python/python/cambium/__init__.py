"""Cambium, an embeddable, persistent key-value store.

The interface is plyvel's (``import cambium as plyvel`` serves programs written for
it), with engines, a mapping's operators, statistics and backups beyond it:

    >>> import cambium
    >>> with cambium.DB("trees", create_if_missing=True) as db:
    ...     db[b"oak"] = b"Quercus"
    ...     for key, value in db.iterator(prefix=b"o"):
    ...         print(key, value)
    b'oak' b'Quercus'
"""

from ._exceptions import (
    CorruptionError,
    Error,
    IOError,
    IteratorInvalidError,
    LockedError,
    NoSpaceError,
    PoisonedError,
    SyncFailedError,
    ConflictError,
    UnsupportedError,
)
from ._native import (
    DB,
    Iterator,
    Namespace,
    PrefixedDB,
    RawIterator,
    Savepoint,
    Snapshot,
    Transaction,
    WriteBatch,
    __version__,
    check_db,
    destroy_db,
    repair_db,
)

#: The version of LevelDB whose interface plyvel has, for programs that ask.
__leveldb_version__ = "1.23"

__all__ = [
    "DB",
    "CorruptionError",
    "Error",
    "IOError",
    "Iterator",
    "IteratorInvalidError",
    "LockedError",
    "NoSpaceError",
    "PoisonedError",
    "SyncFailedError",
    "ConflictError",
    "Namespace",
    "PrefixedDB",
    "RawIterator",
    "Savepoint",
    "Snapshot",
    "Transaction",
    "UnsupportedError",
    "WriteBatch",
    "check_db",
    "destroy_db",
    "repair_db",
]
