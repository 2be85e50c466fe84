"""Load obstore so that it works in this process, and convert its errors to icevirt's.

obstore has one runtime per process, and its threads do not survive ``fork``: in a child, every call
would wait forever, also on new stores. So a child that needs obstore loads the library again, from
a copy that the system treats as another file.

Its messages quote requests and answers, so they are never repeated: only an HTTP status, the
server's error code and a few causes are extracted.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any

from icevirt.errors import (
    IcevirtError,
    InvalidInputError,
    NoBucketError,
    ObjectNotFoundError,
    StorageError,
)
from icevirt.remedy_notation import write_code, write_remedy
from icevirt.threads import run_interruptibly

_EXTENSION = "obstore._obstore"
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z0-9._-]{1,60})</Code>")
# of one of many objects that one request deletes; the request itself went well
_KEY_CODE = re.compile(r'DeleteFailed \{.*?\bcode: "([A-Za-z0-9._-]{1,60})"', re.DOTALL)
_UNKNOWN_OPTION = re.compile(r"Configuration key: '([\w.-]+)' is not valid")
_KEY = re.compile(r'path: "((?:[^"\\]|\\.)*)"')  # control characters in it are escaped
_NO_BUCKET = {"NoSuchBucket", "ContainerNotFound", "InvalidBucketName", "AllAccessDisabled"}
_BY_CODE = {
    "RequestTimeTooSkewed": "Set the clock of this machine.",
    "ExpiredToken": "The session token has expired: get new credentials, or use refreshable ones.",
    "InvalidAccessKeyId": "The server does not know this access key; check the credentials"
    " and the endpoint.",
    "SignatureDoesNotMatch": "The secret key does not match this access key; check both.",
    "AuthorizationHeaderMalformed": "Check the region.",
    "PermanentRedirect": "The bucket is in another region: pass its region.",
    "IllegalLocationConstraintException": "Pass the region of the bucket.",
    "AuthenticationFailed": "The server refused the signature; check the account, the key and the "
    "clock.",
    "RequestTimeout": "Try again; the connection is slow.",
    "SlowDown": "The store asks for fewer requests; run fewer tasks at once, or try again.",
    "ServerBusy": "The store asks for fewer requests; run fewer tasks at once, or try again.",
    "NotImplemented": "This server lacks an operation that is needed; conditional writes (If-Match"
    " and If-None-Match) have to work.",
}
_FORBIDDEN = (
    "These credentials may not do this here: check them, their permissions, and the region."
)
_BY_CODE["AccessDenied"] = _FORBIDDEN
_BY_STATUS = {
    "301": _BY_CODE["PermanentRedirect"],
    "307": _BY_CODE["PermanentRedirect"],
    "400": "Check region, endpoint and credentials.",
    "401": "Pass credentials, or check those you passed.",
    "403": _FORBIDDEN,
    "405": "The server does not allow this; it may be read-only.",
    "429": _BY_CODE["SlowDown"],
    "501": _BY_CODE["NotImplemented"],
    "503": _BY_CODE["SlowDown"],
}
_DENIED = ("PermissionDeniedError", "UnauthenticatedError")
_ENDED = ("ExpiredToken", "TokenRefreshRequired", "InvalidToken")  # with status 400, on S3
_CREDENTIAL_SERVERS = ("//169.254.169.254", "//metadata.google.internal", "//metadata/")
_BARE_REDIRECT = "incorrectly configured region"
_CAUSES = (
    ("BadScheme", "The endpoint is not encrypted: pass allow_http=True if you mean it."),
    ("dns error", "Check the name of the endpoint, region or account."),
    ("InvalidCertificate", "The server's certificate is not valid for it; check the endpoint."),
    ("Connection refused", "Nothing answers there; check the endpoint."),
    ("ConnectionRefused", "Nothing answers there; check the endpoint."),
    (
        "gives no temporary keys",
        (
            "Set EARTHDATA_TOKEN to a token of the archive, on executors too; if it is set, make a"
            " new one, and accept the archive's terms with that user."
        ),
    ),
    ("credential provider", "The function that refreshes credentials failed; call it yourself."),
    (_BARE_REDIRECT, _BY_CODE["PermanentRedirect"]),
    ("TimedOut", "The server did not answer in time; try again, or check the network."),
    ("timed out", "The server did not answer in time; try again, or check the network."),
)
_NOT_SENT = ("kind: Connect", "kind: Builder", "credential provider")
UNREADABLE = "InvalidDeleteObjectsResponse"
"""The reason of an error where it is unclear which objects were deleted."""

_REFUSED = "the object store refused the request or did not answer"
_OTHER = "Check endpoint, network and credentials, then try again."


class _Library:
    """Which instance this process uses."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.module: ModuleType | None = None
        self.file = ""  # of the extension, as it is installed
        self.inherited = False

    def get(self) -> ModuleType:
        """Return the library, loaded on first use."""
        with self.lock:
            if self.module is None:
                if self.inherited:
                    _load_copy(self.file)
                importlib.import_module("datetime")  # else its first store would, beyond this lock
                self.module = importlib.import_module("obstore")
                self.file = self.file or str(sys.modules[_EXTENSION].__file__)
                self.inherited = False
            return self.module

    def disown(self) -> None:
        """Remember in a forked child that what is loaded here is the parent's."""
        self.lock = threading.RLock()
        if (loaded := sys.modules.get(_EXTENSION)) is not None:
            self.inherited = True
            self.file = self.file or str(loaded.__file__)
        self.module = None


_library = _Library()
# a fork waits for a thread that is just loading: half of a module would be all the child ever has
os.register_at_fork(
    before=lambda: _library.lock.acquire(),  # noqa: PLW0108 - a child has another lock
    after_in_parent=lambda: _library.lock.release(),  # noqa: PLW0108
    after_in_child=_library.disown,
)


def obstore() -> ModuleType:
    """Return the library; do not keep it or its stores where a forked child could find them."""
    return _library.module or _library.get()


def _load_copy(file: str) -> None:
    """Put a second instance of the extension where ``import obstore`` finds it."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "obstore"]:
        del sys.modules[name]
    with _copy(file) as copy:
        loader = ExtensionFileLoader(_EXTENSION, copy)
        spec = spec_from_file_location(_EXTENSION, copy, loader=loader)
        assert spec is not None
        module = module_from_spec(spec)
        sys.modules[_EXTENSION] = module
        loader.exec_module(module)


@contextmanager
def _copy(file: str) -> Iterator[str]:
    """Return the path of a copy; in memory where possible, as /tmp may forbid to execute."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("obstore")
        path = f"/proc/{os.getpid()}/fd/{descriptor}"  # a name that no ancestor loaded
    else:
        descriptor, path = tempfile.mkstemp(prefix="icevirt-", suffix=".so")
    try:
        with open(file, "rb") as original, open(descriptor, "wb", closefd=False) as copy:
            shutil.copyfileobj(original, copy, 1 << 20)
        yield path
    finally:
        os.close(descriptor)
        if os.path.exists(path):
            os.unlink(path)


# -- its errors ----------------------------------------------------------------------------------


def ask[T](url: str, act: Callable[[], T]) -> T:
    """Do something with obstore and turn what it raises into errors of icevirt.

    A function and not a context manager: those cannot part an error from the one that it replaces,
    whose text could hold a secret.

    Args:
        url: What is acted on, without secrets; it appears in the message.
        act: Does it, and returns what this returns.

    Raises:
        ObjectNotFoundError: There is no such object.
        StorageError: The store refused or failed. ``error.facts`` has ``status`` and ``reason``,
            where the server gave them, and ``sent`` is False where the request never left.
    """
    failure: IcevirtError
    try:
        return run_interruptibly(act)
    except IcevirtError:
        raise
    except FileNotFoundError as error:
        failure = _missing(str(error), url)
    except BaseException as error:
        if not _of_obstore(error) and not isinstance(error, ValueError):
            raise
        failure = _refusal(error, url)
    raise failure


def refusal_by_status(url: str, status: int, answer: str) -> StorageError:
    """Return the error of a request that this library did not send.

    Args:
        url: What was acted on, without secrets.
        status: Of the answer.
        answer: Its body, of which only the server's code is repeated.
    """
    code = _CODE.search(answer)
    do = _BY_STATUS.get(str(status), _OTHER)
    facts = {"url": url, "kind": "GenericError", "status": status}
    if code:
        do = _BY_CODE.get(code[1], do)
        facts["reason"] = code[1]
    return StorageError(_REFUSED, do=do, **facts)


def is_refusal(error: StorageError) -> bool:
    """Say whether a store refused these credentials, and may not refuse others."""
    facts = error.facts
    return (
        facts.get("status") in (401, 403)
        or facts.get("kind") in _DENIED
        or facts.get("reason") in _ENDED
    )


def open_store[T](url: str, act: Callable[[], T]) -> T:
    """Open a store and convert what obstore raises about its options.

    Raises:
        InvalidInputError: They do not make a store.
    """
    cause = ""
    try:
        return act()
    except IcevirtError:
        raise
    except BaseException as error:
        if not _of_obstore(error) and not isinstance(error, ValueError | TypeError):
            raise
        found = _UNKNOWN_OPTION.match(str(error))
        cause = f"unknown option {found[1]}" if found else type(error).__name__
    raise InvalidInputError(
        "the store cannot be opened with these options or credentials",
        do="Check their names and values.",
        url=url,
        cause=cause,
    )


def _of_obstore(error: BaseException) -> bool:
    # its bugs are panics, which are no ``Exception``
    return type(error).__module__.startswith(("obstore", "pyo3_runtime"))


def _missing(text: str, url: str) -> StorageError:
    code = _CODE.search(text)
    if code and code[1] in _NO_BUCKET:
        return NoBucketError(
            "no such bucket",
            do="Check its name, the endpoint and the region, or create it.",
            url=url,
            status=404,
            reason=code[1],
        )
    return ObjectNotFoundError("no such object", url=url)


def public_access(url: str) -> str:
    """Say how the bucket of a URL is reached without credentials, by whoever reads it."""
    root = "/".join(url.split("/", 3)[:3]) + "/"
    return write_remedy(
        "For a public bucket, pass ",
        write_code(f'access={{"{root}": "anonymous"}}', f"--access {root}=anonymous"),
        " for source files, and ",
        write_code("anonymous=True", "--anonymous"),
        " for a repository.",
    )


def _refusal(error: BaseException, url: str) -> StorageError:
    text = str(error)
    if type(error).__name__ == "InvalidPathError":
        key = _KEY.search(text)
        return StorageError(
            "a key that cannot be read: it has an empty part, '.', '..' or a control character",
            do="Rename the object, or pass the objects that you want one by one instead of their "
            "prefix.",
            url=url,
            key=key[1] if key else "",
            sent=True,
        )
    if any(place in text for place in _CREDENTIAL_SERVERS):
        return StorageError(
            "no credentials were found for the object store",
            do=write_remedy("Pass some, or set the environment's variables. ", public_access(url)),
            url=url,
            reason="NoCredentials",
            sent=False,
        )
    code, status = _CODE.search(text) or _KEY_CODE.search(text), _STATUS.search(text)
    if code and code[1] in _NO_BUCKET:
        return _missing(text, url)
    facts: dict[str, Any] = {"url": url, "kind": type(error).__name__}
    do = next((remedy for sign, remedy in _CAUSES if sign in text), _OTHER)
    if status:
        facts["status"] = int(status[1])
        do = _BY_STATUS.get(status[1], _OTHER)
    elif _BARE_REDIRECT in text:
        facts["status"] = 301
    elif any(sign in text for sign in _NOT_SENT):
        facts["sent"] = False
    if code:
        facts["reason"] = code[1]
        do = _BY_CODE.get(code[1], do)
    elif "invalid DeleteObjects response" in text:
        facts["reason"] = UNREADABLE
    if do == _FORBIDDEN:
        do = write_remedy(do, " ", public_access(url))
    return StorageError(_REFUSED, do=do, **facts)
