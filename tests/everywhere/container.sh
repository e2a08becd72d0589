#!/bin/sh
# tests/everywhere/container.sh -- the Containerfile of HEAD's sources by buildah, on a base image that is there (BASE=debian:bookworm), as root: the
# image plans, and trains on two ranks.  Packages come over the network.
. tests/check.sh
if [ "$(id -u)" != 0 ] || ! command -v buildah >/dev/null || ! buildah inspect --type image "${BASE:-none}" >/dev/null 2>&1; then
    skip 'Containerfile' 'needs root, buildah and an image in BASE='
    finish
fi
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"; [ -z "$made" ] || buildah rm "$made" >/dev/null' EXIT
git archive HEAD | tar -x -C "$tmp"
builds() { (cd "$tmp" && buildah bud --isolation chroot --build-arg BASE="$BASE" -f Containerfile -t dpx-check . >log 2>&1) || tail -n 12 "$tmp/log"; }
check 'the Containerfile builds' "$(builds)"
made=$(buildah from localhost/dpx-check) || made=
inside() { buildah run --isolation chroot "$made" "$@" >"$tmp/said" 2>&1 || { echo "exit $?"; tail -n 12 "$tmp/said"; }; }
check 'dpxplan answers in it' "$(inside dpxplan fit llama-3.1-8b h100; grep -q '^Fewest GPUs: 2 h100' "$tmp/said" || cat "$tmp/said")"
check 'two ranks train in it' "$(inside mpirun -n 2 dpxrun demo/10m/ddp.json --steps 2; grep -q '^recorded as run ' "$tmp/said" || cat "$tmp/said")"
finish
