"""A headless Chromium, driven through the pipe of its DevTools."""

import base64
import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
_PATIENCE = 60.0  # seconds until an expression has to be true


class Tab:
    """The one page of a browser."""

    def __init__(self, commands: Any, answers: Any) -> None:
        self._commands, self._answers = commands, answers
        self._numbers = itertools.count(1)
        self._session: dict[str, str] = {}
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}

    def open(self, url: str) -> None:
        """Go to a page."""
        self._call("Page.navigate", url=url)

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript."""
        given = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        return self._call("Runtime.evaluate", **given)["result"].get("value")

    def wait_for(self, expression: str) -> Any:
        """Return the value of an expression as soon as it is true."""
        until = time.monotonic() + _PATIENCE
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < until, self.evaluate("document.body.innerText")
            time.sleep(0.05)
        return value

    def screenshot(self) -> bytes:
        """Return the page as PNG."""
        return base64.b64decode(self._call("Page.captureScreenshot")["data"])

    def _call(self, method: str, **parameters: Any) -> Any:
        number = next(self._numbers)
        sent = {"id": number, "method": method, "params": parameters, **self._session}
        self._commands.write(json.dumps(sent).encode() + b"\0")
        self._commands.flush()
        while (answer := self._next()).get("id") != number:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def _next(self) -> Any:
        read = bytearray()
        while (letter := self._answers.read(1)) != b"\0":
            assert letter, "Chromium ended"
            read += letter
        return json.loads(read)


@contextmanager
def browsing(profile: Path) -> Iterator[Tab]:
    """Run Chromium with a new profile, and end it."""
    ours_in, theirs_out = os.pipe()
    theirs_in, ours_out = os.pipe()
    chromium = [PROGRAM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
    chromium += ["--window-size=900,900", f"--user-data-dir={profile}", "--remote-debugging-pipe"]
    # it reads commands from descriptor 3, and writes answers to 4
    shell = ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "-", *chromium]
    with subprocess.Popen(
        shell,
        pass_fds=(theirs_in, theirs_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            with open(ours_out, "wb") as commands, open(ours_in, "rb") as answers:
                yield Tab(commands, answers)
        finally:
            process.kill()
