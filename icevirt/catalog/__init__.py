"""Read and write the Parquet tables of a scan: tasks write them, plans read them.

Never imports PySpark.
"""
