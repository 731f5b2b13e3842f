#!/usr/bin/env python3
"""Checks JSON documents against a JSON Schema. Python standard library only.

usage: schema_check.py SCHEMA DOCUMENT...

Knows the keywords that reports/result.schema.json uses and refuses a schema with any other, so that nothing
is taken for checked that is not. Exit status: 0 all valid, 1 not.
"""
import json, pathlib, sys

SILENT = {"$schema", "$id", "$defs", "title", "description", "then"}  # "if" looks at "then"
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def has_type(value, name):
    if name == "integer":  # True is an int in Python, and 1.0 an integer in JSON Schema
        return isinstance(value, int) and not isinstance(value, bool) or isinstance(value, float) and value.is_integer()
    if name == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])


def equal(a, b):
    """JSON's equality: true is not 1."""
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def resolve(root, reference):
    node = root
    for step in reference.removeprefix("#/").split("/"):
        node = node[step]
    return node


def faults(value, schema, root, where=""):
    """Yields one line for each rule that does not hold."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    for keyword, rule in schema.items():
        if keyword in SILENT:
            continue
        elif keyword == "$ref":
            yield from faults(value, resolve(root, rule), root, where)
        elif keyword == "allOf":
            for part in rule:
                yield from faults(value, part, root, where)
        elif keyword == "if":
            if not any(faults(value, rule, root, where)):
                yield from faults(value, schema["then"], root, where)
        elif keyword == "type":
            names = rule if isinstance(rule, list) else [rule]
            if not any(has_type(value, n) for n in names):
                yield f"{where or '/'}: expected {' or '.join(names)}, found {json.dumps(value)[:60]}"
        elif keyword == "const":
            if not equal(value, rule):
                yield f"{where or '/'}: expected {json.dumps(rule)}, found {json.dumps(value)[:60]}"
        elif keyword == "enum":
            if not any(equal(value, r) for r in rule):
                yield f"{where or '/'}: expected one of {json.dumps(rule)}, found {json.dumps(value)[:60]}"
        elif keyword == "minimum":
            if is_number and value < rule:
                yield f"{where or '/'}: {value} is below {rule}"
        elif keyword == "maximum":
            if is_number and value > rule:
                yield f"{where or '/'}: {value} is above {rule}"
        elif keyword == "required":
            if isinstance(value, dict):
                yield from (f"{where or '/'}: the key {json.dumps(k)} is missing" for k in rule if k not in value)
        elif keyword == "properties":
            if isinstance(value, dict):
                for key, inner in rule.items():
                    if key in value:
                        yield from faults(value[key], inner, root, f"{where}/{key}")
        elif keyword == "additionalProperties":
            if isinstance(value, dict):
                for key in value.keys() - schema.get("properties", {}).keys():
                    yield from faults(value[key], rule, root, f"{where}/{key}")
        elif keyword == "items":
            if isinstance(value, list):
                for i, element in enumerate(value):
                    yield from faults(element, rule, root, f"{where}/{i}")
        else:
            raise ValueError(f"{where or '/'}: the schema uses a keyword that this checker has no rule for: {keyword!r}")


def main():
    schema = json.loads(pathlib.Path(sys.argv[1]).read_text())
    invalid = False
    for name in sys.argv[2:]:
        for fault in faults(json.loads(pathlib.Path(name).read_text()), schema, schema):
            print(f"{name}#{fault}")
            invalid = True
    return 1 if invalid else 0


if __name__ == "__main__":
    sys.exit(main())
