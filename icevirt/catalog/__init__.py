"""The Parquet tables that a scan leaves behind: written by tasks, read by plans.

Never imports PySpark.
"""
