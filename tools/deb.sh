#!/bin/sh
# tools/deb.sh [--if-new] BUILD VERSION [cuda] -- Debian packages of HEAD's archive, by `make deb`: dpkg-buildpackage in
# BUILD/deb/dpx-VERSION/, then lintian.  --if-new: unless those of HEAD are there.
# With cuda: dpx-cuda as well, which needs nvcc and the headers of cuBLASLt and NCCL where make finds them.
set -e
new=$1
[ "$new" != --if-new ] || shift
build=$1 version=$2 cuda=$3
for tool in dpkg-buildpackage dh; do
    command -v "$tool" >/dev/null || { echo "make deb needs $tool: apt-get install debhelper dpkg-dev" >&2; exit 1; }
done
of=$(git rev-parse HEAD 2>/dev/null || true)
if [ "$new" = --if-new ]; then
    [ -z "$of" ] || [ "$(cat "$build/deb/of" 2>/dev/null)" != "$of" ] || exit 0
    git archive --prefix="dpx-$version/" -o "$build/dpx-$version.tar.gz" HEAD
fi
mkdir -p "$build/deb"
rm -rf "$build/deb/dpx-$version" "$build"/deb/*.deb
tar -xzf "$build/dpx-$version.tar.gz" -C "$build/deb"
cd "$build/deb/dpx-$version"
# Not in a source tree of git: --version says the version alone.
# Settings of the make that calls this (CUDA=0) are not those of the package's.
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES
DEB_BUILD_PROFILES=${cuda:+pkg.dpx.cuda} dpkg-buildpackage -b -us -uc >../log 2>&1 || { tail -n 20 ../log >&2; exit 1; }
cd ..
echo "$of" >of
ls -l ./*.deb
if command -v lintian >/dev/null; then
    # UNRELEASED is what the changelog says until a version is.
    lintian --allow-root --fail-on error --suppress-tags bad-distribution-in-changes-file ./*.deb
else
    echo 'lintian is not installed: the packages were not judged'
fi
