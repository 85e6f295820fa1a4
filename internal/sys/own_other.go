//go:build !unix

package sys

import "os"

// OwnFolder is the path of a folder, which is made if it isn't there. Its owner isn't known here.
func OwnFolder(path string, create bool) (string, error) {
	if create {
		return path, os.MkdirAll(path, 0o700)
	}
	return path, nil
}

// OthersError says which file or folder another user can change, and how.
type OthersError struct {
	Path string
	Why  string
}

func (e *OthersError) Error() string { return e.Path + " " + e.Why }

// ReadOwn is [ReadRegular].
func ReadOwn(path string, limit int64) ([]byte, error) { return ReadRegular(path, limit) }
