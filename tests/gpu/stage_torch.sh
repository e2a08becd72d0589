# stage_torch.sh -- speed and memory beside PyTorch's, on this GPU, in this call.
# shellcheck shell=sh disable=SC2154,SC2015,SC2086
if ! python3 -c 'import torch; assert torch.cuda.is_available()' 2>"$dir/python.err"; then
    skip 'beside PyTorch' "python3 has no torch that sees the GPU: $(tail -n 1 "$dir/python.err")"
    finish
fi
here=$PWD/tests/gpu

# What products took of a step, in per cent: medians of a calibration of the very shapes, a block's as often as
# the model has layers, the head's once.
gemm_share() {      # PLAN.json STEP_SECONDS
    layers=$3
    vocab=$4
    "$B/dpxcal" run --device cuda --ranks 1 --model "$1.model" --seq "$5" --micro-batch "$6" --precision bf16 \
        --seconds 40 --db "$1.db" >"$1.cal" 2>&1 </dev/null || return
    python3 - "$1.db" "$2" "$layers" "$vocab" <<'END'
import sqlite3, sys
path, step, layers, vocab = sys.argv[1], *(float(x) for x in sys.argv[2:])
rows = sqlite3.connect(path).execute(
    "SELECT m, n, k, median_s FROM series WHERE class = 'gemm' AND dtype = 'bf16' AND is_now = 1").fetchall()
took = sum(s * (1 if vocab in (m, n, k) else layers) for m, n, k, s in rows)
print("%.1f" % (100 * took / step))
END
}

# speed NAME MODEL SEQ MICRO_BATCH LAYERS VOCABULARY
speed() {
    name=$1
    p=$dir/$name
    if [ ! -s "$p.row" ]; then
        enough 150 || return
        plan "$p.json" "$(cluster 1)" "$2" "$3" "$4" '"strategy": "ddp", "dialect": "paper", "precision": "bf16"'
        echo "$2" >"$p.json.model"
        wrong=$(run "$p.run" "$p.json" --device cuda --no-db --steps 25)
        [ ! "$wrong" ] || { check "$name runs" "$wrong"; return; }
        (cd "$here" && python3 torch_train.py "$p.json") >"$p.torch" 2>"$p.torch.err" || {
            check "$name runs in PyTorch" "$(tail -n 3 "$p.torch.err")"
            return
        }
        ours=$(number tokens_per_s "$p.run.json")
        theirs=$(sed -n 's/.*"tokens_per_s": \([0-9.e+]*\).*/\1/p' "$p.torch")
        step=$(number median "$p.run.json")
        "$B/dpxplan" eval "$p.json" --json >"$p.eval" 2>/dev/null
        mfu=$(awk -v m="$(number mfu "$p.eval")" -v t="$(number tokens_per_s "$p.eval")" -v o="$ours" \
            'BEGIN { if (t > 0) printf "%.1f", 100 * m * o / t }')
        share=$(gemm_share "$p.json" "$step" "$5" "$6" "$3" "$4")
        printf '%s\t%s\t%s\t%s\t%s\n' "$name" "$ours" "$theirs" "${mfu:-?}" "${share:-?}" >"$p.row"
    fi
    IFS=$tab read -r _ ours theirs mfu share <"$p.row"
    ratio=$(awk -v a="$ours" -v b="$theirs" 'BEGIN { printf "%.3f", a / b }')
    echo "$name: $ours tokens/s, PyTorch $theirs ($(sed -n 's/.*"how": "\([a-z0-9]*\)".*/\1/p' "$p.torch")), ratio $ratio, MFU $mfu %, products $share % of the step"
    check "$name: at least 0.8 of PyTorch's tokens/s" "$(awk -v r="$ratio" 'BEGIN { if (r < 0.8) print r }')"
}
speed gpt2-124m "$(gpt 12 768 12 1024 50304)" 1024 16 12 50304
speed llama-1.5b "$(llama 24 2048 16 8 6144 32000)" 2048 4 24 32000

# ---- memory: PyTorch's own peak of plans, rank 0 of N over a fake process group ----

memory_plans() {
    i=0
    for n in 1 8 64 512; do
        for shape in gpt llama; do
            for recompute in none full; do
                i=$((i + 1))
                case $shape in
                gpt) m=$(gpt 12 768 12 1024 50257) seq=1024 batch=4 ;;
                *)   m=$(llama 16 2048 32 8 8192 32000) seq=2048 batch=1 ;;
                esac
                plan "$dir/memory-$(printf '%02d' $i).json" "$(cluster $n)" "$m" $seq $batch \
                    "\"strategy\": \"fsdp\", \"dialect\": \"torch\", \"unit\": \"block\", \"precision\": \"bf16\", \"recompute\": \"$recompute\""
            done
        done
    done
    sed -i 's/"kernels": "dpx"/"kernels": "torch-sdpa"/' "$dir"/memory-*.json
}
[ "$type" ] || type=$(cluster_word)
if [ ! "$type" ]; then
    skip "PyTorch's memory" "$gpu_name has no name that a cluster of many could have"
    finish
fi
[ -s "$dir/memory-01.json" ] || memory_plans
for p in "$dir"/memory-??.json; do
    printf '{ "what": "%s", "plan": %s }\n' "$p" "$(tr '\n' ' ' <"$p")"
done >"$dir/memory.plans"
! enough 60 || DPX_SECONDS=0 python3 tests/gpu/torch_steps.py "$dir/memory.plans" "$dir/memory.jsonl" "$(($(left) - 20))" >"$dir/memory.out" 2>"$dir/memory.err"
# What torch_steps.py recorded: the plan's file, bytes allocated and reserved; or why not.
python3 - "$dir/memory.jsonl" >"$dir/memory.tsv" <<'END'
import json, os, sys
for line in open(sys.argv[1]) if os.path.exists(sys.argv[1]) else []:
    row = json.loads(line)
    print(row["what"], *(["failed", row["error"]] if "error" in row else [row["allocated"], row["reserved"]]), sep="\t")
END
{
    printf 'plan\tallocated\tdpx\t\treserved\tdpx\n'
    while IFS=$tab read -r p allocated reserved; do
        [ "$allocated" != failed ] || { printf '%s\tfailed\t%s\n' "${p##*/}" "$reserved"; continue; }
        "$B/dpxplan" eval "$p" --json >"$dir/eval.json" 2>/dev/null
        printf '%s\t%s\t%s\t%s\t%s\t%s\n' "${p##*/}" "$allocated" "$(number allocated_peak_bytes "$dir/eval.json")" \
            "$(awk -v a="$allocated" -v b="$(number allocated_peak_bytes "$dir/eval.json")" 'BEGIN { printf "%+.1f%%", 100 * (b / a - 1) }')" \
            "$reserved" "$(number peak_bytes "$dir/eval.json")"
    done <"$dir/memory.tsv"
} >"$dir/memory.txt"
cat "$dir/memory.txt"
if [ "$late" ]; then
    skip "PyTorch's memory" "$(grep -c "${tab}[0-9]" "$dir/memory.tsv") of 16 plans so far"
else
    check "PyTorch's peak of at least 12 plans beside dpx's" "$(n=$(grep -c "^[^${tab}]*${tab}[0-9]" "$dir/memory.tsv")
        [ "$n" -ge 12 ] || { echo "$n"; grep failed "$dir/memory.tsv" | head -n 3; })"
    check "dpx's figure is within 10 % of what PyTorch allocates" "$(awk -F'\t' 'NR > 1 && $2 > 0 {
        e = $3 / $2 - 1; if (e > .1 || e < -.1) print $1 ": " $4 }' "$dir/memory.txt")"
fi
