"""Shared settings: hypothesis runs the same examples everywhere."""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("repeatable")
