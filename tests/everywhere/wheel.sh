#!/bin/sh
# tests/everywhere/wheel.sh -- the wheel in a clean environment: installed without a compiler and without a network, it answers.
. tests/check.sh
B=${B:-build}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
wheel=$(ls "$B"/wheel/*.whl)

# Only what a user's machine has: no build tree, no variables.
clean() { (cd "$tmp" && env -i HOME="$tmp" PATH="$tmp/venv/bin:/usr/bin:/bin" "$@"); }

small() { [ "$(wc -c <"$wheel")" -le 5000000 ] || echo "$(wc -c <"$wheel") bytes"; }
check 'it has at most 5 MB' "$(small)"

installs() { python3 -m venv "$tmp/venv" && "$tmp/venv/bin/pip" install -q --no-index "$wheel"; }
check 'pip installs it' "$(installs 2>&1 | grep -v '^\[notice\]')"

same() {
    clean dpx eval gpt2 --cluster 8xh100 --json >"$tmp/a" || echo "dpx: exit $?"
    "$B/dpxplan" eval gpt2 --cluster 8xh100 --json >"$tmp/b"
    cmp "$tmp/a" "$tmp/b"
    clean dpxplan version
}
check 'dpx and dpxplan answer as the build tree does' "$(same 2>&1 | grep -v '^dpxplan\|^dpx: gpt2 on')"

module() { clean python -c 'import dpx; answer = dpx.fit("gpt2", gpu=["h100"]); assert answer["fits"], answer'; }
check 'import dpx works' "$(module 2>&1)"

alone() {
    for f in "$tmp"/venv/lib/python3*/site-packages/dpx_native/*; do
        case $f in *.py | *__pycache__) continue ;; esac
        ldd "$f" | grep -E '=> /' | grep -vE "$tmp|/(libc|libm|ld-linux[^/]*|libpthread|libdl)\\.so"
    done
}
check 'it loads the C library of the system and nothing else of it' "$(alone)"
finish
