"""Source objects: who may read them, and ranges of their bytes with the checksum enforced."""
