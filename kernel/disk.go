package kernel

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/chorus-comms/chorus/config"
)

// Disk keeps compiled kernels in files, which several processes may use at once. A file is written under another name
// first, so that it's whole or not there. One that is damaged, or was made by another version, counts as missing and is
// written anew. A directory that can't be written or is full makes nothing fail.
type Disk struct {
	dir string

	hits, misses, failures atomic.Int64
}

// OpenDisk is the cache that the configuration says; nil if it's switched off.
func OpenDisk(c *config.Config) *Disk {
	if !c.KernelCache {
		return nil
	}
	dir := c.KernelCachePath
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return nil
		}
		dir = filepath.Join(user, "torch", "kernels")
	}
	return &Disk{dir: dir}
}

// DiskStats are counts since the cache was opened.
type DiskStats struct {
	Hits, Misses int64
	Failures     int64 // files that couldn't be written, and damaged ones
}

// Stats returns the counts.
func (d *Disk) Stats() DiskStats {
	return DiskStats{d.hits.Load(), d.misses.Load(), d.failures.Load()}
}

// magic begins every file; its number changes with the format.
const magic = "chorus kernel 1\n"

// diskKey is what a compiled kernel depends on: the compiler, with the model of device, and the source.
type diskKey [sha256.Size]byte

func newDiskKey(compiler string, source []byte) diskKey {
	h := sha256.New()
	h.Write([]byte(compiler))
	h.Write([]byte{0})
	h.Write(source)
	return diskKey(h.Sum(nil))
}

func (d *Disk) file(key diskKey) string {
	return filepath.Join(d.dir, "chorus_"+hex.EncodeToString(key[:]))
}

// get reads an image. A file holds the magic, its key, a checksum of the image, and the image.
func (d *Disk) get(key diskKey) ([]byte, bool) {
	b, err := os.ReadFile(d.file(key))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			d.failures.Add(1)
		}
		d.misses.Add(1)
		return nil, false
	}
	rest, ok := bytes.CutPrefix(b, []byte(magic))
	if ok && len(rest) > 2*sha256.Size && bytes.Equal(rest[:sha256.Size], key[:]) {
		image := rest[2*sha256.Size:]
		if sum := sha256.Sum256(image); bytes.Equal(rest[sha256.Size:2*sha256.Size], sum[:]) {
			d.hits.Add(1)
			return image, true
		}
	}
	d.failures.Add(1)
	d.misses.Add(1)
	return nil, false
}

// put writes an image.
func (d *Disk) put(key diskKey, image []byte) {
	if err := d.write(key, image); err != nil {
		d.failures.Add(1)
	}
}

func (d *Disk) write(key diskKey, image []byte) error {
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(d.dir, "writing_*")
	if err != nil {
		return err
	}
	sum := sha256.Sum256(image)
	_, err = f.Write(bytes.Join([][]byte{[]byte(magic), key[:], sum[:], image}, nil))
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), d.file(key))
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// remove takes an image out that the device didn't load.
func (d *Disk) remove(key diskKey) {
	d.failures.Add(1)
	_ = os.Remove(d.file(key))
}
