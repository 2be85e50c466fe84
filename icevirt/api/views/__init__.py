"""Look at datasets: `open` and `pages` are the ways in, `progress` shows a call that runs.

`catalog_view` reads what scans keep.
"""
