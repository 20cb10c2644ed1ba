"""Every threshold of the search for the best arm. Choices do not depend on any of them; time and
memory do."""

from dataclasses import dataclass

from manyarms.numbers import real, whole


@dataclass(frozen=True)
class Tuning:
    """Keyword `tuning=` of a policy.

    Parameters
    ----------
    dense : int
        Arms up to which the scores of all arms are brought forward at every observation. Beyond
        that most arms are passed over by bounds. Measured with `benchmarks/core.py`: below some ten
        thousand arms a pass costs less than the lists.
    shortlist : int
        Arms on the last list, which are brought forward at every observation.
    share : float
        A list has at most this part of the arms it was made from.
    rough : int
        Inducing rows beyond which a pass over all arms that would compute everything anew computes
        upper bounds of the variances instead, in O(m) an arm and not O(m²).
    """

    dense: int = 32_768
    shortlist: int = 1024
    share: float = 1 / 16
    rough: int = 128

    def __post_init__(self) -> None:
        whole(self.dense, "dense", at_least=0)
        whole(self.shortlist, "shortlist")
        whole(self.rough, "rough", at_least=0)
        real(self.share, "share", "a fraction between 0 and 1", above=0, below=1)
