"""Read ranges of source objects, with access control and the checksum enforced."""
