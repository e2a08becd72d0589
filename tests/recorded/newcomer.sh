#!/bin/sh
# newcomer.sh -- what somebody with a module of their own does, from its file to the answer, with the seconds of each command (`make newcomer`).
#     newcomer.sh         PYTHON: one with torch, and diffusers for the U-Net; B: the build
#     GPT=FILE            nanoGPT's model.py, or another with GPT(GPTConfig(n_layer=, n_head=, n_embd=)); else demo/nanogpt.py
# Seconds are printed, not judged: they are the machine's.  Exit status 1: a command fails, or gives no such answer.
B=${B:-build} PYTHON=${PYTHON:-python3}
"$PYTHON" -c 'import torch' 2>/dev/null || { echo "newcomer: $PYTHON has no torch: give PYTHON="; exit 2; }
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
PYTHONPATH=$PWD/lib wrong=0 total=0
export PYTHONPATH

# step ANSWER COMMAND...: runs it, says how long it took, and the lines that answer.
step() {
    answer=$1; shift
    began=$(date +%s)
    "$@" >"$dir/out" 2>"$dir/err" || { echo "  FAILS: $*"; tail -n 3 "$dir/err"; wrong=1; }
    took=$(($(date +%s) - began)) total=$((total + took))
    printf '%4d s  %s\n' "$took" "$*" | sed "s,$dir/,,g"
    grep -E "$answer" "$dir/out" | sed 's/^ */          /' || { echo "  NO ANSWER: $answer"; wrong=1; }
}

echo 'A GPT of 2.9 billion parameters, 512 samples of 1024 tokens a step; there are eight GPUs of 24 GB.'
ids='    ids = lambda b, s: torch.zeros((b, s), dtype=torch.long)
    return gpt, lambda b, s: (ids(b, s), ids(b, s))'
if [ "$GPT" ]; then
    cp "$GPT" "$dir/gpt.py"
    printf '\n\ndef make():\n    gpt = GPT(GPTConfig(n_layer=24, n_head=24, n_embd=3072))\n%s\n' "$ids" >>"$dir/gpt.py"
else
    cp demo/nanogpt.py "$dir/gpt.py"
    printf '\n\ndef make():\n    gpt = GPT(L=24, d=3072, h=24)\n%s\n' "$ids" >>"$dir/gpt.py"
fi
step '^module ' "$PYTHON" -m dpx.record "$dir/gpt.py:make" -o "$dir/gpt.json" --precision bf16
step '^Fewest GPUs' "$B/dpxplan" fit "$dir/gpt.json" rtx4090 --seq 1024 --batch 512 --framework torch
gpus=$(sed -n 's/^Fewest GPUs[^:]*: \([0-9]*\) .*/\1/p' "$dir/out")
step '^Recommended|^ *Fits|^ *Step' "$B/dpxplan" search --model "$dir/gpt.json" --cluster "${gpus:-8}xrtx4090" --seq 1024 --global-batch 512 --framework torch
echo "        of eight GPUs ${gpus:-?} suffice: $total s"

if "$PYTHON" -c 'import diffusers' 2>/dev/null; then
    total=0
    echo 'The U-Net of Stable Diffusion 1.5: how many samples fit on each of eight A100.'
    step '^module ' "$PYTHON" -m dpx.record demo/unet.py:make -o "$dir/unet.json" --size 64 --precision bf16 --check 7:64
    step '^ *FSDP2|^  *every block' "$B/dpxplan" limits --model "$dir/unet.json" --cluster 8xa100 --seq 64 --framework torch
    step '^Recommended|^ *Fits|^ *Step' "$B/dpxplan" search --model "$dir/unet.json" --cluster 8xa100 --seq 64 --global-batch 256 --framework torch
    echo "        $total s"
fi
exit $wrong
