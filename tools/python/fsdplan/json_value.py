"""Reads JSON that nobody has checked: a value knows where it stands, and refuses what is not expected there."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from .errors import Refused


class JsonValue:
    """A value of a file with its JSON pointer. Whatever does not fit raises `Refused` at that place."""

    def __init__(self, value: Any, where: str) -> None:
        self._value, self._where = value, where

    def fail(self, expected: str) -> NoReturn:
        found = json.dumps(self._value)
        raise Refused(f"{self._where}: expected {expected}, found {found if len(found) <= 40 else found[:40] + '…'}")

    def is_null(self) -> bool:
        return self._value is None

    def at(self, key: str) -> JsonValue:
        members = self._object()
        if key not in members:
            raise Refused(f'{self._where}: the member "{key}" is missing')
        return JsonValue(members[key], f"{self._where}/{key}")

    def given(self, key: str) -> JsonValue | None:
        """The member, unless it is absent or null."""
        return self.at(key) if self._object().get(key) is not None else None

    def elements(self) -> Iterator[JsonValue]:
        if not isinstance(self._value, list):
            self.fail("an array")
        for i, value in enumerate(self._value):
            yield JsonValue(value, f"{self._where}/{i}")

    def text(self) -> str:
        if not isinstance(self._value, str):
            self.fail("a string")
        return self._value

    def flag(self) -> bool:
        if not isinstance(self._value, bool):
            self.fail("true or false")
        return self._value

    def integer(self, low: int = 0) -> int:
        if isinstance(self._value, bool) or not isinstance(self._value, int) or self._value < low:
            self.fail(f"an integer from {low} up")
        return self._value

    def flag_or_integer(self, low: int) -> bool | int:
        return self._value if isinstance(self._value, bool) else self.integer(low)

    def word(self, words: tuple[str, ...]) -> str:
        text = self.text()
        if text not in words:
            near = difflib.get_close_matches(text, words, 1)
            self.fail(" or ".join(words) if len(words) <= 3 else f'"{near[0]}"' if near else "one of " + ", ".join(words))
        return text

    def _object(self) -> dict[str, Any]:
        if not isinstance(self._value, dict):
            self.fail("an object")
        return self._value


def read_json(path: Path) -> JsonValue:
    """The document of a file. Members that are given twice are refused, as are NaN and Infinity."""
    try:
        document = json.loads(path.read_bytes(), object_pairs_hook=_without_repeats, parse_constant=_no_constant)
    except OSError as error:
        raise Refused(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise Refused(f"{path} is no text: byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise Refused(f"{path}:{error.lineno}:{error.colno}: no JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise Refused(f"{path}: no JSON: {error}") from error
    return JsonValue(document, f"{path}#")


def _without_repeats(members: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(members)
    if len(document) != len(members):
        keys = [key for key, _ in members]
        raise ValueError(f'the member "{next(key for key in keys if keys.count(key) > 1)}" is given twice')
    return document


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")
