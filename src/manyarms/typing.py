"""Array types used across the package."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]
ArrayLike = npt.ArrayLike
TableLike = ArrayLike | str | Path  # rows, or the file that holds them
Seed = int | np.random.Generator
AnyArray = npt.NDArray[Any]
