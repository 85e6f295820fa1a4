"""Kernels: the loops, loads, stores and reductions of a fused group of operators.

A kernel's units are elements, of which each thread of the device has some, or rows, of which each block has some. The
threads of a block share a row's elements and reduce them together. Where rows are short, or their elements lie far
apart, a thread has a row of its own: a kernel of elements with a loop.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch._inductor.codegen.common import CSE, CSEVariable, DeferredLine
from torch._inductor.codegen.simd import IterationRangesEntry, SIMDKernel
from torch._inductor.dependencies import MemoryDep
from torch._inductor.utils import IndentedBuffer, sympy_product
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet

from chorus_device.codegen import types
from chorus_device.codegen.expressions import expression
from chorus_device.codegen.operators import UNSIGNED, Operators, kind_of, of_kind

SHORT = 32  # elements of a row that one thread reduces
NAME = "KERNEL_NAME"  # of a kernel that has none yet


class _CSE(CSE):
    """Declares variables with their types."""

    def generate(self, buffer: Any, expr: Any, *, assignment: bool = True, dtype: Any = None, **kwargs: Any) -> Any:
        if assignment and dtype is not None and not isinstance(expr, CSEVariable):
            self.prefix = types.value(dtype) + " "
        return super().generate(buffer, expr, assignment=assignment, dtype=dtype, **kwargs)


def _length(tree: Any) -> int | None:
    """The size of a range, unless it's known only when the kernel runs."""
    n = V.graph.sizevars.simplify(tree.numel)
    return int(n) if isinstance(n, (int, sympy.Integer)) else None


def _apart(features: Any) -> bool:
    """Whether the elements of a row lie apart, and rows beside each other, in most of the memory that is read.
    Inductor's hint doesn't say so where there are enough rows for each processor."""
    sizes = V.graph.sizevars
    hint: Any = getattr(sizes, "optimization_hint", None) or sizes.size_hint  # type: ignore[attr-defined]
    along = across = 0
    elements = features.numel * features.reduction_numel
    for node in features.reduction_nodes():
        for read in node.read_writes.reads:
            if not isinstance(read, MemoryDep) or not read.var_names:
                continue
            if not sizes.statically_known_equals(sympy_product(read.size), elements):
                continue  # inductor left the row's variable out: all of a row's elements are the same one
            origin = dict.fromkeys(read.var_names, 0)
            first = read.index.subs(origin)
            steps = [read.index.subs({**origin, v: 1}) - first for v in read.var_names]
            count = hint(read.get_numel(), fallback=1)
            if steps[-1] == 1:  # the last variable is the row's
                along += count
            elif 1 in steps:
                across += count
    return across > along


class Kernel(SIMDKernel):
    overrides = Operators
    suffix = ";"
    sexpr = staticmethod(expression)
    kexpr = staticmethod(expression)

    def __init__(self, tiling: dict[str, sympy.Expr], **kwargs: Any) -> None:
        super().__init__(tiling, **kwargs)
        self.cse = _CSE(self.newvar_prefix, self.suffix)
        self.combine = IndentedBuffer()  # behind a loop: reductions of a block's threads
        self.finish = IndentedBuffer()  # and stores of their results
        self.lasting: OrderedSet[CSEVariable] = OrderedSet()  # variables that are known outside of loops
        self.scratch: list[str] = []  # local memory
        self.masks = 0
        self.checked = False
        self.rows = self.features.is_reduction() and not self._alone()
        self._numbers = itertools.count()

    def create_cse_var(self, *args: Any, **kwargs: Any) -> CSEVariable:
        var = super().create_cse_var(*args, **kwargs)
        if self.features.is_reduction() and not self.inside_reduction and not self.masks:
            self.lasting.add(var)  # it's declared outside of loops
        return var

    def _alone(self) -> bool:
        """Whether a thread has a row of its own."""
        sizes = V.graph.sizevars
        return sizes.statically_known_leq(self.features.reduction_numel, SHORT) or _apart(self.features)

    def dtype_to_str(self, dtype: torch.dtype) -> str:
        return types.stored(dtype)

    @property
    def index_dtype(self) -> str:
        return "I"

    def get_index_dtype_as_torch_dtype(self) -> torch.dtype:
        """64 bits also where a loop's last step would leave 32."""
        if any((_length(tree) or 0) > 2**31 - 1025 for tree in self.range_trees):
            return torch.int64
        return super().get_index_dtype_as_torch_dtype()

    # Indexes.

    def codegen_iteration_ranges_entry(self, entry: IterationRangesEntry) -> None:
        line = f"I {entry.name} = {expression(self.rename_indexing(entry.expr))};"
        (self.indexing_code if entry.root.is_loop else self.body).writeline(line)

    def check_bounds(self, expr: sympy.Expr, size: sympy.Expr, lower: bool, upper: bool) -> None:
        if not (lower or upper):
            return
        self.checked = True
        index, most = self.index_to_str(expr), self.index_to_str(size)
        wrong = " || ".join([f"{index} < 0"] * lower + [f"{index} >= {most}"] * upper)
        reset = f" {index} = 0;" if isinstance(expr, sympy.Symbol) else ""
        self.compute.writeline(f"if ({wrong}) {{ *bad = 1;{reset} }}")

    def device_assert_async(self, cond: CSEVariable, msg: str) -> None:
        raise NotImplementedError("an assertion")

    @contextlib.contextmanager
    def in_mask(self) -> Iterator[None]:
        """The text that is written meanwhile runs under a condition."""
        self.masks += 1
        try:
            yield
        finally:
            self.masks -= 1

    # Memory.

    def load(self, name: str, index: sympy.Expr) -> CSEVariable:
        var = self.args.input(name)
        indirect = self.is_indirect_indexing(index)
        index = self.prepare_indexing(index)
        dtype = V.graph.get_dtype(name)
        text = types.loaded(dtype, f"{var}[{self.index_to_str(index)}]")
        of_row = not any(self._in_loop(s) for s in index.free_symbols)
        before = self.inside_reduction and of_row and not indirect and not self.masks  # the loop
        result = self.cse.generate(self.body if before else self.loads, text, dtype=types.computed(dtype))
        if before:
            self.lasting.add(result)
        return result

    def _in_loop(self, symbol: sympy.Symbol) -> bool:
        node = self.range_tree_nodes.get(symbol)
        return node is not None and node.root.is_loop

    def store(self, name: str, index: sympy.Expr, value: CSEVariable, mode: Any = None) -> None:
        var = self.args.output(name)
        place = f"{var}[{self.index_to_str(self.prepare_indexing(index))}]"
        dtype = V.graph.get_dtype(name)
        if mode is None:
            line = f"{place} = {types.element(dtype, value.dtype, value)};"
        elif mode == "atomic_add":
            self.atomic_add_found = True
            line = f"{types.added(dtype)}(&{place}, {types.converted(dtype, value.dtype, value)});"
        else:
            raise NotImplementedError(f"stores of kind {mode}")
        self.stores.writeline(DeferredLine(name, self._by_one(line)))

    def _by_one(self, line: str) -> str:
        """A store of a row's, which one of its threads does."""
        return f"if (THREAD == 0) {line}" if self.rows and not self.inside_reduction else line

    def store_reduction(self, name: str, index: sympy.Expr, value: CSEVariable) -> None:
        stores, self.stores = self.stores, self.finish
        try:
            super().store_reduction(name, index, value)
        finally:
            self.stores = stores

    # Reductions.

    def reduction(self, dtype: torch.dtype, src_dtype: torch.dtype, reduction_type: Any, value: Any) -> Any:
        key = (src_dtype, reduction_type, value)
        made: dict[Any, Any] = self.cse.reduction_cache  # type: ignore[assignment]
        if key not in made:
            made[key] = self._reduced(dtype, src_dtype, reduction_type, value)
        return made[key]

    def _reduced(self, dtype: torch.dtype, source: torch.dtype, kind: str, value: Any) -> Any:
        assert self.inside_reduction
        if kind in ("argmax", "argmin"):
            return self._place_of(kind, dtype, source, value)
        if kind in ("welford_reduce", "welford_combine"):
            return self._welford(kind, value)
        t = types.computed(source if kind in ("max", "min") else dtype)
        if t in UNSIGNED:
            t = torch.int64
        c = types.value(t)
        if kind in ("max", "min") and t is torch.bool:
            kind, first = ("any", "0") if kind == "max" else ("all", "1")
        elif kind in ("max", "min"):
            first = f"{c}_T_{'LOWEST' if kind == 'max' else 'HIGHEST'}"
        else:
            first = "1" if kind == "prod" else "0"
        forms = {
            "sum": "({0} + {1})",
            "prod": "({0} * {1})",
            "any": "({0} || {1})",
            "all": "({0} && {1})",
            "xor_sum": "({0} ^ {1})",
            "max": f"t_{c}_max({{0}}, {{1}})",
            "min": f"t_{c}_min({{0}}, {{1}})",
        }
        if kind not in forms:
            raise NotImplementedError(f"reductions of kind {kind}")
        form = forms[kind]
        (acc,) = self._accumulators([t], [first])
        self.compute.writeline(f"{acc} = {form.format(acc, of_kind(t, value))};")
        (result,) = self._of_block([acc], [t], lambda a, b: [f"{a[0]} = {form.format(a[0], b[0])};"])
        return result

    def _accumulators(self, kinds: list[torch.dtype], first: list[str]) -> list[CSEVariable]:
        made = []
        for t, x in zip(kinds, first, strict=True):
            var = self.cse.newvar(dtype=t)
            self.body.writeline(f"{types.value(t)} {var} = {x};")
            made.append(var)
        return made

    def _of_block(self, accumulators: list[CSEVariable], kinds: list[torch.dtype], combine: Any) -> list[CSEVariable]:
        """The results of all threads of a row, in each of them. combine has the statements that change
        variables by others."""
        results = [self.cse.newvar(dtype=t) for t in kinds]
        self.lasting.update(results)
        w = self.combine
        if not self.rows:
            for r, a, t in zip(results, accumulators, kinds, strict=True):
                w.writeline(f"{types.value(t)} {r} = {a};")
            return results
        memory = []
        for t in kinds:
            name = f"scratch{next(self._numbers)}"
            self.scratch.append(f"LOCAL {types.value(t)} {name}[THREADS_OF_BLOCK];")
            memory.append(name)
        put = " ".join(f"{m}[THREAD] = {a};" for m, a in zip(memory, accumulators, strict=True))
        w.writeline(put)
        w.writeline("BARRIER();")
        w.writeline("for (i32 part = THREADS_OF_BLOCK / 2; part > 0; part /= 2) {")
        with w.indent():
            w.writeline("if (THREAD < part) {")
            with w.indent():
                other = [f"{m}[THREAD + part]" for m in memory]
                w.writelines(combine([str(a) for a in accumulators], other))
                w.writeline(put)
            w.writeline("}")
            w.writeline("BARRIER();")
        w.writeline("}")
        for r, m, t in zip(results, memory, kinds, strict=True):
            w.writeline(f"{types.value(t)} {r} = {m}[0];")
        w.writeline("BARRIER();")
        return results

    def _place_of(self, kind: str, dtype: torch.dtype, source: torch.dtype, value: Any) -> CSEVariable:
        """The place of a row's largest or smallest element: the first one, and of a NaN if there is one."""
        t = types.computed(source)
        if t is torch.bool:
            t = torch.uint8
        trees: list[Any] = self.range_trees
        (tree,) = [tree for tree in trees if tree.is_reduction]
        best, at = self._accumulators([t, torch.int64], ["0", "-1"])
        mark = ">" if kind == "argmax" else "<"
        better = f"{{0}} {mark} {{1}}"
        if t.is_floating_point:
            better = f"isnan({{1}}) ? 0 : isnan({{0}}) || {better}"
            same = "({0} == {1} || (isnan({0}) && isnan({1})))"
        else:
            same = "{0} == {1}"
        x = self.cse.generate(self.compute, of_kind(t, value), dtype=t)
        self.compute.writeline(f"if ({at} < 0 || ({better.format(x, best)})) {{ {best} = {x}; {at} = {tree.name}; }}")

        def combine(a: list[str], b: list[str]) -> list[str]:
            take = f"{a[1]} < 0 || ({better.format(b[0], a[0])}) || ({same.format(a[0], b[0])} && {b[1]} < {a[1]})"
            return [f"if ({b[1]} >= 0 && ({take})) {{ {a[0]} = {b[0]}; {a[1]} = {b[1]}; }}"]

        _, place = self._of_block([best, at], [t, torch.int64], combine)
        return place

    def _welford(self, kind: str, value: Any) -> tuple[CSEVariable, ...]:
        """Mean, sum of squared distances from it, and weight."""
        given = (value,) if kind == "welford_reduce" else value
        t = kind_of(*given)
        c = types.value(t)
        mean, m2, weight = accumulators = self._accumulators([t] * 3, ["0"] * 3)
        if kind == "welford_reduce":
            x = of_kind(t, value)
            self.compute.writeline(f"{weight} += 1;")
            self.compute.writeline(
                f"{{ {c} step = {x} - {mean}; {mean} += step / {weight}; {m2} += step * ({x} - {mean}); }}"
            )
        else:
            self.compute.writelines(_joined(c, [str(a) for a in accumulators], [of_kind(t, v) for v in value]))
        return tuple(self._of_block(accumulators, [t] * 3, lambda a, b: _joined(c, a, b)))

    # The text.

    def codegen_body(self) -> None:
        parts = (self.indexing_code, self.loads, self.compute, self.stores, self.combine, self.finish)
        if not any(parts):
            return
        loops = [tree for tree in self.range_trees if tree.is_loop]
        inner = (self.indexing_code, self.loads, self.compute, self.stores)
        if self.inside_reduction and loops:
            (tree,) = loops
            r, n = tree.name, f"{tree.prefix}numel"
            text = IndentedBuffer()
            for part in inner:
                text.splice(part)
            if self.rows:
                self.body.writeline(f"{{ I {r}_at = 0;")
                _vectors(self.body, r, n, text, _length(tree))
                self.body.writeline("}")
            else:
                self.body.writeline(f"for (I {r} = 0; {r} < {n}; {r} += 1) {{")
                with self.body.indent():
                    self.body.splice(text)
                self.body.writeline("}")
            self.cse.invalidate(self.lasting)
            tree.cache_clear()
        else:
            for part in inner:
                self.body.splice(part)
        self.body.splice(self.combine)
        self.body.splice(self.finish)
        for part in parts:
            part.clear()

    def codegen_kernel(self, name: str | None = None) -> str:
        self.codegen_body()
        code = IndentedBuffer()
        wide = self.get_index_dtype_as_torch_dtype() is torch.int64
        code.writeline(f"typedef {'i64' if wide else 'i32'} I;")
        for tree in self.range_trees:
            length = _length(tree)
            if tree.is_loop and length is not None:
                code.writeline(f"#define ROW_OF_{'BLOCK' if self.rows else 'THREAD'} {length}")
        code.writeline(f"KERNEL void {name or NAME}({', '.join(self._parameters())}) {{")
        with code.indent():
            for line in self.scratch:
                code.writeline(line)
            for tree in self.range_trees:
                n = _length(tree)
                if n is not None:
                    code.writeline(f"const I {tree.prefix}numel = {n};")
                else:
                    code.writeline(f"const I {tree.prefix}numel = (I){tree.prefix}numel_;")
            if self.rows:
                code.writeline("for (i64 row = BLOCK; row < xnumel; row += BLOCKS) {")
                with code.indent():
                    code.writeline("I xindex = (I)row;")
                    code.splice(self.body)
                code.writeline("}")
            else:
                trees: list[Any] = self.range_trees
                (x,) = [tree for tree in trees if not tree.is_reduction]
                u = "u64" if wide else "u32"
                code.writeline(f"const I each = (I)(({u})(xnumel - 1) / (({u})BLOCKS * THREADS_OF_BLOCK) + 1)")
                code.writeline("\t* THREADS_OF_BLOCK; // a block's share")
                code.writeline("const i64 first = (i64)BLOCK * each;")
                code.writeline("if (first >= xnumel)")
                code.writeline("\treturn;")
                code.writeline("I xindex_at = (I)first;")
                code.writeline("const I to = xnumel - xindex_at < each ? xnumel : xindex_at + each;")
                _vectors(code, "xindex", "to", self.body, _length(x))
        code.writeline("}")
        return code.getvalue()

    def _parameters(self) -> list[str]:
        """Pointers, and then integers of 64 bits."""
        defs, _, _, kinds = self.args.python_argdefs()
        pointers, integers = [], []
        for d, kind in zip(defs, kinds, strict=True):
            if isinstance(kind, torch.dtype):
                const = "const " if d.name.startswith("in_ptr") else ""
                pointers.append(f"GLOBAL {const}{types.stored(kind)} *{d.name}")
            else:
                integers.append(f"i64 {d.name}")
        if self.checked:
            pointers.append("GLOBAL u32 *bad")
        return pointers + integers + [f"i64 {tree.prefix}numel_" for tree in self._dynamic()]

    def _dynamic(self) -> list[Any]:
        """Ranges whose sizes are known when the kernel runs."""
        return [tree for tree in self.range_trees if _length(tree) is None]

    def call_kernel(self, name: str, node: Any = None, deallocate_ws: bool = True) -> None:
        program: Any = V.graph.wrapper_code
        for v in self.args.sizevars:
            program.ensure_size_computed(v)
        _, given, _, kinds = self.args.python_argdefs()
        arguments = [str(g) for g in given]
        for tree in self._dynamic():
            arguments.append(program.codegen_sizevar(tree.numel))
        trees: list[Any] = self.range_trees
        (x,) = [tree for tree in trees if not tree.is_reduction]
        program.writeline(f"{name}.run({', '.join([program.codegen_sizevar(x.numel), *arguments])})")


WHOLE = 256  # threads that every block's number of threads divides


def _vectors(code: IndentedBuffer, i: str, to: str, body: IndentedBuffer, length: int | None) -> None:
    """Write a loop of a block's threads from i_at to before `to`, of which each has its own i. All threads run equally
    often, and all but the last run has work for all of them, so that a processor computes them as lanes of vectors."""
    code.writeline(f"for (; {to} - {i}_at >= THREADS_OF_BLOCK; {i}_at += THREADS_OF_BLOCK) {{")
    with code.indent():
        code.writeline(f"I {i} = {i}_at + THREAD;")
        code.splice(body)
    code.writeline("}")
    if length is not None and length % WHOLE == 0:
        return
    code.writeline(f"if (THREAD < {to} - {i}_at) {{")
    with code.indent():
        code.writeline(f"I {i} = {i}_at + THREAD;")
        code.splice(body)
    code.writeline("}")


def _joined(c: str, a: list[str], b: list[str]) -> list[str]:
    """Statements that add one state of Welford's to another, unless it's empty."""
    mean, m2, weight = a
    return [
        f"if ({b[2]} != 0) {{ {c} sum = {weight} + {b[2]}, step = {b[0]} - {mean}, share = {b[2]} / sum;",
        f"{mean} += step * share; {m2} += {b[1]} + step * step * {weight} * share; {weight} = sum; }}",
    ]
