"""The smoothed hinge of one output, example by example: compiled loops for newton.py, which gives the formulas.

Of every example: scores (n,), centre (n,), class y (n,), weight (n,); of every class: sign, margin, box (k,).
"""

from __future__ import annotations

import numpy as np

from ._jit import fmax, fmin, jit


@jit
def smooth(scores, b, centre, y, weight, sign, margin, box, mu, beta):
    """beta of one output; returns (hinge loss, sum U [z]_+ - alpha z, sum beta, examples in the band)."""
    hinge, rest, total, band = 0.0, 0.0, 0.0, 0.0
    for i in range(scores.size):
        c = y[i]
        s, u = sign[c], box[c] * weight[i]
        z = margin[c] - s * (np.float64(scores[i]) + b)
        share = fmin(fmax(centre[i] + z / mu, 0.0), 1.0)
        positive = u * fmax(z, 0.0)
        hinge += positive
        rest += positive - u * share * z
        total += s * u * share
        band += 1.0 if 0.0 < share < 1.0 else 0.0
        beta[i] = s * u * share
    return hinge, rest, total, band


@jit
def _slope(scores, direction, b, d_b, centre, y, weight, sign, margin, box, mu, step):
    """First and second derivative of the smoothed hinge loss along scores + step * direction."""
    first, second = 0.0, 0.0
    for i in range(scores.size):
        c = y[i]
        s, u = sign[c], box[c] * weight[i]
        d = s * (np.float64(direction[i]) + d_b)
        z = margin[c] - s * (np.float64(scores[i]) + b) - step * d
        share = fmin(fmax(centre[i] + z / mu, 0.0), 1.0)
        first -= u * share * d
        second += u * d * d / mu if 0.0 < share < 1.0 else 0.0
    return first, second


@jit
def line_search(
    scores, direction, b, d_b, centre, y, weight, sign, margin, box, mu, linear, quadratic, start
):
    """A step at which linear + step * quadratic + slope(step), the derivative along the way, is a tenth of its value `start` at 0.

    Newton within a bracket; in doubt its lower end, where the derivative is still negative and the objective has only gone down.
    """
    low, high, step = 0.0, -1.0, 1.0
    for turn in range(60):
        first, second = _slope(scores, direction, b, d_b, centre, y, weight, sign, margin, box, mu, step)
        first += linear + step * quadratic
        second += quadratic
        if abs(first) <= 0.1 * abs(start):
            return step
        if first > 0.0:
            high = step
        else:
            low = step
        if turn > 10 and low > 0.0:
            break
        guess = step - first / second if second > 0.0 else 2.0 * step
        if high < 0.0:
            step = min(max(guess, 1.3 * step), 4.0 * step)
        elif low < guess < high and turn % 3 < 2:
            step = guess
        else:
            step = 0.5 * (low + high)
    return low


@jit
def free_intercept(scores, b, centre, y, weight, sign, margin, box, mu, fixed):
    """b with sum_i beta_i + fixed = 0: a monotone, piecewise linear equation, by Newton within a bracket."""
    low, high = -1e300, 1e300
    for _ in range(100):
        total, slope, size = fixed, 0.0, abs(fixed)
        for i in range(scores.size):
            c = y[i]
            s, u = sign[c], box[c] * weight[i]
            z = margin[c] - s * (np.float64(scores[i]) + b)
            share = fmin(fmax(centre[i] + z / mu, 0.0), 1.0)
            total += s * u * share
            size += u * share
            slope += u / mu if 0.0 < share < 1.0 else 0.0
        if abs(total) <= 1e-13 * size:
            break
        if total > 0.0:
            low = b
        else:
            high = b
        guess = b + total / slope if slope > 0.0 else (b + mu if total > 0.0 else b - mu)
        if low > -1e300 and high < 1e300 and (guess <= low or guess >= high):
            guess = 0.5 * (low + high)
        if guess == b:
            break
        b = guess
    return b


@jit
def find_band(scores, b, centre, y, sign, margin, mu, members):
    count = 0
    for i in range(scores.size):
        z = margin[y[i]] - sign[y[i]] * (np.float64(scores[i]) + b)
        if 0.0 < centre[i] + z / mu < 1.0:
            members[count] = i
            count += 1
    return count


@jit
def from_band(scores, b, centre, y, sign, margin, mu, distance):
    """How far z of each example is from the middle of the band."""
    for i in range(scores.size):
        z = margin[y[i]] - sign[y[i]] * (np.float64(scores[i]) + b)
        distance[i] = abs(z + mu * (centre[i] - 0.5))


@jit
def recentre(scores, b, centre, y, sign, margin, mu):
    """The centre of each example moves to its share of the bound."""
    for i in range(scores.size):
        z = margin[y[i]] - sign[y[i]] * (np.float64(scores[i]) + b)
        centre[i] = fmin(fmax(centre[i] + z / mu, 0.0), 1.0)
