"""Storages of a test, by the name of a client and of a repository."""


def storages(kind, tmp_path, strict_s3):
    """Return what makes a storage of a client by a name, the same one each time."""

    def make(ice):
        made = {}

        def storage(name):
            path = f"{ice.__name__}/{name}"
            if kind == "disk":
                return ice.local_filesystem_storage(str(tmp_path / path))
            if kind == "memory":
                return made.setdefault(name, ice.in_memory_storage())
            return ice.s3_storage(**{**strict_s3.place.options, "prefix": path})

        return storage

    return make
