"""Configure access to the servers of source files, beyond what the environment says.

The user's ``access`` argument applies while the call runs, and travels to executors with the tasks.
Credentials go only to the servers of the prefix that they were given for.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ClassVar

from icevirt.connect.container import canonical, persistable
from icevirt.connect.credentials.keywords import (
    HOW,
    REQUESTER_PAYS,
    is_named,
    parse_credentials,
)
from icevirt.connect.stores import Bucket, bucket_of
from icevirt.connect.urls import PROVIDERS, Address, plain
from icevirt.errors import InvalidInputError
from icevirt.model.config.containers import ObjectStoreConfig, VirtualChunkContainer
from icevirt.objects.authorize import GrantedAccess, Prefix, choose_endpoints
from icevirt.objects.backends import Backend, site_for
from icevirt.objects.web_client import Site
from icevirt.remedy_notation import write_code, write_remedy


def is_word(how: object) -> bool:
    """Say whether an access is a word, which may be written down: anything else may be a secret."""
    return isinstance(how, str) and is_named(how)


@dataclass(frozen=True, slots=True)
class SourceGrant:
    """Access to the sources below one prefix."""

    prefix: str  # canonical, ends in "/"
    config: ObjectStoreConfig | None = None
    credentials: Any = field(default=None, repr=False)
    only: frozenset[str] | None = None  # endpoints, where a repository named the config


@dataclass(frozen=True, slots=True)
class SourceAccess:
    """Grants, the longest prefix first; make it with `of`."""

    grants: tuple[SourceGrant, ...] = ()
    keeps_checksums: ClassVar[bool] = True
    """Whether a file is refused if its server sends nothing by which a change is noticed."""

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> SourceAccess:
        """Read what a person passed.

        Args:
            given: By prefix of URLs: credentials (``icevirt.s3_credentials(...)`` and its like),
                "anonymous", "environment", "netrc", the name of a function that returns
                credentials ("package.module:function"), a store (``icevirt.s3_store(...)``) that
                says region, endpoint or who pays ("requester-pays" says only that), or a pair of a
                store and credentials.

        Raises:
            InvalidInputError: A prefix is no URL of a server, something else was passed for it,
                or there is no such function or entry of a netrc file here.
        """
        if not isinstance(given, Mapping | None):
            raise _refusal("access must be a mapping of URL prefixes", given)
        grants = [_grant(prefix, value) for prefix, value in (given or {}).items()]
        for grant in grants:
            try:
                pickle.dumps(grant)
            except Exception as error:  # whatever its objects raise
                raise InvalidInputError(
                    "these credentials cannot be sent to executors",
                    do="Pass the name of a function that returns them, as package.module:function.",
                    prefix=grant.prefix,
                    cause=type(error).__name__,
                ) from error
            # refuse at once what can reach no file
            reach = cls.site if Address.parse(grant.prefix).provider == "http" else cls.bucket
            reach(cls((grant,)), grant.prefix)
        return cls(_longest_first(grants))

    @classmethod
    def of_containers(
        cls,
        containers: Mapping[str, VirtualChunkContainer],
        authorized: Mapping[str, GrantedAccess],
    ) -> SourceAccess:
        """Return how files are reached as a repository's containers say, where that is authorized.

        Raises:
            InvalidInputError: The options of a container are not valid.
        """
        grants = []
        for prefix, access in authorized.items():
            container = containers.get(prefix)
            if (
                container is None
                or container.is_foreign
                or prefix.partition(":")[0] not in PROVIDERS
            ):
                continue
            config = canonical(container)
            only = None if config.kind == "http" else choose_endpoints(container, access.endpoints)
            url = f"{Address.parse(prefix.rstrip('/')).url}/"
            grants.append(SourceGrant(url, config, access.credentials, only))
        return cls(_longest_first(grants))

    def way_to(self, url: str) -> tuple[Backend, str] | None:  # noqa: ARG002
        """Return how one object is reached, and its key; None where its provider decides."""
        return None

    def bucket(self, url: str) -> Bucket:
        """Return the bucket of an object or folder."""
        grant = self._covering(url)
        return bucket_of(url, grant.config, grant.credentials, grant.only)

    def site(self, directory: str) -> Site:
        """Return a directory of a web server, or more of it where one grant is for more."""
        grant = self._covering(directory)
        return site_for(grant.prefix or directory, grant.config, grant.credentials)

    def authorization(self, prefixes: Iterable[Prefix]) -> dict[Prefix, Any]:
        """Return what reading containers takes, as ``authorize_virtual_chunk_access``.

        A server that a container names is authorized only where sources of its prefix are read
        from it here: the repository may name others.
        """
        found: dict[Prefix, Any] = {}
        for entry in prefixes:
            prefix, is_ours = entry if isinstance(entry, str) else entry[0], True
            if not isinstance(entry, str):
                try:
                    is_ours = self.bucket(prefix).endpoint == plain(entry[1])
                except InvalidInputError:  # an account of Azure that is not known
                    is_ours = False
            found[entry if is_ours else prefix] = self._covering(prefix).credentials
        return found

    def stores(self) -> tuple[tuple[str, ObjectStoreConfig], ...]:
        """Return what containers of the prefixes should say, so that readers find the objects."""
        found = ((grant.prefix, persistable(grant.config, grant.prefix)) for grant in self.grants)
        return tuple((prefix, config) for prefix, config in found if config is not None)

    def _covering(self, url: str) -> SourceGrant:
        found = (grant for grant in self.grants if f"{url}/".startswith(grant.prefix))
        return next(found, SourceGrant(prefix=""))


def _longest_first(grants: list[SourceGrant]) -> tuple[SourceGrant, ...]:
    return tuple(sorted(grants, key=lambda grant: -len(grant.prefix)))


def _grant(prefix: object, value: Any) -> SourceGrant:
    if not isinstance(prefix, str):
        raise _refusal("access must be a mapping of URL prefixes", prefix)
    address = Address.parse(prefix.rstrip("/"))
    config, credentials = value if isinstance(value, tuple) and len(value) == 2 else (None, value)
    if credentials == REQUESTER_PAYS and config is None and address.provider == "s3":
        credentials = ObjectStoreConfig("s3", {"requester_pays": True})
    if isinstance(credentials, ObjectStoreConfig):
        config, credentials = credentials, None
    if isinstance(credentials, str):
        credentials = parse_credentials(credentials, address.provider)
    if not isinstance(config, ObjectStoreConfig | None) or not (
        credentials is None or hasattr(credentials, "provider")
    ):
        raise _refusal("not a valid value for access", value, prefix=prefix)
    return SourceGrant(prefix=f"{address.url}/", config=config, credentials=credentials)


def _refusal(what: str, found: object, **facts: object) -> InvalidInputError:
    return InvalidInputError(
        what,
        do=write_remedy(
            "Pass ",
            write_code(
                'access={"s3://bucket/": icevirt.s3_credentials(...)}', "--access s3://bucket/=HOW"
            ),
            f", or a word: {HOW}.",
        ),
        found=type(found).__name__,
        **facts,
    )


_IN_FORCE: ContextVar[SourceAccess] = ContextVar("_IN_FORCE", default=SourceAccess())  # noqa: B039


def in_force() -> SourceAccess:
    """Return how servers are reached now."""
    return _IN_FORCE.get()


@contextmanager
def grant_access(access: SourceAccess) -> Iterator[None]:
    """Let an access be in force while the block runs."""
    token = _IN_FORCE.set(access)
    try:
        yield
    finally:
        _IN_FORCE.reset(token)


def carrying[**P, R](function: Callable[P, R]) -> Callable[P, R]:
    """Return the function for another thread, with the access that is in force here."""
    access = in_force()

    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with grant_access(access):
            return function(*args, **kwargs)

    return run
