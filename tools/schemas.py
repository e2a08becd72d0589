"""JSON Schemas of what dpxplan reads and prints: schemas.py DPXPLAN write [FOLDER]|widen FOLDER|check N|hold FOLDER.

write: docs/schemas/COMMAND.schema.json from documents that the printers themselves print, for many questions; a plan's is `dpxplan schema`, and
    a cluster file's stands in cluster_keys() below.
check N: N answers to other questions must validate against them (jsonschema); prints what does not, and at last how many were held.
hold FOLDER: the answers NAME.json there, which the words in NAME.words asked for, must validate likewise (keep_answers of tests/check.sh).
    write widens the schemas by those, too, and widen by those alone.
An object whose keys are names of things (categories, collectives) takes any key.  Numbers that were null somewhere may be null."""
import itertools
import json
import pathlib
import random
import subprocess
import sys
import tempfile

DRAFT = "https://json-schema.org/draft/2020-12/schema"
WHERE = pathlib.Path("docs/schemas")
MAPS = {"at", "at_peak", "exposed_by", "frameworks", "away", "kinds", "live_bytes", "classes"}        # objects by names of things
FILES = {"plan": "plan.schema.json", "best_plan": "plan.schema.json"}

MODELS = ["gpt2", "llama-3.1-8b", "qwen3-8b", "opt-125m", "opt-1.3b", "gemma-2-2b", "llama-3.2-1b", "qwen3-0.6b"]
CLUSTERS = ["8xh100", "2x8xh100", "4xrtx4090", "8xa100", "1xh100", "4x8xb200"]
DEMOS = ["demo/8b-fsdp.json", "demo/8b-pipeline.json", "demo/8b-zero2.json", "demo/8b-ddp.json", "demo/70b-qlora.json", "demo/405b-zero3.json",
         "demo/torchtitan-70b.json", "demo/gpipe.json", "demo/nanogpt.json"]


PLANS = {"megatron.json": {"dpx_plan": 1, "model": "gpt2", "cluster": "8xh100", "seq": 512, "micro_batch": 1, "strategy": "zero1", "dialect": "megatron",
                           "precision": "bf16"}}

#: Keys that objects of these names seldom have: of a calibration on a busy machine.
SELDOM = {"measured": {"warning": "text"}}

#: Answers of every shape that a key has: no plan that fits, no host memory known, deadlines.  OUT/ is a folder of its own, with PLANS.
FIRST = [line.split() for line in """
search --model gpt2 --cluster 8xh100 --seq 1024 --global-batch 64 --tokens 1T --price 2 --days 90
search --model llama-2-7b --cluster rtx4090 --seq 2048 --global-batch 1 --no-offload --top 1
search --model llama-3.2-1b --cluster 4xrtx4090 --seq 1k --global-batch 64 --framework torch
search --model opt-125m --cluster 4xrtx4090 --seq 1k --global-batch 64 --framework deepspeed
search --model gpt2 --cluster 4xrtx4090 --seq 1k --global-batch 64
search --model qwen3-0.6b --cluster 4xrtx4090 --seq 1k --global-batch 64
search --model gemma-2-2b --cluster 8xa100 --seq 4k --global-batch 16 --grid
search --model llama-3.1-405b --cluster 1xrtx4090 --seq 4k --global-batch 8
version
eval demo/8b-fsdp.json --tokens 1T --price 2 --days 90
eval demo/8b-fsdp.json --set cluster=rtx4090
eval mixtral-8x7b --cluster 2x8xh100
fit llama-3.1-8b h100 rtx4090 --train lora --samples 50k --price 2
fit llama-3.1-70b rtx4090
fit llama-3.1-8b rtx4090 --train lora --framework torch
bill demo/8b-fsdp.json --set nodes=8 --tokens 1T --price 2 --mtbf llama3 --storage 20GB/s --worlds
bill demo/8b-fsdp.json --tokens 1T
bill demo/8b-fsdp.json --set nodes=8 --samples 500k --epochs 3 --mtbf 50000h --storage 5GB/s --every 30min --start 2027-01-31 --price $2 --spares 1 --repair 24h
bill demo/8b-fsdp.json --set nodes=8 --tokens 1T --storage 5GB/s --async --preempted 8h --queue 1h --start 2027-01-31
limits --cluster 8xh100 --model llama-3.1-8b --seq 8192 --recompute full --dialect torch
collectives --op all_reduce --bytes 1GiB --cluster 2x8xh100
sweep demo/8b-fsdp.json --over nodes=1,2 --tokens 1T --price 2
sweep --model gpt2 --cluster 8xh100 --global-batch 64 --over seq=512,1k
list options
admit tests/everywhere/jobs/sft.sbatch --recipe demo/qwen3-sft.yaml
admit tests/everywhere/jobs/trainjob.yaml --recipe demo/qwen3-sft.yaml
admit tests/everywhere/jobs/trainjob.yaml --recipe demo/qwen3-sft.yaml --gpu rtx4090
phases demo/grpo.json
phases demo/grpo.json --set cluster=8xrtx4090
phases demo/verl-grpo.yaml --cluster 8xh100 --response 300,1024
phases demo/dpo.yaml --cluster 8xh100
phases demo/grpo.json --search
phases demo/grpo.json --set phases=[{"generate":"engine"},{"name":"rewards","time":"5s"},{"forward":"reference"},{"update":"actor"}]
bill demo/8b-fsdp.json --tokens 1B --mtbf 1000000h --storage 100GB/s --start 2026-12-31
limits --model gpt2-xl --cluster 1x1xv100-32gb --seq 1k --offload all
eval demo/8b-fsdp.json --set recompute=none
search --model gemma-2b --cluster 2xrtx4090 --seq 1024 --global-batch 256 --no-offload --top 1
sweep demo/8b-fsdp.json --set kernels=dpx model=gpt2 seq=64 --over cluster=localhost:2
estimators --model llama-3.1-8b --nodes 2 --gpus-per-node 8 --seq 4096
estimators --megatron OUT/megatron.json
eval demo/8b-fsdp.json --jitter 0.03,20e-6,1e-6,0.5
eval demo/405b-zero3.json --set cluster=1xrtx4090 --jitter 0.03
explain demo/8b-fsdp.json --schedule
explain demo/8b-pipeline.json --schedule --stage 1
explain demo/8b-fsdp.json --detail
explain demo/8b-pipeline.json --detail
explain demo/8b-fsdp.json demo/8b-zero2.json --schedule
explain demo/8b-fsdp.json demo/8b-ddp.json --set cluster=2x8xh100
limits --model llama-3.1-8b --cluster 8xrtx4090 --seq 8k
limits --states-only --memory 80GB --world 64
search --model gpt2 --cluster 8xh100 --seq 1024 --global-batch 64 --validate -o OUT/plan.json
search --model gpt2 --cluster 8xh100 --seq 1024 --global-batch 64 --no-grid --goal bill --tokens 1T --mtbf llama3 --storage 20GB/s --async
sweep --model gpt2 --cluster 8xh100 --global-batch 64 --over seq=512,1k --no-grid --no-offload
sweep --model gpt2 --cluster 8xh100 --global-batch 64 --over seq=512,1k --grid
fit gpt2 rtx4090 --offload
bill demo/8b-fsdp.json --set nodes=8 --tokens 1T --mtbf llama3 --storage 20GB/s --shrink --spares 0 --repair 24h
bill demo/8b-fsdp.json --set nodes=8 --tokens 1T --mtbf llama3 --storage 20GB/s --requeue --queue 1h --async --training-network
""".strip().splitlines()]


def questions(seed):
    """Words of commands, without end."""
    yield from FIRST
    r = random.Random(seed)
    pick = r.choice
    for turn in itertools.count():
        seq, batch = pick(["512", "1k"]), pick(["64", "128"])
        yield ["eval", pick(MODELS), "--cluster", pick(CLUSTERS)]
        yield ["eval", pick(DEMOS), "--tokens", pick(["1T", "300B"]), "--price", "2"] + pick([[], ["--days", "90"]])
        yield ["eval", pick(DEMOS), "--set", f"seq={seq}"]
        yield ["explain", pick(DEMOS)]
        yield ["explain", "demo/8b-fsdp.json", "--oom", "demo/oom.txt"]
        yield ["explain", pick(DEMOS[:4]), pick(DEMOS[:4])]
        if turn % 4 == 0:           # seconds each
            yield ["fit", pick(["gpt2", "opt-125m", "qwen3-0.6b"]), pick(["h100", "rtx4090", "a100", "b200"]), "--seq", seq] + pick([[], ["--train", "lora"], ["--tokens", "1B"]])
            yield ["search", "--model", pick(["gpt2", "opt-125m", "qwen3-0.6b"]), "--cluster", pick(CLUSTERS[:4]), "--seq", seq, "--global-batch", batch, "--top", pick("123")]
        yield ["sweep", pick(DEMOS[:4]), "--over", pick(["nodes=1,2", "seq=1k,2k", "micro_batch=1,2"])]
        yield ["bill", pick(DEMOS[:3]), "--set", "nodes=8", "--tokens", pick(["1T", "100B"]), "--price", "2", "--mtbf", "llama3", "--storage", "20GB/s"]
        yield ["collectives", "--op", pick(["all_reduce", "all_gather", "broadcast", "reduce_scatter"]), "--bytes", pick(["1MiB", "1GiB"]), "--cluster", pick(CLUSTERS)]
        yield ["estimators", "--params", pick(["2851M", "8B"]), "--largest-layer", "32M", "--gpus-per-node", "8"]
        yield ["list", pick(["models", "clusters", "gpus", "strategies", "parallel", "keys", "refused"])]
        yield ["export", pick(DEMOS[:4]), "--to", pick(["torchtitan", "fsdp", "deepspeed", "accelerate"])]
        yield ["import", pick(["demo/qwen3-sft.yaml", "demo/megatron-8b.txt"]), "--cluster", "8xh100"]
        yield ["eval", "demo/8b-fsdp.json", "--set", pick(["nosuch=1", "cluster=nosuch"])]


#: Of commands with answers of several shapes: a key, and what the shape is then called.
SHAPES = {"estimators": {"megatron": "megatron"}, "explain": {"second": "two", "message": "oom", "run_id": "run"}, "dpxrun": {"file": "sbatch", "first_over": "over", "engine": "engine"},
          "dpxcal-show": {"fits": "fits", "plans": "model"}, "dpxreport": {"trace": "kineto"}}


#: What is asked, where the name of the schema's file does not spell it.
SPELT = {"dpx-record": "dpx.record", "version": "--version"}


def kind_of(words, doc, program="dpxplan"):
    if "error" in doc or "dpx_plan" in doc:
        return "error" if "error" in doc else "plan"
    if set(doc) - {"built"} == {"dpx", "program", "version", "frameworks"}:
        return "version"
    name = words[0] if program == "dpxplan" else f"{program}-{words[0]}" if program == "dpxcal" else program.replace(".", "-")
    if name == "list":
        return f"list-{words[1]}"
    return next((f"{name}-{of}" for key, of in SHAPES.get(name, {}).items() if key in doc), name)


def asked_as(kind):
    return SPELT.get(kind) or ("" if kind.startswith("dpx") else "dpxplan ") + kind.replace("-", " ")


def ask(program, words):
    with tempfile.TemporaryDirectory() as out:
        for name, plan in PLANS.items():
            (pathlib.Path(out) / name).write_text(json.dumps(plan))
        said = subprocess.run([program, *(w.replace("OUT/", out + "/") for w in words), "--json"], capture_output=True, text=True)
    assert said.returncode in (0, 1, 2, 3), (words, said.returncode)
    return json.loads(said.stdout)


# ---- from documents to a schema: a shape is {"types": set, "keys": {name: shape}, "always": set, "items": shape} ----

def shape(values, name=""):
    if name == "plan" and any(isinstance(v, dict) and "dpx_phases" in v for v in values):
        return {"type": "object", "required": ["dpx_phases", "roles", "phases"]}       # a phase plan: its keys are in docs/howto/phases.md
    if name in FILES and any(isinstance(v, dict) and "dpx_plan" in v for v in values):
        ref = {"$ref": FILES[name]}
        return ref if all(isinstance(v, dict) for v in values) else {"anyOf": [ref, {"type": "null"}]}
    types = sorted({"boolean" if isinstance(v, bool) else "null" if v is None else "number" if isinstance(v, (int, float)) else
                    "string" if isinstance(v, str) else "array" if isinstance(v, list) else "object" for v in values})
    out = {"type": types[0] if len(types) == 1 else types}
    objects = [v for v in values if isinstance(v, dict)]
    objects += [{**SELDOM[name], **v} for v in objects if name in SELDOM]
    if objects and (name in MAPS or any(" " in k for o in objects for k in o)):
        out["additionalProperties"] = shape([v for o in objects for v in o.values()]) if any(objects) else {}
    elif objects:
        keys = list(dict.fromkeys(k for o in objects for k in o))
        out["properties"] = {k: shape([o[k] for o in objects if k in o], k) for k in keys}
        out["required"] = [k for k in keys if all(k in o for o in objects)]
        out["additionalProperties"] = False
    lists = [x for v in values if isinstance(v, list) for x in v]
    if lists:
        out["items"] = shape(lists)
    return out


def titled(title, schema):
    return {"$schema": DRAFT, "title": title, **schema}


def cluster_keys():
    """A cluster file: model/cluster/cluster_json.c."""
    rate, count, bytes_ = {"type": "number", "exclusiveMinimum": 0}, {"type": "integer", "minimum": 1}, {"type": "number", "minimum": 1}
    text = {"type": "string"}

    def keys(required=(), **of):
        return {"type": "object", "properties": of, "required": list(required), "patternProperties": {"^//": {}, "^\\$schema$": {}}, "additionalProperties": False}

    maybe = {"type": ["number", "null"]}
    rates = {f"{k}_tflops": rate for k in ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4")}
    gpu = keys(["name", "memory_bytes"], name=text, title=text, source=text, memory_bytes=bytes_, reserved_bytes={"type": "number"}, context_bytes={"type": "number"},
               sms=count, sm_arch={"type": "integer"}, hbm_gb_per_s=rate, link_gb_per_s=rate, pcie_gb_per_s=rate, **rates)
    node = keys(**{k: maybe for k in ("memory_bytes", "dram_gb_per_s", "sockets", "cores", "gpu_links", "disk_bytes", "disk_read_gb_per_s",
                                      "disk_write_gb_per_s", "issue_us")})
    return keys(["gpu"], name=text, nodes=count, gpus_per_node=count, world_size=count, gpu={"anyOf": [text, gpu]}, intra=keys(gb_per_s=rate, alpha_us=rate),
                inter=keys(gb_per_s=rate, gbit_per_s=rate, alpha_us=rate, nics={"type": "integer", "minimum": 0}), memory_bytes=bytes_, context_bytes={"type": "number"},
                headroom={"type": "number"}, power_limit_w=rate, host={"type": "boolean"}, node=node, calibration=text,
                storage=keys(gb_per_s=rate, node_gb_per_s=rate, training_network={"type": "boolean"}),
                failures=keys(rate=text, spares={"type": "integer", "minimum": 0}, **{k: rate for k in (
                    "gpu_hours", "node_hours", "network_hours", "recover_s", "warm_up_s", "repair_hours")}))


def widened(new, old, alone):
    """What was null, or stood in some answers alone, may again: none of these questions may ask for it.  To narrow a schema, delete its file first.
    `alone`: the new answers are a few, so that a key that the old ones had not is none that all have."""
    if "type" not in new or "type" not in old:
        return new
    types = lambda of: set(of["type"]) if isinstance(of["type"], list) else {of["type"]}
    both, out = sorted(types(new) | types(old)), dict(new)
    out["type"] = both[0] if len(both) == 1 else both
    had = old.get("properties", {})
    for part in ("items", "additionalProperties"):
        if isinstance(old.get(part), dict):
            out[part] = widened(new[part], old[part], alone) if isinstance(new.get(part), dict) else old[part]
    if "properties" in new:
        out["properties"] = {k: widened(v, had[k], alone) if k in had else v for k, v in new["properties"].items()}
        out["properties"].update({k: v for k, v in had.items() if k not in new["properties"] and k not in old["required"]})
        out["required"] = [k for k in new["required"] if not had or (k not in had and not alone) or k in old["required"]]
    elif had:
        out.update({k: old[k] for k in ("properties", "required", "additionalProperties") if k in old})
    return out


def kept(kind, schema, alone):
    path = WHERE / f"{kind}.schema.json"
    return widened(schema, json.loads(path.read_text()), alone) if path.exists() else schema


def write(program, folder=None, n=600):
    found, common = {}, {"model": [], "cluster": []}
    for words, _ in zip(questions(1), range(n)):
        doc = ask(program, words)
        found.setdefault(kind_of(words, doc), []).append(doc)
    for kind, doc, words in answers(folder) if folder else []:
        found.setdefault(kind, []).append(doc)
    for doc in itertools.chain.from_iterable(found.values()):
        for key in common:
            common[key] += [doc[key]] if isinstance(doc.get(key), dict) else []
    schemas = {kind: titled(f"What {asked_as(kind)} --json prints", shape(docs))
               for kind, docs in found.items() if kind != "plan"}
    for schema in schemas.values():                 # one printer writes these of every answer
        for key in common:
            if schema["properties"].get(key, {}).get("type") == "object":
                schema["properties"][key] = shape(common[key], key)
    schemas = {kind: kept(kind, schema, n == 0) for kind, schema in schemas.items()}
    schemas["plan"] = json.loads(subprocess.run([program, "schema"], capture_output=True, text=True, check=True).stdout)
    schemas["cluster"] = titled("A cluster file of dpx", cluster_keys())
    schemas["model-file"] = json.loads(pathlib.Path("docs/howto/model-file.schema.json").read_text())
    WHERE.mkdir(exist_ok=True)
    for kind, schema in schemas.items():
        (WHERE / f"{kind}.schema.json").write_text(json.dumps(schema, indent=1) + "\n")


def holder():
    """faults(kind, document, words) prints what does not validate."""
    import jsonschema
    import referencing

    schemas = {p.name: json.loads(p.read_text()) for p in WHERE.glob("*.schema.json")}
    registry = referencing.Registry().with_resources(
        (name, referencing.Resource.from_contents(s, default_specification=referencing.jsonschema.DRAFT202012)) for name, s in schemas.items())
    validators = {name: jsonschema.Draft202012Validator(s, registry=registry) for name, s in schemas.items()}

    def faults(kind, doc, of):
        for fault in validators[f"{kind}.schema.json"].iter_errors(doc):
            print(f"{' '.join(of)}: {'.'.join(map(str, fault.absolute_path))}: {fault.message[:200]}")

    return schemas, faults


def answers(folder):
    """(kind, document, words) of what was kept.  Without text: another form, or help, or a rank that prints none; a schema is no answer."""
    for path in sorted(pathlib.Path(folder).glob("*.words")):
        text, (program, *words) = path.with_suffix(".json").read_text(), path.read_text().split("\n")[:-1]
        named = [w for w in words if not w.startswith("-")]
        if not text.strip() or named[:1] in (["schema"], ["serve"], ["mcp"]):
            continue
        doc = json.loads(text)
        kind = kind_of(named, doc, program)
        yield kind, doc, [program, *words]


def hold(folder):
    """Answers that others kept."""
    schemas, faults = holder()
    held = 0
    for kind, doc, words in answers(folder):
        if kind + ".schema.json" not in schemas:
            print(f"{' '.join(words)}: there is no schema of {kind}")
            continue
        faults(kind, doc, words)
        held += 1
    print(f"held {held}")


def check(program, n):
    schemas, faults = holder()
    if schemas["plan.schema.json"] != json.loads(subprocess.run([program, "schema"], capture_output=True, text=True).stdout):
        print("docs/schemas/plan.schema.json is not what dpxplan schema prints: python3 tools/schemas.py build/dpxplan write")
    if schemas["model-file.schema.json"] != json.loads(pathlib.Path("docs/howto/model-file.schema.json").read_text()):
        print("docs/schemas/model-file.schema.json is not docs/howto/model-file.schema.json: make schemas")
    asked = {(words[0], word) for words in FIRST for word in words}
    for row in ask(program, ["list", "options"])["options"]:            # a flag is what gives an answer more keys
        if row["kind"] == "flag" and (row["command"], "--" + row["key"].replace("_", "-")) not in asked:
            print(f"no question asks {row['command']} --{row['key'].replace('_', '-')}: add one to FIRST")
    for words, _ in zip(questions(2), range(n)):
        doc = ask(program, words)
        faults(kind_of(words, doc), doc, words)
    example = subprocess.run([program, "list", "clusters", "--example"], capture_output=True, text=True).stdout
    faults("cluster", json.loads(example), ["list clusters --example"])
    for path in pathlib.Path("demo").glob("*.json"):
        doc = json.loads(path.read_text())
        if "dpx_plan" in doc:
            faults("plan", doc, [str(path)])
        elif "dpx_model" in doc:
            faults("model-file", doc, [str(path)])
        elif "gpu" in doc:
            faults("cluster", doc, [str(path)])
    print(f"held {n}")


if __name__ == "__main__":
    program, what, *rest = sys.argv[1:]
    write(program, *rest) if what == "write" else write(program, rest[0], 0) if what == "widen" else hold(rest[0]) if what == "hold" else check(program, int(rest[0]))
