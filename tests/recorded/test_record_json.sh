#!/bin/sh
# test_record_json.sh -- python -m dpx.record --json: one document, of what was found or of what is wrong, whatever the module prints.
. tests/check.sh
B=${B:-build} PYTHON=${PYTHON:-python3}
export PYTHONPATH="$PWD/lib"
can_hold || finish
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

# record STATUS EXPRESSION WORD...: the exit status, and one document d of which the expression holds.
record() {
    status=$1 holds=$2
    shift 2
    said=$(mktemp "$held_in/answers/XXXXXXXX") || exit 1
    env PATH="${FOUND_IN-$PATH}" "$(command -v "$PYTHON")" -m dpx.record "$@" --json >"$said.json" 2>"$dir/err"
    rc=$?
    { echo dpx.record; printf '%s\n' "$@"; } >"$said.words"
    [ $rc = "$status" ] || echo "$*: exit $rc"
    "$PYTHON" - "$holds" "$said.json" <<'PY' 2>&1 || { echo "of: $*"; rm "$said.json" "$said.words"; }
import json, sys
d = json.load(open(sys.argv[2]))
assert eval("(%s)" % sys.argv[1]), d
PY
    ! grep Traceback "$dir/err"
}
refused() {     # TEXT WORD...
    text=$1
    shift
    record 2 "d['error']['status'] == 2 and d['error']['kind'] == 'usage' and '$text' in d['error']['messages'][0]" "$@"
}

check 'a wrong question is a document, without PyTorch, too' "$(
    refused 'MODULE:FUNCTION'
    refused '--nosuch' a:b --nosuch
    refused '--prec' a:b --prec bf16
    refused 'fp64' a:b --precision fp64
    refused 'positive numbers' a:b --batch 0
    refused 'positive numbers' a:b --size x
    refused 'BATCH:SIZE' a:b --check 7
    refused 'BATCH:SIZE' a:b --check 7:1:2
    refused 'BATCH:SIZE' a:b --check 0:64
    refused '--step' a:b --step -1
    refused '--most' a:b --most -1
    refused 'capability' a:b --gpu h100
    refused 'no file can be written there' a:b -o "$dir/nosuch/x.json"
    refused 'no file can be written there' a:b -o "$dir")"

if ! "$PYTHON" -c 'import torch, sys; sys.exit(not torch.version.cuda)' 2>/dev/null; then
    skip 'what a recording found is a document' "$PYTHON has no torch with CUDA"
    finish
fi
cat >"$dir/zoo of mine.py" <<'END'
import os
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, fault=None):
        super().__init__()
        self.first, self.second, self.spare, self.fault = nn.Linear(8, 16), nn.Linear(16, 8), nn.Linear(2, 2), fault
    def forward(self, x):
        if self.fault:
            raise self.fault
        return self.second(self.first(x))

def of(fault=None):
    print("a line of Python's")
    os.system("echo a line of a process")
    return Net(fault), lambda b, s: torch.zeros((b, s, 8)), lambda module, x: module(x).sum()

class Odd(Net):
    def forward(self, x):
        if self.first.weight.dtype == torch.bfloat16:
            raise NotImplementedError("bf16")
        if self.first.weight.sum() > 0:
            x = x + 1
        return super().forward(torch.renorm(x, 2, 0, 1.0))

made = of
odd = lambda: (Odd(), *of()[1:])
asserts = lambda: of(AssertionError("not this"))
divides = lambda: 1 // 0
ends = lambda: of(OSError("a file"))
number = 3
END
mine="$dir/zoo of mine.py"
how="--precision fp32 --recompute none --batch 2,3 --size 4,8 --check 4:12 -o $dir/out.json"
# Net: 8 * 16 + 16 + 16 * 8 + 8 numbers are used, 2 * 2 + 2 are not; x is b * s * 8 numbers of 4 bytes.
# shellcheck disable=SC2086 # options
check 'what a recording found is a document' "$(
    record 0 'd["module"] | {"largest": 0} == {"class": "Net", "parameters": 286, "trained": 286, "tensors": 6, "shared": [],
              "unused": ["spare.weight", "spare.bias"], "largest": 0}
              and d["input_bytes"] == ["32*b*s"] and d["checked"] == [{"batch": 4, "size": 12}] and d["not_recorded"] == []
              and d["recorded"] == [{"precision": "fp32", "recompute": "none", "stage3": False}]
              and d["frameworks"]["torch"] and d["file"].endswith("out.json")' "$mine:made" $how
    record 0 'len(d["recorded"]) == 6 and d["takes"] == {"batch": 2, "size": {"of": "size", "only": 4}}
              ' "$mine:made" --batch 2 --size 4 --check 2:4 -o "$dir/out.json"
    record 0 'd["takes"]["batch"] is None and d["takes"]["size"]["step"] == 4 and d["takes"]["size"]["most"] == 64
              ' "$mine:made" --step 4 --most 64 $how
    record 0 'd["not_recorded"][0]["precision"] == "bf16" and "NotImplementedError: bf16" in d["not_recorded"][0]["why"]
              and d["values_read"] == [{"where": "the module", "times": 1}] and d["not_known"] == [{"operator": "renorm", "where": "the module", "times": 1}]
              ' "$mine:odd" --precision bf16,fp32 --recompute none --size 4 --check 4:4 -o "$dir/out.json")"
# shellcheck disable=SC2086 # options
check 'what a module does wrong is refused in one line' "$(
    echo 'import nosuchpackage' >"$dir/imports.py"
    echo 'x = [].nosuch' >"$dir/attribute.py"
    echo 'def (' >"$dir/syntax.py"
    echo 'raise SystemExit(0)' >"$dir/exits.py"
    refused nosuchpackage "$dir/imports.py:f" $how
    refused 'AttributeError: ' "$dir/attribute.py:f" $how
    refused 'SyntaxError: ' "$dir/syntax.py:f" $how
    refused 'SystemExit: ' "$dir/exits.py:f" $how
    refused 'has no function nosuch' "$mine:nosuch" $how
    refused 'has no function number' "$mine:number" $how
    refused 'MODULE:FUNCTION is wanted' "$mine" $how
    refused 'AssertionError: not this' "$mine:asserts" $how
    refused 'ZeroDivisionError: ' "$mine:divides" $how
    refused 'OSError: a file' "$mine:ends" $how)"
# shellcheck disable=SC2086 # options
check 'what the machine lacks is exit status 1' "$(
    FOUND_IN=/nonexistent record 1 'd["error"]["kind"] == "failed" and "C compiler" in d["error"]["messages"][0]' "$mine:made" $how)"
finish
