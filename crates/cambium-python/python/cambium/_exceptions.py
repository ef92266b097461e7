"""The exceptions of the package."""

import builtins


class Error(Exception):
    """Something that a database could not do."""


class IOError(Error, builtins.IOError):
    """The disk, or the operating system, failed; or no database is there."""


class LockedError(IOError):
    """Another process, or another DB of this one, has the database open."""


class NoSpaceError(IOError):
    """The disk, or a quota, is full; the database is as it was before."""


class SyncFailedError(IOError):
    """A sync failed: writes since the last one may be lost, and the database
    takes no more writes until it is opened again."""


class PoisonedError(IOError):
    """An earlier write or sync failed; the database takes no more writes until
    it is opened again."""


class CorruptionError(Error):
    """Bytes on the disk are not what was written."""


class ConflictError(Error):
    """Another writer changed what a transaction had read; nothing was written."""


class PreconditionFailedError(Error):
    """A condition of a batch did not hold; nothing was written."""


class HistoryLostError(Error):
    """The log no longer has the changes that were asked for; it has all that came
    after `oldest`. Begin again with a snapshot and the changes after its number."""

    oldest: int


class IteratorInvalidError(Error):
    """A raw iterator stands at no entry."""


class UnsupportedError(Error):
    """The engine cannot do this; the text says which one can."""
