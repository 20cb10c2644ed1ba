"""The radius of the scores, and the evidence that it is a function of: of policies over tables and over domains."""

from typing import Protocol

from manyarms.numbers import real
from manyarms.sketch.confidence import Evidence, Radius
from manyarms.sketch.history import History


class State(Protocol):
    """The value a policy replaces as a whole when it observes."""

    @property
    def history(self) -> History: ...
    @property
    def evidence(self) -> Evidence: ...


class Confident:
    """What has a radius and a state."""

    confidence: Radius
    _state: State

    @property
    def beta(self) -> float:
        """β̃, the radius of the scores now."""
        return self._radius(self._state.evidence)

    def _radius(self, evidence: Evidence) -> float:
        return real(self.confidence(evidence), "what confidence returns", "a finite non-negative radius", at_least=0)

    @property
    def evidence(self) -> Evidence:
        """What the radius is a function of, now; `evidence.norm` is the current guess of ‖f‖ where it is doubled."""
        return self._state.evidence

    @property
    def effective_dimension(self) -> float:
        """d̃ = Σ_s σ̃²(x_s) over the pulls, the policy's estimate of Tr K(K + λI)⁻¹."""
        return self._state.evidence.effective_dimension
