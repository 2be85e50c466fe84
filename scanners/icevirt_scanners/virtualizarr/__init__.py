"""Run any VirtualiZarr parser as a scanner, for formats that icevirt cannot scan itself.

Exchange of virtual datasets is `icevirt.access.virtualizarr`.
"""
