"""Every threshold of the search for the best arm. Choices do not depend on any of them; time and
memory do."""

from dataclasses import dataclass

from manyarms.checks import whole
from manyarms.errors import ParameterError, shortened


@dataclass(frozen=True)
class Tuning:
    """Keyword `tuning=` of a policy.

    Parameters
    ----------
    shortlist : int
        Arms that a list begins with, where embeddings of all arms are not kept.
    rough : int
        Inducing rows up to which embeddings of all arms are kept where they fit `memory`. With
        more rows, a table of many arms has bounds and a list: then a pass over all arms costs O(m)
        an arm and not O(m²).
    quick : int
        Products n·m² that take so little time (.1 s) that embeddings of all arms are kept in any
        case where they fit.
    device : str, optional
        Where passes over all arms of a table are computed, as PyTorch names it: "cuda", "cuda:1"
        (extra `torch`).
    """

    shortlist: int = 1024
    rough: int = 128
    quick: int = 1 << 31
    device: str | None = None

    def __post_init__(self) -> None:
        whole(self.shortlist, "shortlist")
        whole(self.rough, "rough", at_least=0)
        whole(self.quick, "quick", at_least=0)
        if not (self.device is None or isinstance(self.device, str)):
            raise ParameterError(
                f"device must be a name such as 'cuda', or None, got {shortened(self.device)}"
            )
