#!/bin/sh
# tests/mpi/test_scalars.sh -- dpxrun --tensorboard: the file's records are whole by their CRCs, and say of each step what --json does.  Where
# PYTHON has TensorBoard, its own reader reads them.
. tests/check.sh
B=${B:-build} PYTHON=${PYTHON:-python3}
keep_answers
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
XDG_DATA_HOME=$tmp/none         # no calibration of this machine
export XDG_DATA_HOME

cat >"$tmp/read.py" <<'END'
"""read.py FOLDER RUN.json: the records of FOLDER by the format's definition, beside the run's own document."""
import glob, json, struct, sys

def crc32c(data):
    c = 0xffffffff
    for b in data:
        c ^= b
        for _ in range(8):
            c = c >> 1 ^ (0x82f63b78 if c & 1 else 0)
    return ~c & 0xffffffff

def masked(data):
    c = crc32c(data)
    return ((c >> 15 | c << 17) + 0xa282ead8) & 0xffffffff

def fields(data):
    i = 0
    def varint():
        nonlocal i
        v = s = 0
        while True:
            b = data[i]; i += 1
            v |= (b & 127) << s; s += 7
            if b < 128:
                return v
    while i < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        elif key & 7 == 2:
            n = varint()
            yield key >> 3, data[i:i + n]
            i += n
        else:
            n = 8 if key & 7 == 1 else 4
            yield key >> 3, data[i:i + n]
            i += n

found = {}
for path in sorted(glob.glob(sys.argv[1] + "/events.out.tfevents.*")):
    data, i, first = open(path, "rb").read(), 0, True
    while i < len(data):
        (n,), head, body = struct.unpack("<Q", data[i:i + 8]), data[i:i + 8], None
        body = data[i + 12:i + 12 + n]
        if struct.unpack("<I", data[i + 8:i + 12])[0] != masked(head) or struct.unpack("<I", data[i + 12 + n:i + 16 + n])[0] != masked(body):
            print("a CRC is wrong at", i)
        event = dict(fields(body))
        if first and event.get(3) != b"brain.Event:2":
            print("the first record is no version")
        if 5 in event:
            value = dict(fields(dict(fields(event[5]))[1]))
            found[event[2], value[1].decode()] = struct.unpack("<f", value[2])[0]
        i, first = i + 16 + n, False

run = json.load(open(sys.argv[2]))
steps = sorted({s for s, _ in found})
if steps != [1, 2, 3]:
    print("steps", steps)
tags = {t for _, t in found}
for tag in ("loss", "learning_rate", "grad_norm", "step_s", "tokens_per_s", "memory_bytes", "predicted/step_s", "predicted/memory_bytes"):
    if tag not in tags:
        print("no", tag)
for s in steps:
    if abs(found[s, "tokens_per_s"] * found[s, "step_s"] - found[1, "tokens_per_s"] * found[1, "step_s"]) > 1e-3:
        print("tokens of a step differ")
for s, loss in enumerate(run["loss"], 1):
    if abs(found[s, "loss"] - loss) > 1e-6 * loss:
        print("step", s, "loss", found[s, "loss"], "of", loss)
END
run() { "$B/dpxrun" demo/10m/ddp.json --no-db --json --tensorboard "$tmp/tb" "$@" >"$tmp/run.json" 2>"$tmp/err" || cat "$tmp/err"; }
check 'each step has its scalars, by the definition of the format' "$(
    run --steps 3
    "$PYTHON" "$tmp/read.py" "$tmp/tb" "$tmp/run.json" 2>&1)"
if "$PYTHON" -c 'import tensorboard' 2>/dev/null; then
    check "TensorBoard's own reader finds the same steps" "$(
        "$PYTHON" - "$tmp/tb" 2>&1 <<'END' | grep -v '^$\|Warning\|warn'
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
a = EventAccumulator(sys.argv[1])
a.Reload()
for tag in ("loss", "step_s", "predicted/step_s"):
    steps = [e.step for e in a.Scalars(tag)]
    if steps != [1, 2, 3]:
        print(tag, steps)
END
    )"
else
    skip "TensorBoard's own reader" "$PYTHON has no tensorboard"
fi
check 'dpx.scalars reads the same, without wandb it says so in a line' "$(
    PYTHONPATH=lib "$PYTHON" -c 'import sys; from dpx.scalars import steps; print(*steps(sys.argv[1]))' "$tmp/tb" 2>&1 | grep -vx '1 2 3'
    if ! "$PYTHON" -c 'import wandb' 2>/dev/null; then
        PYTHONPATH=lib "$PYTHON" -m dpx.scalars "$tmp/tb" >"$tmp/out" 2>&1
        [ $? = 1 ] && [ "$(grep -c 'dpx: .*wandb' "$tmp/out")" = 1 ] || cat "$tmp/out"
    fi)"
if "$PYTHON" -c 'import wandb' 2>/dev/null; then
    check 'wandb logs each step' "$(
        (root=$PWD && cd "$tmp" && WANDB_MODE=offline PYTHONPATH=$root/lib "$PYTHON" -m dpx.scalars tb >out 2>&1)
        grep -q 'predicted/step_s' "$tmp/out" && ls -d "$tmp"/wandb/offline-run-* >/dev/null 2>&1 || cat "$tmp/out")"
else
    skip 'wandb logs each step' "$PYTHON has no wandb"
fi
check 'a folder that cannot be is refused before the run' "$(
    "$B/dpxrun" demo/10m/ddp.json --no-db --steps 1 --tensorboard "$tmp/err" >"$tmp/out" 2>&1
    [ $? = 2 ] && grep -q 'is no folder' "$tmp/out" || cat "$tmp/out")"
finish
