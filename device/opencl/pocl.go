package opencl

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// PoCL compiles by files in a folder that all processes of a user share, and leaves a file that exists as it is. So it
// may take one that another process has only begun to write, or was killed at. Its program then has no code for blocks
// of other sizes, and a launch of those ends the process (pocl_llvm_generate_workgroup_function of PoCL 3.0).
//
// A process that compiles has a folder of its own. Of what this process compiles the driver waits for the rest.

// poclFolder is PoCL's variable of that folder. Other drivers have none of this name.
const poclFolder = "POCL_CACHE_DIR"

// folderPrefix begins the names of folders of processes that compile.
const folderPrefix = "chorus-opencl-"

// newFolder makes a folder; "" if there's no place for it.
func newFolder() string {
	folder, err := os.MkdirTemp("", folderPrefix)
	if err != nil {
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

// errHalfWritten is of a program that stays as another process has left it.
var errHalfWritten = errors.New("PoCL gives out a program without its code, whose file another process has left unfinished: " +
	"remove PoCL's folder (" + poclFolder + ", or pocl in the user's cache)")

// halfWritten reports whether an image is PoCL's, by its first bytes, and has none of LLVM's code, by that one's.
func halfWritten(image []byte) bool {
	return bytes.HasPrefix(image, []byte("poclbin")) && !bytes.Contains(image, []byte("BC\xc0\xde"))
}
