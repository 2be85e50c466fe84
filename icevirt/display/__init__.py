"""Format text for people: builds, repositories, files and progress."""
