#!/bin/sh
# tests/mpi/quant_losses.sh [FOLDER [STEPS]] -- `make quant-losses`: what ZeRO++'s codes do to training: losses of 200 steps of a GPT-2 of
# 10.8 million parameters on the bytes of this tree's documents, on two ranks that are a node each, without codes, with int8 gathers
# (qwZ), with int4 reductions (qgZ), with both.  Draws FOLDER/losses.svg where gnuplot is; fails where the mean loss of the last ten
# steps is further off than 1 % with qwZ, 2 % with qgZ.  Two minutes on two quiet cores.
# Runs from the root of the tree; $B is where it was built.
B=${B:-build}
dir=${1:-$B/quant-losses} steps=${2:-200}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mkdir -p "$dir" || exit 1
find README.md docs -name '*.md' | sort | xargs cat >"$dir/data"

run() {         # NAME KEYS: its losses into NAME.txt, a line each
    cat >"$dir/$1.json" <<PLAN
{ "dpx_plan": 1, "kernels": "dpx", "seq": 64, "micro_batch": 2, "precision": "fp32", "clip": 1.0, "dropout": 0,
  "model": { "model_type": "gpt2", "n_layer": 6, "n_embd": 384, "n_head": 6, "vocab_size": 256, "n_positions": 64 },
  "cluster": { "name": "pair", "host": true, "nodes": 2, "gpus_per_node": 1, "gpu": { "name": "cpu", "memory_bytes": 2000000000 },
    "intra": { "gb_per_s": 4 }, "inter": { "gb_per_s": 0.125 } },
  "strategy": "zero3", "dialect": "deepspeed", "deepspeed": { "stage3_param_persistence_threshold": 2000, "reduce_bucket_size": 1000000$2 } }
PLAN
    mpirun -n 2 "$B/dpxrun" "$dir/$1.json" --no-db --json --steps "$steps" --seed 1 --threads 1 --data "$dir/data" >"$dir/run.json" </dev/null || exit 1
    tr -d ' \n' <"$dir/run.json" | sed 's/.*"loss":\[\([^]]*\)\].*/\1/' | tr , '\n' >"$dir/$1.txt"
}
qwz=', "zero_quantized_weights": true' qgz=', "zero_quantized_gradients": true'
run without ''
run qwZ "$qwz"
run qgZ "$qgz"
run both "$qwz$qgz"

if command -v gnuplot >/dev/null; then
    gnuplot <<PLOT
set terminal svg size 800,480
set output '$dir/losses.svg'
set xlabel 'step'
set ylabel 'loss'
plot for [name in 'without qwZ qgZ both'] '$dir/'.name.'.txt' using (\$0 + 1):1 with lines title name
PLOT
    echo "$dir/losses.svg"
fi

paste "$dir/without.txt" "$dir/qwZ.txt" "$dir/qgZ.txt" "$dir/both.txt" | tail -n 10 | awk -v steps="$steps" '
    { for (i = 1; i <= 4; i++) sum[i] += $i }
    END {
        split("without qwZ qgZ both", name, " "); split("0 0.01 0.02 0.03", most, " ")
        printf "mean loss of the last %d of %d steps\n", NR, steps
        for (i = 1; i <= 4; i++) {
            off = sum[i] / sum[1] - 1
            printf "  %-8s %.5f  %+.3f %%\n", name[i], sum[i] / NR, 100 * off
            if (!((off < 0 ? -off : off) <= most[i])) bad = 1
        }
        exit bad
    }'
