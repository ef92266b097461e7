"""Databases whose calls are awaited, for programs that run on ``asyncio``.

Each call runs on a thread of an executor, without the interpreter's lock while it asks the
store, so the event loop is never held up:

    >>> import asyncio
    >>> from cambium import aio
    >>> async def main():
    ...     async with await aio.open("trees", create_if_missing=True) as db:
    ...         await db.put(b"oak", b"Quercus")
    ...         async for key, value in db.iterator(prefix=b"o"):
    ...             print(key, value)
    >>> asyncio.run(main())
    b'oak' b'Quercus'
"""

import asyncio
import functools
import inspect
import itertools

from . import DB as _DB, Consumer as _Consumer, Snapshot as _Snapshot

__all__ = ["AsyncConsumer", "AsyncDB", "AsyncSnapshot", "open"]

#: Entries that an iterator fetches in one call.
_STRETCH = 256
#: Seconds that a follower of changes keeps a thread at a time.
_WAIT = 0.1


async def open(path, *, executor=None, **options):
    """Opens a database, with the options of ``cambium.DB``, as an ``AsyncDB``."""
    loop = asyncio.get_running_loop()
    db = await loop.run_in_executor(executor, functools.partial(_DB, path, **options))
    return AsyncDB(db, executor)


def _awaited(owner, name, made=None):
    """A method that runs the one of the same name on a thread; ``made()`` is the class that
    its answer is wrapped in."""
    function = getattr(owner, name)

    async def call(self, *arguments, **named):
        answer = await self._call(getattr(self.db, name), *arguments, **named)
        return answer if made is None or answer is None else made()(answer, self._executor)

    call.__name__, call.__qualname__, call.__doc__ = name, name, function.__doc__
    call.__signature__ = inspect.signature(function)
    return call


class _Awaited:
    """``db`` is the object itself, for what is not here; ``executor`` has the threads that
    calls run on, ``None`` is the event loop's own."""

    def __init__(self, db, executor=None):
        self.db = db
        self._executor = executor

    async def _call(self, function, *arguments, **named):
        call = functools.partial(function, *arguments, **named)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, call)

    async def _follow(self, follow, begin):
        """Batches of the changes that ``begin`` answers."""
        changes = await self._call(begin)
        try:
            while True:
                batch = await self._call(changes.next, _WAIT if follow else 0)
                if batch is not None:
                    yield batch
                elif not follow:
                    return
        finally:
            await self._call(changes.close)


class _AsyncReadable(_Awaited):
    get = _awaited(_DB, "get")
    multi_get = _awaited(_DB, "multi_get")

    async def iterator(self, **bounds):
        """Entries, with the arguments of ``db.iterator``; they are fetched in stretches."""
        entries = await self._call(self.db.iterator, **bounds)
        try:
            while True:
                stretch = await self._call(
                    lambda: list(itertools.islice(entries, _STRETCH))
                )
                for entry in stretch:
                    yield entry
                if len(stretch) < _STRETCH:
                    return
        finally:
            entries.close()

    async def close(self):
        await self._call(self.db.close)

    async def __aenter__(self):
        return self

    async def __aexit__(self, kind, error, traceback):
        await self.close()


class AsyncSnapshot(_AsyncReadable):
    """A ``cambium.Snapshot`` whose calls are awaited."""

    namespace = _awaited(_Snapshot, "namespace", lambda: AsyncSnapshot)
    namespaces = _awaited(_Snapshot, "namespaces")


class AsyncConsumer(_Awaited):
    """A ``cambium.Consumer`` whose calls are awaited."""

    acknowledge = _awaited(_Consumer, "acknowledge")
    remove = _awaited(_Consumer, "remove")

    async def position(self):
        return await self._call(lambda: self.db.position)

    def changes(self, *, follow=False, synced_only=False):
        """Batches after its position; with ``follow`` it waits for new ones."""
        begin = functools.partial(self.db.changes, synced_only=synced_only)
        return self._follow(follow, begin)


class AsyncDB(_AsyncReadable):
    """A ``cambium.DB``, a prefixed database or a namespace whose calls are awaited. What the
    latter two do not have is an ``AttributeError``."""

    put = _awaited(_DB, "put")
    delete = _awaited(_DB, "delete")
    delete_range = _awaited(_DB, "delete_range")
    merge = _awaited(_DB, "merge")
    expire = _awaited(_DB, "expire")
    expires_at = _awaited(_DB, "expires_at")
    transact = _awaited(_DB, "transact")
    snapshot = _awaited(_DB, "snapshot", lambda: AsyncSnapshot)
    namespace = _awaited(_DB, "namespace", lambda: AsyncDB)
    namespaces = _awaited(_DB, "namespaces")
    drop_namespace = _awaited(_DB, "drop_namespace")
    consumer = _awaited(_DB, "consumer", lambda: AsyncConsumer)
    consumers = _awaited(_DB, "consumers")
    create_named_snapshot = _awaited(_DB, "create_named_snapshot")
    named_snapshot = _awaited(_DB, "named_snapshot", lambda: AsyncSnapshot)
    named_snapshots = _awaited(_DB, "named_snapshots")
    drop_named_snapshot = _awaited(_DB, "drop_named_snapshot")
    rollback = _awaited(_DB, "rollback")
    compact = _awaited(_DB, "compact")
    sync = _awaited(_DB, "sync")
    refresh = _awaited(_DB, "refresh")
    backup = _awaited(_DB, "backup")
    stats = _awaited(_DB, "stats")

    async def write(self, batch):
        """Writes a batch that ``db.write_batch()`` made."""
        await self._call(batch.write)

    def changes(self, *, after=0, follow=False, synced_only=False):
        """Batches after a sequence number; with ``follow`` it waits for new ones."""
        begin = functools.partial(self.db.changes, after=after, synced_only=synced_only)
        return self._follow(follow, begin)
