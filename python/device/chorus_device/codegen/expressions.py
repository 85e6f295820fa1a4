"""Expressions of indexes and sizes, from sympy."""

from __future__ import annotations

from typing import Any

from torch.utils._sympy.printers import ExprPrinter


class Printer(ExprPrinter):
    """Writes expressions of integers, which are of a kernel's type I or of 64 bits."""

    def _print_Integer(self, expr: Any) -> str:
        n = int(expr)
        return str(n) if -(2**31) < n < 2**31 else f"(i64){n}"

    def _whole(self, x: Any, y: Any, plain: str, floor: str) -> str:
        """A division: C's own, unless something may be negative."""
        a, b = self.doprint(x), self.doprint(y)
        if x.is_nonnegative and y.is_positive:
            return f"(({a}) {plain} ({b}))"
        return f"{floor}({a}, {b})"

    def _print_FloorDiv(self, expr: Any) -> str:
        return self._whole(expr.args[0], expr.args[1], "/", "i64_div_floor")

    def _print_PythonMod(self, expr: Any) -> str:
        return self._whole(expr.args[0], expr.args[1], "%", "i64_remainder")

    def _print_Mod(self, expr: Any) -> str:
        a, b = map(self.doprint, expr.args)
        return f"(({a}) % ({b}))"

    def _print_ModularIndexing(self, expr: Any) -> str:
        x, div, mod = expr.args
        text = f"({self.doprint(x)})"
        if div != 1:
            text = f"({text} / ({self.doprint(div)}))"
        return f"({text} % ({self.doprint(mod)}))"

    def _fold(self, expr: Any, function: str) -> str:
        text: str = self.doprint(expr.args[0])
        for other in map(self.doprint, expr.args[1:]):
            text = f"t_i64_{function}({text}, {other})"
        return text

    def _print_Min(self, expr: Any) -> str:
        return self._fold(expr, "min")

    def _print_Max(self, expr: Any) -> str:
        return self._fold(expr, "max")

    def _print_Abs(self, expr: Any) -> str:
        return f"i64_abs({self.doprint(expr.args[0])})"

    def _print_Where(self, expr: Any) -> str:
        c, p, q = map(self.doprint, expr.args)
        return f"(({c}) ? ({p}) : ({q}))"

    def _print_Piecewise(self, expr: Any) -> str:
        text = "0"  # the last condition is true
        for x, condition in reversed(expr.args):
            text = f"(({self.doprint(condition)}) ? ({self.doprint(x)}) : ({text}))"
        return text

    def _join(self, expr: Any, mark: str) -> str:
        return f" {mark} ".join(f"({self.doprint(a)})" for a in expr.args)

    def _print_And(self, expr: Any) -> str:
        return f"({self._join(expr, '&&')})"

    def _print_Or(self, expr: Any) -> str:
        return f"({self._join(expr, '||')})"

    def _print_Not(self, expr: Any) -> str:
        return f"(!({self.doprint(expr.args[0])}))"

    def _print_BooleanTrue(self, expr: Any) -> str:
        return "1"

    def _print_BooleanFalse(self, expr: Any) -> str:
        return "0"

    def _print_PowByNatural(self, expr: Any) -> str:
        base, power = map(self.doprint, expr.args)
        return f"i64_pow({base}, {power})"

    # Numbers with fractions: scales of resampling, and the like.
    def _print_ToFloat(self, expr: Any) -> str:
        return f"((f32)({self.doprint(expr.args[0])}))"

    def _print_Float(self, expr: Any) -> str:
        return f"{float(expr)!r}f"

    def _print_Rational(self, expr: Any) -> str:
        return f"({expr.p}.0f / {expr.q}.0f)"

    def _print_IntTrueDiv(self, expr: Any) -> str:
        a, b = map(self.doprint, expr.args)
        return f"((f32)({a}) / (f32)({b}))"

    def _print_FloatTrueDiv(self, expr: Any) -> str:
        a, b = map(self.doprint, expr.args)
        return f"(({a}) / ({b}))"

    def _rounding(self, expr: Any, function: str) -> str:
        return f"((i64){function}((f32)({self.doprint(expr.args[0])})))"

    def _print_FloorToInt(self, expr: Any) -> str:
        return self._rounding(expr, "floor")

    def _print_CeilToInt(self, expr: Any) -> str:
        return self._rounding(expr, "ceil")

    def _print_TruncToInt(self, expr: Any) -> str:
        return self._rounding(expr, "trunc")

    def _print_RoundToInt(self, expr: Any) -> str:
        return self._rounding(expr, "rint")

    _print_floor = _print_FloorToInt
    _print_ceiling = _print_CeilToInt

    def _print_Infinity(self, expr: Any) -> str:
        return "INFINITY"

    def _print_NegativeInfinity(self, expr: Any) -> str:
        return "(-INFINITY)"

    def _print_NaN(self, expr: Any) -> str:
        return "NAN"


expression = Printer().doprint
