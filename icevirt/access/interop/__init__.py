"""Exchange references with other libraries: kerchunk, VirtualiZarr, Arrow."""
