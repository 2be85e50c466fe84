"""Run any VirtualiZarr parser as a scanner, for formats that icevirt cannot scan itself."""
