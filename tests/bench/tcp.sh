#!/bin/sh
# tests/bench/tcp.sh -- a step of two emulated nodes joined at 1 Gbit/s (tests/lab/lab.sh, root), with Open
# MPI's TCP as launch_tune_tcp() has it and as Open MPI has it, in turns.  $B is where it was built.
# shellcheck source=tests/lab/lab.sh
. tests/lab/lab.sh
B=${B:-build} STEPS=${STEPS:-8} ROUNDS=${ROUNDS:-2}
if ! lab_up; then
    echo "TCP: not measured: $lacking"
    exit 0
fi

# 29.9 million parameters, 120 MB in fp32.
cat >"$lab_dir/config.json" <<'MODEL'
{ "model_type": "llama", "vocab_size": 4096, "max_position_embeddings": 256, "hidden_size": 512,
  "intermediate_size": 1408, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 8,
  "hidden_act": "silu", "rms_norm_eps": 1e-05, "tie_word_embeddings": false }
MODEL

plan() {        # STRATEGY
    cat >"$lab_dir/plan.json" <<PLAN
{ "dpx_plan": 1, "model": "$lab_dir/config.json", "kernels": "dpx", "seq": 64, "micro_batch": 1,
  "cluster": { "name": "lab", "host": true, "nodes": 2, "gpus_per_node": 1,
    "gpu": { "name": "cpu", "memory_bytes": 4000000000 }, "intra": { "gb_per_s": 4 }, "inter": { "gb_per_s": 0.125 } },
  "strategy": "$1", "dialect": "torch", "precision": "fp32" }
PLAN
}

measured() {    # median of a step, s
    lab_run 1 "$B/dpxrun" "$lab_dir/plan.json" --steps "$STEPS" --threads 1 --no-db --json >"$lab_dir/out" 2>"$lab_dir/said" ||
        { head -n 3 "$lab_dir/said" >&2; exit 1; }
    tr -d ' ,"' <"$lab_dir/out" | sed -n 's/^median://p'
}

for strategy in ddp fsdp; do
    plan $strategy
    round=1
    while [ $round -le "$ROUNDS" ]; do
        ours=$(measured) || exit
        theirs=$(OMPI_MCA_btl_tcp_flags=send,put,inplace,need-ack,need-csum,hetero-rdma OMPI_MCA_btl_tcp_sndbuf=0 measured) || exit
        echo "$strategy $ours $theirs" | awk '{ printf "%-4s two nodes at 1 Gbit/s: a step %.2f s, with TCP as Open MPI has it %.2f s: %.2f times\n", $1, $2, $3, $3 / $2 }'
        round=$((round + 1))
    done
done
