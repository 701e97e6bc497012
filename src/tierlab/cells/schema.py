# SPDX-License-Identifier: MIT
"""The structure of `matrix.yaml` as one JSON schema: the single truth, exported to docs/matrix.schema.json.

The schema says which keys exist and what kind of value each holds. What a schema cannot say (a K that
is no multiple of a type's block, a promise without its vector length) is checked in
`tierlab.cells.semantics`. No `anyOf`: its messages name no key.
"""

from __future__ import annotations

import json
import sys
from typing import Any

VERDICTS = ("pass", "fail", "vacuous", "drift", "guard", "abi", "crash", "timeout", "unbuildable", "untested")
"""Mirrors `tierlab.judge.verdict.Verdict`, which this layer may not import; a test keeps them equal."""

EMULATORS = ("qemu-11.1", "qemu-10.0", "none")
FEATURES = ("asimd", "fp16", "dotprod", "i8mm", "bf16", "sve", "sve2", "sme", "sme2", "sme_fa64")
FAMILIES = ("float", "legacy", "k", "iq", "ternary", "fp4", "tiny")
FIELD_KINDS = ("bits", "codes2", "trits", "trits4", "f16", "f16_nibbles", "e8m0", "ue4m3", "f32", "bf16")
QUANTIZERS = ("cast", "gguf", "native")
OPERATIONS = ("mul_mat", "mul_mat_id", "quantize", "dequantize", "claim")
WEIGHT_DISTRIBUTIONS = ("blocks", "gauss", "extremes", "limits", "none")
ACTIVATION_DISTRIBUTIONS = (
    "gauss",
    "onehot",
    "constant",
    "alternating",
    "powers",
    "denormals",
    "tiny",
    "huge",
    "negzero",
    "zeros",
    "nonfinite",
    "none",
)

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string", "minLength": 1}
_NAME: Schema = {"type": "string", "pattern": r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"}
_COUNT: Schema = {"type": "integer", "minimum": 1}
_POSITIVE: Schema = {"type": "number", "exclusiveMinimum": 0}
_RANGE: Schema = {
    "type": "array",
    "items": {"type": "integer"},
    "minItems": 2,
    "maxItems": 2,
}


def _list(items: Schema, at_least: int = 1) -> Schema:
    return {"type": "array", "items": items, "minItems": at_least, "uniqueItems": True}


def _enum(values: tuple[str, ...]) -> Schema:
    return {"type": "string", "enum": list(values)}


def _record(required: tuple[str, ...], **properties: Schema) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": properties,
    }


def _named(value: Schema) -> Schema:
    return {"type": "object", "propertyNames": _NAME, "additionalProperties": value, "minProperties": 1}


_PROFILE = _record(
    ("name", "emulator", "cpu", "features"),
    name=_NAME,
    emulator=_enum(EMULATORS),
    cpu=_TEXT,
    features=_list(_enum(FEATURES)),
    vector_bits=_COUNT,
    streaming_bits=_COUNT,
    products=_list(_TEXT),
    note=_TEXT,
)
_FIELD = _record(
    ("name", "at", "bytes", "kind"),
    name=_NAME,
    at={"type": "integer", "minimum": 0},
    bytes=_COUNT,
    kind=_enum(FIELD_KINDS),
    exponent=_RANGE,
)
_TYPE = _record(
    ("family", "block", "bytes", "codes", "quantizer", "fields"),
    symbol=_NAME,
    family=_enum(FAMILIES),
    block=_COUNT,
    bytes=_COUNT,
    codes=_NAME,
    quantizer=_enum(QUANTIZERS),
    activations=_list(_NAME),
    fields=_list(_FIELD),
    note=_TEXT,
)
_RULE = _record(
    ("types", "kernels"),
    types=_list(_NAME),
    ops=_list(_enum(("mul_mat", "mul_mat_id"))),
    layout=_NAME,
    variant=_list(_enum(FEATURES)),
    cpu=_list(_enum(FEATURES)),
    vector_bits=_COUNT,
    vector_bits_from=_COUNT,
    streaming_bits_from=_COUNT,
    n_multiple=_COUNT,
    activations=_list(_NAME),
    m=_RANGE,
    threads=_RANGE,
    planes_3={"type": "boolean"},
    from_patch=_COUNT,
    kernels=_record(("gemv",), gemv=_list(_TEXT), gemm=_list(_TEXT)),
    note=_TEXT,
)
_PATH = _record(
    ("rules", "gemm_from"),
    buffer=_NAME,
    weight_planes=_enum(("any", "one")),
    activations=_list(_NAME),
    gemm_from=_COUNT,
    gemm_step=_COUNT,
    row_at_a_time=_list(_enum(("mul_mat", "mul_mat_id"))),
    rules=_list(_RULE),
    note=_TEXT,
)
_SELECTOR: Schema = {
    "suites": _list(_TEXT),
    "types": _list(_TEXT),
    "activation_types": _list(_TEXT),
    "shapes": _list(_TEXT),
    "weights": _list(_TEXT),
    "activations": _list(_TEXT),
    "paths": _list(_TEXT),
    "threads": _list(_COUNT),
    "builds": _list(_TEXT),
    "profiles": _list(_TEXT),
    "features": _list(_enum(FEATURES)),
    "variants": _list(_TEXT),
}
_ROW = _record(
    ("suite", "types", "shapes"),
    suite=_NAME,
    types=_list(_TEXT),
    activation_types=_list(_NAME),
    shapes=_list(_NAME),
    weights=_list(_enum(WEIGHT_DISTRIBUTIONS)),
    activations=_list(_enum(ACTIVATION_DISTRIBUTIONS)),
    paths=_list(_NAME),
    threads=_list(_COUNT),
    profiles=_list(_TEXT),
    note=_TEXT,
)
_PRESET = _record(
    ("builds", "profiles", "plan"),
    note=_TEXT,
    builds=_list(_NAME),
    profiles=_list(_TEXT),
    plan={"type": "array", "items": _ROW, "minItems": 1},
)

SCHEMA: Schema = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "tierlab matrix",
    "description": "What is tested, on which emulated CPUs. See docs/matrix.md for the meaning of every key.",
    **_record(
        (
            "version",
            "builds",
            "profiles",
            "variants",
            "codes",
            "types",
            "suites",
            "paths",
            "shapes",
            "presets",
            "budgets",
            "timeouts",
        ),
        version={"type": "integer", "const": 1},
        builds=_named(_TEXT),
        profiles={"type": "array", "items": _PROFILE, "minItems": 1},
        variants={
            "type": "array",
            "items": _record(("name", "needs"), name=_NAME, needs=_list(_enum(FEATURES), 0)),
            "minItems": 1,
        },
        codes=_named(_record(("block", "bytes"), symbol=_NAME, block=_COUNT, bytes=_COUNT, note=_TEXT)),
        types=_named(_TYPE),
        suites=_named(_record(("op",), op=_enum(OPERATIONS), note=_TEXT)),
        paths=_named(_PATH),
        shapes=_named(_list(_TEXT)),
        presets=_named(_PRESET),
        budgets=_record(
            ("lambda", "elements_per_run", "runs_per_year", "false_alarms_per_year"),
            **{"lambda": _POSITIVE},
            elements_per_run=_POSITIVE,
            runs_per_year=_POSITIVE,
            false_alarms_per_year=_POSITIVE,
        ),
        timeouts=_record(("cell_seconds", "start_seconds"), cell_seconds=_POSITIVE, start_seconds=_POSITIVE),
        exclusions={
            "type": "array",
            "items": _record(("reason",), reason=_TEXT, **_SELECTOR),
        },
        expected={
            "type": "array",
            "items": _record(
                ("verdict", "evidence"),
                verdict=_enum(VERDICTS),
                evidence=_TEXT,
                undefined_bytes={"type": "boolean"},
                **_SELECTOR,
            ),
        },
        thread_dependent={
            "type": "array",
            "items": _record(("reason",), reason=_TEXT, **_SELECTOR),
        },
    ),
}


def schema_text() -> str:
    """The schema as the exact text of docs/matrix.schema.json."""
    return json.dumps(SCHEMA, indent=2, sort_keys=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text())
