# lab.sh -- two machines on one: network namespaces joined by a link of 1 Gbit/s in each direction,
# each with a name of its own, so that Open MPI takes them for two nodes and sends everything
# between them over the link, and with half of the cores.  Source it, then
#
#     lab_begin WHAT                            lab_up, or WHAT is skipped and the script ends; $B, and the sanitizers' options
#     lab_up || ...                             0, or 1 with the reason in $lacking
#     lab_rate MBIT                             the link's speed from here on, in each direction
#     lab_llama FILE [HIDDEN INTERMEDIATE]      a Llama of four layers: 3.4 million parameters, 13.7 MB in fp32, if not said
#     lab_figure FILE KEY                       a number of a JSON document
#     lab_run RANKS_A_NODE dpxrun ARGUMENT...   ranks 0, 1, ... on node a, the others on b; killed
#                                               after $LAB_SECONDS (90)
#     lab_sent                                  bytes that node a has sent over the link so far, heads of packets left out
#
# Needs root.  Whatever ends the script, nothing is left.
# shellcheck shell=sh
lab=dpx$$
lab_dir=$(mktemp -d) || exit 1

# The CPUs that this shell may use, one a line, threads of a core behind each other.
lab_cpus() {
    sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status | tr , '\n' |
        awk -F- '{ for (c = $1; c <= ($2 == "" ? $1 : $2); c++) print c }' | while read -r c; do
        read -r core 2>/dev/null <"/sys/devices/system/cpu/cpu$c/topology/thread_siblings_list" || core=$c
        echo "${core%%[,-]*} $c"
    done | sort -n | cut -d' ' -f2
}

# tbf delays what exceeds the rate; 128 KB is what leaves at once: two packets as the kernel hands
# them on before they are cut to frames.
lab_up() {
    [ "$(id -u)" = 0 ] || { lacking='network namespaces need root'; return 1; }
    for tool in ip tc unshare; do
        command -v $tool >/dev/null || { lacking="there is no $tool"; return 1; }
    done
    lacking='this kernel gives no network namespaces, veth or tbf'
    ip netns add "$lab-a" 2>/dev/null && ip netns add "$lab-b" 2>/dev/null || return 1
    ip -n "$lab-a" link add dpx0 type veth peer name dpx0 netns "$lab-b" 2>/dev/null || return 1
    for n in a b; do
        ip -n "$lab-$n" addr add "10.77.0.$([ $n = a ] && echo 1 || echo 2)/24" dev dpx0 &&
            ip -n "$lab-$n" link set lo up && ip -n "$lab-$n" link set dpx0 up &&
            tc -n "$lab-$n" qdisc add dev dpx0 root tbf rate 1gbit burst 128kb latency 50ms 2>/dev/null ||
            return 1
    done
    # Cores of its own, as a machine has; where they cannot be told apart, both have all.
    on_a="taskset -c $(lab_cpus | head -n $(($(lab_cpus | wc -l) / 2)) | paste -sd, -)"
    on_b="taskset -c $(lab_cpus | tail -n $(($(lab_cpus | wc -l) / 2)) | paste -sd, -)"
    { $on_a true && $on_b true; } 2>/dev/null || on_a='' on_b=''
    # What ssh would do.
    cat >"$lab_dir/agent" <<AGENT
#!/bin/sh
shift
exec ip netns exec $lab-b unshare --uts $on_b sh -c 'hostname $lab-b; exec sh -c "\$0"' "\$*"
AGENT
    chmod +x "$lab_dir/agent"
}

lab_down() {
    for n in a b; do
        for p in $(ip netns pids "$lab-$n" 2>/dev/null); do kill -9 "$p" 2>/dev/null; done
        ip netns del "$lab-$n" 2>/dev/null
    done
    rm -rf "$lab_dir"
}
trap lab_down EXIT
trap 'exit 130' INT TERM

lab_run() {
    slots=$1
    shift
    printf '10.77.0.%s slots=%s\n' 1 "$slots" 2 "$slots" >"$lab_dir/hosts"
    program=$1
    shift
    OMPI_MCA_plm_rsh_agent=$lab_dir/agent PRTE_MCA_plm_ssh_agent=$lab_dir/agent \
    OMPI_MCA_btl=self,vader,tcp OMPI_MCA_pml=ob1 \
    OMPI_MCA_btl_tcp_if_include=10.77.0.0/24 OMPI_MCA_oob_tcp_if_include=10.77.0.0/24 \
    OMP_NUM_THREADS=1 XDG_DATA_HOME=$lab_dir \
        ip netns exec "$lab-a" unshare --uts $on_a sh -c 'hostname "$0"; exec "$@"' "$lab-a" \
        timeout -k 5 "${LAB_SECONDS:-90}" "$program" "$@" --hostfile "$lab_dir/hosts" </dev/null
}

# A packet as the kernel hands it on (up to 64 KB) has a head of 66 bytes: Ethernet's 14, IPv4's 20, TCP's 20 and 12 of its timestamps;
# an acknowledgement is nothing else.
lab_sent() {
    ip netns exec "$lab-a" sh -c 'cd /sys/class/net/dpx0/statistics && echo $(($(cat tx_bytes) - 66 * $(cat tx_packets)))'
}

lab_rate() {
    for n in a b; do
        tc -n "$lab-$n" qdisc change dev dpx0 root tbf rate "$1mbit" burst 128kb latency 50ms || echo "the link stays as fast as it is" >&2
    done
}

lab_llama() {
    cat >"$1" <<MODEL
{ "model_type": "llama", "vocab_size": 512, "max_position_embeddings": 256, "hidden_size": ${2:-256},
  "intermediate_size": ${3:-688}, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4,
  "hidden_act": "silu", "rms_norm_eps": 1e-05, "tie_word_embeddings": false }
MODEL
}

lab_figure() { tr -d ' ,"' <"$1" | sed -n "s/^$2://p" | head -n 1; }

lab_begin() {
    B=${B:-build}
    export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0}"
    lab_up && return
    skip "$1" "$lacking"
    finish
}
