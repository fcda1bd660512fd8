"""Which arguments of sqlglot's nodes are read, so that what nobody reads is refused.

sqlglot parses the SQL of many systems into one tree, and hangs what it finds on nodes as arguments: `LIMIT 3 PERCENT`
is a `Limit` with `limit_options`. A binder that reads `expression` alone would plan something else than was written.
Here is, for each node that can be part of an accepted statement, what the binders read of it; anything else that is
set, and any node that is not listed, is found by `unread`. A new argument of a new version of sqlglot is therefore
refused until somebody has looked at it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlglot import exp

from headgate_coordinator.sql.nodes import StreamWindow

_BINARY = ("this", "expression")
_OPERATORS: tuple[type[exp.Expr], ...] = (
    *(exp.And, exp.Or, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ),
    *(exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.IntDiv, exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor),
    *(exp.BitwiseLeftShift, exp.BitwiseRightShift, exp.Is, exp.Escape, exp.RegexpLike, exp.Extract, exp.Filter),
    exp.Dot,
)
_ONE: tuple[type[exp.Expr], ...] = (
    *(exp.Paren, exp.Neg, exp.Not, exp.BitwiseNot, exp.Boolean, exp.Var, exp.IgnoreNulls, exp.RespectNulls),
    *(exp.From, exp.Where, exp.Having, exp.Qualify, exp.Exists, exp.DataTypeParam),
)
_NONE: tuple[type[exp.Expr], ...] = (*(exp.Null, exp.CurrentTimestamp, exp.CurrentDate, exp.NotNullColumnConstraint),)

READ: dict[type[Any], tuple[str, ...]] = {
    **dict.fromkeys(_OPERATORS, _BINARY),
    **dict.fromkeys(_ONE, ("this",)),
    **dict.fromkeys(_NONE, ()),
    exp.Alias: ("this", "alias"),
    exp.Anonymous: ("this", "expressions"),
    exp.Array: ("expressions",),
    exp.Between: ("this", "low", "high"),
    exp.Bracket: ("this", "expressions"),
    exp.Case: ("this", "ifs", "default"),
    exp.Cast: ("this", "to"),
    exp.TryCast: ("this", "to"),
    exp.Column: ("this", "table", "db", "catalog"),
    exp.ColumnConstraint: ("kind",),
    exp.ColumnDef: ("this", "kind", "constraints"),
    exp.Concat: ("expressions",),
    exp.CTE: ("this", "alias"),
    exp.DataType: ("this", "expressions", "nested"),
    exp.Distinct: ("expressions",),
    exp.Div: _BINARY,
    exp.DPipe: _BINARY,
    exp.Fetch: ("count", "direction", "limit_options"),
    exp.Group: ("expressions",),
    exp.HexString: ("this",),
    exp.Identifier: ("this", "quoted"),
    exp.If: ("this", "true", "false"),
    exp.ILike: (*_BINARY, "negate"),
    exp.In: ("this", "expressions", "query"),
    exp.Interval: ("this", "unit"),
    exp.Join: ("this", "on", "using", "side", "kind"),
    exp.Like: (*_BINARY, "negate"),
    exp.Limit: ("expression",),
    exp.LimitOptions: ("rows",),
    exp.Literal: ("this", "is_string"),
    exp.Order: ("expressions",),
    exp.Ordered: ("this", "desc", "nulls_first"),
    exp.Overlay: ("this", "expression", "from_", "for_"),
    exp.Select: (
        *("expressions", "from_", "joins", "where", "group", "having", "order", "limit", "distinct", "qualify"),
        *("stream_window", "with_"),
    ),
    exp.Star: ("except_",),
    exp.StrPosition: ("this", "substr", "position"),
    exp.Subquery: ("this", "alias", "stream_window", "joins", "with_"),
    exp.Substring: ("this", "start", "length"),
    exp.Table: ("this", "alias", "stream_window", "joins"),
    exp.TableAlias: ("this", "columns"),
    exp.Trim: ("this", "expression", "position"),
    exp.Tuple: ("expressions",),
    exp.Union: ("this", "expression", "with_"),
    exp.VarMap: ("keys", "values"),
    exp.Window: ("this", "partition_by", "order", "over"),
    exp.With: ("expressions",),
    StreamWindow: ("this", "kind", "spelling", "size", "advance", "gap", "lateness", "offset", "unit"),
}
# Arguments that say how a dialect spells or computes something, and change nothing in ours.
_SPELLING: dict[type[Any], tuple[str, ...]] = {
    exp.Array: ("bracket_notation", "struct_name_inheritance", "value_constructor"),
    exp.Bracket: ("safe", "offset"),
    exp.Concat: ("safe", "coalesce"),
    exp.Div: ("typed", "safe"),
    exp.DPipe: ("safe",),
    exp.Interval: ("fraction_in_string",),
    exp.TryCast: ("safe",),
}


def unread(tree: exp.Expr) -> Iterator[tuple[exp.Expr, str]]:
    """What is set in a tree and nobody reads: the node and the argument, which is empty for a node as a whole."""
    for node in tree.walk():
        read = READ.get(type(node))
        if read is None:
            yield node, ""
            continue
        harmless = _SPELLING.get(type(node), ())
        for key, value in node.args.items():
            if value and key not in read and key not in harmless:
                yield node, key


def unread_names(tree: exp.Expr) -> Iterator[tuple[exp.Expr, str]]:
    """The same with what a message calls it: PERCENT of LIMIT."""
    for node, key in unread(tree):
        yield node, f"{argument_name(key)} of {describe(node)}" if key else describe(node)


def argument_name(key: str) -> str:
    """What a message calls an argument: `limit_options` is LIMIT OPTIONS."""
    return key.strip("_").upper().replace("_", " ")


def describe(node: exp.Expr) -> str:
    """What a person would call a node: `AT TIME ZONE`, `COLLATE`, ..."""
    if isinstance(node, exp.Anonymous):
        return str(node.this).upper()
    words: list[str] = []
    for letter in type(node).__name__:
        if letter.isupper() and words and not words[-1][-1:].isupper():
            words.append("")
        if not words:
            words.append("")
        words[-1] += letter
    return " ".join(word.upper() for word in words)
