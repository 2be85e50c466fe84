"""Every parser of VirtualiZarr as a scanner, for formats that icevirt has none for."""
