"""Names, literals and operators of scalar expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from headgate_common.durations import UNITS
from headgate_coordinator.errors import STATEMENT_TOO_LARGE, UNSUPPORTED
from headgate_coordinator.sql.algebra import Call, Column, Expr, Literal, walk
from headgate_coordinator.sql.arguments import argument_name, describe
from headgate_coordinator.sql.errors import MAX_PROBLEMS, Problems, Step, did_you_mean, quoted
from headgate_coordinator.sql.functions import EXTRACTED
from headgate_coordinator.sql.nodes import offset_of
from headgate_coordinator.sql.scope import NameProblem, Scope, parts_of
from headgate_coordinator.sql.typecheck import BAD, TypeChecker, is_bad
from headgate_coordinator.sql.types import (
    BINARY,
    BOOL,
    DAY_TIME_INTERVAL,
    NULL,
    VARCHAR,
    YEAR_MONTH_INTERVAL,
    Kind,
    from_tree,
)

COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}
ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "div",
}
BITWISE: dict[type[exp.Expr], str] = {exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseXor: "^"}
SHIFTS: dict[type[exp.Expr], str] = {exp.BitwiseLeftShift: "shiftleft", exp.BitwiseRightShift: "shiftright"}
_MONTHS = {"month": 1, "months": 1, "quarter": 3, "quarters": 3, "year": 12, "years": 12}
# Args that say how a dialect spells or computes something and change nothing in ours.
_HARMLESS = {"typed", "safe", "is_string", "quoted", "coalesce", "value_constructor"}


@dataclass(frozen=True, slots=True)
class Clause:
    """Where an expression stands: what it may contain and which aliases it sees."""

    name: str
    aggregates: bool = False
    aliases: Mapping[str, Expr] | None = None
    # An alias goes before a column of the same name that is not one of these.
    grouped: frozenset[Expr] | None = None


class BindingAbandoned(Exception):
    """There is no point in going on; the problems so far are noted."""


@dataclass(slots=True)
class Effort:
    """How many parts the expressions of one statement come to, and how many they may.

    A part that stands for another expression (an alias, the operand of BETWEEN, a star) counts with all that it stands
    for, at each use, because later steps see it so. Time and memory of planning are bounded by this number.
    """

    limit: int
    spent: int = 0


class OperatorBinder:
    """Binds names, literals and operators. Functions, and what each node means, are in `ExpressionBinder`."""

    def __init__(self, scope: Scope, problems: Problems, max_in_list: int, exactly_once: bool, effort: Effort) -> None:
        self.scope = scope
        self.problems = problems
        self.effort = effort
        self.types = TypeChecker(problems)
        self.max_in_list = max_in_list
        self.exactly_once = exactly_once
        # Where each column was last written, for problems that show later.
        self.places: dict[Column, exp.Expr] = {}
        # ROW_NUMBER() OVER (...) nodes by identity, where the query has a column for them.
        self.row_numbers: dict[int, Column] = {}
        self._clause = Clause("expression")
        self._in_aggregate = False

    def bind(self, node: exp.Expr, clause: Clause) -> Expr:
        """The expression that a node stands for in a clause."""
        self._clause, self._in_aggregate = clause, False
        expr = self._bind(node)
        self.spend(expr.size, node)
        return expr

    def condition(self, node: exp.Expr, clause: Clause) -> Expr:
        """The same where a condition is needed."""
        return self.types.condition(self.bind(node, clause), clause.name, node)

    def refuse(self, node: exp.Expr, message: str, suggestion: str = "") -> Literal:
        """Notes something that is understood and not offered."""
        self.problems.add(Step.BIND, offset_of(node), message, suggestion, UNSUPPORTED)
        return BAD

    def _bind(self, node: exp.Expr) -> Expr:
        raise NotImplementedError

    def spend(self, parts: int, node: exp.Expr) -> None:
        """Counts parts of expressions; ends the binding where they are too many."""
        self.effort.spent += parts
        if self.effort.spent > self.effort.limit:
            self.problems.add(
                Step.BIND,
                offset_of(node),
                f"the expressions of the statement have more than {self.effort.limit:,} parts, "
                "an alias or * counted at each use with all that it stands for",
                "compute what is used several times in a sub-select",
                STATEMENT_TOO_LARGE,
            )
            raise BindingAbandoned

    def _all(self, nodes: Sequence[exp.Expr]) -> list[Expr]:
        return [self._bind(node) for node in nodes]

    def _only(self, node: exp.Expr, *understood: str) -> bool:
        """Whether the node has no argument beyond those; the first other is refused by name."""
        for key, value in node.args.items():
            if value and key not in understood and key not in _HARMLESS:
                self.refuse(node, f"{argument_name(key)} of {describe(node)} is not offered")
                return False
        return True

    def _paren(self, node: exp.Expr) -> Expr:
        return self._bind(node.this) if self._only(node, "this") else BAD

    def _column(self, node: exp.Expr) -> Expr:
        assert isinstance(node, exp.Column)
        if isinstance(node.this, exp.Star):
            return self.refuse(node, "* stands only alone among the columns, or in COUNT(*)")
        parts = parts_of(node)
        names = [part.name for part in parts]
        try:
            expr, used = self._resolve(names)
        except NameProblem as problem:
            self.problems.add(Step.BIND, offset_of(parts[problem.place]), problem.message, problem.suggestion)
            if len(self.problems.found) >= MAX_PROBLEMS:
                # Looking for the name that was meant takes time, and nobody reads on.
                raise BindingAbandoned from None
            return BAD
        self.spend(expr.size, node)
        for part in walk(expr):
            if isinstance(part, Column):
                self.places[part] = node
        for part_node in parts[used:]:
            expr = self.types.field(expr, part_node.name, part_node)
        return expr

    def _resolve(self, names: Sequence[str]) -> tuple[Expr, int]:
        aliases = self._clause.aliases
        if aliases and self._clause.grouped is not None and not self._in_aggregate:
            alias = aliases.get(names[0].lower())
            if alias is not None:
                try:
                    expr, used = self.scope.resolve(names)
                except NameProblem:
                    return alias, 1
                return (expr, used) if expr in self._clause.grouped else (alias, 1)
        return self.scope.resolve(names, aliases)

    def _literal(self, node: exp.Expr) -> Expr:
        if node.is_string:
            return Literal(str(node.this), VARCHAR)
        return self.types.number(str(node.this), node)

    def _boolean(self, node: exp.Expr) -> Expr:
        return Literal(bool(node.this), BOOL)

    def _null(self, _: exp.Expr) -> Expr:
        return Literal(None, NULL)

    def _hex(self, node: exp.Expr) -> Expr:
        try:
            return Literal(bytes.fromhex(str(node.this)), BINARY)
        except ValueError:
            return self.types.refuse(node, f"{quoted(str(node.this))} is no hexadecimal number")

    def _adjacent(self, node: exp.Expr) -> Expr:
        parts = self._all(node.expressions)
        if all(isinstance(part, Literal) and isinstance(part.value, str) for part in parts):
            return Literal("".join(str(part.value) for part in parts if isinstance(part, Literal)), VARCHAR)
        return self.types.call("concat", parts, node, [])

    def _neg(self, node: exp.Expr) -> Expr:
        return self.types.negative(self._bind(node.this), node)

    def _not(self, node: exp.Expr) -> Expr:
        if isinstance(node.this, (exp.Exists,)) or (isinstance(node.this, exp.In) and node.this.args.get("query")):
            return self._subquery_predicate(node.this)
        return self.types.logical("not", [self._bind(node.this)], node)

    def _connected(self, node: exp.Expr) -> Expr:
        kind, op = (exp.And, "and") if isinstance(node, exp.And) else (exp.Or, "or")
        operands: list[exp.Expr] = []
        stack = [node]
        while stack:
            current = stack.pop()
            if isinstance(current, kind):
                stack.extend((current.expression, current.this))
            else:
                operands.append(current)
        return self.types.logical(op, self._all(operands), node)

    def _comparison(self, node: exp.Expr) -> Expr:
        if not self._only(node, "this", "expression"):
            return BAD
        if isinstance(node.expression, (exp.Any, exp.All)):
            return self.refuse(node, f"{describe(node.expression)} is not offered", "write IN, or OR and AND")
        if isinstance(node.this, exp.Tuple) or isinstance(node.expression, exp.Tuple):
            return self._tuples(node)
        left, right = self._bind(node.this), self._bind(node.expression)
        return self.types.comparison(COMPARISONS[type(node)], left, right, node.this)

    def _distinct_from(self, node: exp.Expr) -> Expr:
        same = self.types.comparison("<=>", self._bind(node.this), self._bind(node.expression), node.this)
        return self.types.logical("not", [same], node)

    def _tuples(self, node: exp.Expr) -> Expr:
        if not isinstance(node, exp.EQ):
            return self.refuse(node, "rows are compared with = and IN only")
        if not (isinstance(node.this, exp.Tuple) and isinstance(node.expression, exp.Tuple)):
            return self.refuse(node, "a row is compared with a row")
        return self._row_equality(node.this, self._all(node.this.expressions), node.expression, node)

    def _row_equality(self, left: exp.Tuple, bound: Sequence[Expr], right: exp.Expr, node: exp.Expr) -> Expr:
        """Whether a row, bound already, equals another, column by column."""
        if not isinstance(right, exp.Tuple):
            return self.refuse(node, "a row is compared with a row")
        if len(left.expressions) != len(right.expressions):
            return self.types.refuse(node, "the two rows have different numbers of columns")
        sides = zip(left.expressions, bound, right.expressions, strict=True)
        parts = [self.types.comparison("=", mine, self._bind(theirs), place) for place, mine, theirs in sides]
        return self.types.logical("and", parts, node)

    def _arithmetic(self, node: exp.Expr) -> Expr:
        if not self._only(node, "this", "expression"):
            return BAD
        left, right = self._bind(node.this), self._bind(node.expression)
        return self.types.arithmetic(ARITHMETIC[type(node)], left, right, node.this)

    def _bitwise(self, node: exp.Expr) -> Expr:
        left, right = self._bind(node.this), self._bind(node.expression)
        return self.types.bitwise(BITWISE[type(node)], left, right, node.this)

    def _bitwise_not(self, node: exp.Expr) -> Expr:
        operand = self._bind(node.this)
        return self.types.bitwise("^", operand, Literal(-1, operand.type), node)

    def _shift(self, node: exp.Expr) -> Expr:
        args = [self._bind(node.this), self._bind(node.expression)]
        return self.types.call(SHIFTS[type(node)], args, node, [])

    def _pipes(self, node: exp.Expr) -> Expr:
        operands: list[exp.Expr] = []
        stack: list[exp.Expr] = [node]
        while stack:
            current = stack.pop()
            if isinstance(current, exp.DPipe):
                stack.extend((current.expression, current.this))
            else:
                operands.append(current)
        places = operands
        return self.types.call("concat", self._all(operands), node, places)

    def _is(self, node: exp.Expr) -> Expr:
        operand, what = self._bind(node.this), node.expression
        if isinstance(what, exp.Null):
            return self.types.is_null(operand)
        if isinstance(what, exp.Boolean):
            return self.types.is_boolean(operand, bool(what.this), node)
        return self.refuse(node, f"IS {describe(what)} is not offered", "write IS NULL, IS TRUE or IS FALSE")

    def _between(self, node: exp.Expr) -> Expr:
        if not self._only(node, "this", "low", "high"):
            return BAD
        operand, place = self._bind(node.this), node.this
        low = self.types.comparison(">=", operand, self._bind(node.args["low"]), place)
        high = self.types.comparison("<=", operand, self._bind(node.args["high"]), place)
        return self.types.logical("and", [low, high], place)

    def _in(self, node: exp.Expr) -> Expr:
        if node.args.get("query"):
            return self._subquery_predicate(node)
        if not self._only(node, "this", "expressions"):
            return BAD
        items = node.expressions
        if len(items) > self.max_in_list:
            self.problems.add(
                Step.BIND,
                offset_of(node),
                f"IN has {len(items):,} values; at most {self.max_in_list:,} are taken",
                "put them in a source and join",
                STATEMENT_TOO_LARGE,
            )
            return BAD
        if isinstance(node.this, exp.Tuple):
            left = self._all(node.this.expressions)
            rows = [self._row_equality(node.this, left, item, node) for item in items]
            return self.types.logical("or", rows, node.this)
        return self.types.in_list(self._bind(node.this), self._all(items), node.this)

    def _subquery_predicate(self, node: exp.Expr) -> Expr:
        name = "EXISTS" if isinstance(node, exp.Exists) else "IN (SELECT ...)"
        return self.refuse(
            node, f"{name} stands here where it cannot become a join", "write it in WHERE, joined to the rest with AND"
        )

    def _like(self, node: exp.Expr, escape: str | None = None) -> Expr:
        if not self._only(node, "this", "expression", "negate"):
            return BAD
        if isinstance(node.expression, (exp.Any, exp.All)):
            return self.refuse(node, f"LIKE {describe(node.expression)} is not offered", "write several LIKE with OR")
        op = "ilike" if isinstance(node, exp.ILike) else "like"
        matched = self.types.like(op, self._bind(node.this), self._bind(node.expression), escape, node.this)
        return self.types.logical("not", [matched], node) if node.args.get("negate") else matched

    def _escape(self, node: exp.Expr) -> Expr:
        matched, escape = node.this, node.expression
        if not (isinstance(escape, exp.Literal) and escape.is_string and len(str(escape.this)) == 1):
            return self.types.refuse(escape, "ESCAPE takes one character")
        negated = isinstance(matched, exp.Not)
        inner = matched.this if negated else matched
        if not isinstance(inner, (exp.Like, exp.ILike)):
            return self.refuse(node, "ESCAPE belongs to LIKE")
        escaped = self._like(inner, str(escape.this))
        return self.types.logical("not", [escaped], node) if negated else escaped

    def _regexp(self, node: exp.Expr) -> Expr:
        if not self._only(node, "this", "expression"):
            return BAD
        args = [self._bind(node.this), self._bind(node.expression)]
        return self.types.call("regexp_like", args, node.this, [])

    def _cast(self, node: exp.Expr) -> Expr:
        if not self._only(node, "this", "to"):
            return BAD
        try:
            target = from_tree(node.args["to"])
        except ValueError as error:
            return self.types.refuse(node.args["to"], str(error))
        return self.types.cast(self._bind(node.this), target, isinstance(node, exp.TryCast), node)

    def _case(self, node: exp.Expr) -> Expr:
        if not self._only(node, "this", "ifs", "default"):
            return BAD
        branches = []
        operand = self._bind(node.this) if node.this is not None else None
        for branch in node.args["ifs"]:
            condition = self._bind(branch.this)
            if operand is not None:
                condition = self.types.comparison("=", operand, condition, branch.this)
            branches.append((condition, self._bind(branch.args["true"])))
        default = node.args.get("default")
        return self.types.case(branches, self._bind(default) if default is not None else None, node)

    def _if(self, node: exp.Expr) -> Expr:
        default = node.args.get("false")
        branch = (self._bind(node.this), self._bind(node.args["true"]))
        return self.types.case([branch], self._bind(default) if default is not None else None, node)

    def _extract(self, node: exp.Expr) -> Expr:
        unit, operand = node.name.upper(), self._bind(node.expression)
        if is_bad(operand):
            return BAD
        if unit not in EXTRACTED:
            return self.types.refuse(node.this, f"EXTRACT knows no {quoted(unit)}", did_you_mean(unit, EXTRACTED))
        if operand.type.kind not in (Kind.DATE, Kind.TIMESTAMP):
            return self.types.refuse(node, f"EXTRACT takes DATE or TIMESTAMP, not {operand.type}")
        if operand.type.kind is Kind.DATE and unit in ("HOUR", "MINUTE", "SECOND"):
            return self.types.refuse(node, f"a DATE has no {unit}")
        return Call("extract", (Literal(unit, VARCHAR), operand), EXTRACTED[unit], operand.nullable)

    def _trim(self, node: exp.Expr) -> Expr:
        if not self._only(node, "this", "expression", "position"):
            return BAD
        name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or "").upper(), "trim")
        nodes = [node.this] + ([node.expression] if node.args.get("expression") else [])
        return self.types.call(name, self._all(nodes), node, nodes)

    def _substring(self, node: exp.Expr) -> Expr:
        if not self._only(node, "this", "start", "length"):
            return BAD
        nodes = [node.args[key] for key in ("this", "start", "length") if node.args.get(key) is not None]
        return self.types.call("substring", self._all(nodes), node, nodes)

    def _position(self, node: exp.Expr) -> Expr:
        if not self._only(node, "this", "substr", "position"):
            return BAD
        nodes = [node.args["substr"], node.this]
        if node.args.get("position") is None:
            return self.types.call("position", self._all(nodes), node, nodes)
        return self.types.call("locate", self._all([*nodes, node.args["position"]]), node, nodes)

    def _overlay(self, node: exp.Expr) -> Expr:
        nodes = [node.args[key] for key in ("this", "expression", "from_", "for_") if node.args.get(key) is not None]
        return self.types.call("overlay", self._all(nodes), node, [])

    def _bracket(self, node: exp.Expr) -> Expr:
        if not self._only(node, "this", "expressions") or len(node.expressions) != 1:
            return self.refuse(node, "a place in an ARRAY or MAP is one value", "write x[0]")
        return self.types.index(self._bind(node.this), self._bind(node.expressions[0]), node)

    def _dot(self, node: exp.Expr) -> Expr:
        if not isinstance(node.expression, exp.Identifier):
            return self.refuse(node, f"{describe(node.expression)} after a dot is not offered")
        return self.types.field(self._bind(node.this), node.expression.name, node.expression)

    def _array(self, node: exp.Expr) -> Expr:
        return self.types.make_array(self._all(node.expressions), node)

    def _map(self, node: exp.Expr) -> Expr:
        keys = node.args["keys"].expressions if node.args.get("keys") else []
        values = node.args["values"].expressions if node.args.get("values") else []
        return self.types.make_map(self._all(keys), self._all(values), node)

    def _interval(self, node: exp.Expr) -> Expr:
        unit = node.args.get("unit")
        value = node.this
        if not isinstance(unit, exp.Var) or not isinstance(value, exp.Literal):
            return self.refuse(node, "an INTERVAL is a number and one unit", "write INTERVAL '5' SECONDS")
        word, text = unit.name.lower(), str(value.this).strip()
        try:
            if word in _MONTHS:
                return Literal(int(text) * _MONTHS[word], YEAR_MONTH_INTERVAL)
            factor = UNITS[word]
            whole, _, fraction = text.partition(".")
            micros = int(whole or "0") * factor
            if fraction:
                share = int(fraction) * factor / 10 ** len(fraction)
                if share != int(share):
                    raise ValueError
                micros += int(share) * (-1 if text.startswith("-") else 1)
        except KeyError:
            return self.types.refuse(
                node, f"there is no unit of time {quoted(unit.name)}", did_you_mean(word, (*UNITS, *_MONTHS))
            )
        except ValueError:
            return self.types.refuse(node, f"{quoted(text)} is no number of {word}")
        if abs(micros) >= 2**62:
            return self.types.refuse(node, "the INTERVAL is too long")
        return Literal(micros, DAY_TIME_INTERVAL)

    def _current_time(self, node: exp.Expr) -> Expr:
        name = "current_date" if isinstance(node, exp.CurrentDate) else "current_timestamp"
        return self.types.call(name, [], node, []) if self._only(node) else BAD
