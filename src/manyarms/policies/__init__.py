"""Policies: what to pull next. Each has `choose`, `observe`, `predict`, `scores`."""
