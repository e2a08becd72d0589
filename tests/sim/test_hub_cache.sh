#!/bin/sh
# tests/sim/test_hub_cache.sh -- a model by its id on the Hugging Face Hub: its config.json is read from the cache of huggingface_hub, in the folder
# that this library itself would take (it is asked, where it is installed); one line says how to get it where it is not there.
. tests/check.sh
B=${B:-build}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
sha=0123456789abcdef0123456789abcdef01234567
# hub FOLDER LAYERS [REVISION]: as a download leaves it: blobs, links of a snapshot to them, and refs/main.
hub() {
    in=$1/models--acme--own-7b rev=${3:-$sha}
    mkdir -p "$in/refs" "$in/blobs" "$in/snapshots/$rev"
    printf %s "$rev" >"$in/refs/main"
    printf '{"model_type": "llama", "num_hidden_layers": %s, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100}' "$2" \
        >"$in/blobs/of-$2"
    ln -sf "../../blobs/of-$2" "$in/snapshots/$rev/config.json"
}
hub "$tmp/a" 1; hub "$tmp/b" 2; hub "$tmp/home/hub" 3; hub "$tmp/xdg/huggingface/hub" 4; hub "$tmp/user/.cache/huggingface/hub" 5; hub "$tmp/user/h/hub" 6
clean() { env -u HF_HUB_CACHE -u HUGGINGFACE_HUB_CACHE -u HF_HOME -u XDG_CACHE_HOME XDG_DATA_HOME=/nonexistent HOME="$tmp/user" "$@"; }

# Which of the six is taken: LAYERS VARIABLE...; huggingface_hub takes the same.
with_hub() { "${PYTHON:-python3}" -c 'import huggingface_hub' 2>/dev/null; }
taken() {
    want=$1
    shift
    got=$(clean "$@" "$B/dpxplan" fit acme/own-7b h100 --json 2>"$tmp/err" | sed -n 's/^ *"layers": \([0-9]*\).*/\1/p' | head -1)
    [ "$got" = "$want" ] || { echo "$*: layers $got, not $want"; head -3 "$tmp/err"; }
    with_hub || return
    hubs=$(clean "$@" "${PYTHON:-python3}" -c '
import json, huggingface_hub
found = huggingface_hub.try_to_load_from_cache("acme/own-7b", "config.json")
print(json.load(open(found))["num_hidden_layers"])')
    [ "$hubs" = "$want" ] || echo "$*: huggingface_hub takes $hubs, not $want"
}
folders() {
    taken 5 true= ; taken 4 XDG_CACHE_HOME="$tmp/xdg"
    taken 3 HF_HOME="$tmp/home" ; taken 3 HF_HOME="$tmp/home" XDG_CACHE_HOME="$tmp/xdg"
    taken 2 HUGGINGFACE_HUB_CACHE="$tmp/b" HF_HOME="$tmp/home"
    taken 1 HF_HUB_CACHE="$tmp/a" HUGGINGFACE_HUB_CACHE="$tmp/b" HF_HOME="$tmp/home"
    taken 6 HF_HOME='~/h' ; taken 6 HF_HUB_CACHE='~/h/hub'
}
check "the cache is where huggingface_hub has it$(with_hub || echo ' (which is not here to be asked)')" "$(folders)"
check 'refs/main says which of two snapshots' "$(hub "$tmp/a" 7 fedcba9876543210fedcba9876543210fedcba98; taken 7 HF_HUB_CACHE="$tmp/a")"
check 'a recipe that names it is read' "$(
    printf 'model_name_or_path: acme/own-7b\nmax_length: 512\nper_device_train_batch_size: 1\nbf16: true\n' >"$tmp/r.yaml"
    clean HF_HOME="$tmp/home" "$B/dpxplan" import "$tmp/r.yaml" --cluster 1xh100 >"$tmp/out" 2>&1 || cat "$tmp/out")"

# lacks WHAT: exit 2, and one line says how to get it.
lacks() {
    clean HF_HUB_CACHE="$tmp/c" "$B/dpxplan" fit acme/own-7b h100 >"$tmp/out" 2>"$tmp/err"
    [ $? = 2 ] && [ "$(wc -l <"$tmp/err")" = 1 ] && grep -q 'hf download MODEL config.json' "$tmp/err" || { echo "$1:"; cat "$tmp/err"; }
}
check 'what is not there is told, with the command that fetches it' "$(
    lacks 'no cache'
    hub "$tmp/c" 1; rm "$tmp/c/models--acme--own-7b/blobs/of-1"; lacks 'a link to nothing'
    rm -r "$tmp/c/models--acme--own-7b/snapshots"; lacks 'a reference to nothing'
    hub "$tmp/c" 1; printf main >"$tmp/c/models--acme--own-7b/refs/main"; mkdir "$tmp/c/models--acme--own-7b/snapshots/x"; lacks 'two, and none is said')"
finish
