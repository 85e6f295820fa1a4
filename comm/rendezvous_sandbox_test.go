package comm_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm/commtest"
	"github.com/chorus-comms/chorus/internal/testutil/seccomptest"
)

// needed are the refusals that a job can't bear, each with what the error says then.
var needed = map[string]string{
	"getrandom=EPERM":   "failed to read random data", // Go takes another way where the kernel hasn't got it
	"setsockopt=EPERM":  "setsockopt: operation not permitted",
	"setsockopt=ENOSYS": "setsockopt: function not implemented",
}

// TestSandbox runs jobs of two processes to which the kernel refuses one system call, in one of the two ways in which
// sandboxes do so. Either they work, on other paths, or each rank fails at once with an error that names the call.
func TestSandbox(t *testing.T) {
	for i, call := range seccomptest.Calls() {
		for k, errno := range []string{"EPERM", "ENOSYS"} {
			if !commtest.Long() && (k != i%2 && call != "memfd_create" && call != "madvise" || call == "sendmsg") {
				continue // with sendmsg, the peer finds out after half its timeout only
			}
			t.Run(call+"="+errno, func(t *testing.T) {
				t.Parallel()
				begun := time.Now()
				cmds, outs := start(t, "1", "auto", 2, seccomptest.Env(call+"="+errno))
				for r, cmd := range cmds {
					err := cmd.Wait()
					out := outs[r].String()
					if strings.Contains(out, "seccomptest: ") {
						t.Skip(out)
					}
					want, fails := needed[call+"="+errno]
					if !fails {
						want = fmt.Sprintf("ok %d of 2", r)
					}
					if (err != nil) != fails || !strings.Contains(out, want) {
						t.Errorf("rank %d: %v; it doesn't say %q:\n%s", r, err, want, out)
					}
				}
				if d := time.Since(begun); d > 30*time.Second {
					t.Errorf("it took %v", d)
				}
			})
		}
	}
}
