"""What `dpxplan schema` takes and refuses: PROGRAM.  Prints what is wrong; nothing where all is right."""

import glob
import json
import subprocess
import sys

TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def is_type(value, name):
    if name in ("number", "integer"):
        return isinstance(value, (int, float)) and not isinstance(value, bool) and (name == "number" or value == int(value))
    return isinstance(value, TYPES[name])


def faults(schema, value, at="plan"):
    """Of the words that the schema uses: type, const, enum, minimum, maximum, required, properties, patternProperties, additionalProperties."""
    types = schema.get("type")
    if types and not any(is_type(value, t) for t in ([types] if isinstance(types, str) else types)):
        yield f"{at}: {value!r} is no {types}"
    if "const" in schema and value != schema["const"]:
        yield f"{at}: {value!r} is not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {value!r} is none of {schema['enum']}"
    if is_type(value, "number") and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{at}: {value} is out of range"
    if isinstance(value, dict) and "properties" in schema:
        for key in schema.get("required", []):
            if key not in value:
                yield f"{at}: {key} is missing"
        for key, one in value.items():
            if key in schema["properties"]:
                yield from faults(schema["properties"][key], one, f"{at}.{key}")
            elif not key.startswith("//"):
                yield f"{at}: {key} is unknown"


def answer(program, *words):
    run = subprocess.run([program, *words], capture_output=True, text=True)
    return json.loads(run.stdout)


def plans(program):
    for path in sorted(glob.glob("demo/*.json")):
        with open(path) as file:
            document = json.load(file)
        if "dpx_plan" in document:
            yield path, document
            yield f"{path}, complete", answer(program, "eval", path, "--json")["plan"]
    for framework in "torch", "deepspeed", "megatron":
        found = answer(program, "search", "--model", "llama-3.2-1b", "--cluster", "2x8xh100", "--seq", "4k", "--global-batch", "64", "--framework", framework,
                       "--json", "--top", "5")
        for plan in found["plans"]:
            yield f"{framework}: {plan['label']}", plan["plan"]


def main(program):
    schema = answer(program, "schema")
    n = 0
    for name, plan in plans(program):
        n += 1
        for fault in faults(schema, plan):
            print(f"{name}: {fault}")
    if n < 20:
        print(f"only {n} plans")
    good = {"dpx_plan": 1, "model": "gpt2", "cluster": "8xh100", "seq": 1024, "micro_batch": 1, "strategy": "fsdp", "$schema": "x", "// why": 1}
    for change in ({}, {"fsdp": {"reshard_after_forward": 8}}, {"clip": None}, {"micro_batch": 2.0}):
        for fault in faults(schema, {**good, **change}):
            print(f"{change}: {fault}")
    for change in ({"sq": 1}, {"seq": "8k"}, {"micro_batch": 0}, {"strategy": "zero4"}, {"precision": "int3"}, {"fsdp": {"reshard": True}}, {"dpx_plan": 2},
                   {"fsdp": 3}):
        if not list(faults(schema, {**good, **change})):
            print(f"{change}: taken")
    del good["model"]
    if not list(faults(schema, good)):
        print("a plan without a model: taken")


main(*sys.argv[1:])
