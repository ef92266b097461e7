from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from types import TracebackType
from typing import Any, Optional, TypeVar

from typing_extensions import Buffer

from . import DB, Namespace, PrefixedDB, Transaction, WriteBatch

__all__ = ["AsyncDB", "open"]

_T = TypeVar("_T")

async def open(
    path: Any, *, executor: Optional[Executor] = None, **options: Any
) -> AsyncDB: ...

class AsyncDB:
    db: DB | PrefixedDB | Namespace
    def __init__(
        self, db: DB | PrefixedDB | Namespace, executor: Optional[Executor] = None
    ) -> None: ...
    async def get(self, key: Buffer, default: Any = None) -> Any: ...
    async def multi_get(self, keys: Sequence[Buffer]) -> list[Optional[bytes]]: ...
    async def put(
        self, key: Buffer, value: Buffer, *, sync: bool = False, ttl: Optional[float] = None
    ) -> None: ...
    async def delete(self, key: Buffer, *, sync: bool = False) -> None: ...
    async def merge(
        self, operator: str, key: Buffer, operand: Buffer, *, sync: bool = False
    ) -> None: ...
    async def write(self, batch: WriteBatch) -> None: ...
    async def transact(
        self, work: Callable[[Transaction], _T], *, attempts: int = 64
    ) -> _T: ...
    def iterator(self, **bounds: Any) -> AsyncIterator[Any]: ...
    async def close(self) -> None: ...
    async def __aenter__(self) -> AsyncDB: ...
    async def __aexit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None: ...
