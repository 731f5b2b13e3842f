"""Further odd and hostile inputs: writes them below a folder and says what `fsdplan inspect` must do with each.

make(folder) returns a list of Case. Nothing here needs PyTorch.
"""

import dataclasses
import gzip
import json
import os
import random
import zlib

import gen


@dataclasses.dataclass
class Case:
    name: str
    words: list  # of the command line after `fsdplan <command>`; {} stands for the folder
    cause: str = None  # rejected with this in the message; None: see numel
    numel: int = None  # accepted with this total; None with no cause: either is fine
    status: int = 2  # of a rejection
    names_file: bool = True  # the message names the file
    command: str = "inspect"
    settings: str = None  # name of the settings file that the message names


def tree(modules, tensors=(), **changes):
    document = {"format": "fsdplan.module-tree", "version": 1, "model": "odd",
                "classes": [{"name": "m.A", "bases": ["torch.nn.modules.module.Module"]}],
                "modules": modules, "tensors": list(tensors), "root": 0}
    document.update(changes)
    return json.dumps(document)


def tensor(i, shape, dtype="float32"):
    return {"id": i, "shape": shape, "dtype": dtype, "requires_grad": True}


def chain(length, slots):
    modules = [{"id": i, "class": 0, "children": {s: i + 1 for s in slots}} for i in range(length)]
    return modules + [{"id": length, "class": 0, "parameters": {"w": 0}}]


def gzip_bomb(mebibytes):
    """A gzip stream of zeros whose middle is one compressed block over and over."""
    zeros = b"\0" * (1 << 20)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    first = packer.compress(zeros) + packer.flush(zlib.Z_FULL_FLUSH)
    again = packer.compress(zeros) + packer.flush(zlib.Z_FULL_FLUSH)
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + first + again * (mebibytes - 1)


def trees(write):
    leaf = {"id": 1, "class": 0, "parameters": {"w": 0}}
    root = {"id": 0, "class": 0, "children": {"a": 1}}
    ten = [tensor(0, [10])]
    rejected = {
        "unreachable": (tree([root, leaf, {"id": 2, "class": 0}], ten), "is not reachable from the root"),
        "duplicate_module": (tree([root, leaf, dict(leaf)], ten), "occurs twice"),
        "duplicate_tensor": (tree([root, leaf], ten + ten), "occurs twice"),
        "dotted_child": (tree([{"id": 0, "class": 0, "children": {"a.b": 1}}, leaf], ten), "name without dots"),
        "empty_parameter_name": (tree([{"id": 0, "class": 0, "parameters": {"": 0}}], ten), "name without dots"),
        "no_root": (tree([root, leaf], ten, root=9), "no module with id 9"),
        "class_out_of_range": (tree([{"id": 0, "class": 4}]), "index into classes"),
        "negative_class": (tree([{"id": 0, "class": -1}]), "non-negative"),
        "unknown_key": (tree([{"id": 0, "class": 0, "childs": {}}]), "unknown key"),
        "unknown_dtype": (tree([root, leaf], [tensor(0, [1], "float33")]), "unknown dtype"),
        "too_large": (tree([root, leaf], [tensor(0, [1 << 30, 1 << 30])]), "2^53"),
        "too_large_in_all": (tree([{"id": 0, "class": 0, "parameters": {"a": 0, "b": 1}}],
                                  [tensor(0, [1 << 52], "bool"), tensor(1, [1 << 52], "bool"),
                                   tensor(2, [1], "bool")]), "2^53"),
        "too_many_bytes": (tree([root, leaf], [tensor(0, [1 << 52])]), "2^53"),
        "size_as_text": (tree([root, leaf], [tensor(0, ["4096"])]), 'found "4096"'),
        "size_as_real": (tree([root, leaf], [tensor(0, [4096.0])]), "non-negative integer"),
        "size_beyond_64_bits": (tree([root, leaf], [tensor(0, [1 << 80])]), "non-negative integer"),
        "modules_is_object": (tree({}), "expected an array"),
        "classes_of_numbers": (tree([], classes=[1]), "expected an object"),
        "self_child": (tree([{"id": 0, "class": 0, "children": {"me": 0}}]), "cycle"),
        "deep_chain": (tree(chain(20_000, ["a"]), ten), "deeper than 1000"),
        "no_modules": (tree([]), "no module with id 0"),
        "other_format": (tree([root, leaf], ten, format="fsdplan.module-trees"), "expected \"fsdplan.module-tree\""),
    }
    for name, (text, cause) in rejected.items():
        write(f"more_tree_{name}.json", text)
        yield Case(name, [f"{{}}/more_tree_{name}.json"], cause, names_file=name != "deep_chain")
    accepted = {
        # Two slots at each of 60 levels: 2^60 paths, one parameter.
        "shared_chain": (tree(chain(60, ["a", "b"]), ten), 10),
        "wide": (tree([{"id": 0, "class": 0, "children": {str(i): 1 for i in range(50_000)}}, leaf], ten), 10),
        "scalar_and_empty": (tree([{"id": 0, "class": 0, "parameters": {"s": 0, "e": 1}}],
                                  [tensor(0, []), tensor(1, [0, 5])]), 1),
        "control_characters": (tree([{"id": 0, "class": 0, "children": {"a\nb\u0000\u001b[31m": 1}}, leaf], ten), 10),
        "buffer_and_parameter": (tree([{"id": 0, "class": 0, "parameters": {"w": 0}, "buffers": {"b": 0}}], ten), 10),
    }
    for name, (text, numel) in accepted.items():
        write(f"more_tree_{name}.json", text)
        for option in ([], ["--tree"]):
            yield Case(name, [f"{{}}/more_tree_{name}.json"] + option, numel=numel)


def configs(write):
    wrong = ["text", "", -1, 0, 1.5, 1e300, 10**9, 2**62, 10**30, True, None, [], [1], {}, {"a": 1}]
    for key in list(gen.LLAMA) + ["torch_dtype", "head_dim", "hidden_act", "rope_scaling", "text_config"]:
        for i, value in enumerate(wrong):
            write(f"more_cfg_{key}_{i}/config.json", json.dumps(dict(gen.LLAMA, **{key: value})))
            yield Case(f"{key} = {value!r}", [f"{{}}/more_cfg_{key}_{i}"])
    rejected = {
        "layers": (dict(gen.LLAMA, num_hidden_layers=10**9), "num_hidden_layers"),
        "dims": (dict(gen.LLAMA, hidden_size=1 << 40, num_attention_heads=1, num_key_value_heads=1,
                      intermediate_size=1 << 40), "2^53"),
        "vocab": (dict(gen.LLAMA, vocab_size=1 << 50), "vocab_size"),
        "no_type": ({"hidden_size": 64}, "model_type"),
        "is_list": ([gen.LLAMA], "expected an object"),
        "unknown_architecture": (dict(gen.LLAMA, architectures=["LlamaForNothing"]), "LlamaForNothing"),
    }
    for name, (config, cause) in rejected.items():
        write(f"more_cfg_{name}/config.json", json.dumps(config))
        yield Case(name, [f"{{}}/more_cfg_{name}"], cause)


def checkpoints(write, folder):
    def st(name, header, data=b"", raw=None):
        gen.OUT = folder
        gen.st(f"{name}/model.safetensors", header, data, raw=raw)
        return [f"{{}}/{name}/model.safetensors"]

    f32 = gen.t
    yield Case("names", st("more_st_names", {
        "": f32("F32", [1], 0, 4), ".": f32("F32", [1], 4, 8), "a..b": f32("F32", [1], 8, 12),
        "a\n\x1b[31m": f32("F32", [1], 12, 16), "x": f32("F32", [1], 16, 20), "x.y": f32("F32", [1], 20, 24),
        "l.99999999999999999999999.w": f32("F32", [1], 24, 28), "l.00.w": f32("F32", [1], 28, 32),
        "l.1.w": f32("F32", [1], 32, 36), ".".join("a" * 100_000): f32("F32", [1], 36, 40)}), numel=10)
    yield Case("invalid UTF-8 in a name", st("more_st_utf8", None, b"\0" * 4,
               raw=b'{"a\xff":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'), "not valid JSON")
    yield Case("offsets beyond 63 bits", st("more_st_offsets", None,
               raw=b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[18446744073709551612,18446744073709551616]}}'),
               "non-negative integer")
    yield Case("three offsets", st("more_st_three", {"a": {"dtype": "F32", "shape": [], "data_offsets": [0, 4, 4]}}),
               "two byte offsets")
    yield Case("deep header", st("more_st_deep", None, raw=b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "nested")
    write("more_index_outside/model.safetensors.index.json",
          json.dumps({"weight_map": {"a": "../st_bf16.safetensors"}}))
    yield Case("index outside", ["{}/more_index_outside"], "plain name")
    write("more_index_itself/model.safetensors.index.json",
          json.dumps({"weight_map": {"a": "model.safetensors.index.json"}}))
    yield Case("index names itself", ["{}/more_index_itself"], "header")
    os.makedirs(os.path.join(folder, "more_index_folder", "x.safetensors"), exist_ok=True)
    write("more_index_folder/model.safetensors.index.json", json.dumps({"weight_map": {"a": "x.safetensors"}}))
    yield Case("index names a folder", ["{}/more_index_folder"], "there is no file")


def files(write, folder):
    whole = gzip.compress(tree(chain(30, ["a"]), [tensor(0, [10])]).encode(), mtime=0)
    write("more_whole.json.gz", whole)
    yield Case("gzip", ["{}/more_whole.json.gz"], numel=10)
    for size in (2, 9, 10, 11, 20, len(whole) // 2, len(whole) - 9, len(whole) - 1):
        write(f"more_cut_{size}.json.gz", whole[:size])
        yield Case(f"gzip cut at {size}", [f"{{}}/more_cut_{size}.json.gz"], "")
    damaged = bytearray(whole)
    damaged[-6] ^= 1
    write("more_damaged.json.gz", bytes(damaged))
    yield Case("gzip with a wrong checksum", ["{}/more_damaged.json.gz"], "gzip")
    write("more_bomb.json.gz", gzip_bomb(600))
    yield Case("gzip bomb", ["{}/more_bomb.json.gz"], "")
    write("more_bomb/config.json", gzip_bomb(600))
    yield Case("gzip bomb as config", ["{}/more_bomb/config.json"], "512 MiB")

    source = random.Random(20260701)
    for i in range(40):
        name = source.choice(["x.json", "config.json", "x.safetensors", "x.bin", "model.safetensors.index.json"])
        write(f"more_random_{i}/{name}", source.randbytes(source.choice([1, 7, 8, 9, 100, 5000])))
        yield Case(f"random bytes {i}", [f"{{}}/more_random_{i}/{name}"], "")
    write("more_empty.json", b"")
    yield Case("empty file", ["{}/more_empty.json"], "not a model file")
    write("more_pickle/pytorch_model.bin", b"PK\x03\x04" + b"\0" * 100)
    yield Case("archive", ["{}/more_pickle/pytorch_model.bin"], "without its directory at the end")
    yield Case("archive in a folder", ["{}/more_pickle"], "without its directory at the end")
    os.makedirs(os.path.join(folder, "more_no_model"), exist_ok=True)
    yield Case("folder without a model", ["{}/more_no_model"], "folder without config.json")
    os.makedirs(os.path.join(folder, "more_folder.safetensors"), exist_ok=True)
    yield Case("folder", ["{}/more_folder.safetensors"], "folder")
    os.makedirs(os.path.join(folder, "more_in_folder", "config.json"), exist_ok=True)
    yield Case("folder as config.json", ["{}/more_in_folder"], "folder without")
    yield Case("folder as file", ["{}/more_in_folder/config.json"], "folder")
    yield Case("device", ["/dev/null"], "cannot be read")
    pipe = os.path.join(folder, "more_pipe.json")
    if not os.path.exists(pipe):
        os.mkfifo(pipe)
    yield Case("pipe", ["{}/more_pipe.json"], "cannot be read")
    loop = os.path.join(folder, "more_loop.json")
    if not os.path.islink(loop):
        os.symlink("more_loop.json", loop)
    yield Case("link to itself", ["{}/more_loop.json"], "")
    yield Case("absent", ["{}/more_absent.json"], "no such file")
    yield Case("long name", ["x" * 5000], "no such file", names_file=False)
    yield Case("long path", ["{}/" + "d/" * 3000 + "x.json"], "no such file", names_file=False)
    yield Case("empty name", [""], "no such file", names_file=False)
    yield Case("name that is not UTF-8", [b"{}/more_\xff\xfe\n.json"], "no such file", names_file=False)
    with open(os.path.join(os.fsencode(folder), b"more_\xff.safetensors"), "wb") as f:
        f.write(b"\0" * 3)
    yield Case("file that is not UTF-8", [b"{}/more_\xff.safetensors"], "8-byte length", names_file=False)
    if os.geteuid() != 0:
        write("more_unreadable.json", b"{}")
        os.chmod(os.path.join(folder, "more_unreadable.json"), 0)
        yield Case("unreadable", ["{}/more_unreadable.json"], "cannot be read")


def options():
    model = "{}/more_whole.json.gz"
    for words, cause in {
        ("--dtype", "float33"): "--dtype", ("--dtype", "int8"): "--dtype", ("--dtype", ""): "--dtype",
        ("--lora", "r=8,targets=q_proj"): "--lora", ("--lora", "nonsense"): "--lora",
        ("--lora", ""): "--lora", ("--lora", "r=99999999999,targets=a"): "--lora", ("--lora", "r=8,targets=a"): "is a A",
        ("--freeze", "nothing"): "--freeze", ("--lroa", "x"): "did you mean", ("extra",): "",
        ("--freeze",): "--freeze",
    }.items():
        yield Case(" ".join(words), [model, *words], cause, names_file=False)
    yield Case("no model", [], "MODEL", names_file=False)
    yield Case("output into nowhere", [model, "-o", "{}/no/such/folder/x.json"], "cannot be written", status=3,
               names_file=False)


def make(folder):
    def write(name, content):
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(content if isinstance(content, bytes) else content.encode())

    return [*trees(write), *configs(write), *checkpoints(write, folder), *files(write, folder), *options()]
