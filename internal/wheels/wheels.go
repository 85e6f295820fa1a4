// Package wheels says where Python packages have brought shared libraries:
//
//	wheels.Candidates("nvidia/nccl/lib/libnccl.so.2") // $VIRTUAL_ENV/lib/python3*/site-packages/nvidia/...
package wheels

import (
	"os"
	"path/filepath"
)

// Candidates are paths, or patterns of paths, within the folders of packages of the Python environments that are active
// (VIRTUAL_ENV, CONDA_PREFIX), as patterns of [filepath.Glob].
func Candidates(paths ...string) (all []string) {
	for _, v := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		if root := os.Getenv(v); root != "" {
			for _, p := range paths {
				all = append(all, filepath.Join(root, "lib", "python3*", "site-packages", p))
			}
		}
	}
	return all
}
