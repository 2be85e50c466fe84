"""Read, change and upgrade repositories of the Icechunk V1 format."""
