"""Scan DMR++: documents of NASA's archives that say where the chunks of a file lie."""
