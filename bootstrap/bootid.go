package bootstrap

import (
	"os"
	"strings"
	"sync"

	"github.com/chorus-comms/chorus/internal/sys"
)

var boot struct {
	sync.Mutex
	id   string
	read bool
}

// bootID returns the kernel's boot id, empty where there is none to be read. Only a lack of descriptors is an error,
// after which the next call looks again.
func bootID() (string, error) {
	boot.Lock()
	defer boot.Unlock()
	if boot.read {
		return boot.id, nil
	}
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if sys.OutOfDescriptors(err) {
		return "", err
	}
	boot.id, boot.read = strings.TrimSpace(string(id)), true
	return boot.id, nil
}
