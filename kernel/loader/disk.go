package loader

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/internal/kept"
)

// Disk keeps compiled kernels in files, which several processes may use at once. A file is whole or not there. One that
// is damaged, or was made by another version, counts as missing and is written anew. A directory that can't be written
// or is full makes nothing fail. One that another user can change isn't used.
type Disk struct {
	files *kept.Folder

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
	return newDisk(dir)
}

func newDisk(dir string) *Disk { return &Disk{files: kept.Open(dir)} }

// DiskStats are counts since the cache was opened.
type DiskStats struct {
	Hits, Misses int64
	Failures     int64 // files that couldn't be written or read, and damaged ones
}

// Stats returns the counts.
func (d *Disk) Stats() DiskStats {
	return DiskStats{d.hits.Load(), d.misses.Load(), d.failures.Load()}
}

// get reads an image.
func (d *Disk) get(key kept.Key) ([]byte, bool) {
	image, err := d.files.Get(key)
	if err == nil {
		d.hits.Add(1)
		return image, true
	}
	if !errors.Is(err, fs.ErrNotExist) {
		d.failures.Add(1)
	}
	d.misses.Add(1)
	return nil, false
}

// put writes an image.
func (d *Disk) put(key kept.Key, image []byte) {
	if err := d.files.Put(key, image); err != nil {
		d.failures.Add(1)
	}
}

// remove takes an image out that the device didn't load.
func (d *Disk) remove(key kept.Key) {
	d.failures.Add(1)
	d.files.Remove(key)
}
