#!/bin/bash
# deb_check.sh PACKAGE.deb -- installs the package in a bare Debian root (debootstrap, minbase) and trains a few steps there,
# with a run file of the package.
# As root; takes the distribution's archive.
set -euo pipefail
package=$(realpath "$1")
root=$(mktemp -d)
trap 'umount "$root/proc" 2>/dev/null || true; rm -rf "$root"' EXIT
codename=$(. /etc/os-release; echo "$VERSION_CODENAME")
mirror=$(sed -n 's|^deb \(\[[^]]*\] \)\?\(http[^ ]*\) .*|\2|p; s|^URIs: \([^ ]*\).*|\1|p' /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | sed -n 1p || true)
debootstrap --variant=minbase "$codename" "$root" ${mirror:+"$mirror"} >"$root.log" 2>&1 || { tail -5 "$root.log"; exit 1; }
rm -f "$root.log"
mount -t proc proc "$root/proc"
cp /etc/apt/apt.conf.d/* "$root/etc/apt/apt.conf.d/" 2>/dev/null || true
cp "$package" "$root/orthant.deb"
cp README.md "$root/book.txt"
chroot "$root" apt-get -qq -o APT::Sandbox::User=root install -y --no-install-recommends /orthant.deb >"$root/log" 2>&1 || { tail -20 "$root/log"; exit 1; }
chroot "$root" /bin/sh -ec '
  cd /tmp
  orthant --version
  orthant doctor --no-peaks >/dev/null
  orthant tokenizer train --vocab-size=400 --out=tok.json /book.txt
  orthant data prepare --tokenizer=tok.json --out=shards --valid-fraction=0.1 /book.txt
  cp -r /usr/share/orthant/configs .
  orthant train configs/runs/llama.yaml data.path=shards train.steps=3 checkpoint.dir=run --quiet
  orthant eval run
  orthant verify configs/runs/nd.yaml configs/runs/one.yaml data.path=shards
  orthant plan configs/runs/llama3-8b.yaml --cluster=configs/hardware/h100.yaml parallel.dp=8 parallel.zero=3 >/dev/null
  ls /usr/share/doc/orthant/README.md /usr/share/doc/orthant/docs/quickstart.md
  ls /usr/share/man/man1/orthant.1.gz /usr/share/bash-completion/completions/orthant
  dpkg -r orthant >/dev/null
  test ! -e /usr/bin/orthant'
echo "deb_check: installed, ran and removed in a bare $codename root"
