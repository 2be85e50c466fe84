"""Format text for people: builds, repositories, files and progress.

Nothing is computed or decided here.
"""
