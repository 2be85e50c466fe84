"""Virtual datasets: what they map, from which files, and as which references."""
