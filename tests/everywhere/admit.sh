#!/bin/sh
# tests/everywhere/admit.sh -- dpxplan admit: a TrainJob and an sbatch script with one recipe are judged as `eval` judges it, by exit status and JSON.
. tests/check.sh
B=${B:-build}
XDG_DATA_HOME=/nonexistent
export XDG_DATA_HOME
jobs=tests/everywhere/jobs
taken() { grep -m 1 '"taken_bytes"' | tr -dc 0-9; }

as_eval() {
    want=$("$B/dpxplan" eval demo/qwen3-sft.yaml --cluster 1x8xh100 --json 2>/dev/null | taken)
    for job in sft.sbatch trainjob.yaml trainjob-patched.yaml; do
        said=$("$B/dpxplan" admit $jobs/$job --recipe demo/qwen3-sft.yaml --json 2>/dev/null) || echo "$job: exit $?"
        [ "$(echo "$said" | taken)" = "$want" ] || echo "$job: not the $want bytes of eval"
        echo "$said" | grep -q '"verdict": "fits"' || echo "$job: $said"
    done
}
check 'jobs take what eval says of their recipe' "$(as_eval)"

no() {
    small=$(mktemp) || return
    sed 's/NVIDIA-H100-80GB-HBM3/NVIDIA-GeForce-RTX-4090/' $jobs/trainjob-patched.yaml >"$small"
    "$B/dpxplan" admit "$small" --recipe demo/qwen3-sft.yaml --json >/dev/null 2>&1
    [ $? = 3 ] || echo 'exit status is not 3'
    rm -f "$small"
    # Parts of a heterogeneous job; a FIFO would wait for its writer; one is cut off nowhere.
    { cat $jobs/sft.sbatch; printf '#SBATCH hetjob\n#SBATCH --nodes=2\n'; } | sed '/^srun/d' >"$small.het"
    mkfifo "$small.fifo"
    { cat $jobs/sft.sbatch; head -c 5000000 /dev/zero | tr '\0' '#'; } >"$small.long"
    for job in "$small.het" "$small.fifo" "$small.long"; do
        timeout 20 "$B/dpxplan" admit "$job" --recipe demo/qwen3-sft.yaml >/dev/null 2>&1
        [ $? = 2 ] || echo "$job: exit status is not 2"
        rm -f "$job"
    done
    "$B/dpxplan" admit $jobs/sft.sbatch >/dev/null 2>&1
    [ $? = 2 ] || echo 'a job without its recipe: exit status is not 2'
    # Time-sliced GPUs of the GPU operator have their product's name with -SHARED; another's product is named as it stands.
    for product in NVIDIA-A100-SXM4-80GB-SHARED NVIDIA-H100-80GB-HBM3-MIG-1g.10gb NVIDIA-X9000; do
        sed "s/NVIDIA-H100-80GB-HBM3/$product/" $jobs/trainjob-patched.yaml >"$small.2"
        "$B/dpxplan" admit "$small.2" --recipe demo/qwen3-sft.yaml >/dev/null 2>"$small.err"
        [ $? = 2 ] && grep -q "\"$product\"" "$small.err" || { echo "$product:"; cat "$small.err"; }
        rm -f "$small.2" "$small.err"
    done
    "$B/dpxplan" admit demo/8b-fsdp.json >/dev/null 2>&1
    [ $? = 2 ] || echo 'no job: exit status is not 2'
}
check 'what does not fit is 3, what cannot be judged is 2' "$(no)"

# The recipe of a plan is that plan again.
back() {
    for to in axolotl llamafactory; do
        "$B/dpxplan" import demo/qwen3-sft.yaml --cluster 8xh100 >/dev/null 2>&1
        "$B/dpxplan" fit llama-3.1-8b h100 --train lora --json 2>/dev/null |
            python3 -c 'import json, sys; json.dump(json.load(sys.stdin)["gpus"][0]["plan"], open(sys.argv[1], "w"))' "$1" &&
            "$B/dpxplan" export "$1" --to $to >"$1.yaml" && "$B/dpxplan" eval "$1.yaml" --cluster 1xh100 >/dev/null 2>&1 || echo "$to: exit $?"
    done
}
tmp=$(mktemp) || exit 1
trap 'rm -f "$tmp" "$tmp.yaml"' EXIT
check 'an exported recipe is read again' "$(back "$tmp")"
finish
