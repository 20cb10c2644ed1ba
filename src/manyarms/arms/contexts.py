"""Contexts: what is known about the moment of a choice, as columns in front of those of the
arms."""

from typing import Any

import numpy as np

from manyarms.arms.array import as_rows
from manyarms.errors import ArmsError
from manyarms.typing import Array, ArrayLike


def joined(context: Any, arms: ArrayLike) -> Array:
    """Rows (k, c + d) to choose among: the context (c,) in front of each of the arms (k, d).

    With the product kernel ``On(first, 0, c) * On(second, c, c + d)`` two rows are alike where both
    contexts and arms are: k((c, a), (c′, a′)) = k₁(c, c′)·k₂(a, a′) (Krause and Ong, NIPS 2011).

    Parameters
    ----------
    context : array_like, (c,)
        What is known about the moment of the choice.
    arms : array_like, (k, d)
        The arms to choose among.

    Returns
    -------
    ndarray, (k, c + d)
        For ``policy.choose(arms=…)``.

    Raises
    ------
    ArmsError
        The context is not a flat sequence of finite numbers.
    """
    rows = as_rows(arms)
    if np.ma.is_masked(context):
        raise ArmsError("a context must not be masked; fill the masked values")
    try:
        shared = as_rows([context])
    except ArmsError as error:
        raise ArmsError(
            f"a context must be a flat sequence of finite numbers, got {context!r}"
        ) from error
    c = shared.shape[1]
    whole = np.empty((len(rows), c + rows.shape[1]))
    whole[:, :c] = shared
    whole[:, c:] = rows
    return whole
