"""What the published noise loses: as the paper prints it, and as it is.

Every coefficient carries Laplace noise of scale Δ/ε with the printed Δ, so that a change of the coefficients by Δ' in
L1 loses ε·Δ'/Δ to whoever sees all noisy coefficients. Features and a linear label lie in [−1, 1], a class is 0 or 1.
`features` is d, the constant included; proof.md, 6 derives each Δ', and the tests search for it exhaustively.
All figures are exact fractions of ε.
"""

from __future__ import annotations

from fractions import Fraction


def printed_sensitivity(features: int, *, logistic: bool) -> Fraction:
    """Δ of all coefficients, as printed."""
    d = Fraction(features)
    return d * d / 4 + d if logistic else 2 * (1 + 2 * d + d * d)


def printed_share(own: int, features: int, *, logistic: bool, label: bool) -> Fraction:
    """Theorem 2: the share of ε that a party with `own` features loses about its columns, as printed. The holder of
    the label counts it among its columns."""
    d, k = Fraction(features), Fraction(own)
    if logistic:
        moved = (d if label else k) + k * (2 * d - k) / 4
    else:
        moved = 2 * (1 + 2 * d + k * d) if label else 2 * (2 * k + k * d)
    return moved / printed_sensitivity(features, logistic=logistic)


def total_share(features: int, *, logistic: bool) -> Fraction:
    """The true share of ε that a whole record loses: half for squared loss, little more for logistic loss."""
    return published_share(features, features, logistic=logistic, label=True)


def published_share(changing: int, features: int, *, logistic: bool, label: bool) -> Fraction:
    """The true share of ε that a party loses about its columns alone, the others' being fixed: `changing` of its
    features may change (the constant never does), and the label too if it holds the `label`."""
    moved = _logistic(changing, features, label) if logistic else _linear(changing + label, features + 1)
    return moved / printed_sensitivity(features, logistic=logistic)


def _linear(changing: int, every: int) -> Fraction:
    """Of `every` coordinates of (x, y), `changing` may move by T in the sense of the proof: 4·T·(N − T) at most."""
    moved = min(Fraction(changing), Fraction(every, 2))
    return 4 * moved * (every - moved)


def _logistic(changing: int, features: int, label: bool) -> Fraction:
    """S·T/2 + T where the label stays, S·T/2 + S where it changes, with S + T = d and T at most `changing`."""
    d = Fraction(features)
    stays = min(Fraction(changing), (d + 2) / 2)
    found = stays * (d + 2 - stays) / 2
    if label:
        turned = min(Fraction(changing), max(Fraction(0), (d - 2) / 2))
        found = max(found, (d - turned) * (turned + 2) / 2)
    return found
