package chorus

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestLightCore holds what a program that imports comm is linked from to the standard library and golang.org/x/sys.
func TestLightCore(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./comm").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Fields(string(out))
	if len(packages) < 10 {
		t.Fatalf("go list shows %d packages of comm: %s", len(packages), out)
	}
	for _, p := range packages {
		if !strings.HasPrefix(p, "github.com/chorus-comms/chorus/") && !strings.HasPrefix(p, "golang.org/x/sys/") {
			t.Errorf("comm imports %s", p)
		}
	}
}

// TestThirdPartyLicences holds the file that goes into wheels and archives to what they are really built from.
func TestThirdPartyLicences(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("left out: no bash")
	}
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("left out: no C compiler, without which go list doesn't show the library")
	}
	want, err := exec.Command(bash, "scripts/licences.sh").Output()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("LICENSE-THIRD-PARTY")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Error("LICENSE-THIRD-PARTY is of other modules: bash scripts/licences.sh > LICENSE-THIRD-PARTY")
	}
}
