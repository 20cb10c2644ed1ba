"""Array types used across the package."""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]
ArrayLike = npt.ArrayLike
Seed = int | np.random.Generator
AnyArray = npt.NDArray[Any]
