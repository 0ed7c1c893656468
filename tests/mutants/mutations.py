"""The mutants of a module: its source with one small fault each.

The faults are those that mutation testing commonly makes (comparison and arithmetic operators,
numbers, conditions, statements left out), and those that are likely in code that builds graphs: a
call that is left out and passes its first argument on, a keyword argument left out, a sum instead
of a mean. Faults that no test should notice are not made: in docstrings, annotations, the texts of
errors and messages, and in where an op is placed, which changes a step's time but not its result.
"""

import ast
import collections
import dataclasses
import re
from typing import Union

_OPERATORS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
    ast.Pow: ("**", "*"),
    ast.BitOr: ("|", "&"),
    ast.BitAnd: ("&", "|"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
# Names that stand for an operation, and what may be written by mistake instead of them.
_NAMES = {
    "all": "any",
    "any": "all",
    "argmax": "argmin",
    "assign_add": "assign_sub",
    "assign_sub": "assign_add",
    "avg_pool2d": "max_pool2d",
    "logical_and": "logical_or",
    "logical_or": "logical_and",
    "max": "min",
    "max_pool2d": "avg_pool2d",
    "maximum": "minimum",
    "min": "max",
    "minimum": "maximum",
    "ones_initializer": "zeros_initializer",
    "reduce_all": "reduce_any",
    "reduce_mean": "reduce_sum",
    "reduce_sum": "reduce_mean",
    "rsqrt": "sqrt",
    "sqrt": "square",
    "square": "sqrt",
    "zeros": "ones",
    "zeros_initializer": "ones_initializer",
}
# What only places ops or tells somebody something: no faults are made in these.
_LEFT_ALONE = {"device", "Note"}
# Calls whose first argument cannot stand for the result: every test would notice.
_NOT_LEFT_OUT = {"enumerate", "get_variable", "len", "partial", "range", "variable_scope", "zip"}
# Arguments that say how something is done, not what it is done to.
_CONTEXT = {"cls", "config", "layers", "layout", "self", "settings", "tf"}
_Definition = Union[ast.FunctionDef, ast.ClassDef]


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One fault.

    Attributes:
      module: path of the file from the repository's root, `cifar10/step/losses.py`.
      line: where it is, from 1.
      last_line: where the expression or statement ends.
      place: the function or class around it, `Update.build`; "" at the top level.
      text: that line of the source, without the spaces around it.
      change: `old -> new`, on one line; a second one of a line that reads the same ends with `#2`.
      start: offset of the old text in the source, in characters.
      old: the old text.
      new: what replaces it.
    """

    module: str
    line: int
    last_line: int
    place: str
    text: str
    change: str
    start: int
    old: str
    new: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What a survivor is recognised by: it stays when lines are added above it."""
        return self.module, self.place, self.text, self.change

    def applied_to(self, source: str) -> str:
        """Returns the source with the fault."""
        return source[: self.start] + self.new + source[self.start + len(self.old) :]


def mutants_of(module: str, source: str) -> list[Mutant]:
    """Returns all mutants of a module, in the order of its lines."""
    finder = _Finder(module, source)
    finder.visit(ast.parse(source))
    counts: collections.Counter[tuple[int, str]] = collections.Counter()
    numbered = []
    for mutant in sorted(finder.found, key=lambda one: (one.start, one.change)):
        counts[mutant.line, mutant.change] += 1
        count = counts[mutant.line, mutant.change]
        change = f"{mutant.change} #{count}" if count > 1 else mutant.change
        numbered.append(dataclasses.replace(mutant, change=change))
    return numbered


class _Finder(ast.NodeVisitor):
    def __init__(self, module: str, source: str) -> None:
        self.found: list[Mutant] = []
        self._module, self._source = module, source
        self._lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))
        self._places: list[str] = []
        self._statements: set[ast.Call] = set()  # calls whose result nobody takes

    def _offset(self, line: int, column: int) -> int:
        """Characters from the beginning of the source; `ast` counts columns in bytes."""
        text = self._lines[line - 1].encode()[:column].decode()
        return self._starts[line - 1] + len(text)

    def _span(self, node: ast.AST) -> tuple[int, int]:
        start = self._offset(node.lineno, node.col_offset)  # type: ignore[attr-defined]
        end = self._offset(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
        return start, end

    def _text(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self._source[start:end]

    def _add(self, start: int, end: int, new: str, shown: str = "") -> None:
        old = self._source[start:end]
        line = self._source.count("\n", 0, start) + 1
        change = " ".join((shown or f"{old} -> {new or 'nothing'}").split())
        self.found.append(
            Mutant(
                module=self._module,
                line=line,
                last_line=line + old.count("\n"),
                place=".".join(self._places),
                text=self._lines[line - 1].strip(),
                change=change,
                start=start,
                old=old,
                new=new,
            )
        )

    def _replace(self, node: ast.AST, new: str) -> None:
        self._add(*self._span(node), new)

    # Definitions: their bodies and defaults, without docstrings, annotations and decorators.

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name == "__repr__":
            return
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self.visit(default)
        self._visit_body(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit_body(node)

    def visit_Module(self, node: ast.Module) -> None:
        for statement in node.body:
            self.visit(statement)

    def _visit_body(self, node: _Definition) -> None:
        self._places.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._places.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if _name_of(node.value) not in ("Callable", "Optional", "Union", "dict", "list", "tuple"):
            self.generic_visit(node)

    # Statements that are left out.

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self._replace(node, "pass")
            self._statements.add(node.value)
            self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._replace(node, "pass")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        # A name that is not assigned would be an error that every test notices.
        if all(isinstance(target, (ast.Attribute, ast.Subscript)) for target in node.targets):
            self._replace(node, "pass")
        self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._replace(node, "pass")

    def visit_Break(self, node: ast.Break) -> None:
        self._replace(node, "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace(node, "break")

    # Conditions.

    def _visit_condition(self, node: Union[ast.If, ast.IfExp]) -> None:
        for always in ("True", "False"):
            self._replace(node.test, always)
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        self._visit_condition(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._visit_condition(node)

    def visit_While(self, node: ast.While) -> None:
        self._replace(node.test, "False")
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for condition in node.ifs:
            self._replace(condition, "True")
        self.generic_visit(node)

    # Operators.

    def _swap(self, node: ast.expr, operator: ast.AST, before: ast.expr, after: ast.expr) -> None:
        if type(operator) not in _OPERATORS:
            return
        old, new = _OPERATORS[type(operator)]
        start, end = self._span(before)[1], self._span(after)[0]
        match = re.search(re.escape(old), self._source[start:end])
        assert match is not None, f"{self._module}: no {old} at {start}"
        first, last = self._span(node)
        start, end = start + match.start(), start + match.end()
        whole = self._source[first:last]
        changed = self._source[first:start] + new + self._source[end:last]
        self._add(start, end, new, f"{whole} -> {changed}")

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for operator, before, after in zip(node.ops, operands, operands[1:]):
            self._swap(node, operator, before, after)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self._swap(node, node.op, node.left, node.right)
        if isinstance(node.op, (ast.Add, ast.Sub)):
            self._replace(node, f"({self._text(node.left)})")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        # All of them: one `and` of several would change how the others bind.
        values = [f"({self._text(value)})" for value in node.values]
        self._replace(node, f" {_OPERATORS[type(node.op)][1]} ".join(values))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        self._replace(node, f"({self._text(node.operand)})")
        if not isinstance(node.operand, ast.Constant):  # -1 -> -2 adds little to -1 -> 1.
            self.generic_visit(node)

    # Values.

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._replace(node, str(not value))
        elif isinstance(value, int):
            self._replace(node, str(value + 1))
        elif isinstance(value, float):
            self._replace(node, repr(value * 2 if value else 1.0))
        elif isinstance(value, str) and re.fullmatch(r"[\w/-]+", value):  # no message
            self._replace(node, f'"{value}_"')

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Texts; and before Python 3.12 `ast` knows no positions inside them."""

    def visit_Slice(self, node: ast.Slice) -> None:
        for bound in (node.lower, node.upper):
            if bound is not None:
                self._replace(bound, "")
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load) and node.id in _NAMES:
            self._replace(node, _NAMES[node.id])

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Load) and node.attr in _NAMES:
            end = self._span(node)[1]
            self._add(end - len(node.attr), end, _NAMES[node.attr])
        self.generic_visit(node)

    # Calls.

    def visit_Call(self, node: ast.Call) -> None:
        name = _name_of(node.func)
        if name in _LEFT_ALONE:
            return
        if name == "control_dependencies":
            self._replace(node.args[0], "[]")
        else:
            self._leave_out_arguments(node)
            is_senseless = node in self._statements or name.lstrip("_")[:1].isupper()
            if name not in _NOT_LEFT_OUT and not is_senseless:
                self._leave_out(node)
        self.generic_visit(node)

    def _leave_out(self, node: ast.Call) -> None:
        """What the call is about passes through as it is."""
        subjects = [one for one in node.args if _name_of(one) not in _CONTEXT]
        if subjects and not isinstance(subjects[0], (ast.Starred, ast.Constant, ast.GeneratorExp)):
            self._replace(node, f"({self._text(subjects[0])})")

    def _leave_out_arguments(self, node: ast.Call) -> None:
        arguments = [self._text(one) for one in [*node.args, *node.keywords]]
        for index, keyword in enumerate(node.keywords, start=len(node.args)):
            if keyword.arg is not None:
                kept = ", ".join(arguments[:index] + arguments[index + 1 :])
                self._replace(node, f"{self._text(node.func)}({kept})")


def _name_of(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
