"""The root of a repository: get, put, conditional put, list and delete, on each kind of storage.

Source files are read in `icevirt.objects`.
"""
