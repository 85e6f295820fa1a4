//go:build unix

package sys

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// OwnFolder is the real path of a folder that no other user than root can change: neither what is in it, nor which
// folder is found there. It's this user's or root's, nobody else can write to it, and the same holds for all folders
// above it, except that one with a sticky bit, such as /tmp, may be open to all. What lies below a folder that others
// can't enter may have any mode. With create it's made if it isn't there, of mode 0700. An error that another user could
// change it is an [OthersError].
func OwnFolder(path string, create bool) (string, error) { return ownFolder(path, create, false) }

// OthersError says which file or folder another user can change, and how.
type OthersError struct {
	Path string
	Why  string // "belongs to user 7"
}

func (e *OthersError) Error() string { return e.Path + " " + e.Why }

// ownFolder is OwnFolder. above says that the folder needn't be one that others can't write to, if it's sticky.
func ownFolder(path string, create, above bool) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(path)
	if create && errors.Is(err, fs.ErrNotExist) && path != "/" {
		parent, err := ownFolder(filepath.Dir(path), true, true)
		if err != nil {
			return "", err
		}
		real = filepath.Join(parent, filepath.Base(path))
		if err := os.Mkdir(real, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	} else if err != nil {
		return "", err
	}
	closed := false // others can't come this far
	for _, folder := range pathDown(real) {
		i, err := os.Lstat(folder)
		if err != nil {
			return "", err
		}
		if !i.IsDir() {
			return "", fmt.Errorf("%s is %s", folder, fileKind(i.Mode()))
		}
		sticky := i.Mode()&fs.ModeSticky != 0 && (above || folder != real)
		if err := own(folder, i, above || folder != real, closed || sticky); err != nil {
			return "", err
		}
		closed = closed || i.Mode()&0o011 == 0
	}
	return real, nil
}

// pathDown are the folders from the root to a path's.
func pathDown(path string) []string {
	all := []string{path}
	for path != filepath.Dir(path) {
		path = filepath.Dir(path)
		all = append(all, path)
	}
	slices.Reverse(all)
	return all
}

// own is an [OthersError] if a file isn't this user's or root's, or others can write to it, unless that does no harm.
// above says that it's a folder above the one that matters.
func own(path string, i fs.FileInfo, above, harmless bool) error {
	s, ok := i.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%s: its owner isn't known", path)
	}
	me := uint32(os.Geteuid())
	switch mode := i.Mode().Perm(); {
	case s.Uid != me && s.Uid != 0 && !(above && int64(s.Uid) == rootOutside()):
		return &OthersError{path, fmt.Sprintf("belongs to user %d, not to %d", s.Uid, me)}
	case harmless:
	case mode&0o002 != 0:
		return &OthersError{path, "can be written by all users (chmod go-w mends it)"}
	case mode&0o020 != 0 && !privateGroup(path, s.Gid, me):
		return &OthersError{path, fmt.Sprintf("can be written by group %d (chmod g-w mends it)", s.Gid)}
	}
	return nil
}

// rootOutside is the user that root's files seem to belong to where root is no user, as in containers that a user
// starts; -1 elsewhere. Files of others out there seem to belong to it, too.
var rootOutside = sync.OnceValue(func() int64 {
	users, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return -1
	}
	overflow, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	if err != nil || hasRoot(string(users)) {
		return -1
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(overflow)), 10, 64)
	if err != nil {
		return -1
	}
	return n
})

// hasRoot reads which users there are: lines of the first one, the same one outside, and how many.
func hasRoot(users string) bool {
	for line := range strings.Lines(users) {
		if f := strings.Fields(line); len(f) > 0 && f[0] == "0" {
			return true
		}
	}
	return false
}

// privateGroup reports whether a group has only a user and root, as the one of each user's own has on most systems, and
// what the group may do is no more than the mode says.
func privateGroup(path string, group, user uint32) bool {
	users, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return false
	}
	groups, err := os.ReadFile("/etc/group")
	return err == nil && !hasAccessList(path) && onlyMembers(string(users), string(groups), group, user)
}

// onlyMembers reads the tables of users and groups. A group of a user's own has the user's name, and is the user's
// primary one there: of other groups a directory may know more members than the tables.
func onlyMembers(users, groups string, group, user uint32) bool {
	names := map[string]bool{} // of the user and root, and whether it's the primary group
	for line := range strings.Lines(users) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) < 4 {
			continue
		}
		id := f[2]
		if id == "0" || id == strconv.Itoa(int(user)) {
			names[f[0]] = f[3] == strconv.Itoa(int(group))
		} else if f[3] == strconv.Itoa(int(group)) {
			return false
		}
	}
	for line := range strings.Lines(groups) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) < 4 || f[2] != strconv.Itoa(int(group)) {
			continue
		}
		for member := range strings.SplitSeq(f[3], ",") {
			if _, ours := names[member]; member != "" && !ours {
				return false
			}
		}
		return names[f[0]]
	}
	return false // its members aren't known
}

// ReadOwn is [ReadRegular], of a file that no other user than root can change; else the error is an [OthersError].
func ReadOwn(path string, limit int64) ([]byte, error) {
	f, size, err := OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	i, err := f.Stat()
	if err == nil {
		err = own(path, i, false, false)
	}
	if err != nil {
		return nil, err
	}
	return readAtMost(f, size, limit)
}
