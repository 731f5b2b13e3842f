"""Writes recordings: compact JSON with one event, unit or module a line, so that differences can be read."""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from .errors import Refused

_LINE_EACH = {"events", "modules", "units", "tensors", "classes", "forward", "backward"}


def write_recording(folder: Path, name: str, recording: dict[str, Any], tree: dict[str, Any]) -> Path:
    """Leaves `NAME.json` and `models/MODEL_TREE.json` in the folder, or neither. Recordings of one model share its tree."""
    path, tree_path = folder / f"{name}.json", folder / "models" / f"{recording['model_tree']}.json"
    text, tree_text = _text(recording), _text(tree)
    known = tree_path.exists()
    if known and tree_path.read_text() != tree_text:
        raise Refused(f"{tree_path} is another model; choose another --model-name or folder")
    try:
        tree_path.parent.mkdir(parents=True, exist_ok=True)
        _write(tree_path, tree_text.encode())
        _write(path, text.encode())
    except OSError as error:
        if not known:
            tree_path.unlink(missing_ok=True)
        raise Refused(f"cannot write {path}: {error.strerror or error}") from error
    return path


def write_tree(path: Path, tree: dict[str, Any]) -> None:
    """One file, gzip-compressed when it is called so; the same tree gives the same bytes."""
    text = _text(tree).encode()
    try:
        _write(path, gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
    except OSError as error:
        raise Refused(f"cannot write {path}: {error.strerror or error}") from error


def _write(path: Path, content: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        os.fchmod(handle, 0o666 & ~_umask())
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _text(document: dict[str, Any]) -> str:
    return "{" + ",\n".join(f"{_compact(k)}:{_lines(k, v)}" for k, v in document.items()) + "}\n"


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _lines(key: str, value: Any) -> str:
    if key in _LINE_EACH and value:
        return "[\n" + ",\n".join(map(_compact, value)) + "\n]"
    if key == "operators":
        return _text(value).rstrip()
    if key == "iterations":
        return "[" + ",".join("{" + ",".join(f"{_compact(k)}:{_lines(k, v)}" for k, v in iteration.items()) + "}"
                              for iteration in value) + "]"
    return _compact(value)
