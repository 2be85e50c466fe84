"""Read repositories of the format generations before V1, and copy them into V2 repositories.

`generations` declares how their files are encoded, `decode` walks these declarations. The core
finds this room by the entry point group ``icevirt.formats`` and imports nothing of it.
"""
