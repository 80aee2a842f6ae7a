"""Reads the Go-template subset of rule files; every mistake has its place."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from sentinel.errors import nearest
from sentinel.rules.template_functions import ARITY, NOT_HERE
from sentinel.rules.template_tree import (
    Assign,
    Call,
    Dot,
    Field,
    If,
    Leave,
    Literal,
    Node,
    Operand,
    Print,
    Range,
    TemplateError,
    Variable,
    With,
    Words,
)

VARIABLES = ("$labels", "$value", "$externalLabels", "$externalURL")
FIELDS = ("Labels", "Value", "ExternalLabels", "ExternalURL")
_KEYWORDS = frozenset({"if", "else", "end", "range", "with", "define", "template", "block", "break", "continue"})
_DEEPEST = 50

_TOKEN = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<string>"(?:\\.|[^"\\\n])*"|`[^`]*`)
    | (?P<char>'(?:\\.|[^'\\\n])+')
    | (?P<number>[+-]?(?:0[xX][0-9a-fA-F]+|(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))
    | (?P<declare>:=)
    | (?P<assign>=)
    | (?P<variable>\$\w*)
    | (?P<field>\.[A-Za-z_]\w*)
    | (?P<dot>\.)
    | (?P<word>[A-Za-z_]\w*)
    | (?P<mark>[|(),])
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int
    end: int
    spaced: bool


@dataclass(frozen=True, slots=True)
class _Action:
    """The inside of one pair of braces."""

    tokens: tuple[_Token, ...]
    start: int
    end: int

    @property
    def keyword(self) -> str:
        first = self.tokens[0] if self.tokens else None
        return first.text if first and first.kind == "word" and first.text in _KEYWORDS else ""


def parse(text: str) -> tuple[Node, ...]:
    """The parts of a template.

    Raises:
        TemplateError: With the offsets of the first thing that is wrong.
    """
    return _Parser(_split(text)).whole()


def _split(text: str) -> list[str | _Action]:
    """Text and actions in turn; trim markers are applied, comments dropped."""
    parts: list[str | _Action] = []
    at, trim = 0, False
    while True:
        opening = text.find("{{", at)
        words = text[at:] if opening < 0 else text[at:opening]
        if trim:
            words = words.lstrip(" \t\r\n")
        if opening < 0:
            parts.append(words)
            return parts
        inside = opening + 2
        if re.match(r"-\s", text[inside : inside + 2]):
            words = words.rstrip(" \t\r\n")
            inside += 2
        parts.append(words)
        comment = re.compile(r"/\*.*?\*/\s*", re.DOTALL).match(text, inside)
        if comment:
            ending = comment.end() - (1 if text[comment.end() : comment.end() + 1] == "-" else 0)
            closed = re.compile(r"\s*-?\}\}").match(text, ending)
            if closed is None:
                raise TemplateError("this comment is not closed by }}", opening, inside, hint="{{/* … */}}")
            trim = closed[0].endswith("-}}")
            at = closed.end()
            continue
        tokens, at, trim = _tokens(text, opening, inside)
        parts.append(_Action(tuple(tokens), opening, at))


def _tokens(text: str, opening: int, at: int) -> tuple[list[_Token], int, bool]:
    tokens: list[_Token] = []
    spaced = False
    while True:
        if text.startswith("}}", at):
            return tokens, at + 2, False
        if spaced and text.startswith("-}}", at):
            return tokens, at + 3, True
        found = _TOKEN.match(text, at)
        if found is None:
            if at >= len(text):
                raise TemplateError("this action is not closed by }}", opening, opening + 2, hint="{{ $value }}")
            if text[at] in "\"'`":
                raise TemplateError("this text is not closed", at, (text + "\n").index("\n", at))
            raise TemplateError(f"unexpected {text[at]!r} in an action", at, at + 1)
        kind = str(found.lastgroup)
        if kind != "space":
            tokens.append(_Token(kind, found[0], found.start(), found.end(), spaced))
        spaced = kind == "space"
        at = found.end()


class _Parser:
    """Recursive descent over the parts, with the variables in sight."""

    def __init__(self, parts: list[str | _Action]) -> None:
        self._parts = parts
        self._at = 0
        self._scopes: list[list[str]] = [list(VARIABLES)]
        self._loops = 0
        self._moved = 0  # inside `with` or `range` the cursor is no longer the data
        self._action = _Action((), 0, 0)
        self._tokens: list[_Token] = []

    def whole(self) -> tuple[Node, ...]:
        nodes, stop = self._body()
        if stop is not None:
            raise TemplateError(f"`{stop.keyword}` without an `if`, `range` or `with` before it", stop.start, stop.end)
        return nodes

    def _body(self) -> tuple[tuple[Node, ...], _Action | None]:
        """Nodes up to an `else` or `end` of ours, which is returned, or to the end of the text."""
        nodes: list[Node] = []
        while self._at < len(self._parts):
            part = self._parts[self._at]
            self._at += 1
            if isinstance(part, str):
                if part:
                    nodes.append(Words(part))
                continue
            if part.keyword in ("else", "end"):
                return tuple(nodes), part
            nodes.append(self._node(part))
        return tuple(nodes), None

    def _node(self, action: _Action) -> Node:
        if len(self._scopes) > _DEEPEST:
            raise TemplateError("nested too deep", action.start, action.end)
        keyword = action.keyword
        self._enter(action, skip=1 if keyword else 0)
        match keyword:
            case "if" | "with" | "range":
                return self._block(keyword, action)
            case "break" | "continue":
                if not self._loops:
                    raise TemplateError(f"`{keyword}` outside of `range`", action.start, action.end)
                return Leave(keyword == "continue")
            case "define" | "template" | "block":
                raise TemplateError(
                    f"`{keyword}` is not supported in rules", action.start, action.end, hint="write the text in place"
                )
        names, declares = self._names()
        if names:
            value = self._pipeline()
            self._close()
            if declares:
                self._scopes[-1].append(names[0])
            return Assign(names[0], value, declares)
        value = self._pipeline()
        self._close()
        return Print(value)

    def _block(self, keyword: str, action: _Action) -> Node:
        self._scopes.append([])
        names, _ = self._names(pair=keyword == "range")
        value = self._pipeline()
        self._close()
        self._scopes[-1].extend(names)
        self._loops += keyword == "range"
        self._moved += keyword != "if"
        then, stop = self._body()
        self._moved -= keyword != "if"
        self._loops -= keyword == "range"
        other: tuple[Node, ...] = ()
        if stop is not None and stop.keyword == "else":
            other, stop = self._else(stop)
        if stop is None:
            raise TemplateError(f"this `{keyword}` has no `end`", action.start, action.end, hint="{{ end }}")
        self._scopes.pop()
        last = names[-1] if names else ""
        match keyword:
            case "if":
                return If(value, then, other, last)
            case "with":
                return With(value, then, other, last)
        return Range(value, then, other, names[0] if len(names) > 1 else "", last)

    def _else(self, action: _Action) -> tuple[tuple[Node, ...], _Action | None]:
        rest = action.tokens[1:]
        if not rest:
            nodes, stop = self._body()
            if stop is not None and stop.keyword == "else":
                raise TemplateError("a second `else`", stop.start, stop.end)
            return nodes, stop
        nested = _Action(rest, rest[0].start, action.end)
        if nested.keyword not in ("if", "with"):
            raise TemplateError("expected `if` or nothing after `else`", rest[0].start, rest[-1].end)
        self._enter(nested, skip=1)
        node = self._block(nested.keyword, nested)
        # The nested block has eaten the `end` that closes both.
        return (node,), nested

    def _enter(self, action: _Action, skip: int) -> None:
        self._action = action
        self._tokens = list(action.tokens[skip:])
        if not self._tokens and not skip:
            raise TemplateError("an empty action", action.start, action.end, hint="{{ $value }}")

    def _names(self, *, pair: bool = False) -> tuple[list[str], bool]:
        """The variables that a pipeline is given to, and whether they are new."""
        ahead = self._tokens
        count = 2 if pair and len(ahead) > 3 and ahead[1].text == "," else 1
        mark = 2 * count - 1
        if len(ahead) <= mark or ahead[0].kind != "variable" or ahead[mark].kind not in ("declare", "assign"):
            return [], False
        names = [token.text for token in ahead[:mark:2]]
        declares = ahead[mark].kind == "declare"
        if not declares:
            for token in ahead[:mark:2]:
                self._known_variable(token)
        self._tokens = ahead[mark + 1 :]
        return names, declares

    def _close(self) -> None:
        if self._tokens:
            left = self._tokens[0]
            raise TemplateError(f"unexpected `{left.text}`", left.start, left.end)

    def _pipeline(self) -> Operand:
        value = self._command(None)
        while self._tokens and self._tokens[0].text == "|":
            mark = self._tokens.pop(0)
            if not self._tokens:
                raise TemplateError("nothing follows this `|`", mark.start, mark.end)
            value = self._command(value)
        return value

    def _command(self, piped: Operand | None) -> Operand:
        if not self._tokens:
            raise TemplateError("a value is missing", self._action.start, self._action.end)
        first = self._tokens[0]
        if first.kind == "word" and first.text not in ("true", "false", "nil"):
            self._tokens.pop(0)
            arguments: list[Operand] = []
            while self._tokens and self._tokens[0].text not in ("|", ")"):
                arguments.append(self._operand())
            return self._call(first, [*arguments, *([] if piped is None else [piped])])
        value = self._operand()
        if piped is not None:
            raise TemplateError(f"cannot pipe into `{first.text}`, which is no function", first.start, first.end)
        if self._tokens and self._tokens[0].text not in ("|", ")"):
            raise TemplateError(f"`{first.text}` is no function and takes no arguments", first.start, first.end)
        return value

    def _call(self, name: _Token, arguments: list[Operand]) -> Call:
        if name.text not in ARITY:
            if name.text in NOT_HERE:
                raise TemplateError(f"the function `{name.text}` is not supported in rules", name.start, name.end)
            near = nearest(name.text, frozenset(ARITY))
            hint = f"`{near}`" if near else None
            raise TemplateError(f"unknown function `{name.text}`", name.start, name.end, hint=hint)
        least, most = ARITY[name.text]
        if not least <= len(arguments) <= most:
            wanted = str(least) if least == most else f"at least {least}" if most > 99 else f"{least} to {most}"
            raise TemplateError(
                f"`{name.text}` takes {wanted} argument{'' if wanted == '1' else 's'}, not {len(arguments)}",
                name.start,
                name.end,
            )
        return Call(name.text, tuple(arguments), name.start, name.end)

    def _operand(self) -> Operand:
        token = self._tokens.pop(0)
        value: Operand
        match token.kind:
            case "string" | "char" | "number":
                return Literal(_literal(token))
            case "word" if token.text in ("true", "false", "nil"):
                return Literal({"true": True, "false": False, "nil": None}[token.text])
            case "word":
                return self._call(token, [])
            case "variable":
                value = self._known_variable(token)
            case "field":
                value = self._field(Dot(), token)
            case "dot":
                value = Dot()
            case _ if token.text == "(":
                value = self._pipeline()
                if not self._tokens or self._tokens[0].text != ")":
                    raise TemplateError("this parenthesis is not closed", token.start, token.end)
                self._tokens.pop(0)
            case _:
                raise TemplateError(f"unexpected `{token.text}`", token.start, token.end)
        while self._tokens and self._tokens[0].kind == "field" and not self._tokens[0].spaced:
            value = self._field(value, self._tokens.pop(0))
        return value

    def _known_variable(self, token: _Token) -> Variable:
        known = {name for scope in self._scopes for name in scope} | {"$"}
        if token.text not in known:
            near = nearest(token.text, known)
            hint = f"`{near}`" if near else None
            raise TemplateError(f"unknown variable `{token.text}`", token.start, token.end, hint=hint)
        return Variable(token.text)

    def _field(self, of: Operand, token: _Token) -> Field:
        name = token.text[1:]
        whole = of == Variable("$") or (isinstance(of, Dot) and not self._moved)
        if whole and name not in FIELDS:
            near = nearest(name, FIELDS)
            raise TemplateError(
                f"unknown field `.{name}`",
                token.start,
                token.end,
                hint=f"`.{near}`" if near else "`.Labels`, `.Value`, `.ExternalLabels`, `.ExternalURL`",
            )
        return Field(of, name, token.start, token.end)


def _literal(token: _Token) -> object:
    try:
        if token.text.startswith("`"):
            return token.text[1:-1]
        if token.kind == "char":
            return ord(ast.literal_eval(token.text))
        if token.kind == "string":
            return str(ast.literal_eval(token.text))
        cleaned = token.text.replace("_", "")
        return int(cleaned, 0) if re.fullmatch(r"[+-]?(0[xX][0-9a-fA-F]+|0|[1-9]\d*)", cleaned) else float(cleaned)
    except (ValueError, SyntaxError, TypeError):
        raise TemplateError(f"cannot read `{token.text}`", token.start, token.end) from None
