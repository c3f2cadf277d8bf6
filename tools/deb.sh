#!/bin/bash
# deb.sh BUILD -- BUILD/orthant_VERSION_ARCH.deb: the program, manual page, completions, configs/ and docs/. Without MPI, which ties a
# program to one launcher's library: build from source for it.
set -euo pipefail
build=$1
cmake -S . -B "$build" -DORTH_MPI=OFF -DCMAKE_INSTALL_PREFIX=/usr >/dev/null
cmake --build "$build" -j"$(nproc)" --target orthant pages
version=$(sed -n 's/^project(orthant VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
arch=$(dpkg --print-architecture)
root=$build/deb
rm -rf "$root"
DESTDIR=$root cmake --install "$build" >/dev/null
strip "$root/usr/bin/orthant"
gzip -9n "$root/usr/share/man/man1/orthant.1"
mkdir -p "$root/DEBIAN" "$build/debian"
# dpkg-shlibdeps reads the packages of the linked libraries; it wants to be beside a debian/control.
printf 'Source: orthant\n\nPackage: orthant\nArchitecture: any\n' >"$build/debian/control"
binary=$PWD/$root/usr/bin/orthant
depends=$(cd "$build" && dpkg-shlibdeps -O "$binary" 2>/dev/null | sed -n 's/^shlibs:Depends=//p')
cat >"$root/DEBIAN/control" <<EOF
Package: orthant
Version: $version
Architecture: $arch
Maintainer: Orthant developers <orthant@localhost>
Section: science
Priority: optional
Depends: $depends
Installed-Size: $(du -sk "$root/usr" | cut -f1)
Description: trains language models, the same numbers in every parallel layout
 Orthant trains GPT-2 and Llama kinds of language models on CPUs with data, ZeRO,
 tensor, sequence, context and pipeline parallelism. Plans are exact to the byte,
 and results have the same bits in every layout.
EOF
find "$root" -type d -exec chmod 755 {} +
dpkg-deb --root-owner-group --build "$root" "$build/orthant_${version}_$arch.deb"
