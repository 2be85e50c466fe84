"""Text for people: what was built, what a repository holds, what a file holds, how far it is."""
