"""Asynchronous doubles for callers without an event loop: each runs in a thread of its own."""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from benchmarks.processes.client import ApiClient

T = TypeVar("T")

GOODBYE_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.01


@contextmanager
def in_thread(
    name: str, kubeconfig: Path, double: Callable[[ApiClient], AbstractAsyncContextManager[T]]
) -> Iterator[T]:
    """Keep a double of a cluster open for the length of a `with` block."""
    selector = selectors.DefaultSelector()
    loop = asyncio.SelectorEventLoop(selector)
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
        wait_for(_until_closed(selector))
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _until_closed(selector: selectors.BaseSelector) -> None:
    """Return once the connections of requests that were cancelled are closed: by TLS that takes an answer of the server.

    One file stays, by which other threads wake the loop.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(GOODBYE_SECONDS):
            while len(selector.get_map()) > 1:  # noqa: ASYNC110 - sockets are not ours to watch
                await asyncio.sleep(_POLL_SECONDS)
