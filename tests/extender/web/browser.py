"""A real headless Chromium, driven over its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp

from tests.extender.polling import eventually, until

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
START_SECONDS = 60.0


def program() -> str | None:
    """Return the browser that is installed."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Tab:
    """One page of the browser, and what it complained about."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.complaints: list[str] = []
        """Errors on the console, exceptions and what the policy of the page forbade."""
        self.requested: list[str] = []
        """Addresses."""
        self._loaded = asyncio.Event()

    async def listen(self) -> None:
        """Take in what the browser says until it is gone."""
        async for message in self._socket:
            said = message.json()
            if "id" in said:
                self._answers.pop(said["id"]).set_result(said)
            else:
                self._hear(said["method"], said["params"])

    async def call(self, method: str, **params: object) -> dict[str, Any]:
        """Call a method of the protocol."""
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        said = await asyncio.wait_for(self._answers[number], START_SECONDS)
        assert "error" not in said, said
        result: dict[str, Any] = said["result"]
        return result

    async def open(self, url: str) -> None:
        """Go to a page, and wait until all of it is there."""
        self._loaded.clear()
        answer = await self.call("Page.navigate", url=url)
        assert "errorText" not in answer, answer
        await asyncio.wait_for(self._loaded.wait(), START_SECONDS)

    async def value(self, expression: str) -> Any:
        """Return what a JavaScript expression, or the promise that it gives, comes to."""
        answer = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def becomes(self, expression: str, seconds: float = 30.0) -> None:
        """Wait until an expression is true."""
        async with asyncio.timeout(seconds):
            while not await self.value(expression):  # noqa: ASYNC110 - the browser sends no event for this
                await asyncio.sleep(0.05)

    async def press(self, key: str) -> None:
        """Press a key and let it go."""
        for kind in ("rawKeyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode={"Tab": 9}[key]
            )

    async def point(self, at: Sequence[float]) -> None:
        """Move the pointer to a place of the window."""
        await self.call("Input.dispatchMouseEvent", type="mouseMoved", x=at[0], y=at[1])

    async def look(self, scheme: str = "light", medium: str = "screen") -> None:
        """Show pages as to somebody with that colour scheme, or as they are printed."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.call("Emulation.setEmulatedMedia", media=medium, features=features)

    async def screenshot(self) -> bytes:
        """Return the whole page as a PNG."""
        answer = await self.call("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(answer["data"])

    def _hear(self, method: str, params: dict[str, Any]) -> None:
        match method:
            case "Page.loadEventFired":
                self._loaded.set()
            case "Network.requestWillBeSent":
                self.requested.append(params["request"]["url"])
            case "Runtime.exceptionThrown":
                self.complaints.append(str(params["exceptionDetails"]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.complaints.append(str(params["entry"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning"):
                self.complaints.append(str(params["args"]))


@asynccontextmanager
async def tab(folder: Path) -> AsyncIterator[Tab]:
    """Start a browser with a profile in `folder`, and give its only page."""
    browser = program()
    assert browser
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-port=0"]
    command = [browser, *flags, f"--user-data-dir={folder}", "--window-size=1280,900", "about:blank"]
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *command, stdout=quiet, stderr=quiet, env={**os.environ, "HOME": str(folder)}, start_new_session=True
    )
    try:
        await until(lambda: _port(folder / "DevToolsActivePort"))
        port = _port(folder / "DevToolsActivePort")
        async with aiohttp.ClientSession() as session:

            async def pages() -> list[dict[str, str]]:
                async with session.get(f"http://127.0.0.1:{port}/json/list") as response:
                    return [each for each in await response.json(content_type=None) if each["type"] == "page"]

            [page] = await eventually(pages)
            async with session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                opened = Tab(socket)
                listening = asyncio.create_task(opened.listen())
                for domain in ("Page", "Runtime", "Log", "Network"):
                    await opened.call(f"{domain}.enable")
                await opened.call("Emulation.setFocusEmulationEnabled", enabled=True)
                yield opened
            await listening
    finally:
        process.terminate()
        await process.wait()


def _port(file: Path) -> str:
    """Return the port once the browser has written it down."""
    port, written, _ = (file.read_text() if file.exists() else "").partition("\n")
    return port if written else ""
