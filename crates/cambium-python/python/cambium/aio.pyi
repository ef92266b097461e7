from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from types import TracebackType
from typing import Any, Optional, TypeVar, Union

from typing_extensions import Buffer, Self

from . import (
    DB,
    Backup,
    ChangeBatch,
    Consumer,
    Namespace,
    PrefixedDB,
    Snapshot,
    Transaction,
    WriteBatch,
    _Durability,
    _Path,
)

__all__ = ["AsyncConsumer", "AsyncDB", "AsyncSnapshot", "open"]

_T = TypeVar("_T")

async def open(
    path: Any, *, executor: Optional[Executor] = None, **options: Any
) -> AsyncDB: ...

class _Awaited:
    db: Any
    def __init__(self, db: Any, executor: Optional[Executor] = None) -> None: ...

class _AsyncReadable(_Awaited):
    db: Any
    async def get(
        self,
        key: Buffer,
        default: Any = None,
        *,
        verify_checksums: Optional[bool] = False,
        fill_cache: Optional[bool] = True,
    ) -> Any: ...
    async def multi_get(self, keys: Sequence[Buffer]) -> list[Optional[bytes]]: ...
    def iterator(self, **bounds: Any) -> AsyncIterator[Any]: ...
    async def close(self) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None: ...

class AsyncSnapshot(_AsyncReadable):
    db: Snapshot
    async def namespace(self, name: str) -> Optional[AsyncSnapshot]: ...
    async def namespaces(self) -> list[str]: ...

class AsyncConsumer(_Awaited):
    db: Consumer
    async def position(self) -> int: ...
    def changes(
        self, *, follow: bool = False, synced_only: bool = False
    ) -> AsyncGenerator[ChangeBatch, None]: ...
    async def acknowledge(self, through: int) -> None: ...
    async def remove(self) -> None: ...

class AsyncDB(_AsyncReadable):
    db: DB | PrefixedDB | Namespace
    async def put(
        self,
        key: Buffer,
        value: Buffer,
        *,
        sync: Optional[bool] = False,
        ttl: Optional[float] = None,
        durability: _Durability = None,
    ) -> None: ...
    async def delete(
        self,
        key: Buffer,
        *,
        sync: Optional[bool] = False,
        durability: _Durability = None,
    ) -> None: ...
    async def delete_range(
        self,
        *,
        start: Optional[Buffer] = None,
        stop: Optional[Buffer] = None,
        prefix: Optional[Buffer] = None,
        sync: Optional[bool] = False,
        durability: _Durability = None,
    ) -> None: ...
    async def merge(
        self,
        operator: str,
        key: Buffer,
        operand: Buffer,
        *,
        sync: Optional[bool] = False,
        durability: _Durability = None,
    ) -> None: ...
    async def expire(
        self,
        key: Buffer,
        ttl: Optional[float],
        *,
        sync: Optional[bool] = False,
        durability: _Durability = None,
    ) -> bool: ...
    async def expires_at(self, key: Buffer) -> Optional[float]: ...
    async def transact(
        self,
        function: Callable[[Transaction], _T],
        *,
        attempts: int = 64,
        sync: Optional[bool] = False,
        durability: _Durability = None,
    ) -> _T: ...
    async def snapshot(self) -> AsyncSnapshot: ...
    async def namespace(self, name: str) -> AsyncDB: ...
    async def namespaces(self) -> list[str]: ...
    async def drop_namespace(self, name: str) -> None: ...
    async def consumer(self, name: str) -> AsyncConsumer: ...
    async def consumers(self) -> list[tuple[str, int]]: ...
    async def create_named_snapshot(self, name: str) -> None: ...
    async def named_snapshot(self, name: str) -> AsyncSnapshot: ...
    async def named_snapshots(self) -> list[str]: ...
    async def drop_named_snapshot(self, name: str) -> None: ...
    async def rollback(self, name: str) -> None: ...
    async def compact(self) -> None: ...
    async def sync(self) -> None: ...
    async def refresh(self) -> None: ...
    async def backup(
        self, destination: _Path, *, incremental: Optional[bool] = False
    ) -> Optional[Backup]: ...
    async def stats(self) -> dict[str, Union[int, float, str]]: ...
    async def write(self, batch: WriteBatch) -> None: ...
    def changes(
        self, *, after: int = 0, follow: bool = False, synced_only: bool = False
    ) -> AsyncGenerator[ChangeBatch, None]: ...
