"""What a reader of changes answers."""

from typing import NamedTuple, Optional


class Change(NamedTuple):
    """One operation of a committed batch.

    ``operation`` is ``"put"``, ``"delete"`` or ``"delete_range"``; of a range, ``key`` is its
    first key and ``value`` the key behind its last one, ``None`` where it is open.
    ``expires_at`` is when the entry that was put expires, in seconds since 1970.
    """

    namespace: str
    operation: str
    key: Optional[bytes]
    value: Optional[bytes] = None
    expires_at: Optional[float] = None


class ChangeBatch(NamedTuple):
    """One committed batch: the numbers of its first and last entry, and its changes."""

    first: int
    last: int
    synced: bool
    changes: "list[Change]"
