#!/bin/sh
# tests/bench/search.sh [NAME...] -- what dpxplan takes for the searches that are the hardest: seconds by a clock and of processors, how
# many of these worked at once, memory, and instructions by callgrind, which no other work on the machine changes (some minutes each; COUNT=0 leaves them out).
# replay-*: how many times the instructions the replay of PyTorch's allocator makes them: all of them over all but those of
# reserved_within() and what it calls, on one thread.  A search without it would look at other plans, too: those are not in it.
# $B is where it was built.
dpxplan=${B:-build}/dpxplan
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
export XDG_DATA_HOME="$dir"

# 4,096 blocks of 14M parameters.
cat >"$dir/deep.json" <<'MODEL'
{ "model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 4096, "intermediate_size": 4096, "num_attention_heads": 16,
  "num_key_value_heads": 4, "vocab_size": 32000, "max_position_embeddings": 8192, "tie_word_embeddings": false }
MODEL

# run NAME COMMAND [OPTIONS].
run() {
    name=$1
    shift
    /usr/bin/time -f '%e %U %S %M' "$dpxplan" "$@" >"$dir/said" 2>"$dir/time"
    rc=$?
    [ $rc = 0 ] || [ $rc = 3 ] || { cat "$dir/time"; exit 1; }          # 3: nothing fits
    counted=-
    [ "${COUNT:-1}" = 0 ] || counted=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null "$dpxplan" "$@" 2>&1 >/dev/null |
        sed -n 's/.*Collected : *//p' | awk '{ printf "%.1f G", $1 / 1e9 }')
    tail -n 1 "$dir/time" | awk -v name="$name" -v counted="$counted" '
        { printf "%-28s %6.2f s  %6.2f + %.2f s of processors (%.2f at once)  %5d MB  %s\n", name, $1, $2, $3,
                 ($1 > 0 ? ($2 + $3) / $1 : 0), $4 / 1024, counted }'
    grep ' evaluated, ' "$dir/said" || true
}

one() { name=$1; shift; run "$name" search "$@"; }

replay() {
    name=$1
    shift
    valgrind --tool=callgrind --callgrind-out-file="$dir/calls" "$dpxplan" search "$@" >"$dir/said" 2>"$dir/time" || { cat "$dir/time"; exit 1; }
    callgrind_annotate --inclusive=yes --threshold=100 "$dir/calls" | awk -v name="$name" '
        { gsub(",", "") }
        /PROGRAM TOTALS/ { all = $1 }
        /:reserved_within / && !own { own = $1 }
        END { printf "%-28s %6.2f G instructions, %.2f of them the replay: %.2f times\n", name, all / 1e9, own / 1e9, all / (all - own) }'
}

[ $# -gt 0 ] || set -- 405b-on-16384-all 405b-on-512 405b-on-512-megatron v3-on-512 v3-on-2048 mixtral-on-64 8b-on-8 70b-lora-on-4 13b-offload-on-2 \
    fit-8b fit-405b 405b-on-16384 4096-layers batch-73513440 replay-gpt2-xl replay-8b-on-8 replay-13b-on-16 replay-8b-on-32
for name; do
    case $name in
    405b-on-16384-all)    one "$name" --model llama-3.1-405b --cluster 2048x8xh100 --seq 8192 --global-batch 2048 ;;
    405b-on-512)          one "$name" --model llama-3.1-405b --cluster 64x8xh200 --seq 8192 --global-batch 4096 --framework any ;;
    405b-on-512-megatron) one "$name" --model llama-3.1-405b --cluster 64x8xh200 --seq 8192 --global-batch 4096 --framework megatron ;;
    v3-on-512)            one "$name" --model deepseek-v3 --cluster 64x8xh200 --seq 4096 --global-batch 2048 --framework megatron ;;
    v3-on-2048)           one "$name" --model deepseek-v3 --cluster 256x8xh100 --seq 4096 --global-batch 8192 --framework megatron ;;
    mixtral-on-64)        one "$name" --model mixtral-8x7b --cluster 8x8xh100 --seq 4096 --global-batch 256 ;;
    8b-on-8)              one "$name" --model llama-3.1-8b --cluster 8xh100 --seq 8192 --global-batch 64 ;;
    70b-lora-on-4)        one "$name" --model llama-3.1-70b --cluster 4xa100-80gb --seq 4096 --global-batch 16 --lora 16 ;;
    13b-offload-on-2)     one "$name" --model llama-2-13b --cluster 2xrtx4090 --seq 4096 --global-batch 16 ;;
    fit-8b)               run "$name" fit llama-3.1-8b ;;
    fit-405b)             run "$name" fit llama-3.1-405b ;;
    405b-on-16384)  one "$name" --model llama-3.1-405b --cluster 2048x8xh100 --seq 8192 --global-batch 2048 --framework torch ;;
    4096-layers)    one "$name" --model "$dir/deep.json" --cluster 64x8xh100 --seq 4096 --global-batch 512 ;;
    batch-73513440) one "$name" --model llama-3.1-8b --cluster 8xh100 --seq 4096 --global-batch 73513440 ;;
    replay-gpt2-xl)   replay "$name" --model gpt2-xl --cluster 8xh100 --seq 1024 --global-batch 64 ;;
    replay-8b-on-8)   replay "$name" --model llama-3.1-8b --cluster 8xh100 --seq 8192 --global-batch 64 ;;
    replay-13b-on-16) replay "$name" --model llama-2-13b --cluster 2x8xh100 --seq 4096 --global-batch 128 ;;
    replay-8b-on-32)  replay "$name" --model llama-3.1-8b --cluster 4x8xh100 --seq 8192 --global-batch 128 ;;
    *) echo "usage: $0 [405b-on-16384-all|405b-on-512|405b-on-512-megatron|v3-on-512|v3-on-2048|mixtral-on-64|8b-on-8|70b-lora-on-4|13b-offload-on-2|fit-8b|fit-405b|405b-on-16384|4096-layers|batch-73513440|replay-gpt2-xl|replay-8b-on-8|replay-13b-on-16|replay-8b-on-32]..." >&2; exit 2 ;;
    esac
done
