"""How long to work between two saves. All take and give seconds of work between saves, without the save itself.

`save_s` is how long a save stops the work (δ, w), `mttf_s` the mean time between failures of the job (M).
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, expm1, inf, isinf, sqrt

GOLDEN = (sqrt(5) - 1) / 2


def young_s(save_s: float, mttf_s: float) -> float:
    """√(2δM): Young, A first order approximation to the optimum checkpoint interval, CACM 1974."""
    return sqrt(2 * save_s * mttf_s)


def daly_first_s(save_s: float, mttf_s: float, up_s: float = 0.0) -> float:
    """√(2δ(M+R)) − δ: Daly, FGCS 2006, to first order; with the time of a restart left out it is √(2δM) − δ.

    For δ above 2M it has no meaning, and M is taken as the paper does.
    """
    mean_s = mttf_s + up_s
    return sqrt(2 * save_s * mean_s) - save_s if save_s < 2 * mean_s else mttf_s


def daly_s(save_s: float, mttf_s: float) -> float:
    """√(2δM)·(1 + ⅓√(δ/2M) + ⅑(δ/2M)) − δ for δ < 2M, else M: Daly, FGCS 2006, to higher order."""
    if isinf(mttf_s):
        return inf
    if save_s >= 2 * mttf_s:
        return mttf_s
    ratio = save_s / (2 * mttf_s)
    return sqrt(2 * save_s * mttf_s) * (1 + sqrt(ratio) / 3 + ratio / 9) - save_s


def availability_optimal_s(save_s: float, mttf_s: float, recover_s: float) -> float:
    """From a period of T_s + √(2(T_f+T_r)T_s + T_s²), which contains the save (arXiv 2410.18124): without it."""
    return sqrt(2 * (mttf_s + recover_s) * save_s + save_s**2)


def exact_s(save_s: float, mttf_s: float) -> float:
    """The interval that is best where failures are exponential: (1 − Δ/M)·e^(Δ/M) = e^(−δ/M).

    It is where the derivative of (e^((Δ+δ)/M) − 1)/Δ is 0; neither detection nor restart moves it. Young and Daly
    approximate it.
    """
    if isinf(mttf_s):
        return inf
    if not save_s:
        return 0.0
    target = -expm1(-save_s / mttf_s)
    low, high = 0.0, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        # 1 − (1 − x)·e^x rises from 0 at 0 to 1 at 1.
        if 1 - (1 - middle) * exp(middle) < target:
            low = middle
        else:
            high = middle
    return (low + high) / 2 * mttf_s


def best_of(value: Callable[[float], float], low: float, high: float) -> float:
    """Where a function of one top is highest, by golden-section search over orders of magnitude."""
    ratio = high / low
    left, right = 0.0, 1.0
    for _ in range(90):
        first, second = right - GOLDEN * (right - left), left + GOLDEN * (right - left)
        if value(low * ratio**first) < value(low * ratio**second):
            left = first
        else:
            right = second
    return float(low * ratio ** ((left + right) / 2))
