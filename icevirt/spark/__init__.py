"""Provide what a Spark user calls on a session: ``import icevirt.spark``.

Functions need neither the JVM of a session nor its RDDs, so that Spark Connect will do. How builds
run their tasks on Spark is in `icevirt.execution`.
"""

from icevirt.spark.shipping import Shipped, ship

__all__ = ["Shipped", "ship"]
