#!/usr/bin/env bash
# Prints the version of what is built from this tree: that of the package, which a tag, if there is one, must agree with.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' python/chorus/__init__.py)
tag=$(git describe --exact-match --tags --match 'v*' 2>/dev/null || true)
if [ -n "$tag" ] && [ "$tag" != "v$version" ]; then
	echo "version: the tag is $tag, and the package says $version (python/chorus/__init__.py)" >&2
	exit 1
fi
echo "$version"
