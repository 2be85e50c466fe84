"""Write self-contained HTML pages about plans, builds and repositories.

Nothing here is to be imported from outside: see `icevirt.to_html`.
"""
