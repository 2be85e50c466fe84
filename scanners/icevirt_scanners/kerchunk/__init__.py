"""The scanner for kerchunk's references: JSON of versions 0 and 1, and parquet directories."""
