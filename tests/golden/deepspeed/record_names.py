#!/usr/bin/env python3
"""Lists the fields of DeepSpeed's training configuration that have two names: python record_names.py >names.json

Every section that DeepSpeedConfig reads through a pydantic model (a subclass of DeepSpeedConfigModel) is walked, with the models within it.
DeepSpeed takes such a field by its alias or, with populate_by_name, by its own name; each row's `default` is the field's default.  Both names
at once and unknown names are refused (extra="forbid"); "auto" is dropped, so that the default holds: this script asserts these three.
"""
import json

import deepspeed
import pydantic
from deepspeed.runtime.config import HybridEngineConfig
from deepspeed.comm.config import CommsLoggerConfig
from deepspeed.compile.config import CompileConfig
from deepspeed.monitor.config import DeepSpeedMonitorConfig
from deepspeed.runtime.config_utils import DeepSpeedConfigModel
from deepspeed.runtime.precision_config import DeepSpeedBF16Config, DeepSpeedFP16Config
from deepspeed.runtime.tensor_parallel.config import TPTrainingConfig
from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

SECTIONS = {
    "zero_optimization": DeepSpeedZeroConfig, "bf16": DeepSpeedBF16Config, "fp16": DeepSpeedFP16Config, "tensor_parallel": TPTrainingConfig,
    "hybrid_engine": HybridEngineConfig, "compile": CompileConfig, "comms_logger": CommsLoggerConfig, "monitor_config": DeepSpeedMonitorConfig,
}


def models_in(annotation):
    """The configuration models that an annotation such as Optional[Model] names."""
    if isinstance(annotation, type) and issubclass(annotation, DeepSpeedConfigModel):
        return [annotation]
    return [m for part in getattr(annotation, "__args__", ()) for m in models_in(part)]


def rows(section, model):
    for name, field in model.model_fields.items():
        if field.alias and field.alias != name:
            default = field.get_default(call_default_factory=True)
            yield {"section": section, "field": name, "alias": field.alias,
                   "default": default if isinstance(default, (int, float, bool, str)) else None}
        for inner in models_in(field.annotation):
            yield from rows(f"{section}.{name}", inner)


def refuses(model, **keys):
    try:
        model(**keys)
    except pydantic.ValidationError:
        return True
    return False


def check(row):
    if row["section"] != "zero_optimization" or row["default"] is None:
        return
    field, alias, default = row["field"], row["alias"], row["default"]
    other = not default if isinstance(default, bool) else default - 1 if default > 0 else 1
    for name in (field, alias):
        assert getattr(DeepSpeedZeroConfig(stage=3, **{name: other}), field) == other
        assert getattr(DeepSpeedZeroConfig(stage=3, **{name: "auto"}), field) == default
    assert refuses(DeepSpeedZeroConfig, stage=3, **{field: other, alias: other})
    assert refuses(DeepSpeedZeroConfig, stage=3, **{field + "_": other})


def main():
    found = [row for section, model in SECTIONS.items() for row in rows(section, model)]
    for row in found:
        check(row)
    lines = ",\n".join(json.dumps(row) for row in found)
    print('{ "deepspeed": "%s", "rows": [\n%s\n] }' % (deepspeed.__version__, lines))


main()
