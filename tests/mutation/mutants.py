"""The ways to break one line: a condition turned round or left out, a statement dropped, a constant one off."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_FUNCTIONS = {"any": "all", "all": "any", "min": "max", "max": "min", "sorted": "list"}
_DROPPED = (ast.Expr, ast.AugAssign, ast.Continue, ast.Break, ast.Raise, ast.Delete)
_UNTOUCHED = {"annotation", "returns", "decorator_list", "bases", "msg", "type_comment"}
"""Fields that decide nothing, or of which a break is one of the whole class."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One broken line."""

    path: Path
    first_line: int
    last_line: int
    function: str
    """The outermost function, with its class; of what is in none, the class and a dot, or nothing."""
    before: str
    after: str
    tree: ast.Module
    """The whole module, unbroken."""
    place: tuple[ast.AST, str, int | None]
    """The parent, its field, and where in it."""
    new: ast.AST | None
    """Stands there instead; `None`: nothing does."""

    def __str__(self) -> str:
        return f"{self.path}:{self.first_line}: {self.before}  →  {self.after}"

    @property
    def is_in_function(self) -> bool:
        """Whether it matters only to tests that come by its lines."""
        return not _is_class(self.function)

    def broken(self) -> ast.Module:
        """Break the tree, for good: call it in a process of its own."""
        parent, field, index = self.place
        if index is None:
            setattr(parent, field, self.new)
        elif self.new is None:
            del getattr(parent, field)[index]
        else:
            getattr(parent, field)[index] = self.new
        return ast.fix_missing_locations(self.tree)


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Return all mutants of a file, from top to bottom."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    yield from _walk(path, tree, tree, "", bound=set())


def _walk(path: Path, tree: ast.Module, parent: ast.AST, function: str, bound: set[str]) -> Iterator[Mutant]:
    for field, index, node in _children(parent):
        for new in _changes(node, in_function=not _is_class(function), bound=bound):
            old, text = _shown(node), "nothing" if new is None else _shown(new)
            where = _located(node)
            if old != text and where is not None:
                yield Mutant(
                    path, *_lines(where), function, old, text, tree, (parent, field, index), _placed(new, where)
                )
        inside, names = function, bound
        if isinstance(node, ast.ClassDef):
            inside = f"{function}{node.name}." if _is_class(function) else function
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_class(function):
            inside, names = function + node.name, {arg.arg for arg in ast.walk(node.args) if isinstance(arg, ast.arg)}
        yield from _walk(path, tree, node, inside, names)
        if isinstance(node, ast.Assign):
            bound |= {name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)}


def _is_class(function: str) -> bool:
    """Whether this names no function, but a class or the module."""
    return not function or function.endswith(".")


def _children(parent: ast.AST) -> Iterator[tuple[str, int | None, ast.AST]]:
    for field, value in ast.iter_fields(parent):
        if field in _UNTOUCHED or isinstance(parent, ast.Assert | ast.Import | ast.ImportFrom | ast.JoinedStr):
            continue
        if field == "keywords" and isinstance(parent, ast.ClassDef):
            continue
        if isinstance(value, list):
            yield from ((field, index, node) for index, node in enumerate(value) if isinstance(node, ast.AST))
        elif isinstance(value, ast.AST):
            yield field, None, value


def _changes(node: ast.AST, *, in_function: bool, bound: set[str]) -> Iterator[ast.AST | None]:
    match node:
        case ast.Compare():
            yield from _changed_comparisons(node)
        case ast.BoolOp() | ast.BinOp() | ast.UnaryOp() | ast.IfExp():
            yield from _changed_operations(node, in_function=in_function)
        case ast.Constant():
            yield from _changed_constants(node, in_function=in_function)
        case ast.Set(parts) | ast.Tuple(parts) | ast.List(parts):
            for place, part in enumerate(parts):
                if len(parts) > 1 and (isinstance(node, ast.Set) or isinstance(part, ast.Starred)):
                    yield _without(node, place)
        case ast.Call(ast.Name(name), arguments, keywords) if name in _FUNCTIONS:
            yield ast.Call(ast.Name(_FUNCTIONS[name], ast.Load()), arguments, [] if name == "sorted" else keywords)
        case ast.comprehension(target, iterable, conditions, is_async):
            for place in range(len(conditions)):
                yield ast.comprehension(target, iterable, _but(conditions, place), is_async)
        case ast.match_case(pattern, guard, body):
            yield None
            if guard is not None:
                yield ast.match_case(pattern, None, body)
        case _:
            yield from _changed_statements(node, bound)


def _changed_comparisons(node: ast.Compare) -> Iterator[ast.AST]:
    for place, (operator, value) in enumerate(zip(node.ops, node.comparators, strict=True)):
        for other in _COMPARISONS[type(operator)]:
            yield ast.Compare(node.left, [*node.ops[:place], other(), *node.ops[place + 1 :]], node.comparators)
        if isinstance(operator, ast.In) and isinstance(value, ast.Tuple):
            for which in range(len(value.elts)):
                fewer = [*node.comparators[:place], _without(value, which), *node.comparators[place + 1 :]]
                yield ast.Compare(node.left, node.ops, fewer)


def _changed_operations(
    node: ast.BoolOp | ast.BinOp | ast.UnaryOp | ast.IfExp, *, in_function: bool
) -> Iterator[ast.AST]:
    match node:
        case ast.BoolOp(operator, values):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
            for place in range(len(values)):
                fewer = _but(values, place)
                yield fewer[0] if len(fewer) == 1 else ast.BoolOp(operator, fewer)
        case ast.UnaryOp(ast.Not() | ast.Invert(), operand):
            yield operand
        case ast.BinOp(left, operator, right) if in_function and type(operator) in _OPERATORS:
            yield ast.BinOp(left, _OPERATORS[type(operator)](), right)
            if isinstance(operator, ast.Sub | ast.BitAnd | ast.BitOr):
                yield left
        case ast.IfExp(_, body, orelse):
            yield body
            yield orelse


def _changed_constants(node: ast.Constant, *, in_function: bool) -> Iterator[ast.AST]:
    match node.value:
        case bool() as value:
            yield ast.Constant(not value)
        case int() | float() as value:
            yield ast.Constant(value + 1)
            yield ast.Constant(value - 1)
        case str() as value if in_function and value and " " not in value:
            yield ast.Constant("mutant")


def _but(parts: list[ast.expr], place: int) -> list[ast.expr]:
    return [*parts[:place], *parts[place + 1 :]]


def _without(node: ast.Set | ast.Tuple | ast.List, place: int) -> ast.expr:
    fewer = _but(node.elts, place)
    return ast.Set(fewer) if isinstance(node, ast.Set) else type(node)(fewer, ast.Load())


def _changed_statements(node: ast.AST, bound: set[str]) -> Iterator[ast.AST]:
    match node:
        case ast.If(_, body, orelse):
            yield ast.If(ast.Constant(True), body, orelse)
            yield ast.If(ast.Constant(False), body, orelse)
        case ast.While(_, body, orelse):
            yield ast.While(ast.Constant(False), body, orelse)
        case ast.Return(value) if value is not None and not isinstance(value, ast.Constant):
            yield ast.Return(ast.Constant(None))
        case ast.Expr(ast.Constant()):
            pass
        case ast.Assign([ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
        case ast.Assign([ast.Name(name)]) if name in bound:
            yield ast.Pass()
        case _ if isinstance(node, _DROPPED):
            yield ast.Pass()


def _shown(node: ast.AST) -> str:
    match node:
        case ast.If(test):
            return f"if {ast.unparse(test)}"
        case ast.While(test):
            return f"while {ast.unparse(test)}"
        case ast.match_case(pattern, guard):
            return f"case {ast.unparse(pattern)}" + (f" if {ast.unparse(guard)}" if guard else "")
        case ast.comprehension(target, iterable, conditions):
            return f"for {ast.unparse(target)} in {ast.unparse(iterable)}" + "".join(
                f" if {ast.unparse(condition)}" for condition in conditions
            )
    return ast.unparse(node)


def _located(node: ast.AST) -> ast.AST | None:
    """Return where a node stands; those without a place of their own stand where their first part does."""
    return next((part for part in ast.walk(node) if hasattr(part, "lineno")), None)


def _lines(node: ast.AST) -> tuple[int, int]:
    first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
    if isinstance(node, ast.If | ast.While):
        last = getattr(node.test, "end_lineno", last)
    return first, last


def _placed(new: ast.AST | None, where: ast.AST) -> ast.AST | None:
    if new is not None and "lineno" in new._attributes and not hasattr(new, "lineno"):
        ast.copy_location(new, where)
    return new
