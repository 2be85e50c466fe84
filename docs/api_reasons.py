"""Why names of icechunk's are absent from icevirt, have another name, or differ.

Keys are regular expressions over ``name`` or ``Class.attribute``; the first that matches counts.
"""

HEAD = """# icechunk's names in icevirt

For programs written for icechunk there is `import icevirt.icechunk as icechunk`
([how](icechunk-programs.md)), which has icechunk's names and behavior. `icevirt` itself goes by
what follows. This page compares every public name of icechunk {version} with it: parameters by
their names, attributes of every class. It is made by `docs/make_api_table.py`, and a test fails
when it is out of date.

{counts}.

Three differences hold everywhere. There are no `_async` twins: the store is asynchronous where
zarr wants it, and everything else is quick or belongs in a thread. What failed is raised, not
returned in a list. And there is no telemetry.
"""

_MEMORY = "memory and concurrency are bounded already: one manifest at a time"
_HEADERS = "headers are not set per request; options of the client go into `config` or the store"

PARAMETERS = {
    "attribution": "`attribution` is telemetry",
    "storage_settings": "`storage_settings` belong to the storage",
    "max_snapshots_in_memory": _MEMORY,
    "max_compressed_manifest_mem_bytes": _MEMORY,
    "max_decoded_manifest_mem_bytes": _MEMORY,
    "max_concurrent_manifest_fetches": _MEMORY,
    "max_concurrent_deletes": _MEMORY,
    "max_concurrent_listings": _MEMORY,
    "max_consecutive_delete_failures": (
        "deletions that the storage refused are raised once, with their number and reasons"
    ),
    "spec_version": "2 unless `spec_version=1` is given",
    "create_version": "new repositories are V2",
    "validate_container": "a location without a container is always refused",
    "validate_containers": "a location without a container is always refused, and not returned",
    "headers": _HEADERS,
    "read_headers": _HEADERS,
    "write_headers": _HEADERS,
    "legacy_rooted_keys": (
        "repositories at keys with a leading `/` are found and named, but not read"
    ),
}
"""Parameters that are absent wherever icechunk has them."""

BY_KEYWORD = "`{}` by keyword only"

RETURNED = {
    "AncestryGraph",
    "ConflictType",
    "FeatureFlag",
    "ForkSession",
    "GCSummary",
    "ManifestFileInfo",
    "Repository",
    "Session",
    "SnapshotInfo",
    "Update",
}
"""Classes whose objects calls return; nobody makes them, so that constructors are not compared."""

RENAMED = {
    "IcechunkStore": ("IcevirtStore", ""),
    "IcechunkError": ("IcevirtError", "the root of every error of the package"),
    r"\w+Error\.kind": ("code", "stable, one for each class"),
    r"\w+Error\.message": ("what", "`str(error)` says it with values and what to do"),
    r"AzureRefreshableCredential\.\w+\.(key|token|bearer)": ("value", ""),
}

DIFFERS = {
    r"Repository\.garbage_collect": "the age is seven days unless given",
    r"Repository\.(spec_version|fetch_spec_version)": "a number, 1 or 2",
    r"Repository\.storage": "icevirt's object, with a `url`",
    r"Repository\.default_commit_metadata": "a copy, so that changing it changes nothing",
    r"(Fork)?Session\.chunk_coordinates": (
        "returns all at once as an array of shape (n, ndim), without `batch_size`"
    ),
    r"(Fork)?Session\.all_virtual_chunk_locations": "each location once, sorted",
    r"(Fork)?Session\.store": "an `IcevirtStore`",
    "IcechunkStore": "made over a `session`; `store` is the Rust object of icechunk's",
    r"IcechunkStore\.set_virtual_refs(_arr)?": "returns nothing: what cannot be stored is an error",
    "RepositoryConfig": "its sections are frozen: assign a new one to change something",
    r"RepositoryConfig\.virtual_chunk_containers": "empty where icechunk says None",
    r"Diff\.updated_chunks": "arrays of shape (n, ndim)",
    r"Diff\.moved_nodes": "a tuple",
    "Conflict": "takes its values by keyword",
    r"Conflict\.conflicted_chunks": "an array of shape (n, ndim)",
    "NotFoundError": "no `KeyError`, which zarr takes for a chunk that was never written",
    "InvalidInputError": "a `ValueError` too, as there",
    "ObjectStoreConfig": "a `kind` and its `options`; `s3_store` and its like make them",
    "Manifest(Preload|Split)Condition": "its functions make it, from `kind` and so on",
    r"ManifestSplitDimCondition\.Axis": "`_0` has the name `axis`",
    r"ManifestSplitDimCondition\.DimensionName": "`_0` has the name `regex`",
    "ManifestSplittingConfig": "`split_sizes` has to be given",
    r"ManifestSplittingConfig\.to_dict": "`config` is the object itself",
    "UpdateType": "a namespace: its kinds are no subclasses of it",
    r"AzureRefreshableCredential\.\w+": "`key`, `token` and `bearer` have the name `value`",
    "GcsBearerCredential": "`bearer` has the name `value`",
}

ABSENT = {
    r"(\w+\.)*\w+_async|Repository\.async_ancestry": "no `_async` twins",
    "Attribution|Repository\\.attribution|user_agent": "telemetry",
    "initialize_logs|set_logs_filter|shutdown_telemetry": "telemetry; icevirt logs nothing",
    r"Repository\.total_chunks_storage": "deprecated there: `chunk_storage_stats().native_bytes`",
    r"IcechunkStore\.set_partial_values": "no format can do it, and icechunk's raises",
    r"RepositoryConfig\.previous_file": "of icechunk's own making; it stays in the document",
    "Any\\w+": "an annotation; arguments say what they take",
    r"(S3|Gcs|Azure)(Static)?Credentials|Credentials": (
        "a namespace; the functions with lower-case names, `s3_credentials` and so on, make them"
    ),
    "GcsBearerCredential\\.bearer": "`value`",
    "ChecksumAlgorithm": "a word, such as 'SHA256'",
    "CommitMethod": "an annotation; 'new_commit' or 'amend'",
    "ErrorKind": "`error.code` is that of its class, and `error.facts` has the values",
    "InternalError": "unexpected errors are Python's own, with their traceback",
    r"GCSummary\.attributes_deleted": "the format has no files of attributes",
    r"GCSummary\.(delete_errors|objects_failed_to_delete|skipped_phases|throttled_batches)": (
        "failures are raised, with these facts"
    ),
    r"Manifest(Preload|Split)Condition\.(And|Or|True|False|NameMatches|PathMatches|NumRefs)": (
        "a case of the Rust type; the functions with lower-case names make it"
    ),
    r"ManifestSplitCondition\.AnyArray\.\w+": "of the class, not of its case",
    r"ObjectStoreConfig\.\w+": "`s3_store`, `gcs_store` and so on make them",
    "S3Options": "keyword arguments of `s3_store` and `s3_storage`",
    "SpecVersion|spec_version|supported_spec_versions": "numbers: 1 and 2, see `repo.spec_version`",
    "Storage": "the functions `s3_storage` and so on make one",
    "hf_storage": "not tried yet on a real server",
    "redirect_storage": "open the storage that it leads to by its own URL",
    "print_debug_info": "`pip list` says the same",
    r"xarray\.is_dask_collection": "dask's own",
    r"dask\.\w+": "`icevirt.dask.store_dask` forks the session, and merges what workers wrote",
    r"distributed\.\w+": "`session.merge(*forks)`",
}
