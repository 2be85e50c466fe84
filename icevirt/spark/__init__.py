"""Provide what a Spark user calls on a session: ``import icevirt.spark``.

Functions need neither the JVM of a session nor its RDDs, so that Spark Connect will do. How builds
run their tasks on Spark is in `icevirt.execution`.
"""

from icevirt.spark.file_registration import register_file_stream
from icevirt.spark.foreach_batch import FilesAppender, foreach_batch
from icevirt.spark.shipping import Shipped, ship

__all__ = ["FilesAppender", "Shipped", "foreach_batch", "register_file_stream", "ship"]
