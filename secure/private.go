package secure

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
)

// The permissions that only the owner of a file with a secret should have, as for ssh.
const (
	groupAndOtherBits = 0o077
	otherBits         = 0o007
)

// warned has the paths of the files that this process has warned of.
var warned sync.Map

// warnExposed warns, once for each file, if a file with a secret is open to others than its owner. The secret is
// used all the same: other users may be meant to read it. Pipes and devices are not checked. A file of another user may
// be open to its group, by which this process reads it: Kubernetes mounts secrets so.
func warnExposed(path string) {
	i, err := os.Stat(path)
	if err != nil || !i.Mode().IsRegular() {
		return
	}
	bits := os.FileMode(groupAndOtherBits)
	if !isOwn(i) {
		bits = otherBits
	}
	if i.Mode().Perm()&bits == 0 {
		return
	}
	if _, already := warned.LoadOrStore(path, true); already {
		return
	}
	slog.Default().Warn(fmt.Sprintf("chorus: %s holds a secret and has mode %04o, so that others than its owner may get at it; mend it with: chmod 600 %s",
		path, i.Mode().Perm(), path))
}
