// Package release knows the version of what it is linked into, for the command and for the shared library.
//
//	fmt.Println("chorus", release.Version())
package release

import "runtime/debug"

// version is set by the linker in what is released, because a build of an archive of sources knows no other:
//
//	go build -ldflags "-X github.com/chorus-comms/chorus/internal/release.version=1.2.3"
var version string

// Version returns the version of the module: that of a release or a tag, and "(devel)" for a build of a working tree.
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
