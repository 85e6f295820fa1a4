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
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/chorus-comms/chorus/internal/sys"
)

// Folder has programs in files.
type Folder struct {
	path string

	mu   sync.Mutex
	real string // the path without links; empty until the folder has been there
	seal []byte // the key of checksums; empty until it has been there
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
	magic     = "chorus kernel 2\n" // begins every file; its number changes with the format
	mostBytes = 1 << 30             // of a file
	sealName  = "seal"              // of the file with the key of checksums
)

// ErrDamaged is the error of a file that isn't whole, or isn't what its name says.
var ErrDamaged = errors.New("a kept program is damaged")

// Get reads a program. A file holds the magic, its key, a checksum of the program, and the program. The checksum is by a
// random key in the folder, so that what a driver gets is what it has made: some crash at other programs.
func (f *Folder) Get(key Key) ([]byte, error) {
	folder, seal, err := f.folder(false)
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
		if hmac.Equal(rest[sha256.Size:2*sha256.Size], sum(seal, key, image)) {
			return image, nil
		}
	}
	return nil, ErrDamaged
}

// Put writes a program.
func (f *Folder) Put(key Key, image []byte) error {
	folder, seal, err := f.folder(true)
	if err != nil {
		return err
	}
	return write(folder, bytes.Join([][]byte{[]byte(magic), key[:], sum(seal, key, image), image}, nil),
		func(temporary string) error { return os.Rename(temporary, file(folder, key)) })
}

// write writes a file under another name, and has it put in its place.
func write(folder string, data []byte, place func(temporary string) error) error {
	w, err := os.CreateTemp(folder, "writing_*")
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	if closed := w.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = place(w.Name())
	}
	_ = os.Remove(w.Name()) // if it's still there
	return err
}

// sum is the checksum of a program.
func sum(seal []byte, key Key, image []byte) []byte {
	h := hmac.New(sha256.New, seal)
	h.Write(key[:])
	h.Write(image)
	return h.Sum(nil)
}

// Remove takes a program out, which the device didn't load for example.
func (f *Folder) Remove(key Key) {
	if folder, _, err := f.folder(false); err == nil {
		_ = os.Remove(file(folder, key))
	}
}

func file(folder string, key Key) string {
	return filepath.Join(folder, "chorus_"+hex.EncodeToString(key[:]))
}

// folder is the real path with its seal, if the folder is there and is used.
func (f *Folder) folder(create bool) (real string, seal []byte, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil && f.seal == nil {
		if f.real, err = sys.OwnFolder(f.path, create); err == nil {
			f.seal, err = sealOf(f.real, create)
		}
		if _, others := errors.AsType[*sys.OthersError](err); others {
			f.err = err
			warn(f.path, err)
		}
	}
	return f.real, f.seal, cmp.Or(f.err, err)
}

// sealOf reads a folder's seal, or makes it. Of processes that do so at once the first one's stays.
func sealOf(folder string, create bool) ([]byte, error) {
	path := filepath.Join(folder, sealName)
	read := func() ([]byte, error) {
		seal, err := sys.ReadOwn(path, sha256.Size)
		if err == nil && len(seal) != sha256.Size {
			return nil, ErrDamaged
		}
		return seal, err
	}
	seal, err := read()
	if err == nil || !create {
		return seal, err
	}
	fresh := make([]byte, sha256.Size)
	_, _ = rand.Read(fresh) // which can't fail
	rename := func(temporary string) error { return os.Rename(temporary, path) }
	place := func(temporary string) error {
		err := os.Link(temporary, path) // which leaves one that has come meanwhile
		if err != nil && !errors.Is(err, fs.ErrExist) {
			err = rename(temporary) // of a file system without links
		}
		return err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		if _, failed := errors.AsType[syscall.Errno](err); failed {
			return nil, err // it may be good, and can't be read now
		}
		place = rename
	}
	failed := write(folder, fresh, place)
	if seal, err = read(); err != nil && failed != nil {
		err = failed
	}
	return seal, err
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
