"""Numbers of a step as polynomials in the batch b and the size s, exact over a grid of recordings."""
from fractions import Fraction


def newton(xs, ys):
    """Coefficients of the polynomial through the points, lowest first."""
    table, difference = [Fraction(y) for y in ys], []
    for k in range(len(xs)):
        difference.append(table[0])
        table = [(table[i + 1] - table[i]) / (xs[i + k + 1] - xs[i]) for i in range(len(table) - 1)]
    coefficients, basis = [Fraction(0)] * len(xs), [Fraction(1)]
    for k in range(len(xs)):
        for i, c in enumerate(basis):
            coefficients[i] += difference[k] * c
        basis = [Fraction(0)] + basis
        for i in range(len(basis) - 1):
            basis[i] -= basis[i + 1] * xs[k]
    return coefficients


def fit(bs, ss, values):
    """values[b, s] -> {(power of b, power of s): coefficient}"""
    rows = [newton(ss, [values[b, s] for s in ss]) for b in bs]
    out = {}
    for j in range(len(ss)):
        for i, c in enumerate(newton(bs, [row[j] for row in rows])):
            if c:
                out[i, j] = c
    return out


def value(polynomial, b, s):
    return sum(c * b**i * s**j for (i, j), c in polynomial.items())


def text(polynomial):
    """An integer, or "3072*b*s+8*s"; a coefficient's denominator stands at the end of its term."""
    if not polynomial:
        return 0
    if set(polynomial) == {(0, 0)} and polynomial[0, 0].denominator == 1:
        return int(polynomial[0, 0])
    out = ""
    for (i, j), c in sorted(polynomial.items(), reverse=True):
        factors = [name if power == 1 else "%s^%d" % (name, power) for name, power in (("b", i), ("s", j)) if power]
        n = abs(c.numerator)
        term = "*".join(([str(n)] if n != 1 or not factors else []) + factors) + ("/%d" % c.denominator if c.denominator != 1 else "")
        out += ("-" if c < 0 else "+" if out else "") + term
    return out


class Fitted:
    """One text for each of a step's numbers, equal columns fitted once."""

    def __init__(self, points, columns):
        self.bs, self.ss = sorted({p[0] for p in points}), sorted({p[1] for p in points})
        self.points, self.known, self.polynomials = points, {}, []
        self.of = []
        for values in zip(*columns):
            if values not in self.known:
                self.known[values] = len(self.polynomials)
                self.polynomials.append(fit(self.bs, self.ss, dict(zip(points, values))))
            self.of.append(self.known[values])
        self.texts = [text(p) for p in self.polynomials]

    def text_of(self, i):
        return self.texts[self.of[i]]

    def wrong_at(self, b, s, numbers):
        """Which of the numbers recorded there are not the polynomials'."""
        at = [value(p, b, s) for p in self.polynomials]
        return [k for k, (i, n) in enumerate(zip(self.of, numbers)) if at[i] != n]

    def degree(self):
        return tuple(max([k[d] for p in self.polynomials for k in p] or [0]) for d in (0, 1))

    def whole(self):
        return all(c.denominator == 1 for p in self.polynomials for c in p.values())
