"""Read repositories of the format generations before V1, and copy them into V2 repositories.

How their files are encoded is declared in `icevirt.wire.legacy`.
"""
