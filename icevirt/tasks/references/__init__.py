"""Write references that a table holds: rows are sorted into blocks, blocks become manifests."""
