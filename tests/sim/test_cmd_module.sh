#!/bin/sh
# tests/sim/test_cmd_module.sh -- answers about a recorded module: words of what it reads, paths of the user's own modules.
. tests/check.sh
B=${B:-build}
keep_answers
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
XDG_DATA_HOME=$tmp/none         # no calibration of this machine
export XDG_DATA_HOME
m=$PWD/tests/golden/module
printf '{"dpx_plan": 1, "model": "%s", "cluster": "8xh100", "strategy": "ddp", "dialect": "torch", "seq": 224, "micro_batch": 32, "precision": "bf16"}' \
    "$m/resnet.json" >"$tmp/images.json"
sed 's/"micro_batch": 32/"micro_batch": 16/' "$tmp/images.json" >"$tmp/half.json"

answers() {
    "$B/dpxplan" fit "$m/resnet.json" h100 --seq 224 --batch 64 --samples 1M
    "$B/dpxplan" search --model "$m/resnet.json" --cluster 2xh100 --seq 224 --global-batch 64 --framework torch
    "$B/dpxplan" eval "$tmp/images.json"
    "$B/dpxplan" explain "$tmp/images.json"
    "$B/dpxplan" explain "$tmp/images.json" "$tmp/half.json"
    "$B/dpxplan" sweep "$tmp/images.json" --over micro_batch=8,16
    "$B/dpxplan" sweep --model "$m/resnet.json" --cluster 2xh100 --over seq=224,256 --global-batch 64 --framework torch
    "$B/dpxplan" bill "$tmp/images.json" --samples 1M
}
answers >"$tmp/said" 2>"$tmp/err"
check 'no answer about images speaks of tokens, an embedding or a head' "$(grep -n -i -E 'token|embedding|\bhead\b' "$tmp/said" "$tmp/err")"
check 'samples are of 224 x 224, rates in samples a second' "$(
    for words in 'samples of 224 x 224' 'samples/s'; do grep -q "$words" "$tmp/said" || echo "not said: $words"; done)"
check 'entries are named by the module that runs' "$(grep -q 'forward behind layer4.1\|forward layer\|backward layer' "$tmp/said" || echo 'no layer is named')"

"$B/dpxplan" eval "$tmp/images.json" --json 2>"$tmp/err" >"$tmp/doc"
number() { sed -n "s/^ *\"$1\": \([0-9.e+-]*\),\{0,1\}\$/\1/p" "$tmp/doc" | head -1; }
check 'JSON has samples a second and no tokens' "$(
    grep -q '"tokens_per_s": null' "$tmp/doc" || grep '"tokens_per_s"' "$tmp/doc"
    awk -v r="$(number samples_per_s)" -v s="$(number step_s)" 'BEGIN { d = r * s / 256 - 1; if (d * d > 1e-18) print r * s " samples a step, not 256" }')"

# refuses WORDS COMMAND...: exit 2, and the words.
refuses() {
    words=$1
    shift
    "$B/dpxplan" "$@" >"$tmp/out" 2>"$tmp/err"
    rc=$?
    [ $rc = 2 ] || echo "$*: exit $rc, not 2"
    grep -q -e "$words" "$tmp/err" || { echo "not said: $words"; cat "$tmp/err"; }
}
check 'tokens of a training are refused where a sample has none' "$(
    refuses 'has no tokens' fit "$m/resnet.json" h100 --seq 224 --tokens 1B
    refuses 'has no tokens' search --model "$m/resnet.json" --cluster 2xh100 --seq 224 --global-batch 64 --tokens 1B
    refuses 'has no tokens' eval "$tmp/images.json" --tokens 1B
    refuses 'has no tokens' bill "$tmp/images.json" --tokens 1B
    refuses 'has no tokens' sweep "$tmp/images.json" --over micro_batch=8,16 --tokens 1B)"

# A script for an encoder and a decoder, which are no one list of blocks: as long as Python reads it, and wraps each unit once.
exported() {
    printf '{"dpx_plan": 1, "model": "%s", "cluster": "8xh100", "strategy": "fsdp", "dialect": "%s", "seq": 64, "micro_batch": 4, "precision": "bf16", "recompute": "full"}' \
        "$m/translator.json" "$1" >"$tmp/pair.json"
    "$B/dpxplan" export "$tmp/pair.json" --to fsdp >"$tmp/pair.py" 2>"$tmp/err" || cat "$tmp/err"
    for unit in encoder.layers.0 encoder.layers.1 decoder.layers.0 decoder.layers.1; do
        [ "$(grep -c "\"transformer.$unit\"" "$tmp/pair.py")" = 1 ] || echo "$1: transformer.$unit is not named once"
    done
    grep -q 'map(model.get_submodule, units)' "$tmp/pair.py" || echo "$1: no unit is checkpointed"
    python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' "$tmp/pair.py" 2>&1
}
check 'a module of different units is exported by their names' "$(exported torch; exported torch-fsdp1)"
finish
