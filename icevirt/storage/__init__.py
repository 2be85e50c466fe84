"""Store a repository's objects: get, put, conditional put, list and delete, on every backend."""
