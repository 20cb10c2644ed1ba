"""What the process may use, and what may interrupt it: memory, cores, signals, other processes."""
