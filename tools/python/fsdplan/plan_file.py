"""Reads the plan in a result of fsdplan (docs/formats.md)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from .errors import Refused
from .json_value import JsonValue, read_json
from .plan import Checkpointing, FlatPrefetch, ListedPrefetch, Plan, PlannedParameter, PlannedUnit, PrefetchLists

_STRATEGIES = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2")
_DTYPES = ("float32", "bfloat16", "float16", "float64")
_PREFETCHES = ("BACKWARD_PRE", "BACKWARD_POST", "none")
_PLACEMENTS = ("inside", "outside", "forward")


def load(path: str | os.PathLike[str]) -> Plan:
    """The plan that `fsdplan plan -o FILE` recommends.

    Raises `Refused` for a file that cannot be read or is damaged, and for a result in which no plan fits.
    """
    document = read_json(Path(path))
    if document.at("format").text() != "fsdplan.result":
        document.at("format").fail('"fsdplan.result"')
    if document.at("version").integer() != 1:
        document.at("version").fail("1")
    recommended = document.at("recommended")
    if recommended.is_null():
        raise Refused(f"{path}: there is no plan; none of those that were tried fits")
    return _plan(recommended.at("wrap_plan"), str(path))


def _plan(value: JsonValue, source: str) -> Plan:
    runtime = value.at("runtime").word(("fsdp1", "fsdp2"))
    units = tuple(_unit(unit, runtime) for unit in value.at("units").elements())
    _check_units(value.at("units"), units)
    mesh = value.at("mesh")
    return Plan(
        source=source, runtime=runtime, torch=value.at("torch").text(),
        replicate=mesh.at("replicate").integer(1), shard=mesh.at("shard").integer(1),
        strategy=value.at("strategy").word(_STRATEGIES),
        param_dtype=_dtype(value, "param_dtype"), reduce_dtype=_dtype(value, "reduce_dtype"),
        buffer_dtype=_dtype(value, "buffer_dtype"), offload=value.at("offload").flag(), units=units,
        checkpointing=_checkpointing(value.at("activation_checkpointing")),
        prefetch=_flat_prefetch(value.at("prefetch")) if runtime == "fsdp1" else _listed_prefetch(value.at("prefetch"), units),
        use_orig_params=runtime == "fsdp1" and value.at("use_orig_params").flag(),
        parameters=tuple(_parameter(parameter) for parameter in value.at("parameters").elements()),
        batch=value.at("batch").integer(1), sequence=value.at("sequence").integer(1),
        accumulate=value.at("accumulate").integer(1), no_sync=value.at("no_sync").flag(),
        optimizer=value.at("optimizer").text(), loss=value.at("loss").text(), attention=value.at("attention").text())


def _texts(value: JsonValue) -> tuple[str, ...]:
    return tuple(element.text() for element in value.elements())


def _dtype(value: JsonValue, key: str) -> str | None:
    given = value.given(key)
    return given.word(_DTYPES) if given else None


def _unit(value: JsonValue, runtime: str) -> PlannedUnit:
    modules = _texts(value.at("modules"))
    if not modules or runtime == "fsdp1" and len(modules) > 1:
        value.at("modules").fail("one module" if runtime == "fsdp1" else "modules")
    reshard = value.given("reshard_after_forward") if runtime == "fsdp2" else None
    return PlannedUnit(modules, value.at("numel").integer(), reshard.flag_or_integer(1) if reshard else None)


def _check_units(value: JsonValue, units: tuple[PlannedUnit, ...]) -> None:
    if not units or units[-1].modules != ("",):
        value.fail('the root, {"modules": [""]}, as the last unit')
    seen: set[str] = set()
    for element, unit in zip(value.elements(), units):
        for path in unit.modules:
            if path in seen:
                element.at("modules").fail(f'modules that are in no other unit, unlike "{path}"')
            seen.add(path)


def _checkpointing(value: JsonValue) -> Checkpointing:
    mode = value.at("mode").text()
    if mode == "none":
        return Checkpointing()
    modules = _texts(value.at("modules"))
    if not modules or "" in modules:
        value.at("modules").fail("modules below the root")
    return Checkpointing(modules, value.at("placement").word(_PLACEMENTS), mode == "selective")


def _flat_prefetch(value: JsonValue) -> FlatPrefetch:
    backward = value.at("backward").word(_PREFETCHES)
    return FlatPrefetch(None if backward == "none" else backward, value.at("forward").flag(),
                        value.at("limit_all_gathers").flag())


def _listed_prefetch(value: JsonValue, units: Iterable[PlannedUnit]) -> ListedPrefetch:
    known = {path for unit in units for path in unit.modules}

    def a_unit(path: JsonValue) -> str:
        if path.text() not in known:
            path.fail("a module of a unit")
        return path.text()

    def lists(direction: JsonValue) -> PrefetchLists:
        rows = []
        for row in direction.elements():
            pair = list(row.elements())
            if len(pair) != 2:
                row.fail("[module, [modules]]")
            rows.append((a_unit(pair[0]), tuple(a_unit(target) for target in pair[1].elements())))
        return tuple(rows)

    return ListedPrefetch(lists(value.at("forward")), lists(value.at("backward")))


def _parameter(value: JsonValue) -> PlannedParameter:
    return PlannedParameter(value.at("name").text(), tuple(size.integer() for size in value.at("shape").elements()),
                            value.at("dtype").text(), value.at("requires_grad").flag())
