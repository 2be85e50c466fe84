"""Run tasks: on Spark, in local processes, or in this process.

What they do is in `icevirt.tasks`.
"""
