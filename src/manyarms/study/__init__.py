"""Durable studies: an event log in SQLite or PostgreSQL, and the state it stands for."""

from manyarms.study.events import Event
from manyarms.study.replica import Lease
from manyarms.study.study import Study

__all__ = ["Event", "Lease", "Study"]
