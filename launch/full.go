package launch

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// fullBytes is what a file system has left that is taken to be full: the records of a few ranks are more.
const fullBytes = 1 << 20

// fullness says that the file system of a directory is full, and how much it has; nothing if it isn't, or if that can't
// be found out.
func fullness(dir string) string {
	var s unix.Statfs_t
	for unix.Statfs(dir, &s) != nil {
		parent := filepath.Dir(dir) // of one that isn't there yet
		if parent == dir {
			return ""
		}
		dir = parent
	}
	block := uint64(s.Bsize)
	switch {
	case s.Blocks > 0 && uint64(s.Bavail)*block < fullBytes:
		return fmt.Sprintf("%s is full: %d KiB of %d MiB are left", dir, uint64(s.Bavail)*block>>10, s.Blocks*block>>20)
	case s.Files > 0 && s.Ffree == 0:
		return fmt.Sprintf("%s is full: none of its %d files is left", dir, s.Files)
	}
	return ""
}

// ifFull adds to what went wrong in a directory that it's full, if it is.
func ifFull(err error, dir string) error {
	if full := fullness(dir); err != nil && full != "" {
		return fmt.Errorf("%w; %s", err, full)
	}
	return err
}

// sayFull says which of the directories is full in which the launcher and its ranks write.
func (r *runner) sayFull() {
	said := map[string]bool{"": true}
	for _, dir := range []string{os.TempDir(), r.job.dumps(), r.logDir} {
		if dir == "" {
			continue
		}
		if full := fullness(dir); !said[full] {
			said[full] = true
			r.console.Printf("%s: what the launcher and the ranks write there may be lost", full)
		}
	}
}
