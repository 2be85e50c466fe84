"""Why names of icechunk's are absent from `icevirt.icechunk`, or differ.

Keys are regular expressions over ``name`` or ``Class.attribute``; the first that matches counts.
"""

HEAD = """# icechunk's names in icevirt.icechunk

Every public name of icechunk {version} is compared: parameters by their names, attributes of every
class. `docs/make_api_table.py` writes this part, and a test fails when it is out of date.

{counts}. What is absent or differs stands here with the reason.
"""

PARAMETERS: dict[str, str] = {}
"""Parameters that are absent wherever icechunk has them."""

BY_KEYWORD = "`{}` by keyword only"

RETURNED = {
    "AncestryGraph",
    "ConflictType",
    "Diff",
    "FeatureFlag",
    "ForkSession",
    "GCSummary",
    "IcechunkStore",
    "ManifestFileInfo",
    "ManifestPreloadCondition",
    "ManifestSplitCondition",
    "ObjectStoreConfig",
    "Repository",
    "Session",
    "SnapshotInfo",
    "Storage",
    "Update",
}
"""Classes whose objects calls return; nobody makes them, so that constructors are not compared."""

RENAMED: dict[str, tuple[str, str]] = {
    r"AzureRefreshableCredential\.\w+\.(key|token|bearer)": ("value", ""),
    r"GcsBearerCredential\.bearer": ("value", ""),
}

DIFFERS = {
    r"ManifestSplitDimCondition\.Axis": "`_0` has the name `axis`; programs give it by position",
    r"ManifestSplitDimCondition\.DimensionName": (
        "`_0` has the name `regex`; programs give it by position"
    ),
    r"ManifestSplittingConfig\.to_dict": "`config` is the object itself",
    r"AzureRefreshableCredential\.\w+": (
        "`key`, `token` and `bearer` have the name `value`; programs give them by position"
    ),
}

ABSENT = {
    r"\w+Credentials\.Refreshable\.(current|pickled_function)": (
        "of the Rust type; the function stays a function of Python"
    ),
    r"Manifest(Preload|Split)Condition\.(And|Or|True|False|NameMatches|PathMatches|NumRefs)": (
        "a case of the Rust type; the functions with lower-case names make it"
    ),
    r"ManifestSplitCondition\.AnyArray\.\w+": "of the class, not of its case",
    r"RepositoryConfig\.previous_file": "of the Rust client's own making; it stays in the document",
    r"xarray\.is_dask_collection": "dask's own",
}
