// Package libfile finds the files of shared libraries, and reads which functions they have, without loading them:
//
//	for _, path := range libfile.Find("libnccl.so.2", "/opt/*/lib/libnccl.so.2") {
//
// [InWheels] says where Python packages have brought them. A program that only looks for libraries imports this package
// instead of dl, and stays statically linked.
package libfile

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Find returns the existing files of a library, each once, with symbolic links resolved. It looks for names where the
// dynamic linker would. A place with a slash is a path, or a pattern of [filepath.Glob].
func Find(places ...string) (paths []string) {
	folders := append(filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")), "/lib", "/usr/lib", "/usr/local/lib", "/lib64",
		"/usr/lib64", "/lib/*-linux-gnu", "/usr/lib/*-linux-gnu")
	for _, place := range places {
		patterns := []string{place}
		if !strings.Contains(place, "/") {
			patterns = nil
			for _, folder := range folders {
				patterns = append(patterns, filepath.Join(folder, place))
			}
		}
		for _, p := range patterns {
			matches, _ := filepath.Glob(p) // a bad pattern is of a folder with odd characters, in which there is nothing
			for _, m := range matches {
				if real, err := filepath.EvalSymlinks(m); err == nil && !slices.Contains(paths, real) {
					paths = append(paths, real)
				}
			}
		}
	}
	return paths
}
