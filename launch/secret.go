package launch

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/secure"
)

// protect finds out what protects the launcher's stores: the secret that the launcher got, and what the ranks'
// environment says. A single node that has no secret makes one.
func (j *Job) protect() error {
	c, err := config.Load(j.lookup)
	if err == nil {
		j.security, err = secure.Load(c)
	}
	if err != nil {
		return fmt.Errorf("launch: %w", err)
	}
	j.handed = j.Secret
	if j.handed == "" && j.Nodes <= 1 && j.security.Secret.IsZero() {
		j.handed = secure.Generate()
	}
	if j.handed != "" {
		j.security.Secret, err = secure.Parse(j.handed)
	}
	return err
}

// keep puts the secret that the launcher hands to its ranks where the ranks, and only this user, can read it. That is
// memory of this process, which ranks open as a file: it's gone with the process, however that ends. Where there can be
// no such memory, it's a file. Both are safer than a variable, since programs often log their environment.
func (r *runner) keep() error {
	if r.job.handed == "" {
		return nil
	}
	text := []byte(r.job.handed + "\n")
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
