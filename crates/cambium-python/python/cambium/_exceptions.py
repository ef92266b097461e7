"""The exceptions of the package."""

import builtins


class Error(Exception):
    """Something that a database could not do."""


class IOError(Error, builtins.IOError):
    """The disk, or the operating system, failed; or no database is there."""


class LockedError(IOError):
    """Another process, or another DB of this one, has the database open."""


class CorruptionError(Error):
    """Bytes on the disk are not what was written."""


class IteratorInvalidError(Error):
    """A raw iterator stands at no entry."""


class UnsupportedError(Error):
    """The engine cannot do this; the text says which one can."""
