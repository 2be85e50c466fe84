"""Open, read, change and inspect a repository; everything starts here."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from icevirt.errors import RepositoryNotFoundError, check
from icevirt.escaping import Pictured, escape_line
from icevirt.model.config.document import RepositoryConfig, merge_documents
from icevirt.objects.answers import OnStale
from icevirt.repo.assets import Assets
from icevirt.repo.history.walks import RepositoryHistory
from icevirt.repo.repo_info_file import RepoInfoFile, RepoState, old_of
from icevirt.repo.session import Sessions
from icevirt.repo.settings import Settings
from icevirt.repo.view import DEFAULT, RepositoryOptions
from icevirt.storage.constructors import StorageLike, storage_of
from icevirt.storage.protocol import Storage

if TYPE_CHECKING:
    from icevirt.repo.authorization import Authorization

_MOST_CACHE = 1 << 30  # bytes of chunks that a persisted setting keeps in a reader's memory


class Repository(Sessions, RepositoryHistory, Settings, Pictured):
    """An Icechunk repository. Get one from `create`, `open` or `open_or_create`.

    Examples:
        >>> repo = icevirt.Repository.open("repo")
        >>> repo.create_tag("v1", repo.lookup_branch("main"))
        >>> sorted(repo.list_branches()), sorted(repo.list_tags())
        (['main'], ['v1'])
    """

    def __init__(
        self,
        storage: Storage,
        *,
        persisted: Mapping[str, Any],
        config: RepositoryConfig,
        credentials: Mapping[str, Any],
        assets: Assets,
        options: RepositoryOptions = DEFAULT,
    ) -> None:
        self._storage = storage
        self._persisted = copy.deepcopy(dict(persisted))
        self._config = config
        self._credentials = credentials
        self._commit_metadata = {}
        self._head = RepoInfoFile(storage)
        self._assets = assets
        self._options = options

    def __repr__(self) -> str:
        return escape_line(f"<icevirt.Repository {self._storage.url}>")

    def __reduce__(self) -> tuple[Any, ...]:
        make = partial(
            type(self),
            persisted=self._persisted,
            config=self._config,
            credentials=self._credentials,
            assets=self._assets,
            options=self._options,
        )
        state = {"_commit_metadata": self._commit_metadata, "_head": self._head}
        return make, (self._storage,), state

    # -- making and opening ------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        storage: StorageLike,
        config: RepositoryConfig | None = None,
        authorize_virtual_chunk_access: Authorization = None,
        *,
        check_clean_root: bool = True,
        on_stale: OnStale = "raise",
        content_addressed_chunks: bool = False,
        spec_version: int = 2,
    ) -> Self:
        """Create a new repository and open it.

        Args:
            storage: A storage, a path, or a ``file://`` URL.
            config: The configuration to persist in the repository.
            authorize_virtual_chunk_access: As for `open`.
            check_clean_root: Refuse a path that holds anything.
            on_stale: As for `open`.
            content_addressed_chunks: As for `open`.
            spec_version: The version of the format: 2, or 1 for clients that read no other.

        Raises:
            AlreadyExistsError: The path holds a repository or something else.
            StorageError: The path cannot be written to.
        """
        from icevirt.repo import creation

        root = storage_of(storage)
        creation.refuse_only_readable(root)
        if RepoInfoFile(root).find() is not None:
            raise creation.already_exists(root)
        if check_clean_root:
            creation.refuse_occupied(root)
        root = RepoInfoFile(root).obey(_document(config))
        creation.create(root, _document(config), spec_version)
        return cls.open(
            root,
            config,
            authorize_virtual_chunk_access,
            on_stale=on_stale,
            content_addressed_chunks=content_addressed_chunks,
        )

    @classmethod
    def open(
        cls,
        storage: StorageLike,
        config: RepositoryConfig | None = None,
        authorize_virtual_chunk_access: Authorization = None,
        *,
        on_stale: OnStale = "raise",
        content_addressed_chunks: bool = False,
    ) -> Self:
        """Open an existing repository.

        Args:
            storage: A storage, a path, or a ``file://`` URL.
            config: Used on top of the persisted configuration, and persisted by `save_config`.
            authorize_virtual_chunk_access: Prefixes below which virtual chunks may be read, or a
                mapping of prefixes to credentials. Only prefixes of the repository's virtual chunk
                containers count. "public" stands for public buckets and https servers, read
                without credentials.
            on_stale: If a source file changed after the scan: ``raise`` an error, ``warn``
                and read it as it is, or ``ignore`` that.
            content_addressed_chunks: Name written chunks by a digest of their bytes,
                so that equal chunks are stored once. Every client can read them.

        Raises:
            RepositoryNotFoundError: No repository there.
            FormatError: It is damaged.
            UnauthorizedError: A prefix is that of no virtual chunk container.
        """
        root, given = storage_of(storage), _document(config)
        credentials: Mapping[str, Any] = {}
        if authorize_virtual_chunk_access is not None:
            from icevirt.repo.authorization import authorize

            credentials = authorize(authorize_virtual_chunk_access, config, reads_chunks=True)
        head = RepoInfoFile(root)
        current = head.read()
        info = current.info
        persisted = dict(info.config or {})
        document = copy.deepcopy(merge_documents(persisted, given))
        if (old := old_of(current)) and credentials:  # its own ones cover whole schemes
            containers = old.authorize_containers(document, credentials)
            document["virtual_chunk_containers"] = containers
        options = RepositoryOptions(
            on_stale=on_stale, content_addressed_chunks=content_addressed_chunks
        )
        effective = RepositoryConfig.from_document(document)
        root = head.obey(document)
        if credentials and old is None:
            from icevirt.repo.authorization import refuse_unmatched

            refuse_unmatched(credentials, effective.virtual_chunk_containers)
        opened = cls(
            root,
            persisted=persisted,
            config=effective,
            credentials=credentials,
            assets=_assets(current, root, effective, options, given),
            options=options,
        )
        opened._head = head  # which need not decode again what it has decoded
        return opened

    @classmethod
    def open_or_create(
        cls,
        storage: StorageLike,
        config: RepositoryConfig | None = None,
        authorize_virtual_chunk_access: Authorization = None,
        *,
        check_clean_root: bool = True,
        on_stale: OnStale = "raise",
        content_addressed_chunks: bool = False,
    ) -> Self:
        """Open an existing repository, or create one; arguments as for both."""
        given: dict[str, Any] = {
            "on_stale": on_stale,
            "content_addressed_chunks": content_addressed_chunks,
        }
        try:
            return cls.open(storage, config, authorize_virtual_chunk_access, **given)
        except RepositoryNotFoundError:
            return cls.create(
                storage,
                config,
                authorize_virtual_chunk_access,
                check_clean_root=check_clean_root,
                **given,
            )

    @staticmethod
    def exists(storage: StorageLike) -> bool:
        """Return whether a repository exists there."""
        return RepoInfoFile(storage_of(storage)).find() is not None

    @staticmethod
    def fetch_config(storage: StorageLike) -> RepositoryConfig | None:
        """Return the persisted configuration; None without one.

        Raises:
            RepositoryNotFoundError: There is no repository.
        """
        config = RepoInfoFile(storage_of(storage)).read().info.config
        return None if config is None else RepositoryConfig.from_document(dict(config))

    @staticmethod
    def fetch_spec_version(storage: StorageLike) -> int | None:
        """Return the version of the format; None without a repository."""
        found = RepoInfoFile(storage_of(storage)).find()
        return None if found is None else found.info.spec_version

    def reopen(
        self,
        config: RepositoryConfig | None = None,
        authorize_virtual_chunk_access: Authorization = None,
    ) -> Self:
        """Open the same repository anew, with the same authorization unless given."""
        given = authorize_virtual_chunk_access
        return type(self).open(
            self._storage,
            config,
            self._credentials if given is None else given,
            on_stale=self._options.on_stale,
            content_addressed_chunks=self._options.content_addressed_chunks,
        )

    # -- what it is --------------------------------------------------------------------------

    @property
    def storage(self) -> Storage:
        """The root of the repository."""
        return self._storage

    @property
    def assets(self) -> Assets:
        """Reads and writes its immutable objects."""
        return self._assets

    @property
    def head(self) -> RepoInfoFile:
        """Reads and replaces its mutable object."""
        return self._head

    @property
    def spec_version(self) -> int:
        """The version of the Icechunk format."""
        return self._head.read().info.spec_version

    @property
    def authorized_virtual_container_prefixes(self) -> set[str]:
        """URL prefixes whose virtual chunks may be read."""
        return set(self._credentials)


def _document(config: RepositoryConfig | None) -> dict[str, Any]:
    if config is None:
        return {}
    how = "Pass RepositoryConfig(...), or None for the persisted one."
    return check("config", config, RepositoryConfig, do=how).document


def _assets(
    current: RepoState,
    root: Storage,
    config: RepositoryConfig,
    options: RepositoryOptions,
    given: Mapping[str, Any],
) -> Assets:
    """Return what reads the files, which is the one thing that depends on their format."""
    if (old := old_of(current)) is not None:
        return old.assets
    document, manifests = config.document, None
    if document.get("compression") or document.get("manifest"):
        from icevirt.wire.manifests.encoding import ManifestEncoding

        manifests = ManifestEncoding.of_config(document)
    return Assets(
        root,
        chunk_cache_bytes=_chunk_cache(config, given) if document.get("caching") else 0,
        level=config.compression_level,
        manifests=manifests,
        spec_version=current.info.spec_version,
        content_addressed=options.content_addressed_chunks,
    )


def _chunk_cache(config: RepositoryConfig, given: Mapping[str, Any]) -> int:
    """Return the memory for chunks: a repository has no more of its readers' than `_MOST_CACHE`."""
    wanted = (config.caching and config.caching.num_bytes_chunks) or 0
    own = (given.get("caching") or {}).get("num_bytes_chunks")
    return wanted if own is not None else min(wanted, _MOST_CACHE)
