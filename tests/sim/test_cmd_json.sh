#!/bin/sh
# tests/sim/test_cmd_json.sh -- for programs: every command has --json, an error is a document too, and answers name what they rest on.
. tests/check.sh
B=${B:-build}
keep_answers
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
XDG_DATA_HOME=/nonexistent
export XDG_DATA_HOME
command -v python3 >/dev/null || { skip 'documents' 'no python3'; finish; }

every() {
    for c in $("$B/dpxplan" nosuch 2>&1 | sed 's/.*there are //; s/,//g'); do
        "$B/dpxplan" "$c" --help | grep -q -- '--json' || echo "$c has no --json"
    done
}
check 'every command has --json' "$(every)"

# Standard output is one document with the status in it, whatever is wrong; the line on stderr stays.
error() {
    "$B/dpxplan" "$@" --json >"$tmp/out" 2>"$tmp/err"
    rc=$?
    python3 - "$rc" "$tmp/out" <<'END' || echo "of: $*"
import json, sys
d = json.load(open(sys.argv[2]))
e = d["error"]
assert e["status"] == int(sys.argv[1]) != 0 and e["kind"] in ("usage", "failed") and e["messages"] and d["version"] and d["frameworks"]["torch"], d
END
    [ -s "$tmp/err" ] || echo "nothing on standard error: $*"
}
errors() {
    error eval nomodel --cluster 8xh100
    error eval demo/8b-fsdp.json --set sq=1
    error fit llama-3.1-8b --nosuch
    error search --model gpt2 --cluster 8xh100 --seq 1m --global-batch 64
    error nosuch
    error sweep demo/8b-fsdp.json --over nosuch=1
    error export demo/70b-qlora.json --to torchtitan
    error import demo/oom.txt --cluster 8xh100
    error list nosuch
    error explain nosuch.json
    error bill demo/8b-fsdp.json --tokens x
    error limits --model gpt2
    error collectives --nosuch
    error estimators nosuch
    error init --model nosuch
    error schema --nosuch
}
check 'an error is a document' "$(errors 2>&1)"

# An answer, not an error, where nothing fits: status 3.
nothing() {
    "$B/dpxplan" search --model llama-3.1-405b --cluster 1xrtx4090 --seq 4k --global-batch 8 --json 2>/dev/null >"$tmp/out"
    rc=$?
    python3 -c 'import json,sys; d = json.load(sys.stdin); assert "error" not in d and d["fitting"] == 0, d' <"$tmp/out" || echo "exit $rc"
    [ $rc = 3 ] || echo "exit $rc"
}
check 'nothing fits is an answer' "$(nothing 2>&1)"

rests() {
    for c in 'eval demo/8b-fsdp.json' 'sweep demo/8b-fsdp.json --over nodes=1,2' 'list gpus' 'export demo/8b-fsdp.json --to fsdp'; do
        # shellcheck disable=SC2086
        "$B/dpxplan" $c --json 2>/dev/null | python3 -c '
import json, sys
d = json.load(sys.stdin)
assert d["version"] and set(d["frameworks"]) == {"torch", "torch-fsdp1", "deepspeed", "megatron"}, d.get("frameworks")' || echo "$c"
    done
}
check 'answers name the program and the frameworks that they follow' "$(rests 2>&1)"

for p in dpxplan dpxrun dpxcal dpxreport; do
    [ -x "$B/$p" ] || { skip "the version of $p is a document" 'it is not built'; continue; }
    check "the version of $p is a document" "$(
        for asked in 'version --json' '--version --json' '--json --version'; do
            # shellcheck disable=SC2086
            "$B/$p" $asked 2>&1 | python3 -c '
import json, sys
d = json.load(sys.stdin)
text = "%s %s%s" % (d["program"], d["version"], ", " + d["built"] if "built" in d else "")
assert sys.argv[1] == text and d["frameworks"]["torch"], (sys.argv[1], d)' "$("$B/$p" --version)" 2>&1 || echo "$asked"
        done)"
done

# What explain says behind the peak of what a framework does here, eval's document says, too: a sentence of each kind.
notes() {
    echo '{"dpx_plan": 1, "model": "moonlight-16b-a3b", "cluster": "8xh100", "strategy": "ddp", "dialect": "torch", "precision": "bf16", "seq": 512,
        "micro_batch": 1, "ddp": {"model_dtype": "bf16"}}' >"$tmp/moe.json"
    for c in demo/8b-zero2.json "$tmp/moe.json" \
            'llama-3.2-1b --cluster 8xh100 --seq 1k --set strategy=fsdp dialect=torch kernels=torch-sdpa' demo/gpipe.json; do
        # shellcheck disable=SC2086
        "$B/dpxplan" eval $c --json 2>/dev/null >"$tmp/eval"
        # shellcheck disable=SC2086
        "$B/dpxplan" explain $c 2>/dev/null | tr -s '\n ' '  ' >"$tmp/explain"
        python3 - "$tmp/eval" "$tmp/explain" <<'END' || echo "of: $c"
import json, sys
notes, said = json.load(open(sys.argv[1]))["remarks"], open(sys.argv[2]).read()
assert all(n in said for n in notes), notes
assert notes or "attention:" not in said and "DeepSpeed all-reduces" not in said and "Routers:" not in said, said
END
    done
    "$B/dpxplan" eval "$tmp/moe.json" --json 2>/dev/null |
        grep -q 'Routers: all parameters are bf16' || echo 'no word of routers'
}
check 'notes of explain are in the document of eval' "$(notes 2>&1)"

# Of CPU cores no peak is known: no share of it is 0.
shares() {
    "$B/dpxplan" eval gpt2 --cluster localhost:2 --seq 64 --json 2>/dev/null | python3 -c '
import json, sys
t = json.load(sys.stdin)["time"]
assert t["mfu"] is t["hfu"] is t["peak_flops"] is None and t["tflops_per_gpu"] > 0, t'
}
check 'no share of a peak that is not known' "$(shares 2>&1)"
finish
