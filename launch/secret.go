package launch

import (
	"fmt"
	"os"
	"path/filepath"

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

// keep writes the secret that the launcher has made where only this user can read it, for the ranks. A file is in less danger of being shown than a
// variable, which programs like to log.
func (r *runner) keep() error {
	if r.job.fresh == "" {
		return nil
	}
	r.secret = filepath.Join(r.scratch, "secret")
	return os.WriteFile(r.secret, []byte(r.job.fresh+"\n"), 0o600)
}
