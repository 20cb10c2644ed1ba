from manyarms.typing import AnyArray, Array, Indices, Mask

def columns(
    out: Array, X: AnyArray, W: Array, parts: memoryview, weights: memoryview, constant: float
) -> bool: ...
def step(
    Z: Array,
    p: int,
    m: int,
    ahead: Array,
    corner: Array,
    G: Array,
    surprise: Array,
    mean: Array,
    variance: Array,
) -> None: ...
def peak(
    mean: Array, variance: Array, shut: Mask | AnyArray | None, beta: float, offset: float
) -> tuple[int, float, float]: ...
def reach(
    mean: Array,
    variance: Array,
    shut: Mask | AnyArray | None,
    need: Array,
    scale: float,
    places: Indices,
) -> int: ...
