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
import itertools

from . import DB as _DB

__all__ = ["AsyncDB", "open"]

#: Entries that an iterator fetches in one call.
_STRETCH = 256


async def open(path, *, executor=None, **options):
    """Opens a database, with the options of ``cambium.DB``, as an ``AsyncDB``."""
    loop = asyncio.get_running_loop()
    db = await loop.run_in_executor(executor, functools.partial(_DB, path, **options))
    return AsyncDB(db, executor)


class AsyncDB:
    """A ``cambium.DB``, a prefixed database or a namespace whose calls are awaited.

    ``executor`` has the threads that calls run on; ``None`` is the event loop's own. ``db``
    is the database itself, for what is not here.
    """

    def __init__(self, db, executor=None):
        self.db = db
        self._executor = executor

    async def _call(self, function, *arguments, **named):
        call = functools.partial(function, *arguments, **named)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, call)

    async def get(self, key, default=None):
        return await self._call(self.db.get, key, default)

    async def multi_get(self, keys):
        return await self._call(self.db.multi_get, keys)

    async def put(self, key, value, *, sync=False, ttl=None):
        await self._call(self.db.put, key, value, sync=sync, ttl=ttl)

    async def delete(self, key, *, sync=False):
        await self._call(self.db.delete, key, sync=sync)

    async def merge(self, operator, key, operand, *, sync=False):
        await self._call(self.db.merge, operator, key, operand, sync=sync)

    async def write(self, batch):
        """Writes a batch that ``db.write_batch()`` made."""
        await self._call(batch.write)

    async def transact(self, work, *, attempts=64):
        """Runs ``work(transaction)`` on a thread and commits what it did; after a conflict
        it runs again. Answers what ``work`` answered."""
        return await self._call(self._transact, work, attempts)

    def _transact(self, work, attempts):
        from . import ConflictError

        for attempt in range(1, attempts + 1):
            transaction = self.db.transaction()
            try:
                answer = work(transaction)
                transaction.commit()
                return answer
            except ConflictError:
                if attempt == attempts:
                    raise
            finally:
                transaction.roll_back()

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
