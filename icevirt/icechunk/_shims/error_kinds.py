"""The codes of icechunk's errors, and which of ours have them."""

from __future__ import annotations

from enum import StrEnum

from icevirt import errors

__all__ = ["KINDS", "ErrorKind", "classify"]


class ErrorKind(StrEnum):
    """Codes of icechunk's errors."""

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


_K = ErrorKind
KINDS: dict[type[errors.IcevirtError], tuple[str, ErrorKind]] = {
    errors.IcevirtError: ("IcechunkError", _K.UNKNOWN),
    # invalid input
    errors.InvalidInputError: ("InvalidInputError", _K.UNKNOWN),
    errors.NothingListedError: ("InvalidInputError", _K.UNKNOWN),
    errors.ArgumentError: ("InvalidInputError", _K.UNKNOWN),
    errors.NaiveTimeError: ("InvalidInputError", _K.UNKNOWN),
    errors.RefNameError: ("InvalidInputError", _K.INVALID_REF_NAME),
    errors.InvalidKeyError: ("InvalidInputError", _K.INVALID_KEY),
    errors.InvalidPathError: ("InvalidInputError", _K.INVALID_PATH),
    errors.ChunkIndexError: ("InvalidInputError", _K.INVALID_CHUNK_INDEX),
    errors.ZeroLengthError: ("InvalidInputError", _K.ZERO_LENGTH_CHUNK),
    errors.MetadataError: ("InvalidInputError", _K.BAD_METADATA),
    errors.NotAnArrayError: ("InvalidInputError", _K.NOT_AN_ARRAY),
    errors.LocationError: ("InvalidInputError", _K.INVALID_VIRTUAL_REF),
    errors.NoContainerError: ("InvalidInputError", _K.NO_CONTAINER_FOR_VIRTUAL_CHUNK),
    errors.UnauthorizedError: ("InvalidInputError", _K.UNAUTHORIZED_VIRTUAL_CHUNK_CONTAINER),
    errors.DiffOrderError: ("InvalidInputError", _K.BAD_SNAPSHOT_CHAIN_FOR_DIFF),
    errors.EmptyPrefixError: ("InvalidInputError", _K.EMPTY_PREFIX_CREATION),
    errors.FeatureNameError: ("InvalidInputError", _K.INVALID_FEATURE_FLAG),
    errors.InvalidSnapshotIdError: ("InvalidInputError", _K.INVALID_SNAPSHOT_ID),
    errors.NotEmptyError: ("InvalidInputError", _K.PARENT_DIRECTORY_NOT_CLEAN),
    # not found
    errors.NotFoundError: ("NotFoundError", _K.KEY_NOT_FOUND),
    errors.NodeNotFoundError: ("NodeNotFoundError", _K.NODE_NOT_FOUND),
    errors.RefNotFoundError: ("RefNotFoundError", _K.REF_NOT_FOUND),
    errors.BranchGoneError: ("RefNotFoundError", _K.BRANCH_NOT_FOUND),
    errors.RepositoryNotFoundError: ("RepositoryNotFoundError", _K.REPOSITORY_NOT_FOUND),
    errors.SnapshotNotFoundError: ("SnapshotNotFoundError", _K.SNAPSHOT_NOT_FOUND),
    errors.NoSnapshotAtTimeError: ("SnapshotNotFoundError", _K.NO_SNAPSHOT_AT_TIME),
    # already exists
    errors.AlreadyExistsError: ("AlreadyExistsError", _K.NODE_ALREADY_EXISTS),
    errors.BranchExistsError: ("AlreadyExistsError", _K.BRANCH_ALREADY_EXISTS),
    errors.TagExistsError: ("AlreadyExistsError", _K.TAG_ALREADY_EXISTS),
    errors.TagDeletedError: ("AlreadyExistsError", _K.TAG_PREVIOUSLY_DELETED),
    errors.DestinationExistsError: ("AlreadyExistsError", _K.MOVE_WONT_OVERWRITE),
    # conflicts
    errors.ConflictError: ("ConflictError", _K.COMMIT_CONFLICT),
    errors.BranchMovedError: ("ConflictError", _K.BRANCH_UPDATE_CONFLICT),
    errors.TooManyWritersError: ("ConflictError", _K.UPDATE_ATTEMPTS_EXHAUSTED),
    errors.RebaseFailedError: ("RebaseFailedError", _K.REBASE_FAILED),
    # read-only
    errors.ReadOnlyError: ("ReadOnlyError", _K.READ_ONLY_SESSION),
    errors.ReadOnlyStoreError: ("ReadOnlyError", _K.READ_ONLY_STORE),
    errors.ReadOnlyRepositoryError: ("ReadOnlyError", _K.READ_ONLY_REPOSITORY),
    errors.ReadOnlyStorageError: ("ReadOnlyError", _K.READ_ONLY_STORAGE),
    # states of a session
    errors.SessionStateError: ("SessionStateError", _K.NOT_ALLOWED),
    errors.NotPickledError: ("SessionStateError", _K.NOT_ALLOWED),
    errors.ZarrV2KeyError: ("SessionStateError", _K.UNIMPLEMENTED),
    errors.AlreadyUpgradedError: ("SessionStateError", _K.INVALID_REPOSITORY_MIGRATION),
    errors.FinishedSessionError: ("SessionStateError", _K.COMMIT_NOT_ALLOWED),
    errors.CommitRefusedError: ("SessionStateError", _K.COMMIT_NOT_ALLOWED),
    errors.MergeRefusedError: ("SessionStateError", _K.MERGE_NOT_ALLOWED),
    errors.ReadOnlyForkError: ("SessionStateError", _K.CANNOT_FORK_READ_ONLY_SESSION),
    errors.NothingToCommitError: ("SessionStateError", _K.NO_CHANGES_TO_COMMIT),
    errors.InitialAmendError: ("SessionStateError", _K.NO_AMEND_FOR_INITIAL_COMMIT),
    errors.RearrangingError: ("SessionStateError", _K.REARRANGE_SESSION_ONLY),
    errors.NotRearrangingError: ("SessionStateError", _K.NON_REARRANGE_SESSION),
    errors.MainBranchError: ("SessionStateError", _K.CANNOT_DELETE_MAIN),
    errors.FeatureDisabledError: ("SessionStateError", _K.FEATURE_FLAG_DISABLED),
    errors.MoveIntoItselfError: ("SessionStateError", _K.MOVE_INTO_SELF_OR_DESCENDANT),
    errors.MoveParentMissingError: ("SessionStateError", _K.MOVE_DESTINATION_PARENT_MISSING),
    errors.MoveParentNotGroupError: ("SessionStateError", _K.MOVE_DESTINATION_PARENT_NOT_GROUP),
    # storage
    errors.StorageError: ("StorageError", _K.OBJECT_STORE),
    errors.RedirectError: ("StorageError", _K.BAD_REDIRECT),
    errors.NoBucketError: ("StorageError", _K.OBJECT_STORE),
    errors.NotListableError: ("StorageError", _K.OBJECT_STORE),
    errors.ObjectNotFoundError: ("StorageError", _K.OBJECT_NOT_FOUND),
    errors.NoSnapshotFileError: ("StorageError", _K.OBJECT_NOT_FOUND),
    errors.NoManifestFileError: ("StorageError", _K.OBJECT_NOT_FOUND),
    errors.StaleReferenceError: ("StorageError", _K.VIRTUAL_CHUNK_MODIFIED),
    errors.ShortSourceError: ("StorageError", _K.INVALID_OBJECT_SIZE),
    # format
    errors.FormatError: ("FormatError", _K.INVALID_FILE_FORMAT),
    errors.SpecVersionError: ("FormatError", _K.UNSUPPORTED_SPEC_VERSION),
    errors.ConfigurationError: ("FormatError", _K.CONFIG_DESERIALIZATION),
    errors.ClockError: ("FormatError", _K.SNAPSHOT_TIMESTAMP),
    # what icechunk does not do: scans and builds
    errors.ScanError: ("IcechunkError", _K.UNKNOWN),
    errors.UnsupportedError: ("IcechunkError", _K.UNKNOWN),
    errors.ScanCrashError: ("IcechunkError", _K.UNKNOWN),
    errors.ScanTimeoutError: ("IcechunkError", _K.UNKNOWN),
    errors.ScanMemoryError: ("IcechunkError", _K.UNKNOWN),
    errors.CombineError: ("IcechunkError", _K.UNKNOWN),
    errors.OverlapError: ("IcechunkError", _K.UNKNOWN),
    errors.BuildError: ("IcechunkError", _K.UNKNOWN),
    errors.MissingPackageError: ("IcechunkError", _K.UNKNOWN),
    errors.SparkJobError: ("IcechunkError", _K.UNKNOWN),
    errors.JobsCancelledError: ("IcechunkError", _K.UNKNOWN),
    errors.ExecutorError: ("IcechunkError", _K.UNKNOWN),
    errors.SourcesChangedError: ("IcechunkError", _K.UNKNOWN),
    errors.PlanChangedError: ("IcechunkError", _K.UNKNOWN),
    errors.VerificationError: ("IcechunkError", _K.UNKNOWN),
}
"""icechunk's class, by name, and code of each error of icevirt's; a test finds those left out."""


def classify(ours: type[errors.IcevirtError]) -> tuple[str, ErrorKind]:
    """Return the name of icechunk's class, and the code, of an error of icevirt's."""
    return next(KINDS[each] for each in ours.__mro__ if each in KINDS)


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
