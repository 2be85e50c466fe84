"""Store variables in the repository, now and each time when their dataset is made anew."""
