"""Odd and hostile ONNX files, written byte by byte: make(folder) returns a list of more.Case."""

import os

from more import Case

FLOAT, INT64 = 1, 7


def varint(number):
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out) + bytes([number])


def field(number, value):
    """A field of a message: a number, text, or bytes that are a message or data."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def tensor(name, dims, data_type=FLOAT, raw=None):
    return (b"".join(field(1, d) for d in dims) + field(2, data_type) + field(8, name) +
            (field(9, raw) if raw is not None else b""))


def value(name, dims, data_type=FLOAT):
    shape = b"".join(field(1, field(2, d) if isinstance(d, str) else field(1, d)) for d in dims)
    return field(1, name) + field(2, field(1, field(1, data_type) + field(2, shape)))


def node(op, inputs, outputs, name="n", attributes=()):
    return (b"".join(field(1, i) for i in inputs) + b"".join(field(2, o) for o in outputs) + field(3, name) +
            field(4, op) + b"".join(field(5, a) for a in attributes))


def model(nodes, initializers=(), inputs=(), outputs=("y",)):
    graph = (b"".join(field(1, n) for n in nodes) + b"".join(field(5, t) for t in initializers) +
             b"".join(field(11, i) for i in inputs) + b"".join(field(12, field(1, o)) for o in outputs))
    return field(1, 8) + field(2, "hand") + field(7, graph)


X = value("x", ["batch", 4])
W = tensor("lin.weight", [4, 4])
PRODUCT = node("MatMul", ["x", "lin.weight"], ["y"], "/lin/MatMul")
GOOD = model([PRODUCT], [W], [X])


def deep_graphs(levels):
    """If within If within If: attribute 6 of a node's attribute is a graph."""
    graph = b""
    for _ in range(levels):
        graph = field(1, node("If", [], ["z"], attributes=[field(1, "then_branch") + field(6, graph)]))
    return field(1, 8) + field(7, graph + field(12, field(1, "z")))


REJECTED = {
    "empty": (b"", "no graph"),
    "text": (b"this is no protobuf", "no protobuf message"),
    "truncated": (GOOD[:-3], "cut off"),
    "no_graph": (field(1, 8), "no graph"),
    "no_nodes": (model([], [W], [X], []), "no nodes"),
    "missing_initializer": (model([PRODUCT], [], [X]), 'uses "lin.weight"'),
    "cycle": (model([node("Add", ["x", "b"], ["a"]), node("Add", ["x", "a"], ["b"])], [], [X], ["a"]), 'uses "b"'),
    "made_twice": (model([PRODUCT, PRODUCT], [W], [X]), "is there already"),
    "initializer_twice": (model([PRODUCT], [W, W], [X]), "is there already"),
    "missing_output": (model([PRODUCT], [W], [X], ["z"]), 'uses "z"'),
    "no_output": (model([node("Add", ["x", "x"], [])], [], [X], ["x"]), "has no output"),
    "negative_dimension": (model([PRODUCT], [tensor("lin.weight", [4, -4])], [X]), "size -4"),
    "huge_dimension": (model([PRODUCT], [tensor("lin.weight", [1 << 62, 1 << 62])], [X]), "2^53"),
    "huge_in_all": (model([PRODUCT], [W, tensor("a", [1 << 52]), tensor("b", [1 << 52])], [X]), "2^53"),
    "negative_input": (model([PRODUCT], [W], [value("x", [-1, 4])]), "size -1"),
    "unnamed_dimension": (model([PRODUCT], [W], [value("x", ["frames", 4])]), '"frames"'),
    "input_without_shape": (model([PRODUCT], [W], [field(1, "x")]), "no shape"),
    "strings": (model([PRODUCT], [tensor("lin.weight", [4], 8)], [X]), "data type 8"),
    "short_data": (model([PRODUCT], [tensor("lin.weight", [4, 4], raw=b"1234")], [X]), "4 bytes of data"),
}

def long_name(parts):
    return ".".join("a" * parts) + ".weight"


# Whatever is right: no crash, in `inspect` and in `simulate`, which plays the operators.
EITHER = {
    "deep_graphs": deep_graphs(200),
    "long_name": model([node("MatMul", ["x", long_name(100_000)], ["y"])], [tensor(long_name(100_000), [4, 4])], [X]),
    "deep_scope": model([node("MatMul", ["x", "w.weight"], ["y"], "/a" * 5000 + "/MatMul")],
                        [tensor("w.weight", [4, 4])], [X]),
    "shapes_that_do_not_fit": model([PRODUCT], [tensor("lin.weight", [5, 4])], [X]),
    "no_rows": model([PRODUCT], [tensor("lin.weight", [4, 0])], [X]),
    "scalar_weight": model([node("LayerNormalization", ["x", "n.weight"], ["y"])], [tensor("n.weight", [])], [X]),
    "reshape_to_nothing": model([PRODUCT, node("Reshape", ["y", "s"], ["z"])],
                                [W, tensor("s", [2], INT64, (-1).to_bytes(8, "little", signed=True) * 2)], [X], ["z"]),
    "reshape_overflows": model([PRODUCT, node("Reshape", ["y", "s"], ["z"])],
                               [W, tensor("s", [2], INT64, (1 << 62).to_bytes(8, "little") * 2)], [X], ["z"]),
    "divides_by_zero": model([node("Shape", ["x"], ["s"]), node("Div", ["s", "zero"], ["d"]),
                              node("Reshape", ["x", "d"], ["y"])],
                             [tensor("zero", [1], INT64, bytes(8))], [X]),
    "transposes_past_the_end": model([PRODUCT, node("Transpose", ["y"], ["z"],
                                                    attributes=[field(1, "perm") + field(8, 7) + field(8, 0)])],
                                     [W], [X], ["z"]),
    "stride_zero": model([node("Conv", ["x", "c.weight"], ["y"],
                               attributes=[field(1, "strides") + field(8, 0) + field(8, 0)])],
                         [tensor("c.weight", [4, 3, 2, 2])], [value("x", ["batch", 3, 8, 8])]),
    "too_many_flops": model([PRODUCT], [tensor("lin.weight", [1 << 26, 1 << 26])], [value("x", ["batch", 1 << 26])]),
    "unknown_operator": model([PRODUCT, node("Frobnicate", ["y"], ["z"])], [W], [X], ["z"]),
    "no_inputs": model([node("Add", ["lin.weight", "lin.weight"], ["y"])], [W]),
    "output_is_input": model([PRODUCT], [W], [X], ["x"]),
    "softmax_of_shape": model([node("Softmax", ["x"], ["a"]), node("MatMul", ["a", "a"], ["b"]), PRODUCT], [W], [X]),
}


def make(folder, built):
    """`built`: whether this fsdplan reads ONNX files; otherwise it refuses all of them with status 3."""
    cases = []
    for name, content in {"good": GOOD, **EITHER, **{n: c for n, (c, _) in REJECTED.items()}}.items():
        path = os.path.join(folder, f"onnx_{name}.onnx")
        with open(path, "wb") as file:
            file.write(content)
        words = [f"{{}}/onnx_{name}.onnx"]
        if not built:
            cases.append(Case(f"onnx {name}", words, "-DFSDPLAN_ONNX=ON", status=3))
        elif name in REJECTED:
            cases.append(Case(f"onnx {name}", words, REJECTED[name][1]))
        else:
            cases.append(Case(f"onnx {name}", words, numel=16 if name == "good" else None))
            cases.append(Case(f"onnx {name} played", ["--gpu", "h100-sxm", "--gpus", "2", "--policy", "none"] + words,
                              command="simulate"))
    return cases
