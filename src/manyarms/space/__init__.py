"""A user's table: how it is read, what its columns are, how candidates are found by their ids."""
