#!/bin/sh
# Fetches ONNX Runtime's C++ headers into a folder by unpacking Debian's package, without installing it.
# usage: fetch_headers.sh FOLDER. Needs apt-get, dpkg-deb and the network, but not root, and does not change the system.
set -eu

folder=$1  # must not exist yet
command -v apt-get >/dev/null || { echo "error: no apt-get here to fetch ONNX Runtime's headers with" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The package is only in Debian's newest suites, so apt runs with its own state and sources in the work folder.
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
