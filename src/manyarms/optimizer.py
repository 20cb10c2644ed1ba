"""Ask and tell over a pool of candidates or a box, with nothing to tune."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

from manyarms.campaign.answers import Answers
from manyarms.campaign.ledger import Ledger, as_corrections
from manyarms.campaign.model import Campaign
from manyarms.campaign.prior import as_prior, with_prior
from manyarms.campaign.proposing import as_rule, propose
from manyarms.campaign.settings import Direction, Goal, Settings, as_given
from manyarms.campaign.trials import CandidateId
from manyarms.checks import MOST_AT_ONCE, whole
from manyarms.engine.confidence import Radius
from manyarms.space.points import as_space
from manyarms.typing import Seed


class Optimizer(Answers):
    """Says which candidates of a pool, or points of a box, to try next, and what is known of them.

    A point of a box is a dict of its columns, or a tuple of numbers where the box has no names.
    The first four candidates are drawn at random, unless there is a prior; over a box the first
    eight. A point that is pending is asked for again only where no other is found. One that failed
    counts as bad as the worst value told when the next is chosen, so that what is like it is left
    alone; over a box it counts as the lower bound of its prediction, unless several that failed
    are nearer than any value. Predictions do not use it, and over a pool it counts for nothing
    where kernel and noise are given. `top` is of the points told or asked for; over a product of
    levels, of others too that a search around them finds. A run over another box that stalls
    searches elsewhere for a while, unless kernel and noise are given.

    Parameters
    ----------
    pool : Pool, path, table, array_like or Box
        A `Pool`, the path of a .csv or .parquet file, anything `Pool.from_frame` or
        `Pool.from_array` takes, objects where the kernel is one of objects, or a `Box`.
    direction : str
        "maximize" or "minimize" the values told.
    goal : str, optional
        "find" the best candidate by the end, or "earn": values as good as possible on the way.
        Where None it is "find", and "earn" where kernel and noise are given. Over a box both do the
        same.
    kernel : str, Kernel or callable, optional
        "matern" (None means that) learns a lengthscale for each column: Matérn-5/2 on numeric
        ones, a Hamming kernel on categories, Tanimoto on bits; "rbf" has the Gaussian kernel for
        Matérn's. "tanimoto" and "linear" on all columns, a kernel object or a function of two
        blocks of encoded rows: only the scale is learned.
    noise : float, optional
        Standard deviation of the values of one candidate; learned where None, 0 where values are
        exact. With a kernel object *and* a noise nothing is learned and the kernel is taken in the
        units of the values: only then may a theorem cover what `certificate` says.
    confidence : Radius, optional
        Radius of the scores. Where None it is `Constant(2.0)`, and to find the best one of a pool
        about 3·n^(2/3) of n suggestions are of candidates never tried, by `Growing(1.5)`. Where
        kernel and noise of a pool are given, or another policy, it is `Growing(1.3, most=3.0)`
        alone.
    repeats : str or int
        "allow" asks for a candidate again where that pays, "never" does not, k asks at most k
        times. With "never" values count as exact unless a noise is given.
    bounds : tuple of two floats, optional
        The least and the largest true value, None where there is none, such as (0, 100) for
        yields. Predictions and intervals of true values stay inside; values told need not.
    policy : callable, optional
        `BKB` where None, `GPUCB`, or another with their arguments; over a box `DomainBKB`, or
        another with its arguments.
    prior : Optimizer, Study or tuple, optional
        Results of another, similar table with the same columns; or a tuple of such a table and its
        values. The first four candidates are then some of which these results make one expect
        most, and how far to trust them is learned with the kernel, which must be "matern" or "rbf".
        A prior of an `Optimizer` or a `Study` is good where that one finds its values good. For
        tables only.
    seed : int or numpy.random.Generator
        For the random start and the sketch.
    **options
        Further arguments of the policy, such as ``memory="2 GB"``, ``rule=`` or, over
        a box, ``maximiser=``.

    Raises
    ------
    ParameterError
        A setting is out of its range.
    ArmsError
        The candidates cannot be used.
    """

    def __init__(
        self,
        pool: Any,
        *,
        direction: Direction = "maximize",
        goal: Goal | None = None,
        kernel: Any = None,
        noise: float | None = None,
        confidence: Radius | None = None,
        repeats: Literal["allow", "never"] | int = "allow",
        bounds: tuple[float | None, float | None] | None = None,
        policy: Callable[..., Any] | None = None,
        prior: Any = None,
        seed: Seed = 0,
        **options: Any,
    ) -> None:
        arguments = {
            "direction": direction,
            "goal": goal,
            "kernel": kernel,
            "noise": noise,
            "confidence": confidence,
            "repeats": repeats,
            "bounds": bounds,
            "policy": policy,
            "seed": seed,
            **options,
        }
        space = as_space(pool, kernel)
        if prior is not None:
            space = with_prior(space, as_prior(prior, space, direction), kernel)
        settings = Settings.of(space, as_given(arguments))
        self._state = Campaign.begun(space, settings).with_results()

    # What comes next

    def ask(
        self,
        n: int = 1,
        *,
        where: Any = None,
        same: str | Sequence[str] | None = None,
        max_new: dict[str, int] | None = None,
        most_each: int | None = None,
    ) -> list[CandidateId]:
        """Candidates to try. They are pending until told or released.

        Parameters
        ----------
        n : int
            How many.
        where : str or array of bool, optional
            Only candidates that meet a condition, such as ``"temperature == 80"`` (see
            `Pool.where`), or for which there is a True.
        same : str or sequence of str, optional
            Columns that have one level in the whole batch. A batch is made for every level; the one
            of largest sum of upper bounds is taken, each bound with the candidates before it
            supposed tried.
        max_new : dict, optional
            Columns, and how many different levels of each the batch may have at most.
        most_each : int, optional
            How often one candidate may be in the batch at most.

        Returns
        -------
        list
            Their ids, fewer where `repeats` leaves fewer.

        Raises
        ------
        StateError
            No candidate is left.
        """
        n = whole(n, "n", at_most=MOST_AT_ONCE)
        ledger = self._state.ledger
        rule = as_rule(ledger.candidates, where, same, max_new, most_each)
        after = propose(self._state, n, rule)
        self._state = self._state.knowing(after)
        return after.names(after.waiting[len(ledger.pending) :])

    def release(self, ids: Any) -> None:
        """These candidates are not being tried after all.

        Parameters
        ----------
        ids : id or sequence of ids
            Of candidates that are pending.
        """
        ledger = self._state.ledger
        positions = ledger.candidates.positions(ids)
        ledger.check_pending(positions)  # releasing what is not pending is likely a mistake
        self._state = self._state.knowing(ledger.released(positions))

    @property
    def pending(self) -> list[CandidateId]:
        """Asked, and neither told nor released."""
        ledger = self._state.ledger
        return ledger.names(ledger.waiting)

    # What came back

    def tell(self, ids: Any, values: Any = None, *, failed: Any = None, noise: Any = None) -> None:
        """Learn the values of candidates, asked for or not, in any order.

        A failed candidate is not asked for again unless a value of it is told later. Predictions
        do not use it; the next choice does. On an error nothing has changed.

        Parameters
        ----------
        ids : id or sequence of ids
            A repeated id is a replicate.
        values : float or sequence, optional
            A value may be `FAILED`.
        failed : bool or sequence of bool, optional
            Says of all or some of the ids that they failed, instead of a value.
        noise : float or sequence, optional
            The standard deviation of these values where it is known, one number or one each (None:
            that of all others): a value then weighs by its own noise, in what is learned of the
            kernel too. A standard error of a mean is such a noise.

        Raises
        ------
        ObservationError
            A value is no finite number.
        UnknownArmError
            An id names no candidate.
        """
        self._state = self._state.told(ids, values, failed, noise)

    def correct(self, ids: Any, values: Any, *, noise: Any = None) -> None:
        """Results were told wrongly: they have other values.

        The model learns all results anew, from nothing, so the wrong values leave no trace.

        Parameters
        ----------
        ids : id, Trial or sequence of these
            An id is enough where the candidate has one result. Of several, the `Trial` of `history`
            says which is meant.
        values : float, FAILED, None or sequence of these
            What came out. None takes the result back: nothing came out.
        noise : float or sequence, optional
            The standard deviation of these values; as it was where None.

        Raises
        ------
        ObservationError
            A candidate has several results, or a value is no finite number.
        StateError
            A candidate has no result.
        """
        ledger = self._state.ledger
        corrections = as_corrections(ledger, ids, values, noise)
        self._state = self._state.learned(ledger.corrected(corrections))

    def _now(self) -> AbstractContextManager[Campaign]:
        return nullcontext(self._state)

    def _books(self) -> Ledger:
        return self._state.ledger

    # Candidates come and go

    def add(self, table: Any, *, ids: Any = None) -> None:
        """More candidates.

        Parameters
        ----------
        table : table
            With the columns of the pool. Where the pool has a target and the table has it too,
            filled cells of it are results.
        ids : sequence, optional
            For pools made of an array with ids.
        """
        ledger = self._state.ledger
        pool = ledger.candidates.table("add to")
        added = self._state.learned(ledger.added(pool.add(table, ids=ids)))
        self._state = added.with_results(len(pool.results))

    def retire(self, ids: Any) -> None:
        """These candidates are no longer available: not asked for, not recommended.

        What they taught stays.

        Parameters
        ----------
        ids : id or sequence of ids
            Of candidates.
        """
        ledger = self._state.ledger
        positions = ledger.candidates.table("retire from").positions(ids)
        self._state = self._state.knowing(ledger.retired(positions))

    def restore(self, ids: Any) -> None:
        """These candidates, which were retired, are available again.

        Parameters
        ----------
        ids : id or sequence of ids
            Of candidates that are retired.
        """
        ledger = self._state.ledger
        positions = ledger.candidates.table("restore to").positions(ids)
        ledger.check_retired(positions)
        self._state = self._state.knowing(ledger.restored(positions))

    def __repr__(self) -> str:
        ledger = self._state.ledger
        done = f"{ledger.n_trials} results, {len(ledger.pending)} pending"
        return f"Optimizer({ledger.candidates!r}, {self.direction}, {done})"
