"""exact.py -- numbers as fractions, rounded to fp32 where a definition rounds. For the scripts beside it."""
from fractions import Fraction as F

import numpy as np


def f32(x):
    """A fraction to fp32: to nearest, ties to even, denormals kept. As a fraction."""
    if x == 0:
        return F(0)
    a = abs(x)
    e = a.numerator.bit_length() - a.denominator.bit_length()
    e -= a < F(2) ** e
    unit = F(2) ** max(e - 23, -149)
    return (round(a / unit) * unit) * (1 if x > 0 else -1)  # round(): ties to even


def bits(x):
    return int(np.float32(float(x)).view(np.uint32))
