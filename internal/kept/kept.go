// Package kept keeps programs that a compiler has made in files, for the next process. They're loaded as code, so that
// the folder and its files must be the user's own:
//
//	f := kept.Open(filepath.Join(cache, "kernels"))
//	key := kept.KeyOf(compiler, source)
//	image, err := f.Get(key) // what was kept, whole, or an error
//	err = f.Put(key, image)
//
// Several processes may use a folder at once. A file is written under another name first, so that it's whole or not
// there. One that is damaged, or was made by another version, counts as missing.
package kept

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/chorus-comms/chorus/internal/sys"
)

// Folder has programs in files.
type Folder struct {
	path string

	mu   sync.Mutex
	real string // the path without links; empty until the folder has been there
	err  error  // why it isn't used
}

// Open is the folder of a path. It needn't be there: the first Put makes it. One that another user can change isn't
// used, which is logged once in a process.
func Open(path string) *Folder { return &Folder{path: path} }

// Path is the folder's path.
func (f *Folder) Path() string { return f.path }

// Key is what a program depends on.
type Key [sha256.Size]byte

// KeyOf is the key of a program: by the compiler, with the model of device and the options, and the source.
func KeyOf(compiler string, source []byte) Key {
	h := sha256.New()
	h.Write([]byte(compiler))
	h.Write([]byte{0})
	h.Write(source)
	return Key(h.Sum(nil))
}

const (
	magic     = "chorus kernel 1\n" // begins every file; its number changes with the format
	mostBytes = 1 << 30             // of a file
)

// ErrDamaged is the error of a file that isn't whole, or isn't what its name says.
var ErrDamaged = errors.New("a kept program is damaged")

// Get reads a program. A file holds the magic, its key, a checksum of the program, and the program.
func (f *Folder) Get(key Key) ([]byte, error) {
	folder, err := f.folder(false)
	if err != nil {
		return nil, err
	}
	b, err := sys.ReadOwn(file(folder, key), mostBytes)
	if err != nil {
		f.refuse(err)
		return nil, err
	}
	rest, ok := bytes.CutPrefix(b, []byte(magic))
	if ok && len(rest) > 2*sha256.Size && bytes.Equal(rest[:sha256.Size], key[:]) {
		image := rest[2*sha256.Size:]
		if sum := sha256.Sum256(image); bytes.Equal(rest[sha256.Size:2*sha256.Size], sum[:]) {
			return image, nil
		}
	}
	return nil, ErrDamaged
}

// Put writes a program.
func (f *Folder) Put(key Key, image []byte) error {
	folder, err := f.folder(true)
	if err != nil {
		return err
	}
	w, err := os.CreateTemp(folder, "writing_*")
	if err != nil {
		return err
	}
	sum := sha256.Sum256(image)
	_, err = w.Write(bytes.Join([][]byte{[]byte(magic), key[:], sum[:], image}, nil))
	if closed := w.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(w.Name(), file(folder, key))
	}
	if err != nil {
		_ = os.Remove(w.Name())
	}
	return err
}

// Remove takes a program out, which the device didn't load for example.
func (f *Folder) Remove(key Key) {
	if folder, err := f.folder(false); err == nil {
		_ = os.Remove(file(folder, key))
	}
}

func file(folder string, key Key) string {
	return filepath.Join(folder, "chorus_"+hex.EncodeToString(key[:]))
}

// folder is the real path, if the folder is there and is used.
func (f *Folder) folder(create bool) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil || f.real != "" {
		return f.real, f.err
	}
	real, err := sys.OwnFolder(f.path, create)
	if _, others := errors.AsType[*sys.OthersError](err); others {
		f.err = err
		warn(f.path, err)
	} else if err == nil {
		f.real = real
	}
	return real, err
}

// refuse makes a file that another user can change a reason not to use the folder, and so not to write to it.
func (f *Folder) refuse(err error) {
	if _, others := errors.AsType[*sys.OthersError](err); others {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.err = err
		warn(f.path, err)
	}
}

// warned has the folders for which warn has been called.
var warned sync.Map

func warn(path string, err error) {
	if _, again := warned.LoadOrStore(path, true); !again {
		slog.Warn("chorus: compiled kernels aren't kept in a folder that another user can change: each process compiles its own",
			"folder", path, "why", err)
	}
}
