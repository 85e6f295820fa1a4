#!/usr/bin/env bash
# Builds archives of the command for Linux and macOS into dist/, with their checksums and a software bill of materials.
# `make release` runs this. Two builds of one commit give the same bytes: nothing in them depends on where and when.
set -euo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go}
version=$(bash scripts/version.sh)
module=github.com/chorus-comms/chorus
epoch=$(git log -1 --format=%ct)
mkdir -p dist
rm -f dist/chorus-*
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for system in linux-amd64 linux-arm64 darwin-amd64 darwin-arm64; do # those for macOS are built, and have not been run
	name=chorus-$version-$system
	mkdir "$work/$name"
	CGO_ENABLED=0 GOOS=${system%-*} GOARCH=${system#*-} $GO build -trimpath -buildvcs=false \
		-ldflags "-s -w -buildid= -X $module/internal/release.version=$version" -o "$work/$name/chorus" ./cmd/chorus
	cp LICENSE LICENSE-THIRD-PARTY README.md CHANGELOG.md "$work/$name/"
	tar -C "$work" --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX -cf - "$name" |
		gzip -9n >"dist/$name.tar.gz"
done

# CycloneDX, of what the command was really linked from. The module that writes it is run where it is, and not a dependency.
$GO run github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.9.0 bin -json -noserial -output "$work/sbom.json" "$work/chorus-$version-linux-amd64/chorus"
python3 - "$work/sbom.json" "$epoch" >"dist/chorus-$version-sbom.cdx.json" <<'PY'
import json, sys, time
bom = json.load(open(sys.argv[1]))
bom["metadata"]["timestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(sys.argv[2])))
json.dump(bom, sys.stdout, indent=1, sort_keys=True)
PY
(cd dist && sha256sum chorus-"$version"-* >chorus-"$version"-SHA256SUMS)
ls -l dist
