package secure

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/internal/testutil"
)

// logged is what f logs.
func logged(t *testing.T, f func()) string {
	t.Helper()
	var out bytes.Buffer
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
	f()
	return out.String()
}

// TestAnExposedFileIsMentioned reads secrets from files of several modes, each twice: a warning names what others can
// read, once.
func TestAnExposedFileIsMentioned(t *testing.T) {
	text := Generate()
	for mode, want := range map[os.FileMode]string{0o600: "", 0o400: "", 0o644: "mode 0644", 0o640: "mode 0640",
		0o604: "mode 0604", 0o620: "mode 0620"} {
		path := filepath.Join(t.TempDir(), "job.secret")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		out := logged(t, func() {
			for range 2 {
				if _, err := Load(&config.Config{SecretFile: path}); err != nil {
					t.Errorf("mode %04o: %v", mode, err)
				}
			}
		})
		switch {
		case want == "" && out != "":
			t.Errorf("mode %04o: %s", mode, out)
		case want != "" && (strings.Count(out, "\n") != 1 || !strings.Contains(out, want) || !strings.Contains(out,
			"chmod 600 "+path)):
			t.Errorf("mode %04o: %q", mode, out)
		case strings.Contains(out, text):
			t.Error("the warning shows the secret")
		}
	}
	path := filepath.Join(t.TempDir(), "job.secret")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	// The launcher has mentioned it.
	for _, c := range []*config.Config{{SecretFile: "/dev/zero"}, {SecretFile: path, Run: "job"}} {
		if out := logged(t, func() { Load(c) }); out != "" {
			t.Errorf("%s: %s", c.SecretFile, out)
		}
	}
}

// TestAFileOfAnotherUser: a process reads a file of root's by its group, as a pod of Kubernetes does.
func TestAFileOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("left out: only root makes files of other users")
	}
	for mode, want := range map[os.FileMode]string{0o440: "", 0o640: "", 0o444: "mode 0444"} {
		path := filepath.Join(t.TempDir(), "job.secret")
		err := os.WriteFile(path, []byte(Generate()), 0o600)
		if err == nil {
			err = errors.Join(os.Chown(path, 65532, 65532), os.Chmod(path, mode))
		}
		if err != nil {
			t.Fatal(err)
		}
		out := logged(t, func() {
			if _, err := Load(&config.Config{SecretFile: path}); err != nil {
				t.Errorf("mode %04o: %v", mode, err)
			}
		})
		if (want == "") != (out == "") || !strings.Contains(out, want) {
			t.Errorf("mode %04o: %q, want %q", mode, out, want)
		}
	}
}

// TestAnExposedKeyIsMentioned does the same for the key of a certificate.
func TestAnExposedKeyIsMentioned(t *testing.T) {
	a := testutil.NewCertAuthority(t)
	cert, key := a.Issue(t, time.Now().Add(time.Hour))
	load := func() {
		if _, err := Load(&config.Config{TLSCert: cert, TLSKey: key, TLSCA: a.File}); err != nil {
			t.Error(err)
		}
	}
	for mode, want := range map[os.FileMode]int{0o600: 0, 0o644: 1} {
		if err := os.Chmod(key, mode); err != nil {
			t.Fatal(err)
		}
		if out := logged(t, load); strings.Count(out, "chmod 600 "+key) != want {
			t.Errorf("mode %04o: %q", mode, out)
		}
	}
}
