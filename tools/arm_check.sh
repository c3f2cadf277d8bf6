#!/bin/bash
# arm_check.sh BUILD -- builds for 64-bit Arm on another machine and runs the kernel tests there under qemu.
#
# The compiler and qemu are packages of this system (tools/deps.sh arm); libraries for Arm are downloaded once by apt, with folders
# of its own, into BUILD/sysroot, so that this system needs no foreign architecture. ARM_TESTS: other tests.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath -m "${1:-build-arm}")
tests=${ARM_TESTS:-test_mathf test_pointwise test_sums test_golden test_ops}
sysroot=$build/sysroot

if [[ ! -e $sysroot/.whole ]]; then
  rm -rf "$sysroot" "$build/apt"
  mkdir -p "$sysroot" "$build"/apt/{lists,cache/archives}/partial
  : >"$build/apt/status"
  apt=(apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root -o Dir::State::lists="$build/apt/lists"
       -o Dir::State::status="$build/apt/status" -o Dir::Cache="$build/apt/cache" -o Debug::NoLocking=1)
  echo "arm_check: libraries for arm64 into $sysroot"
  "${apt[@]}" update
  "${apt[@]}" install -y --no-install-recommends --download-only libc6-dev libyaml-dev libjansson-dev libonig-dev libxxhash-dev \
    libunistring-dev zlib1g-dev libzstd-dev libcmocka-dev
  for deb in "$build"/apt/cache/archives/*.deb; do
    dpkg -x "$deb" "$sysroot"
  done
  rm -rf "$build/apt"
  : >"$sysroot/.whole"
fi
cmake -S . -B "$build" -DCMAKE_TOOLCHAIN_FILE="$PWD/tools/aarch64.cmake" -DCMAKE_SYSROOT="$sysroot" -DORTH_MPI=OFF >/dev/null
# shellcheck disable=SC2086
cmake --build "$build" -j"${JOBS:-$(nproc)}" --target $tests
ctest --test-dir "$build" --output-on-failure -j"${JOBS:-$(nproc)}" -R "^(${tests// /|})\$"
