"""Java's regular expressions, as far as a pattern can be refused before a row meets it.

Spark hands patterns to `java.util.regex`. What that cannot read fails there with the first row; `check_regular` says it
while the query is planned, and how many groups the pattern has. What depends on tables of Java (names of Unicode
properties and characters) is left to Java.
"""

from __future__ import annotations

import re

_FLAGS = re.compile(r"[idmsuxU]*(?:-[idmsuxU]*)?[:)]")
_NAME = re.compile(r"([a-zA-Z][a-zA-Z0-9]*)>")
_REPETITION = re.compile(r"\{([0-9]+)(?:(,)([0-9]*))?\}")
_COMMENT = re.compile(r"\s+|#[^\n]*")
# What may follow a backslash, beside digits and what is no letter.
_ESCAPES = set("ABDGHNRSVWXZabcdefhknprstuvwxzP")
_ESCAPES_IN_CLASS = _ESCAPES - set("ABGRXZbkz")
_CLASSES = set("DHSVWdhsvwpP")
_LENGTHS = {
    "x": re.compile(r"[0-9a-fA-F]{2}|\{[0-9a-fA-F]{1,6}\}"),
    "u": re.compile(r"[0-9a-fA-F]{4}|\{[0-9a-fA-F]{1,6}\}"),
    "0": re.compile(r"[0-7]"),
    "p": re.compile(r"\{[^{}]+\}|[A-Za-z]"),
    "P": re.compile(r"\{[^{}]+\}|[A-Za-z]"),
    "N": re.compile(r"\{[^{}]+\}"),
    "c": re.compile(r"."),
    "k": re.compile(r"<([a-zA-Z][a-zA-Z0-9]*)>"),
}


class RegularFault(Exception):
    """Why a text is no regular expression of Java's, and what to write instead."""

    def __init__(self, message: str, suggestion: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.suggestion = suggestion


def check_regular(pattern: str) -> int:
    """The number of groups of a pattern; RegularFault where Java cannot read it."""
    return _Scan(pattern).run()


def check_replacement(replacement: str, groups: int) -> None:
    """Refuses what `Matcher.appendReplacement` cannot read: `$` and `\\` have a meaning in a replacement."""
    at = 0
    while at < len(replacement):
        character = replacement[at]
        at += 1
        if character == "\\":
            if at >= len(replacement):
                raise RegularFault("ends with a backslash", "write it twice")
            at += 1
        elif character == "$":
            following = replacement[at : at + 1]
            if following == "{":
                # A group by its name.
                return
            if not following.isascii() or not following.isdigit():
                raise RegularFault("has a $ that names no group", "write \\\\$ for the sign itself")
            if int(following) > groups:
                raise RegularFault(f"has ${following}, and the pattern has {_groups(groups)}")


def _groups(count: int) -> str:
    return "no group" if count == 0 else "1 group" if count == 1 else f"{count} groups"


class _Scan:
    """One pass over a pattern."""

    def __init__(self, pattern: str) -> None:
        self.text = _without_quoting(pattern)
        self.at = 0
        self.groups = 0
        self.names: set[str] = set()
        # For each open group: whether it looks behind, and whether white space was a comment before it.
        self.open: list[tuple[bool, bool]] = []
        self.comments = False
        # Whether something stands here that can be repeated.
        self.repeatable = False

    def run(self) -> int:
        while self.at < len(self.text):
            self._step()
        if self.open:
            raise RegularFault("has a ( without its )")
        return self.groups

    def _step(self) -> None:
        if self.comments and (space := _COMMENT.match(self.text, self.at)):
            self.at = space.end()
            return
        character = self.text[self.at]
        self.at += 1
        match character:
            case "(":
                self._group()
            case ")":
                if not self.open:
                    raise RegularFault("has a ) without its (")
                self.comments = self.open.pop()[1]
                self.repeatable = True
            case "|":
                self.repeatable = False
            case "[":
                self._class()
                self.repeatable = True
            case "\\":
                self._escape(_ESCAPES)
                self.repeatable = True
            case "*" | "+" | "?":
                self._repeated(character, character == "?")
            case "{":
                self._counted()
            case _:
                self.repeatable = True

    def _group(self) -> None:
        before = self.comments
        self.repeatable = False
        if self.text[self.at : self.at + 1] != "?":
            self.groups += 1
            self.open.append((False, before))
            return
        self.at += 1
        following = self.text[self.at : self.at + 1]
        if following in (":", "=", "!", ">"):
            self.at += 1
            self.open.append((False, before))
        elif following == "<":
            self.at += 1
            self._angle(before)
        elif following == "P":
            raise RegularFault("has (?P, which Java does not know", "name a group with (?<name>...)")
        elif following == "(":
            raise RegularFault("has a condition (?(...), which Java does not know", "write the two forms with |")
        else:
            self._flags(before)

    def _angle(self, before: bool) -> None:
        if self.text[self.at : self.at + 1] in ("=", "!"):
            self.at += 1
            self.open.append((True, before))
            return
        name = _NAME.match(self.text, self.at)
        if name is None:
            raise RegularFault("has a group without a name", "a name has letters a to z and digits: (?<name>...)")
        if name[1] in self.names:
            raise RegularFault(f"has two groups called {name[1]}")
        self.names.add(name[1])
        self.groups += 1
        self.at = name.end()
        self.open.append((False, before))

    def _flags(self, before: bool) -> None:
        flags = _FLAGS.match(self.text, self.at)
        if flags is None:
            raise RegularFault("has (? followed by something that Java does not know")
        on, _, off = flags[0][:-1].partition("-")
        self.at = flags.end()
        if flags[0].endswith(":"):
            self.open.append((False, before))
        if "x" in off:
            self.comments = False
        elif "x" in on:
            self.comments = True

    def _repeated(self, sign: str, bounded: bool) -> None:
        if not self.repeatable:
            raise RegularFault(f"has a {sign} that repeats nothing")
        self._behind(bounded)
        if self.text[self.at : self.at + 1] in ("?", "+"):
            self.at += 1
        self.repeatable = False

    def _counted(self) -> None:
        counted = _REPETITION.match(self.text, self.at - 1)
        if counted is None:
            raise RegularFault("has a { that begins no repetition", "write \\\\{ for the sign itself")
        low, comma, high = counted.groups()
        if int(low) >= 2**31 or (high and (int(high) < int(low) or int(high) >= 2**31)):
            raise RegularFault(f"has the repetition {counted[0]}, which cannot be")
        self._behind(not comma or bool(high))
        self.at = counted.end()
        if self.text[self.at : self.at + 1] in ("?", "+"):
            self.at += 1
        self.repeatable = False

    def _behind(self, bounded: bool) -> None:
        if not bounded and any(behind for behind, _ in self.open):
            raise RegularFault("looks behind without a bound on how far", "write {0,100} for *")

    def _escape(self, allowed: set[str]) -> str:
        """Reads what follows a backslash; answers the letter."""
        letter = self.text[self.at : self.at + 1]
        if not letter:
            raise RegularFault("ends with a backslash", "write it twice")
        self.at += 1
        if letter.isascii() and letter.isalpha() and letter not in allowed:
            raise RegularFault(f"has \\{letter}, which Java does not know")
        if letter.isdigit() and letter != "0" and letter.isascii():
            if allowed is _ESCAPES_IN_CLASS:
                raise RegularFault(f"has \\{letter} between [ and ]")
            self._behind(False)
        rest = _LENGTHS.get(letter)
        if rest is None:
            return letter
        found = rest.match(self.text, self.at)
        if found is None:
            raise RegularFault(f"has \\{letter} without what must follow it")
        if letter == "k":
            self._behind(False)
            if found[1] not in self.names:
                raise RegularFault(f"speaks of the group {found[1]}, which is not there")
        self.at = found.end()
        return letter

    def _class(self) -> None:
        """Reads a class after its [, those inside it included."""
        if self.text[self.at : self.at + 1] == "^":
            self.at += 1
        empty = True
        before = ""
        while self.at < len(self.text):
            if self.comments and (space := _COMMENT.match(self.text, self.at)):
                self.at = space.end()
                continue
            character = self.text[self.at]
            self.at += 1
            if character == "]" and not empty:
                return
            ranged = before != "" and character == "-" and self.text[self.at : self.at + 1] not in ("]", "[", "")
            if character == "[":
                self._class()
                character = ""
            elif character == "\\":
                letter = self._escape(_ESCAPES_IN_CLASS)
                character = letter if not letter.isalnum() else ""
            elif character == "&" and self.text[self.at : self.at + 1] == "&":
                self.at += 1
                character = ""
            elif ranged:
                self._range(before)
                character = ""
            empty = False
            before = character
        raise RegularFault("has a [ without its ]")

    def _range(self, low: str) -> None:
        high = self.text[self.at]
        self.at += 1
        if high == "\\":
            letter = self._escape(_ESCAPES_IN_CLASS)
            if letter in _CLASSES:
                raise RegularFault(f"has a range that ends in \\{letter}, which is no character")
            high = letter if not letter.isalnum() else ""
        if high and high < low:
            raise RegularFault(f"has the range {low}-{high}, which ends before it begins")


def _without_quoting(pattern: str) -> str:
    """The pattern with what stands between \\Q and \\E escaped character by character."""
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        if pattern.startswith("\\Q", at):
            end = pattern.find("\\E", at + 2)
            quoted = pattern[at + 2 : end] if end >= 0 else pattern[at + 2 :]
            parts.append("".join(c if c.isalnum() else "\\" + c for c in quoted))
            at = end + 2 if end >= 0 else len(pattern)
        elif pattern[at] == "\\":
            parts.append(pattern[at : at + 2])
            at += 2
        else:
            parts.append(pattern[at])
            at += 1
    return "".join(parts)
