#!/bin/sh
# Fetches ONNX Runtime's C++ headers into a folder: Debian's package of them, unpacked and not installed.
# usage: fetch_headers.sh FOLDER. It takes apt-get, dpkg-deb and the network, no rights, and leaves the system as it is.
set -eu

folder=$1  # must not exist yet
command -v apt-get >/dev/null || { echo "error: no apt-get here to fetch ONNX Runtime's headers with" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The package is in Debian's newest suites only; this state of apt's is our own, and knows nothing else.
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$keyring] http://deb.debian.org/debian sid main" >"$work/sources.list"
mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
apt() {
  apt-get -qq \
    -o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache" \
    -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=- -o Dir::Etc::preferencesparts="$work" \
    -o Acquire::Languages=none -o Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false \
    -o Acquire::http::Timeout=20 -o Acquire::Retries=1 -o APT::Sandbox::User="$(id -un)" "$@"
}
apt update
(cd "$work" && apt download libonnxruntime-dev)
dpkg-deb -x "$work"/libonnxruntime-dev_*.deb "$work/headers"
test -n "$(find "$work/headers" -name onnxruntime_cxx_api.h)"
mkdir -p "$(dirname "$folder")"
mv "$work/headers" "$folder"
