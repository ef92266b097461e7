"""What incremental backups answer."""

from typing import NamedTuple, Optional


class Backup(NamedTuple):
    """One backup of a folder of backups.

    ``kind`` is ``"full"`` for a full copy and ``"changes"`` for an archive of what was written
    since the backup before. ``after`` and ``through`` are sequence numbers: where it begins,
    and the last write in it. ``taken_at`` is in seconds since 1970, ``bytes`` the size of its
    files. ``damage`` says why it cannot be restored, as far as its end or description shows.
    """

    number: int
    kind: str
    after: int
    through: int
    taken_at: float
    bytes: int
    damage: Optional[str] = None
