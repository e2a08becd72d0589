#!/bin/sh
# tests/everywhere/deb.sh -- the packages of `make deb` (dpx-cuda too where it was made): lintian without errors, installed in a clean chroot of the
# distribution (mmdebstrap, as root, from its mirror): the programs answer, two ranks train, Python and pkg-config find the library, and purging
# leaves nothing.  Packages that are there are taken; DEBS=DIR says where.
. tests/check.sh
B=${B:-build}
debs=$(cd "${DEBS:-$B/deb}" 2>/dev/null && pwd)
one() { set -- "$debs"/"$1"_*.deb; [ -e "$1" ] && echo "$1"; }
if [ -z "$debs" ] || [ -z "$(one dpx)" ]; then
    skip 'Debian packages' 'they were not made: make deb'
    finish
fi
check 'four packages' "$(for p in dpx libdpx0 libdpx-dev python3-dpx; do [ -n "$(one $p)" ] || echo "no $p"; done)"
if command -v lintian >/dev/null; then
    check 'lintian has no errors' "$(lintian --allow-root --fail-on error --suppress-tags bad-distribution-in-changes-file \
        "$(one dpx)" "$(one libdpx0)" "$(one libdpx-dev)" "$(one python3-dpx)" $(one dpx-cuda) >"${TMPDIR:-/tmp}/lintian.$$" 2>&1 ||
        cat "${TMPDIR:-/tmp}/lintian.$$"; rm -f "${TMPDIR:-/tmp}/lintian.$$")"
else
    skip 'lintian has no errors' 'there is no lintian'
fi
if [ "$(id -u)" != 0 ] || ! command -v mmdebstrap >/dev/null; then
    skip 'a clean chroot' 'needs root and mmdebstrap'
    finish
fi
tmp=$(mktemp -d /var/tmp/deb-XXXXXX) || exit 1
trap 'rm -rf "$tmp"' EXIT
# What is left is looked at with "into"; each hook runs in the chroot but the copying.
cat >"$tmp/inside" <<'END'
set -e
export XDG_DATA_HOME=/nonexistent OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
say() { echo "== $*"; }
apt-get -y -qq --no-install-recommends install /tmp/debs/dpx_*.deb /tmp/debs/lib*.deb /tmp/debs/python3-dpx_*.deb
dpxplan fit llama-3.1-8b h100 >/tmp/fit 2>&1 && grep -q 'h100 ' /tmp/fit && say plans
dpxrun /tmp/ddp.json --steps 2 --no-db --brief >/tmp/run 2>&1 && say trains || cat /tmp/run
dpxcal --version >/dev/null && dpxreport --version >/dev/null && say measures
python3 -c 'import dpx; assert dpx.fit("llama-3.2-1b", "h100")["fits"]' >/tmp/py 2>&1 && say imports || cat /tmp/py
man -w dpxplan >/dev/null 2>&1 || test -e /usr/share/man/man1/dpxplan.1.gz && say manual
printf '#include <dpx.h>\n#include <stdio.h>\nint main(void) { return puts(dpx_version()) < 0; }\n' >/tmp/use.c
cc -o /tmp/use /tmp/use.c $(pkg-config --cflags --libs dpx) && /tmp/use >/dev/null && say links
apt-get -y -qq purge dpx libdpx0 libdpx-dev python3-dpx >/dev/null 2>&1
if [ -e /tmp/debs/dpx-cuda.deb ]; then
    # No driver, no cuBLASLt, no NCCL here: it starts, CPU ranks train, and who asks for a GPU is told what is not there.
    apt-get -y -qq --no-install-recommends install /tmp/debs/dpx-cuda.deb /tmp/debs/libdpx0_*.deb
    dpxrun --version >/tmp/version 2>&1 && grep -q 'with CUDA [0-9.]*, cuBLASLt (not on this machine), NCCL (not on this machine)' /tmp/version &&
        dpxrun /tmp/ddp.json --steps 2 --no-db --brief >/tmp/run 2>&1 && say 'trains on CPUs with CUDA built in' || cat /tmp/version /tmp/run
    dpxrun /tmp/ddp.json --steps 2 --no-db --device cuda >/tmp/run 2>&1 || code=$?
    [ "$code" = 1 ] && grep -q 'there is no libcuda.so.1.*nor is cuBLASLt' /tmp/run && say 'names what a GPU needs' || cat /tmp/run
    apt-get -y -qq purge dpx-cuda libdpx0 >/dev/null 2>&1
fi
find / -xdev -name '*dpx*' -not -path '/tmp/*' -not -path '/proc/*' -not -path '/var/lib/dpkg/*' -not -path '/var/log/*' -not -path '/var/cache/*' | sed 's/^/left: /'
say purged
END
sed 's/"name": "localhost[^"]*"/"name": "localhost:2"/' demo/10m/ddp.json >"$tmp/ddp.json"
mkdir "$tmp/debs" && cp "$(one dpx)" "$(one libdpx0)" "$(one libdpx-dev)" "$(one python3-dpx)" "$tmp/debs/"
[ -z "$(one dpx-cuda)" ] || cp "$(one dpx-cuda)" "$tmp/debs/dpx-cuda.deb"
release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
timeout 1500 mmdebstrap --quiet --variant=apt --include=gcc,libc6-dev,openmpi-bin,pkg-config \
    --customize-hook="copy-in $tmp/inside $tmp/ddp.json demo/10m/config.json $tmp/debs /tmp" \
    --customize-hook='chroot "$1" sh /tmp/inside' "$release" "$tmp/root.tar" >"$tmp/out" 2>&1
if ! grep -q '^== ' "$tmp/out" && grep -qiE 'could not (resolve|connect)|failed to fetch|connection' "$tmp/out"; then
    skip 'a clean chroot' 'no mirror of the distribution is reached'
    finish
fi
for what in plans trains measures imports manual links purged; do
    check "in a clean chroot it $what" "$(grep -qx "== $what" "$tmp/out" || tail -n 15 "$tmp/out")"
done
if [ -n "$(one dpx-cuda)" ]; then
    for what in 'trains on CPUs with CUDA built in' 'names what a GPU needs'; do
        check "dpx-cuda, where no GPU is, $what" "$(grep -qx "== $what" "$tmp/out" || tail -n 15 "$tmp/out")"
    done
else
    skip 'dpx-cuda, where no GPU is' 'it was not made: there is no nvcc here'
fi
check 'purging leaves nothing' "$(grep '^left: ' "$tmp/out")"
finish
