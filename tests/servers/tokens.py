"""A server of files whose tokens are good for a number of requests, and a function that gets them.

``GET /token`` gives another one.
"""

import itertools
import threading
from dataclasses import dataclass, field
from pathlib import Path

from servers.faults import Request, Response
from servers.ranges import Files

CANARY = "CANARY-OF-TOKENS"


@dataclass(slots=True)
class Expiring:
    """Files behind tokens of a short life."""

    files: Files
    requests: int = 20  # that a token is good for
    status: int = 401  # of what is asked with another one
    is_good: bool = True  # False: all tokens are refused
    issued: int = 0
    asked: list[str] = field(default_factory=list)  # headers with which files were asked for
    _left: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: Request) -> Response:
        """Handle a request."""
        with self._lock:
            if request.path == "/token":
                self.issued += 1
                token = f"{CANARY}-{self.issued}"
                self._left[f"Bearer {token}"] = self.requests
                return Response(status=200, body=token.encode())
            output = request.headers.get("authorization", "")
            self.asked.append(output)
            self._left[output] = self._left.get(output, 0) - 1
            if self._left[output] < 0 or not self.is_good:
                return Response(status=self.status, headers={"www-authenticate": "Bearer"})
        return self.files.answer(request)


_MODULE = """
from urllib.request import urlopen
import icevirt

def fresh():
    with urlopen("{url}/token") as answer:
        return icevirt.http_credentials(bearer_token=answer.read().decode())
"""
_numbers = itertools.count()


def write_module(folder: Path, url: str) -> tuple[Path, str]:
    """Write a module that nobody has imported yet; return its path and the name of its function."""
    name = f"tokens_of_tests_{next(_numbers)}"
    path = folder / f"{name}.py"
    path.write_text(_MODULE.format(url=url))
    return path, f"{name}:fresh"
