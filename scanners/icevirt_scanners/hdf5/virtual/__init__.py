"""Resolve virtual datasets: what they map, from which files, and to which references."""
