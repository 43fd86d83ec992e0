"""Asynchronous doubles for callers without an event loop: each runs in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.processes.client import ApiClient

T = TypeVar("T")


@contextmanager
def in_thread(
    name: str, kubeconfig: Path, double: Callable[[ApiClient], AbstractAsyncContextManager[T]]
) -> Iterator[T]:
    """Keep a double of a cluster open for the length of a `with` block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name=name)
    thread.start()

    def wait_for(work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    stack = AsyncExitStack()
    try:
        client = wait_for(stack.enter_async_context(ApiClient.from_kubeconfig(kubeconfig)))
        yield wait_for(stack.enter_async_context(double(client)))
    finally:
        wait_for(stack.aclose())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
