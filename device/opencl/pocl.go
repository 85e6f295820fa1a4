package opencl

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"unsafe"

	"github.com/chorus-comms/chorus/device/opencl/compiler"
	"github.com/chorus-comms/chorus/internal/dl"
	"github.com/chorus-comms/chorus/internal/sys"
)

// PoCL compiles by files in a folder that all processes of a user share, and leaves a file that exists as it is. So it
// may take one that another process has only begun to write, or was killed at. Its program then has no code for blocks
// of other sizes, and a launch of those ends the process (pocl_llvm_generate_workgroup_function of PoCL 3.0).
//
// A process that compiles has a folder of its own. Of what this process compiles the driver waits for the rest.

// protectPoCL gives PoCL another folder than one that other users can change, before it looks for its own: it loads code
// from there. The library is PoCL, or a loader that may know it.
func protectPoCL(l *dl.Library) {
	folder := os.Getenv(compiler.Folder)
	if folder == "" {
		if cache, err := os.UserCacheDir(); err == nil {
			folder = filepath.Join(cache, "pocl", "kcache")
		} else {
			folder = "/tmp/pocl/kcache" // where PoCL looks without a home (pocl_cache.c)
		}
	}
	at := folder
	_, why := sys.OwnFolder(at, false)
	for errors.Is(why, fs.ErrNotExist) && at != filepath.Dir(at) {
		at = filepath.Dir(at) // where it will make it
		_, why = sys.OwnFolder(at, false)
	}
	if _, others := errors.AsType[*sys.OthersError](why); !others {
		return
	}
	own, err := sys.OwnFolder(filepath.Join(os.TempDir(), fmt.Sprintf("chorus-pocl-%d", os.Geteuid())), true)
	if err != nil || !setForLibraries(l, compiler.Folder, own) {
		own = "that folder, for want of another one"
	}
	slog.Warn("chorus: PoCL would load kernels from a folder that another user can change", "folder", folder, "why", why,
		"used", own)
}

// setForLibraries sets a variable for Go, and for libraries, which read it by the C library's functions.
func setForLibraries(l *dl.Library, name, value string) bool {
	set, ok := l.Symbol("setenv")
	if !ok || os.Setenv(name, value) != nil {
		return false
	}
	n, v := append([]byte(name), 0), append([]byte(value), 0)
	pinned(&n[0], func() {
		pinned(&v[0], func() {
			ok = dl.Func(set).Call(uintptr(unsafe.Pointer(&n[0])), uintptr(unsafe.Pointer(&v[0])), 1) == 0
		})
	})
	return ok
}

// errHalfWritten is of a program that stays as another process has left it.
var errHalfWritten = errors.New("PoCL gives out a program without its code, whose file another process has left unfinished: " +
	"remove PoCL's folder (" + compiler.Folder + ", or pocl in the user's cache)")

// halfWritten reports whether an image is PoCL's, by its first bytes, and has none of LLVM's code, by that one's.
func halfWritten(image []byte) bool {
	return bytes.HasPrefix(image, []byte("poclbin")) && !bytes.Contains(image, []byte("BC\xc0\xde"))
}
