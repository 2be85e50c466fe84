"""The codes of icechunk's errors, and which of ours have them."""

from __future__ import annotations

import re
from enum import StrEnum

__all__ = ["ErrorKind", "kind_of"]


class ErrorKind(StrEnum):
    """Codes of icechunk's errors; `IcechunkError.kind` may also be one of icevirt's."""

    COMMIT_CONFLICT = "commit-conflict"
    BRANCH_UPDATE_CONFLICT = "branch-update-conflict"
    REBASE_FAILED = "rebase-failed"
    CONFIG_UPDATED = "config-updated"
    REPO_INFO_UPDATED = "repo-info-updated"
    UPDATE_ATTEMPTS_EXHAUSTED = "update-attempts-exhausted"
    GC_DELETES_FAILING = "gc-deletes-failing"
    NODE_NOT_FOUND = "node-not-found"
    ANCESTOR_NODE_NOT_FOUND = "ancestor-node-not-found"
    CHUNK_NOT_FOUND = "chunk-not-found"
    KEY_NOT_FOUND = "key-not-found"
    SNAPSHOT_NOT_FOUND = "snapshot-not-found"
    NO_SNAPSHOT_AT_TIME = "no-snapshot-at-time"
    REF_NOT_FOUND = "ref-not-found"
    BRANCH_NOT_FOUND = "branch-not-found"
    TAG_NOT_FOUND = "tag-not-found"
    REPOSITORY_NOT_FOUND = "repository-not-found"
    MANIFEST_INFO_NOT_FOUND = "manifest-info-not-found"
    NODE_ALREADY_EXISTS = "node-already-exists"
    BRANCH_ALREADY_EXISTS = "branch-already-exists"
    TAG_ALREADY_EXISTS = "tag-already-exists"
    TAG_PREVIOUSLY_DELETED = "tag-previously-deleted"
    MOVE_WONT_OVERWRITE = "move-wont-overwrite"
    READ_ONLY_SESSION = "read-only-session"
    READ_ONLY_STORE = "read-only-store"
    READ_ONLY_STORAGE = "read-only-storage"
    READ_ONLY_REPOSITORY = "read-only-repository"
    INVALID_KEY = "invalid-key"
    INVALID_CHUNK_INDEX = "invalid-chunk-index"
    ZERO_LENGTH_CHUNK = "zero-length-chunk"
    INVALID_MANIFEST_SPLIT_INDEX = "invalid-manifest-split-index"
    INVALID_REF_TYPE = "invalid-ref-type"
    INVALID_REF_NAME = "invalid-ref-name"
    INVALID_SNAPSHOT_ID = "invalid-snapshot-id"
    INVALID_PATH = "invalid-path"
    BAD_KEY_PREFIX = "bad-key-prefix"
    BAD_METADATA = "bad-metadata"
    BAD_PREFIX = "bad-prefix"
    NOT_AN_ARRAY = "not-an-array"
    NOT_A_GROUP = "not-a-group"
    INVALID_BYTE_RANGE = "invalid-byte-range"
    INVALID_COMMIT_CONFIGURATION = "invalid-commit-configuration"
    INVALID_ARRAY_METADATA = "invalid-array-metadata"
    INVALID_FEATURE_FLAG = "invalid-feature-flag"
    INVALID_VIRTUAL_REF = "invalid-virtual-ref"
    INVALID_CREDENTIALS = "invalid-credentials"
    NO_CONTAINER_FOR_VIRTUAL_CHUNK = "no-container-for-virtual-chunk"
    UNAUTHORIZED_VIRTUAL_CHUNK_CONTAINER = "unauthorized-virtual-chunk-container"
    EMPTY_PREFIX_CREATION = "empty-prefix-creation"
    PARENT_DIRECTORY_NOT_CLEAN = "parent-directory-not-clean"
    BAD_SNAPSHOT_CHAIN_FOR_DIFF = "bad-snapshot-chain-for-diff"
    COMMIT_NOT_ALLOWED = "commit-not-allowed"
    MERGE_NOT_ALLOWED = "merge-not-allowed"
    CANNOT_FORK_READ_ONLY_SESSION = "cannot-fork-read-only-session"
    REARRANGE_SESSION_ONLY = "rearrange-session-only"
    NON_REARRANGE_SESSION = "non-rearrange-session"
    MOVE_INTO_SELF_OR_DESCENDANT = "move-into-self-or-descendant"
    MOVE_DESTINATION_PARENT_MISSING = "move-destination-parent-missing"
    MOVE_DESTINATION_PARENT_NOT_GROUP = "move-destination-parent-not-group"
    NO_CHANGES_TO_COMMIT = "no-changes-to-commit"
    NO_AMEND_FOR_INITIAL_COMMIT = "no-amend-for-initial-commit"
    NOT_ON_BRANCH = "not-on-branch"
    NO_SNAPSHOT = "no-snapshot"
    CANNOT_DELETE_MAIN = "cannot-delete-main"
    UNCOMMITTED_CHANGES = "uncommitted-changes"
    MERGE_FAILED = "merge-failed"
    NOT_ALLOWED = "not-allowed"
    UNIMPLEMENTED = "unimplemented"
    REBASE_TX_LOG_PRUNED = "rebase-tx-log-pruned"
    FEATURE_FLAG_DISABLED = "feature-flag-disabled"
    TAG_ERROR = "tag-error"
    INVALID_REPOSITORY_MIGRATION = "invalid-repository-migration"
    OBJECT_NOT_FOUND = "object-not-found"
    OBJECT_STORE = "object-store"
    IO = "io"
    STORAGE_CONFIG = "storage-config"
    CANNOT_PARSE_URL = "cannot-parse-url"
    BAD_REDIRECT = "bad-redirect"
    SEMAPHORE_ACQUIRE = "semaphore-acquire"
    THROTTLED = "throttled"
    STORAGE_OTHER = "storage-other"
    VIRTUAL_CHUNK_FETCH = "virtual-chunk-fetch"
    VIRTUAL_CHUNK_MODIFIED = "virtual-chunk-modified"
    INVALID_OBJECT_SIZE = "invalid-object-size"
    SERIALIZATION = "serialization"
    DESERIALIZATION = "deserialization"
    CONFIG_DESERIALIZATION = "config-deserialization"
    INVALID_FILE_FORMAT = "invalid-file-format"
    UNSUPPORTED_SPEC_VERSION = "unsupported-spec-version"
    UNSUPPORTED_OPERATION_FOR_VERSION = "unsupported-operation-for-version"
    SNAPSHOT_TIMESTAMP = "snapshot-timestamp"
    DUPLICATE_SNAPSHOT_ID = "duplicate-snapshot-id"
    CONCURRENCY = "concurrency"
    FLUSH = "flush"
    PARTIAL_VALUES_PANIC = "partial-values-panic"
    CONFLICTING_PATH_NOT_FOUND = "conflicting-path-not-found"
    INCONSISTENT_MANIFESTS = "inconsistent-manifests"
    POISON_LOCK = "poison-lock"
    PICKLE = "pickle"
    UNKNOWN = "unknown"


_BY_WORDS = (  # icevirt's code, words of the message, icechunk's class and code
    ("session-state", "nothing to commit", "", ErrorKind.NO_CHANGES_TO_COMMIT),
    ("session-state", "rearrange session only", "", ErrorKind.REARRANGE_SESSION_ONLY),
    ("session-state", "only be moved in a rearrange", "", ErrorKind.NON_REARRANGE_SESSION),
    ("session-state", "a fork cannot commit", "", ErrorKind.COMMIT_NOT_ALLOWED),
    ("session-state", "only forks of this session", "", ErrorKind.MERGE_NOT_ALLOWED),
    (
        "invalid-input",
        "moved into itself",
        "SessionStateError",
        ErrorKind.MOVE_INTO_SELF_OR_DESCENDANT,
    ),
    (
        "invalid-input",
        "destination group of a move",
        "SessionStateError",
        ErrorKind.MOVE_DESTINATION_PARENT_MISSING,
    ),
    (
        "invalid-input",
        "an array, not a group",
        "SessionStateError",
        ErrorKind.MOVE_DESTINATION_PARENT_NOT_GROUP,
    ),
    ("already-exists", "the destination already", "", ErrorKind.MOVE_WONT_OVERWRITE),
    ("invalid-input", "a diff needs a snapshot", "", ErrorKind.BAD_SNAPSHOT_CHAIN_FOR_DIFF),
    ("invalid-input", "not a URL", "", ErrorKind.INVALID_VIRTUAL_REF),
    ("read-only", "forked", "SessionStateError", ErrorKind.CANNOT_FORK_READ_ONLY_SESSION),
    ("session-state", "does not pickle", "", ErrorKind.NOT_ALLOWED),
    ("commit-conflict", "is not where it was expected", "", ErrorKind.BRANCH_UPDATE_CONFLICT),
    ("already-exists", "a branch of this name", "", ErrorKind.BRANCH_ALREADY_EXISTS),
    ("already-exists", "a tag of this name", "", ErrorKind.TAG_ALREADY_EXISTS),
    ("already-exists", "not a repository", "", ErrorKind.PARENT_DIRECTORY_NOT_CLEAN),
    ("already-exists", "", "", ErrorKind.NODE_ALREADY_EXISTS),
    ("read-only", "repository was made", "", ErrorKind.READ_ONLY_REPOSITORY),
    ("read-only", "store", "", ErrorKind.READ_ONLY_STORE),
    ("read-only", "", "", ErrorKind.READ_ONLY_SESSION),
    ("snapshot-not-found", "not a snapshot id", "InvalidInputError", ErrorKind.INVALID_SNAPSHOT_ID),
    ("snapshot-not-found", "before this time", "", ErrorKind.NO_SNAPSHOT_AT_TIME),
    (
        "invalid-input",
        "'main' cannot be del",
        "SessionStateError",
        ErrorKind.CANNOT_DELETE_MAIN,
    ),
    ("invalid-input", "not a valid key", "", ErrorKind.INVALID_KEY),
    ("invalid-input", "chunk grid|number of dimensions$", "", ErrorKind.INVALID_CHUNK_INDEX),
    ("invalid-input", "node path|name for a node", "", ErrorKind.INVALID_PATH),
    ("invalid-input", "no virtual chunk container", "", ErrorKind.NO_CONTAINER_FOR_VIRTUAL_CHUNK),
    ("invalid-input", "metadata", "", ErrorKind.BAD_METADATA),
    ("unauthorized", "", "", ErrorKind.UNAUTHORIZED_VIRTUAL_CHUNK_CONTAINER),
    ("stale-reference", "", "", ErrorKind.VIRTUAL_CHUNK_MODIFIED),
    ("storage", "", "", ErrorKind.OBJECT_STORE),
    ("format", "", "", ErrorKind.DESERIALIZATION),
)


def kind_of(code: str, what: str) -> tuple[str, str]:
    """Return how icechunk classifies an error.

    Args:
        code: icevirt's code.
        what: What the error says.

    Returns:
        The name of icechunk's class, "" for the one that has the name of icevirt's, and its code,
        which is icevirt's where icechunk has none for this.
    """
    for ours, words, name, theirs in _BY_WORDS:
        if ours == code and re.search(words, what):
            return name, theirs.value
    return "", code


WORDS: dict[str, str] = {
    ErrorKind.OBJECT_NOT_FOUND: "object not found",
    ErrorKind.NO_CONTAINER_FOR_VIRTUAL_CHUNK: "invalid chunk location",
    ErrorKind.NO_CHANGES_TO_COMMIT: "cannot commit, no changes made to the session",
    ErrorKind.REF_NOT_FOUND: "ref not found",
    ErrorKind.REPOSITORY_NOT_FOUND: "the repository doesn't exist",
    ErrorKind.READ_ONLY_REPOSITORY: "repository status is read-only",
    ErrorKind.COMMIT_NOT_ALLOWED: "commits are not allowed here",
    ErrorKind.CANNOT_FORK_READ_ONLY_SESSION: "cannot fork a read-only session",
    ErrorKind.INVALID_VIRTUAL_REF: "error parsing virtual ref URL",
    ErrorKind.MOVE_INTO_SELF_OR_DESCENDANT: "a node moves into itself or its own descendant",
    ErrorKind.MOVE_DESTINATION_PARENT_MISSING: "the destination's parent group is missing",
    ErrorKind.MOVE_WONT_OVERWRITE: "a move won't overwrite existing node",
    ErrorKind.VIRTUAL_CHUNK_MODIFIED: "the object of the virtual chunk has changed",
    ErrorKind.NODE_NOT_FOUND: "node not found",
    ErrorKind.BAD_SNAPSHOT_CHAIN_FOR_DIFF: "the snapshot chain doesn't include the start",
    ErrorKind.UNAUTHORIZED_VIRTUAL_CHUNK_CONTAINER: "virtual chunk not authorized",
    ErrorKind.BRANCH_UPDATE_CONFLICT: "branch update conflict",
    ErrorKind.CANNOT_DELETE_MAIN: "main branch cannot be deleted",
}
"""Words of icechunk's messages that programs look for, by code."""

ADVICE: dict[str, str] = {
    ErrorKind.NO_CONTAINER_FOR_VIRTUAL_CHUNK: "To add one, edit the repository configuration.",
}
"""The same, for what follows."""
