"""Damaged and hostile checkpoints: files of torch.save, DCP folders, safetensors of DCP.

make(folder) writes them and returns what `fsdplan inspect` must do with each. The pickles are written with classes of
our own under the names of torch's, so that nothing here needs PyTorch. Run by check.py and fuzz/hostile_seeds.py.
"""

import io
import json
import pathlib
import pickle
import struct
import types
import warnings
import zipfile

from more import Case

METADATA = "torch.distributed.checkpoint.metadata"
FILESYSTEM = "torch.distributed.checkpoint.filesystem"
BEFORE_1_6 = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


class Size(tuple):
    def __reduce__(self):
        return Size, (tuple(self),)


class Storage:
    def __init__(self, key="0", numel=2, kind="FloatStorage"):
        self.id = ("storage", name("torch", kind), key, "cpu", numel)


class Pickler(pickle._Pickler):  # the one in Python, whose methods can be replaced
    def persistent_id(self, value):
        return value.id if isinstance(value, Storage) else None

    def save_global(self, obj, name=None):
        if self.proto >= 4:
            self.save(obj.__module__)
            self.save(obj.__qualname__)
            self.write(pickle.STACK_GLOBAL)
        else:
            self.write(pickle.GLOBAL + f"{obj.__module__}\n{obj.__qualname__}\n".encode())
        self.memoize(obj)


class Pairs:
    """A dict whose keys Python could not hold: equal ones, or objects."""

    def __init__(self, pairs):
        self.pairs = pairs


def save_pairs(pickler, value):
    pickler.write(pickle.EMPTY_DICT)
    pickler.memoize(value)
    pickler.write(pickle.MARK)
    for key, entry in value.pairs:
        pickler.save(key)
        pickler.save(entry)
    pickler.write(pickle.SETITEMS)


Pickler.dispatch = {**pickle._Pickler.dispatch, Pairs: save_pairs, types.FunctionType: Pickler.save_global,
                    type: Pickler.save_global}


class Call:
    """Pickled as a call of a name, with a state."""

    def __init__(self, function, *args, state=None):
        self.function, self.args, self.state = function, args, state

    def __reduce__(self):
        return (self.function, self.args) + (() if self.state is None else (self.state,))


def name(module, last):
    found = NAMES.get((module, last))
    if found is None:
        # A function, since pickle asks whether what it calls can be called.
        found = NAMES[module, last] = types.FunctionType((lambda: None).__code__, {}, last)
        found.__module__, found.__qualname__ = module, last
    return found


NAMES = {}
Size.__module__, Size.__qualname__ = "torch", "Size"


def dumps(value, protocol):
    out = io.BytesIO()
    Pickler(out, protocol).dump(value)
    return out.getvalue()


def tensor(storage=None, offset=0, size=(2,), stride=(1,)):
    return Call(name("torch._utils", "_rebuild_tensor_v2"), storage or Storage(), offset, size, stride, False, {})


def dtensor(mesh=(2,), coordinate=(0,), placements=(("Shard", 0),), size=(4,), local=None):
    axes = tuple(Call(name("torch.distributed._mesh_layout", "_FlatLayout"), state={"shape": (n,), "stride": (1,)})
                 for n in mesh)
    layout = Call(name("torch.distributed._mesh_layout", "_MeshLayout"), state={"axes": axes})
    device_mesh = Call(name("torch.distributed.device_mesh", "DeviceMesh"),
                       state={"_layout": layout, "_rank": 0, "_coordinate_on_dim": coordinate})
    placed = tuple(Call(name("torch.distributed.tensor.placement_types", kind), state={"dim": dim})
                   for kind, dim in placements)
    spec = Call(name("torch.distributed.tensor._dtensor_spec", "DTensorSpec"),
                state={"mesh": device_mesh, "placements": placed})
    kind = name("torch.distributed.tensor", "DTensor")
    return Call(name("torch._tensor", "_rebuild_from_type_v2"), name("torch._utils", "_rebuild_wrapper_subclass"), kind,
                (kind, name("torch", "float32"), size, (1,), 0, None, None, False),
                (None, {"_local_tensor": local or tensor(), "_spec": spec}))


def sharded_tensor(offset=(0,), shard=(2,), size=(4,), rank=0):
    place = Call(name("torch.distributed._shard.metadata", "ShardMetadata"),
                 state=(None, {"shard_offsets": list(offset), "shard_sizes": list(shard)}))
    piece = Call(name("torch.distributed._shard.sharded_tensor.shard", "Shard"),
                 state=(None, {"tensor": tensor(), "metadata": place}))
    metadata = Call(name("torch.distributed._shard.sharded_tensor.metadata", "ShardedTensorMetadata"),
                    state={"size": Size(size)})
    group = Call(name("builtins", "getattr"), state={"global_rank": rank, "global_world_size": 2})
    kind = name("torch.distributed._shard.sharded_tensor.api", "ShardedTensor")
    return Call(name("torch._tensor", "_rebuild_from_type_v2"), name("torch._utils", "_rebuild_wrapper_subclass"), kind,
                (kind, name("torch", "float32"), size, (1,), 0, None, None, False), ([piece], metadata, group, None, False))


def archive(data_pkl, storages=(("0", 8),), compress=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compress) as z:
        z.writestr("a/data.pkl", data_pkl)
        z.writestr("a/byteorder", "little")
        for key, size in storages:
            z.writestr(f"a/data/{key}", bytes(size))
    return out.getvalue()


def laughs():
    """A dict whose values are shared: 2^40 paths lead to the innermost."""
    value = {"x": 1}
    for _ in range(40):
        value = {"a": value, "b": value}
    return value


def long_names(key):
    return {str(i): {key: i} for i in range(3000)}


def own_child():
    value = {}
    value["self"] = value
    return value


def shared_pieces():
    """Many names of one ShardedTensor of many pieces."""
    one = sharded_tensor()
    one.args[3][0].extend(one.args[3][0] * 299)
    return {str(i): one for i in range(3000)}


PROTO = b"\x80\x02"
# What is wrong with a pickle inside of an archive, and a part of the message.
PICKLES = {
    "empty": (b"", "is no pickle"),
    "protocol_0": (b"(dp0\n.", "at byte 0: is no pickle of protocol 2 to 5"),
    "protocol_9": (b"\x80\x09N.", "at byte 0: protocol 9"),
    "unknown_opcode": (PROTO + b"N0.", "at byte 3: opcode 48"),
    "inst": (PROTO + b"(ios\nsystem\n.", "at byte 3: opcode 105"),
    "no_stop": (PROTO + b"N", "at byte 3: the pickle is cut off"),
    "long_string": (PROTO + b"X\xff\xff\xff\xff", "at byte 2: the pickle is cut off"),
    "longer_string": (PROTO + b"\x8d" + b"\xff" * 8, "at byte 2: the pickle is cut off"),
    "huge_integer": (PROTO + b"\x8a\x09" + b"\x7f" * 9 + b".", "at byte 2: an integer of more than 64 bits"),
    "memo_never_set": (PROTO + b"h\x07.", "at byte 2: memo number 7 was never set"),
    "marks": (PROTO + b"(" * 1000, "is nested deeper than 64"),
    "call_without_tuple": (PROTO + b"cos\nsystem\nNR.", "in place of a tuple of arguments"),
    "state_of_none": (PROTO + b"N}b.", "sets the state of None"),
    "half_a_pair": (PROTO + b"}(Nu.", "a dict with a key without a value"),
    "own_child": (own_child(), "is nested deeper than 64"),
    "laughs": (laughs(), "values are shared under more than"),
    "long_names": (long_names("x" * 100_000), "names of more than"),
    "negative_size": ({"w": tensor(size=(-2,))}, "found -2"),
    "negative_stride": ({"w": tensor(stride=(-1,))}, "found -1"),
    "stride_missing": ({"w": tensor(stride=())}, "0 strides for 1 dimensions"),
    "product_overflows": ({"w": tensor(size=(2**52, 2**52), stride=(1, 1))}, "more than 2^53"),
    "reaches_beyond": ({"w": tensor(offset=1)}, "reaches to element 3 of a storage of 8 bytes"),
    "stride_beyond": ({"w": tensor(stride=(2**52,))}, "reaches to element"),
    "storage_absent": ({"w": tensor(Storage("7"))}, 'storage "7" is no member'),
    "storage_size": ({"w": tensor(Storage(numel=3))}, "a storage of 12 bytes, whose member a/data/0 has 8"),
    "storage_class": ({"w": tensor(Storage(kind="QInt8Storage"))}, "unknown class of storage torch.QInt8Storage"),
    "storage_id": (PROTO + b"(X\x01\0\0\0xtQ.", "expected (\"storage\", class, key, device, elements)"),
    "mesh_placements": ({"w": dtensor(mesh=(2, 2), coordinate=(0, 0))}, "1 placements on a mesh of 2 dimensions"),
    "mesh_rank": ({"w": dtensor(coordinate=(2,))}, "a rank outside of its mesh"),
    "mesh_huge": ({"w": dtensor(mesh=(2**20, 2**20))}, "a mesh of more than"),
    "mesh_dimension": ({"w": dtensor(placements=(("Shard", 3),))}, "cuts dimension 3 of a tensor that has 1"),
    "mesh_dimensions": ({"w": dtensor(mesh=(1,) * 100)}, "a mesh of 100 dimensions"),
    "dimensions": ({"w": tensor(size=(1,) * 65)}, "65 dimensions; a tensor has at most 64"),
    "long_name": (PROTO + b"c" + b"x" * 2000 + b"\ny\n.", "a name of more than 1024 bytes"),
    "shared_pieces": (shared_pieces(), "more pieces of tensors than values"),
    "mesh_piece": ({"w": dtensor(size=(9,))}, "another shape than mesh and placements make"),
    "local_none": ({"w": dtensor(local=(1, 2))}, "expected a plain tensor, found a tuple"),
    "shard_outside": ({"w": sharded_tensor(offset=(3,))}, "does not lie within its tensor"),
    "shard_size": ({"w": sharded_tensor(shard=(1,))}, "another size than itself"),
    "shard_rank": ({"w": sharded_tensor(rank=5)}, "from 0 to 1, found 5"),
}


def as_bytes(value, protocol=2):
    return value if isinstance(value, bytes) else dumps(value, protocol)


def damaged_archives():
    good = archive(dumps({"w": tensor()}, 2))
    end = good.rfind(b"PK\5\6")
    directory = good.find(b"PK\1\2")

    def at(position, fmt, value):
        return good[:position] + struct.pack(fmt, value) + good[position + struct.calcsize(fmt):]

    twice = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(twice, "w") as z:
        warnings.simplefilter("ignore")
        z.writestr("a/data.pkl", b"")
        z.writestr("a/data.pkl", b"")
    plain = io.BytesIO()
    with zipfile.ZipFile(plain, "w") as z:
        z.writestr("readme", b"")
    return {
        "cut": (good[:-30], "without its directory at the end"),
        "cut_early": (good[:20], "without its directory at the end"),
        "compressed": (archive(dumps({"w": tensor()}, 2), compress=zipfile.ZIP_DEFLATED), "is compressed"),
        "encrypted": (at(directory + 8, "<H", 1), "is encrypted"),
        "directory_beyond": (at(end + 16, "<I", len(good) + 5), f"at byte {end}: directory at byte"),
        "directory_size": (at(end + 12, "<I", len(good)), f"at byte {end}: a directory of"),
        "entries": (at(end + 10, "<H", 9), "announces 9"),
        "disks": (at(end + 4, "<H", 1), "is one of several disks"),
        "no_entry": (at(directory, "<I", 0), f"at byte {directory}: no entry of a ZIP directory"),
        "name_length": (at(directory + 28, "<H", 60000), "reaches beyond its directory"),
        "member_size": (at(directory + 24, "<I", 5), "has two sizes"),
        "member_beyond": (at(directory + 42, "<I", len(good) - 40), "overlaps the directory"),
        "member_elsewhere": (at(directory + 42, "<I", 7), "at byte 7: member a/data.pkl is not here"),
        "zip64_absent": (at(end + 16, "<I", 0xffffffff), "ZIP64 directory that is not there"),
        "zip64_sizes": (at(directory + 24, "<I", 0xffffffff), "lacks its ZIP64 sizes"),
        "same_name": (twice.getvalue(), "a second member a/data.pkl"),
        "no_pickle": (plain.getvalue(), "without a data.pkl"),
        "before_1_6": (BEFORE_1_6 + b"\x80\x02M\xe9\x03.", "format of before PyTorch 1.6"),
        "bare_pickle": (b"\x80\x04N.", "is a bare pickle"),
    }


def metadata(size=(4, 2), chunks=(((0, 0), (2, 2)), ((2, 0), (2, 2))), records=None, dtype="float32", root="Metadata",
             extra=()):
    """.metadata with one tensor in two files; records: (offset, file, position, length)."""
    def chunk(offsets, sizes):
        return Call(name(METADATA, "ChunkStorageMetadata"), state={"offsets": Size(offsets), "sizes": Size(sizes)})

    chunks = [c if isinstance(c, Call) else chunk(*c) for c in chunks]

    def entry():
        properties = Call(name(METADATA, "TensorProperties"), state=(name("torch", dtype), None, False, None, False))
        return Call(name(METADATA, "TensorStorageMetadata"), state={
            "properties": properties, "size": Size(size), "chunks": chunks})

    if records is None:
        records = [((0, 0), "__0_0.distcp", 0, 100), ((2, 0), "__1_0.distcp", 0, 100)]

    def index(offset, fqn="w"):
        return Call(name(METADATA, "MetadataIndex"),
                    state={"fqn": fqn, "offset": None if offset is None else Size(offset), "index": 0})

    def place(file, position, length):
        return Call(name(FILESYSTEM, "_StorageInfo"),
                    state={"relative_path": file, "offset": position, "length": length})

    entries = Pairs([("w", entry())] + [(fqn, entry()) for fqn in extra])
    storage = Pairs([(index(o), place(f, p, n)) for o, f, p, n in records])
    return dumps(Call(name(METADATA, root), state={"state_dict_metadata": entries, "storage_data": storage,
                                                   "planner_data": {"w": ("w",)}, "version": "1.0.0"}), 4)


METADATA_FILES = {
    "no_pickle": (b"{}", ".metadata at byte 0: is no pickle"),
    "other_object": (metadata(root="Checkpoint"), "expected the metadata of a torch.distributed.checkpoint"),
    "plain_dict": (dumps({}, 4), "expected the metadata of a torch.distributed.checkpoint"),
    "dtype": (metadata(dtype="float33"), "unknown dtype torch.float33"),
    "negative": (metadata(size=(-4, 2)), "found -4"),
    "overflow": (metadata(size=(2**40, 2**40)), "more than 2^53 bits"),
    "outside": (metadata(chunks=(((0, 0), (2, 2)), ((3, 0), (2, 2)))), "[2, 2] at [3, 0] does not lie within [4, 2]"),
    "overlap": (metadata(chunks=(((0, 0), (2, 2)), ((1, 0), (3, 2)))), "chunks overlap at [1, 0]"),
    "hole": (metadata(chunks=(((0, 0), (2, 2)), ((3, 0), (1, 2)))), "no chunk is there at [2, 0]"),
    "dimensions": (metadata(chunks=(((0,), (2,)), ((2, 0), (2, 2)))), "does not lie within [4, 2]"),
    "attributes": (metadata(chunks=[Call(name(METADATA, "Chunk"), state={str(i): i for i in range(300)})]),
                   "an object with more than 256 attributes"),
    "shared_chunks": (metadata(size=(2000, 2), chunks=[((row, 0), (1, 2)) for row in range(2000)],
                               extra=[str(i) for i in range(3000)], records=[]), "more chunks than values"),
    "long_name": (metadata(extra=("x" * 5000,)), "a name of more than 4096 bytes"),
    "twice": (metadata(extra=("w",)), 'a second entry "w"'),
    "no_record": (metadata(records=[((0, 0), "__0_0.distcp", 0, 100)]), "nothing says where the chunk"),
    "no_chunk": (metadata(records=[((0, 0), "__0_0.distcp", 0, 100), ((1, 0), "__1_0.distcp", 0, 100)]),
                 "where no chunk begins"),
    "second_record": (metadata(records=[((0, 0), "__0_0.distcp", 0, 100)] * 2), "a second record of the chunk"),
    "same_place": (metadata(records=[((0, 0), "__0_0.distcp", 0, 100), ((2, 0), "__0_0.distcp", 50, 50)]),
                   "an item at byte 50 of __0_0.distcp, where another one is"),
    "path": (metadata(records=[((0, 0), "../__0_0.distcp", 0, 100)]), "expected the plain name of a file"),
    "absolute_path": (metadata(records=[((0, 0), "/etc/passwd", 0, 100)]), "expected the plain name of a file"),
    "position": (metadata(records=[((0, 0), "__0_0.distcp", -1, 100)]), "found -1"),
    "length": (metadata(records=[((0, 0), "__0_0.distcp", 0, 2**60)]), "found 1152921504606846976"),
}


def safetensors(info, shape=(2, 1)):
    count = 4
    for n in shape:
        count *= n
    header = json.dumps({"__metadata__": {"DCP_SHARDING_INFO": info},
                         "x": {"dtype": "F32", "shape": shape, "data_offsets": [0, count]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(count)


SHARDING_INFOS = {
    "not_json": ("{", "DCP_SHARDING_INFO"),
    "dimensions": ('{"x": {"saved_offsets": [0]}}', "1 saved_offsets for 2 dimensions"),
    "negative": ('{"x": {"saved_offsets": [-1, 0]}}', "found -1"),
    "overflow": ('{"x": {"saved_offsets": [9007199254740992, 0]}}', "exceeds 2^53"),
}
GOOD_INFO = '{"x": {"saved_offsets": [0, 0]}}'


def make(folder):
    cases = []

    def add(kind, label, files, cause, target=""):
        place = pathlib.Path(folder) / f"stored_{kind}_{label}"
        place.mkdir()
        for file, content in files.items():
            (place / file).write_bytes(content)
        words = ["{}/" + place.name + ("/" + target if target else "")]
        cases.append(Case(place.name, words, cause))

    for label, (value, cause) in PICKLES.items():
        add("pickle", label, {"a.pt": archive(as_bytes(value))}, cause, "a.pt")
    for label, (content, cause) in damaged_archives().items():
        add("archive", label, {"a.pt": content}, cause, "a.pt")
    for label, (content, cause) in METADATA_FILES.items():
        items = {f"__{r}_0.distcp": bytes(100) for r in range(2)}
        add("dcp", label, {**items, ".metadata": content}, cause)
    for label, (info, cause) in SHARDING_INFOS.items():
        add("shards", label, {"shard-00001-model-00001-of-00001.safetensors": safetensors(info)}, cause)
    add("dcp", "unfinished", {"__0_0.distcp": b""}, "the save did not finish")
    add("ranks", "nameless", {"a.pt": archive(dumps({}, 2)), "b.pt": archive(dumps({}, 2))}, "name one of them")
    return cases


# As the seeds of fuzz/stored_checkpoint_fuzz.cpp begin.
FILE, PICKLE, DCP, SHARDS = (bytes([i]) for i in range(4))


def seeds():
    good = [{"w": tensor(), "n": 3}, {"w": dtensor()}, {"w": sharded_tensor()},
            {"optim": {"state": {0: {"step": tensor()}}, "param_groups": [{"lr": 0.1, "params": [0]}]}}]
    for value in good:
        yield PICKLE + dumps(value, 2)
        yield FILE + archive(dumps(value, 2))
    for value, _ in PICKLES.values():
        yield PICKLE + as_bytes(value)
    for content, _ in damaged_archives().values():
        yield FILE + content
    yield DCP + metadata()
    for content, _ in METADATA_FILES.values():
        yield DCP + content
    yield SHARDS + GOOD_INFO.encode()
    for info, _ in SHARDING_INFOS.values():
        yield SHARDS + info.encode()
