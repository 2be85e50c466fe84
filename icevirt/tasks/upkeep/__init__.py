"""Read manifests, and delete chunks, for the upkeep of a repository, share by share."""
