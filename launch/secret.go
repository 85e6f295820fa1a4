package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

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

// lookup finds a variable in the ranks' environment, in which later entries win.
func (j *Job) lookup(name string) (value string, ok bool) {
	for _, e := range j.Env {
		if n, v, _ := strings.Cut(e, "="); n == name {
			value, ok = v, true
		}
	}
	return value, ok
}

// keep writes the secret that the launcher has made where only this user can read it, for the ranks. A file is in less danger of being shown than a
// variable, which programs like to log.
func (r *runner) keep() error {
	if r.job.fresh == "" {
		return nil
	}
	r.secret = filepath.Join(r.scratch, "secret")
	return os.WriteFile(r.secret, []byte(r.job.fresh+"\n"), 0o600)
}
