"""What a run costs: how often each thing was done, and the seconds it took."""

from time import perf_counter
from types import TracebackType


class Stats:
    """Counts and seconds by name. `print(policy.stats)` shows them as a table."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.seconds: dict[str, float] = {}

    def count(self, name: str, n: int = 1) -> None:
        """Something was done n times."""
        self.counts[name] = self.counts.get(name, 0) + n

    def timed(self, name: str) -> "_Timer":
        """A context that counts once and adds its seconds."""
        return _Timer(self, name)

    def __str__(self) -> str:
        rows = (
            f"{name:<20}{n:>12,}{self.seconds.get(name, float('nan')):>12.3f}"
            for name, n in self.counts.items()
        )
        return "\n".join([f"{'':<20}{'times':>12}{'seconds':>12}", *rows]).replace("nan", "   ")


class _Timer:
    def __init__(self, stats: Stats, name: str) -> None:
        self._stats, self._name = stats, name

    def __enter__(self) -> None:
        self._start = perf_counter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stats.count(self._name)
        spent = perf_counter() - self._start
        self._stats.seconds[self._name] = self._stats.seconds.get(self._name, 0.0) + spent
