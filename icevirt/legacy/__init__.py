"""Read repositories of the format generations before V1, and copy them into V2 repositories."""
