#!/bin/sh
# SPDX-License-Identifier: MIT
# Turns a Debian base tree into the toolchain. Runs as root inside the tree: from the Dockerfile, or from
# mmdebstrap for the rootfs engine. Needs the network. Ends by writing manifest.txt, the exact versions of all
# that is inside; a tree without that file is not finished.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
manifest=$here/manifest.txt
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

fail() {
    echo "recipe error: $*" >&2
    exit 1
}

# The Release files of suites that are no longer renewed are past their date; signatures are still checked.
quiet_apt() {
    apt-get -q -o Acquire::Check-Valid-Until=false -o Acquire::Retries=3 -o Acquire::Languages=none \
        -o APT::Install-Recommends=false -o Dpkg::Use-Pty=0 "$@"
}

# Lines of a data file without comments.
rows() {
    sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$here/$1"
}

# check NAME VERSION LOWEST BELOW: VERSION must be inside [LOWEST, BELOW), "-" for no bound.
check() {
    if [ "$3" != - ] && dpkg --compare-versions "${2#*:}" lt "$3"; then
        fail "$1 is version $2, and at least $3 is needed; the package source is too old or not renewed"
    fi
    if [ "$4" != - ] && dpkg --compare-versions "${2#*:}" ge "$4"; then
        fail "$1 is version $2, and one below $4 is needed; extras.txt names a suite that has moved on"
    fi
}

# The image's own package source, with another suite in place of the release: works for both notations
# and needs to know no mirror. Prints the new source; the result is empty if there is none to copy.
source_for_suite() {
    for file in /etc/apt/sources.list.d/*.sources; do
        [ -f "$file" ] || continue
        awk -v release="$release" -v suite="$1" 'BEGIN { RS = ""; FS = "\n" }
            !done && $0 ~ ("Suites:[^\n]* ?" release "( |\n|$)") {
                gsub(/Suites:[^\n]*/, "Suites: " suite); print; print ""; done = 1 }' "$file"
    done
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ -f "$file" ] || continue
        awk -v release="$release" -v suite="$1" '$1 == "deb" {
            for (i = 2; i <= NF; i++) if ($i == release) { $i = suite; print; exit } }' "$file"
    done
}

release=$(. /etc/os-release && echo "$VERSION_CODENAME")
rm -f "$manifest"
printf 'path-exclude=/usr/share/%s/*\n' doc man locale info > /etc/dpkg/dpkg.cfg.d/tierlab

echo "recipe: packages of $release"
quiet_apt update
quiet_apt install -y $(rows packages.txt | awk '{ print $1 }')

echo "recipe: packages to unpack"
dpkg --add-architecture arm64
extra=$(mktemp -d)
mkdir "$extra/sources" "$extra/packages"
chown -R _apt "$extra" 2>/dev/null || true
chmod 755 "$extra"
for suite in $(rows extras.txt | awk -v release="$release" '$2 != release { print $2 }' | sort -u); do
    source_for_suite "$suite" > "$extra/new"
    [ -s "$extra/new" ] || fail "no package source of $release found in /etc/apt from which to derive $suite"
    if grep -q '^Suites:' "$extra/new"; then
        mv "$extra/new" "$extra/sources/$suite.sources"
    else
        sed -n 1p "$extra/new" > "$extra/sources/$suite.list"
    fi
done
quiet_apt -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$extra/sources" \
    -o APT::Get::List-Cleanup=0 update
cp "$extra"/sources/* /etc/apt/sources.list.d/
rows extras.txt | while read -r name suite target lowest below; do
    rm -f "$extra"/packages/*
    (cd "$extra/packages" && quiet_apt download "$name/$suite") || fail "$name is not to be had from $suite"
    package=$(echo "$extra"/packages/*.deb)
    version=$(dpkg-deb -f "$package" Version)
    check "$name ($suite)" "$version" "$lowest" "$below"
    mkdir -p "$target"
    dpkg-deb -x "$package" "$target"
    rm -rf "$target/usr/share/doc" "$target/usr/share/man"
    printf '%s@%s\t%s\n' "$name" "$target" "$version" >> "$extra/manifest"
done
for file in "$extra"/sources/*; do
    rm "/etc/apt/sources.list.d/$(basename "$file")"
done

rows packages.txt | while read -r name lowest; do
    check "$name" "$(dpkg-query -W -f '${Version}' "$name")" "$lowest" -
done
for emulator in /opt/qemu-*; do
    # The emulator itself is x86-64 code: only the AArch64 one is ever used, the others would double the image.
    find "$emulator/usr/bin" -type f ! -name qemu-aarch64 -delete
    "$emulator/usr/bin/qemu-aarch64" --version || fail "the emulator in $emulator does not start"
done
[ -f /opt/kleidiai/usr/lib/aarch64-linux-gnu/libkleidiai.a ] || fail "KleidiAI's package has no static library"

apt-get clean
rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/log/*
dpkg-query -W -f '${binary:Package}\t${Version}\n' | sort - "$extra/manifest" > "$extra/all"
mv "$extra/all" "$manifest.new"
rm -rf "$extra"
chmod 644 "$manifest.new"
mv "$manifest.new" "$manifest"
echo "recipe: done, $(wc -l < "$manifest") packages"
