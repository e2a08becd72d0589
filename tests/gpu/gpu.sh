# gpu.sh -- what the stages of `make gpu-check` share: source it after tests/check.sh.
# shellcheck shell=sh disable=SC2154,SC2034,SC2086,SC2015
B=${B:-build} OUT=${OUT:-$B/gpu-check}
mkdir -p "$OUT" || exit 1
dir=$OUT/$stage
mkdir -p "$dir" || exit 1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
golden=$PWD/tests/golden/parity
tab=$(printf '\t')

# ---- time: a stage ends within eight minutes; what is left is done when it is started again ----

began=$(date +%s)
left() { echo $((${BUDGET:-440} - $(date +%s) + began)); }
# enough SECONDS: whether so much time is left; else says so, once.
enough() {
    [ "$(left)" -ge "$1" ] && return
    [ "$late" ] || skip "the rest of $stage" 'no time is left: start the stage again, it goes on from here'
    late=1
    return 1
}
late=''

# ---- what times nothing may run beside others ----

JOBS=${JOBS:-1}
begun=''
: >"$dir/order"
# aside COMMAND ARGUMENTS...: in the background, JOBS at a time.
aside() {
    "$@" &
    begun="$begun $!"
    one_less $begun
}
# Waits for the oldest where JOBS are at work.
one_less() {
    [ $# -ge "$JOBS" ] || return 0
    wait "$1"
    shift
    begun=$*
}
# later WHAT COMMAND ARGUMENTS...: a check of what COMMAND prints, which is what is wrong.  Aside, in a folder $at of
# its own, which stays; one that passed before is not run again.
later() {
    what=$1
    shift
    at=$dir/$(echo "$what" | tr -cs 'A-Za-z0-9\n' -)
    printf '%s\t%s\n' "$at" "$what" >>"$dir/order"
    mkdir -p "$at"
    [ ! -e "$at/ok" ] || return 0
    rm -f "$at/wrong"
    ! enough 20 || aside complaints "$@"
}
complaints() {
    "$@" >"$at/wrong" 2>&1
    [ -s "$at/wrong" ] || : >"$at/ok"
}
# The checks of all, in their order.
checks() {
    wait
    while IFS=$tab read -r at what; do
        [ ! -e "$at/wrong" ] && [ ! -e "$at/ok" ] || check "$what" "$([ -e "$at/ok" ] || cat "$at/wrong")"
    done <"$dir/order"
}

# ---- the GPU ----

# The emulator of tests/emu is one too, where a build for it is tested: EMU=1.
if [ "${EMU:-}" ]; then
    gpus=${DPX_EMU_DEVICES:-1} gpu_name=emulated
else
    gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
    gpu_name=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)
fi
gpus=${gpus:-0}

# What clusters call it: "NVIDIA H100 80GB HBM3" is h100; words are cut off until dpxplan knows it.
cluster_word() {
    word=$(echo "$gpu_name" | tr 'A-Z ' 'a-z-' | sed 's/^nvidia-//; s/^tesla-//')
    while [ "$word" ]; do
        plan "$dir/word.json" "\"1x$word\"" "$(gpt 2 64 2 64 256)" 32 1 '"strategy": "ddp", "dialect": "paper"'
        "$B/dpxplan" eval "$dir/word.json" >/dev/null 2>&1 && { echo "$word"; return; }
        case $word in *-*) word=${word%-*} ;; *) word='' ;; esac
    done
}
# Bytes of a GPU that has no name in dpx; its rates are not known, and only what is measured counts.
unknown_memory() {
    if [ "${EMU:-}" ]; then
        echo "${DPX_EMU_MEMORY:-4000000000}"
    else
        nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | awk 'NR == 1 { printf "%.0f", $1 * 1048576 }'
    fi
}
# cluster N: N GPUs of this type, as plan.json has it; of a type that has no name an object of one.
cluster() {
    [ "$type" ] || type=$(cluster_word)
    if [ "$type" ]; then
        if [ "$1" -le 8 ]; then echo "\"${1}x$type\""; else echo "\"$(($1 / 8))x8x$type\""; fi
    else
        cat <<END
{ "name": "unknown", "nodes": 1, "gpus_per_node": $1,
  "gpu": { "name": "$gpu_name", "memory_bytes": $(unknown_memory), "hbm_gb_per_s": 1000, "fp32_tflops": 30, "bf16_tflops": 200 },
  "intra": { "gb_per_s": 50 }, "inter": { "gb_per_s": 10 } }
END
    fi
}
type=${GPU_TYPE:-}

has_mpi() { [ "${MPI:-}" != 0 ] && command -v mpirun >/dev/null; }

# ---- plans and what dpxrun says ----

# number KEY FILE: the first value of the key in a document of one key a line.
number() { sed -n "s/^ *\"$1\": *\"\{0,1\}\([^\",]*\)\"\{0,1\},*\$/\1/p" "$2" | head -n 1; }

GPT2='"model_type": "gpt2", "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0'
LLAMA='"model_type": "llama", "tie_word_embeddings": false'
# gpt LAYERS WIDTH HEADS POSITIONS VOCABULARY, llama LAYERS WIDTH HEADS KV_HEADS FFN VOCABULARY
gpt() { echo "{ $GPT2, \"n_layer\": $1, \"n_embd\": $2, \"n_head\": $3, \"n_positions\": $4, \"vocab_size\": $5 }"; }
llama() {
    echo "{ $LLAMA, \"num_hidden_layers\": $1, \"hidden_size\": $2, \"num_attention_heads\": $3," \
         "\"num_key_value_heads\": $4, \"intermediate_size\": $5, \"vocab_size\": $6, \"max_position_embeddings\": 4096 }"
}
# plan FILE CLUSTER MODEL SEQ MICRO_BATCH KEYS: cluster as JSON, model as JSON or "\"a path\"".
plan() {
    cat >"$1" <<END
{ "dpx_plan": 1, "cluster": $2, "kernels": "dpx", "seq": $4, "micro_batch": $5, $6,
  "model": $3 }
END
}
# dpxrun's arguments; JSON into FILE.json, messages into FILE.err; prints what went wrong.
run() {
    to=$1
    shift
    timeout "${LIMIT:-120}" "$B/dpxrun" "$@" --json >"$to.json" 2>"$to.err" </dev/null || {
        echo "exit status $?"
        tail -n 3 "$to.err"
    }
}
# The programs of tests/gpu/ that compare losses and tensors.
compare() { "$B/tests/gpu/parity" "$@" 2>&1 | head -n 5; }
