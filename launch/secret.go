package launch

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/secure"
)

// protect finds out what protects the launcher's stores: what the ranks' environment says. A single node that has no secret makes one.
func (j *Job) protect() error {
	c, err := config.Load(j.lookup)
	if err == nil {
		j.security, err = secure.Load(c)
	}
	if err != nil {
		return fmt.Errorf("launch: %w", err)
	}
	if j.Nodes <= 1 && j.security.Secret.IsZero() {
		j.fresh = secure.Generate()
		j.security.Secret, err = secure.Parse(j.fresh)
	}
	return err
}

// keep puts the secret that the launcher has made where only this user can read it, for the ranks: into memory of this process, which they open as a file, so
// that it's gone with the process, however that ends; into a file where there can be no such memory. Either is in less danger of being shown than a variable,
// which programs like to log.
func (r *runner) keep() error {
	if r.job.fresh == "" {
		return nil
	}
	text := []byte(r.job.fresh + "\n")
	if r.kept = inMemory("chorus-secret", text); r.kept != nil {
		r.secret = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), r.kept.Fd())
		return nil
	}
	r.secret = filepath.Join(r.scratch, "secret")
	return os.WriteFile(r.secret, text, 0o600)
}

// unkeep gives up the memory of the secret.
func (r *runner) unkeep() {
	if r.kept != nil {
		r.kept.Close()
	}
}

// inMemory returns a file in memory that only this user can read; nil if it can't be had, or not be opened by its name.
func inMemory(name string, text []byte) *os.File {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.Write(text)
	if err == nil {
		err = f.Chmod(0o600)
	}
	if err == nil {
		var again *os.File
		if again, err = os.Open(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)); err == nil {
			again.Close()
		}
	}
	if err != nil {
		f.Close()
		return nil
	}
	return f
}
