package compiler

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/chorus-comms/chorus/internal/sys"
)

// Folder is PoCL's variable of the folder that it compiles in. Other drivers have none of this name.
const Folder = "POCL_CACHE_DIR"

// folderPrefix begins the names of folders of processes that compile.
const folderPrefix = "chorus-opencl-"

// newFolder makes a folder; "" if there's no place for it that other users can't change.
func newFolder() string {
	folder, err := os.MkdirTemp("", folderPrefix)
	if err != nil {
		return ""
	}
	if _, err := sys.OwnFolder(folder, false); err != nil {
		dropFolder(folder)
		return ""
	}
	return folder
}

// dropFolder removes what newFolder has made, with all that is in it.
func dropFolder(folder string) {
	if strings.HasPrefix(filepath.Base(folder), folderPrefix) {
		_ = os.RemoveAll(folder)
	}
}
