"""References exchanged with other libraries: kerchunk, VirtualiZarr, Arrow."""
