"""Types of the arrays in which the scheduler counts."""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


UNLIMITED = 2**40


Floats = npt.NDArray[np.float64]


Bools = npt.NDArray[np.bool_]
