"""Provide what a Spark user calls on a session: ``import icevirt.spark``.

Functions need neither the JVM of a session nor its RDDs, so that Spark Connect will do. How builds
run their tasks on Spark is in `icevirt.execution`.
"""

from icevirt.errors import refuse_missing

with refuse_missing("icevirt.spark", extra="hdf5,spark"):
    from icevirt.spark.foreach_batch import FilesAppender, foreach_batch
    from icevirt.spark.shipping import Shipped, ship
    from icevirt.spark.tables import register, table
    from icevirt.spark.writing import WrittenReferences, write_references

__all__ = [
    "FilesAppender",
    "Shipped",
    "WrittenReferences",
    "foreach_batch",
    "register",
    "ship",
    "table",
    "write_references",
]
