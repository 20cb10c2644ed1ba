"""What an `Optimizer` and a `Study` say of their candidates: the same, in the same words."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Any

from manyarms.campaign import insight, predictions
from manyarms.campaign.certificate import Certificate, certificate
from manyarms.campaign.insight import CrossValidated, Effect, Slice
from manyarms.campaign.ledger import Ledger
from manyarms.campaign.model import Campaign, Size
from manyarms.campaign.predictions import Best, Candidate, Predictions
from manyarms.campaign.trials import Trial
from manyarms.space.box import Box


class Answers(ABC):
    """Says what is known of the candidates, given the search as it is."""

    @abstractmethod
    def _now(self) -> AbstractContextManager[Campaign]:
        """The search as it is, its model made of all results."""

    @abstractmethod
    def _books(self) -> Ledger:
        """The books as they are, whatever a model has learned of them."""

    def best(self, level: float = 0.95) -> Best:
        """The best tried candidate as measured and as recommended, and why the two differ.

        Measured: the best mean of its values. Recommended: the largest lower bound, the lowest
        upper bound when minimising. They are the same where values are exact, and where no result
        of a table says yet that values have noise.

        Parameters
        ----------
        level : float
            Probability of the intervals.

        Returns
        -------
        Best
            Two candidates, with mean and interval each, and a sentence.

        Raises
        ------
        StateError
            No value was told yet.
        """
        with self._now() as campaign:
            return predictions.best(campaign, level)

    def top(self, k: int = 10, level: float = 0.95) -> list[Candidate]:
        """The k candidates, tried or not, of best posterior mean.

        Parameters
        ----------
        k : int
            How many.
        level : float
            Probability of the intervals.

        Returns
        -------
        list of Candidate
            The best first.
        """
        with self._now() as campaign:
            return predictions.top(campaign, k, level)

    def predict(self, ids: Any, level: float = 0.95) -> Predictions:
        """What is known of the true values of candidates, or of any points of a box.

        Parameters
        ----------
        ids : id or sequence of ids
            Of candidates; points of the box.
        level : float
            Probability of the intervals.

        Returns
        -------
        Predictions
            Posterior means, standard deviations and intervals.
        """
        with self._now() as campaign:
            return predictions.predict(campaign, ids, level)

    def predict_rows(self, table: Any, *, ids: Any = None, level: float = 0.95) -> Predictions:
        """What is known of candidates that are not in the pool. Nothing is added.

        Parameters
        ----------
        table : table
            One that `add` would take.
        ids : sequence, optional
            Of its rows.
        level : float
            Probability of the intervals.

        Returns
        -------
        Predictions
            Posterior means, standard deviations and intervals.
        """
        with self._now() as campaign:
            return predictions.predict_rows(campaign, table, ids, level)

    def certificate(self, tolerance: float | None = None) -> Certificate:
        """How much better than the recommended candidate another one may be, and how sure that is.

        Without a theorem it is what the model expects among candidates like those tried. No model
        can know of candidates that are unlike all of them.

        Over a box it is heuristic: the rival is the best point that the maximiser finds, and that
        may miss the maximum. A product of at most 4,096 combinations is looked at whole.

        Parameters
        ----------
        tolerance : float, optional
            A regret that would do.

        Returns
        -------
        Certificate
            The bound, whether it is within the tolerance, and what it rests on.
        """
        with self._now() as campaign:
            return certificate(campaign, tolerance)

    def left_out(self, level: float = 0.95) -> CrossValidated:
        """Every candidate that was tried, predicted from the results of all others: how far the
        model can be trusted.

        In closed form, with the kernel and the noise learned of all results; of the latest 2,000.

        Parameters
        ----------
        level : float
            Probability of the intervals, in which the mean of the values told should lie.

        Returns
        -------
        CrossValidated
            The predictions, the means of the values told, and how many values each has.
        """
        with self._now() as campaign:
            return insight.left_out(campaign, level)

    def effects(self, level: float = 0.95) -> dict[str, list[Effect]]:
        """What the levels of every column do: the average value of candidates if all had a level,
        all else being equal, less the mean of that over the levels.

        Parameters
        ----------
        level : float
            Probability of the intervals.

        Returns
        -------
        dict
            By column, the one with the largest difference first: an `Effect` for each level. Of a
            column with many numbers some are taken; of one with many categories the 64 with most
            results.
        """
        with self._now() as campaign:
            return insight.effects(campaign, level)

    def slice(self, x: str, y: str) -> Slice:
        """Posterior means over the levels of two columns, all else being as the recommended
        candidate has it.

        Parameters
        ----------
        x, y : str
            Two columns.

        Returns
        -------
        Slice
            The levels of both, and the means, a row for each level of `y`.
        """
        with self._now() as campaign:
            return insight.across(campaign, x, y)

    @property
    def importance(self) -> dict[str, float]:
        """One over the lengthscale of every column the kernel learns one for, largest first: what
        the values depend on most.

        Numbers among numbers and categories among categories: the two are lengths in different
        kernels.
        """
        with self._now() as campaign:
            return insight.importance(campaign)

    @property
    def policy(self) -> Any:
        """The policy at work, on standardised rewards: read it, but let `tell` teach it."""
        with self._now() as campaign:
            return campaign.model.policy

    @property
    def noise(self) -> float:
        """Standard deviation of the values of one good candidate, given or learned."""
        with self._now() as campaign:
            return campaign.model.noise / campaign.model.warp.slope

    @property
    def size(self) -> Size:
        """Results, inducing arms and effective dimension."""
        with self._now() as campaign:
            return campaign.model.size

    @property
    def history(self) -> list[Trial]:
        """Every result that counts, oldest first."""
        return self._books().history

    @property
    def direction(self) -> str:
        """ "maximize" or "minimize"."""
        return "maximize" if self._books().sign > 0 else "minimize"

    @property
    def pool(self) -> Any:
        """The candidates: the `Pool`, or the points of the box known so far."""
        return self._books().candidates

    @property
    def box(self) -> Box:
        """Where points come from."""
        box: Box = self.pool.box
        return box
