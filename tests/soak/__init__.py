"""What must never happen to a study, tried many times: kills, crowds of writers, damaged files, full and failing disks.

Each module is a script (``python -m soak.kills --help`` in this directory) and a function that tests call with smaller numbers.
"""
