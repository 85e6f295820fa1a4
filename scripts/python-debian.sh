#!/bin/bash
# Installs PyTorch 1.13, which is Debian 12's package, for the tests of comm/gloo and of store against it: 150 MB to
# fetch, 650 MB on disk and some minutes, as root. A part that can't be installed is left out, with a message.
set -u
if /usr/bin/python3 -I -c 'import torch' 2>/dev/null; then
	/usr/bin/python3 -I -c 'import torch; print("there is PyTorch", torch.__version__)'
	exit 0
fi
left_out() { echo "left out: PyTorch of Debian's: $*"; exit 0; }
[ "$(id -u)" = 0 ] || left_out "only root can install it"
command -v apt-get >/dev/null || left_out "this isn't Debian"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt-get update -q >"$log" 2>&1 && DEBIAN_FRONTEND=noninteractive \
	apt-get install -y -q --no-install-recommends python3-torch python3-numpy >"$log" 2>&1 ||
	left_out "$(tail -1 "$log")"
/usr/bin/python3 -I -c 'import torch; print("PyTorch", torch.__version__)'
