//go:build unix

package sys

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/chorus-comms/chorus/internal/testutil"
)

// folder makes one, of a mode whatever the umask is, below another one.
func folder(t *testing.T, above, name string, mode fs.FileMode) string {
	t.Helper()
	path := filepath.Join(above, name)
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func others(err error) bool {
	_, is := errors.AsType[*OthersError](err)
	return is
}

// Folders that other users can change aren't one's own, nor are those below, unless a sticky bit or a closed folder
// above keeps the others away.
func TestOwnFolder(t *testing.T) {
	for what, c := range map[string]struct {
		above, mode fs.FileMode
		own         bool
	}{
		"closed":                     {0o755, 0o700, true},
		"open to readers":            {0o755, 0o755, true},
		"open to writers":            {0o755, 0o777, false},
		"sticky":                     {0o755, 0o777 | fs.ModeSticky, false},
		"below one open to writers":  {0o777, 0o700, false},
		"below a sticky one":         {0o777 | fs.ModeSticky, 0o700, true},
		"open, below a closed one":   {0o700, 0o777, true},
		"open, below one of a group": {0o710, 0o777, false},
	} {
		t.Run(what, func(t *testing.T) {
			top := folder(t, testutil.OpenDir(t, OwnFolder), "top", c.above)
			path := folder(t, top, "folder", c.mode)
			if err := os.Symlink(path, filepath.Join(testutil.OpenDir(t, OwnFolder), "link")); err != nil {
				t.Fatal(err)
			}
			got, err := OwnFolder(path, false)
			if (err == nil) != c.own || !c.own && !others(err) {
				t.Fatalf("%q, %v", got, err)
			}
			made := filepath.Join(top, "a", "b")
			got, err = OwnFolder(made, true)
			if want := c.above&0o002 == 0 || c.above&fs.ModeSticky != 0; (err == nil) != want || want && got != made {
				t.Fatalf("one that isn't there: %q, %v", got, err)
			}
			if i, e := os.Stat(made); err == nil && (e != nil || i.Mode().Perm() != 0o700) {
				t.Errorf("it was made as %v, %v", i.Mode(), e)
			}
		})
	}
}

// The path is the real one, so that a link which another user can change leads nowhere else.
func TestOwnFolderThroughLink(t *testing.T) {
	real := folder(t, testutil.OpenDir(t, OwnFolder), "real", 0o700)
	link := filepath.Join(folder(t, testutil.OpenDir(t, OwnFolder), "open", 0o777), "link")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	if got, err := OwnFolder(link, true); err != nil || got != real {
		t.Errorf("%q, %v, want %q", got, err, real)
	}
	for _, path := range []string{filepath.Join(real, "none"), "/proc/self/none"} {
		if _, err := OwnFolder(path, false); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := os.Symlink("/nonesuch/folder", filepath.Join(real, "dangling")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(real, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(real, "dangling"), file, filepath.Join(file, "below")} {
		if got, err := OwnFolder(path, true); err == nil || others(err) {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
}

// Files and folders of another user aren't one's own.
func TestOwnOfOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("left out: only root can give files away")
	}
	path := folder(t, testutil.OpenDir(t, OwnFolder), "folder", 0o755)
	file := filepath.Join(path, "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadOwn(file, 10); err != nil || string(got) != "x" {
		t.Errorf("one's own: %q, %v", got, err)
	}
	if err := os.Chown(file, 12345, 0); err != nil {
		t.Skip("left out: there's no other user here: ", err)
	}
	if _, err := ReadOwn(file, 10); !others(err) {
		t.Errorf("a file: %v", err)
	}
	below := folder(t, path, "below", 0o700)
	if err := os.Chown(path, 12345, 0); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{path, below} {
		if _, err := OwnFolder(f, false); !others(err) {
			t.Errorf("%s: %v", f, err)
		}
	}
}

// A file that others can write isn't one's own, and a device isn't read.
func TestReadOwn(t *testing.T) {
	file := filepath.Join(testutil.OpenDir(t, OwnFolder), "file")
	if err := os.WriteFile(file, []byte("four"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadOwn(file, 4); err != nil || string(got) != "four" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := ReadOwn(file, 3); err == nil || others(err) {
		t.Errorf("too large: %v", err)
	}
	if err := os.Chmod(file, 0o602); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadOwn(file, 4); !others(err) {
		t.Errorf("open to writers: %v", err)
	}
	if _, err := ReadOwn("/dev/zero", 4); err == nil || others(err) {
		t.Errorf("a device: %v", err)
	}
}

// A group counts as the user's own if it has the user's name and the tables show no other member than root.
func TestOnlyMembers(t *testing.T) {
	const users = "root:x:0:0::/root:/bin/sh\nada:x:7:70::/:\nbob:x:8:80::/:\nbroken\n"
	const groups = "root:x:0:\nada:x:70:\nboth:x:90:ada,bob\nmine:x:91:ada,root\nbob:x:80:ada\nempty:x:92:\n:\n"
	for group, want := range map[uint32]bool{0: true, 70: true, 90: false, 91: false, 80: false, 92: false, 99: false} {
		if got := onlyMembers(users, groups, group, 7); got != want {
			t.Errorf("group %d: %t", group, got)
		}
	}
}

// Where root is no user, its folders seem to be another one's.
func TestHasRoot(t *testing.T) {
	for users, want := range map[string]bool{"         0          0 4294967295\n": true, "0 1000 1\n1 100000 65536\n": true,
		"      1000       1000          1\n": false, "": false} {
		if got := hasRoot(users); got != want {
			t.Errorf("%q: %t", users, got)
		}
	}
}
