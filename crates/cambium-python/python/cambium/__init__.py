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

from ._backups import Backup
from ._changes import Change, ChangeBatch
from ._exceptions import (
    CorruptionError,
    Error,
    HistoryLostError,
    IOError,
    IteratorInvalidError,
    LockedError,
    NoSpaceError,
    PoisonedError,
    PreconditionFailedError,
    SyncFailedError,
    ConflictError,
    UnsupportedError,
)
from ._native import (
    DB,
    Changes,
    Consumer,
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
    keep_backups,
    list_backups,
    repair_db,
    restore_db,
)

#: The version of LevelDB whose interface plyvel has, for programs that ask.
__leveldb_version__ = "1.23"

__all__ = [
    "Backup",
    "DB",
    "Change",
    "ChangeBatch",
    "Changes",
    "Consumer",
    "CorruptionError",
    "Error",
    "HistoryLostError",
    "IOError",
    "Iterator",
    "IteratorInvalidError",
    "LockedError",
    "NoSpaceError",
    "PoisonedError",
    "PreconditionFailedError",
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
    "keep_backups",
    "list_backups",
    "repair_db",
    "restore_db",
]
