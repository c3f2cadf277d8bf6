#!/bin/bash
# deps.sh GROUP... -- installs from the distribution's archive what is missing, and only that.
# Groups: build, test, demo, docs (make readme-check), deb (a package), mpi (ranks as processes), bench,
# arm (builds for 64-bit Arm, run under qemu), dev (fuzzing and lint), browser (pages looked at in headless Chromium).
# Debian 12, Ubuntu 22.04 and later.
set -euo pipefail

declare -A packages=(
  [build]="gcc libc6-dev make cmake pkg-config libyaml-dev libjansson-dev libonig-dev libxxhash-dev libunistring-dev zlib1g-dev libzstd-dev liburing-dev"
  [test]="libcmocka-dev zsh fish"
  [demo]="dict-gcide"
  [deb]="dpkg-dev debootstrap"
  [docs]="python3"
  [mpi]="libopenmpi-dev openmpi-bin iproute2"
  [bench]="libdnnl-dev time"
  [arm]="gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static"
  [dev]="clang clang-14 libclang-rt-14-dev cppcheck binutils"
  [browser]="chromium fonts-dejavu-core"
)

if ! command -v dpkg-query >/dev/null; then
  echo "deps: not a Debian system; needed here: ${packages[build]} ${packages[test]}" >&2
  exit 0
fi

missing=()
for group in "$@"; do
  for package in ${packages[$group]}; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [[ $status == installed ]] || missing+=("$package")
  done
done
if [[ ${#missing[@]} -eq 0 ]]; then
  echo "deps: nothing is missing"
  exit 0
fi

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  command -v sudo >/dev/null || { echo "deps: as root, run: apt-get install ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300)
echo "deps: installing ${missing[*]}"
# The package lists may be absent or old: fetch them only when the first try fails.
"${apt[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null 2>&1 || {
  echo "deps: fetching the package lists"
  "${apt[@]}" update
  "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null
}
