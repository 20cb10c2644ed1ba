"""Every system that the paper compares with, each on a page, with its paper and its guarantee, or lack of one."""

__all__: list[str] = []
