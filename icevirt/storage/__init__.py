"""A repository's root: get, put, conditional put, list and delete, on each kind of storage."""
