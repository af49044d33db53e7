"""Weights of rows, as the documentation defines them, for whole columns at once.

They are XXH3-64 of a key of 32 bytes: two lengths and two integers. The hash is written out in NumPy, because a call
for each of ten million rows would take longer than everything else here.

Source: the XXH3 specification, "medium inputs" (17 to 128 bytes) for a length of 32 and no seed.
"""

import numpy as np

from .rows import PRIORITY_BITS

_PRIME_1 = np.uint64(0x9E3779B185EBCA87)
_PRIME_MX1 = np.uint64(0x165667919E3779F9)
_SECRET = [
    np.uint64(word) for word in (0xBE4BA423396CFEB8, 0x1CAD21F72C81017C, 0xDB979083E96DD4DE, 0x1F67B3B7A4A44072)
]
_KEY_BYTES = np.uint64(32)
_VALUE_BYTES = np.uint64(8)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def weights(pid: np.ndarray, step: np.ndarray) -> np.ndarray:
    """The 64-bit weight of each row whose id is (`pid`, `step`), two integer columns of equal length."""
    with np.errstate(over="ignore"):
        mixed = _KEY_BYTES * _PRIME_1
        mixed = mixed + _fold(_VALUE_BYTES ^ _SECRET[0], _words(pid) ^ _SECRET[1])
        mixed = mixed + _fold(_VALUE_BYTES ^ _SECRET[2], _words(step) ^ _SECRET[3])
        mixed ^= mixed >> np.uint64(37)
        mixed *= _PRIME_MX1
        mixed ^= mixed >> _HALF
    return np.maximum(mixed, np.uint64(1))


def priorities(weight: np.ndarray) -> np.ndarray:
    """The upper bits of weights, as peers have them: 0 to 2^31, int32."""
    return (weight >> np.uint64(64 - PRIORITY_BITS)).astype(np.int32)


def _words(values: np.ndarray) -> np.ndarray:
    """Integers widened to 64 bits, the form in which they are hashed."""
    return values.astype(np.int64).view(np.uint64)


def _fold(left: np.uint64, right: np.ndarray) -> np.ndarray:
    """The two halves of the 128-bit product, combined by exclusive or."""
    left_low, left_high = left & _LOW, left >> _HALF
    right_low, right_high = right & _LOW, right >> _HALF
    low_low, high_low = left_low * right_low, left_high * right_low
    low_high, high_high = left_low * right_high, left_high * right_high
    cross = (low_low >> _HALF) + (high_low & _LOW) + low_high
    high = (high_low >> _HALF) + (cross >> _HALF) + high_high
    low = (cross << _HALF) | (low_low & _LOW)
    return low ^ high
