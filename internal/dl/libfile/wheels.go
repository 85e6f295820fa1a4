package libfile

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// InWheels returns paths, or patterns of paths, within folders of Python packages, as patterns of [filepath.Glob]. The
// folders are the one from which the process has loaded PyTorch, and those of the active Python environments
// (VIRTUAL_ENV, CONDA_PREFIX).
//
//	libfile.InWheels("nvidia/nccl/lib/libnccl.so.2") // $VIRTUAL_ENV/lib/python3*/site-packages/nvidia/...
func InWheels(paths ...string) (all []string) {
	maps, _ := os.ReadFile("/proc/self/maps") // there is none beside Linux
	folders := packageFolders(string(maps))
	for _, v := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		if root := os.Getenv(v); root != "" {
			folders = append(folders, filepath.Join(root, "lib", "python3*", "site-packages"))
		}
	}
	for _, folder := range folders {
		for _, p := range paths {
			all = append(all, filepath.Join(folder, p))
		}
	}
	return all
}

// packageFolders are the folders that have the package of a library of PyTorch's among a process's maps.
func packageFolders(maps string) (folders []string) {
	for line := range strings.Lines(maps) {
		at := strings.IndexByte(line, '/')
		if at < 0 {
			continue
		}
		folder, _, found := strings.Cut(line[at:], "/torch/lib/lib")
		if found && !slices.Contains(folders, folder) && !strings.ContainsAny(folder, "*?[") {
			folders = append(folders, folder)
		}
	}
	return folders
}
