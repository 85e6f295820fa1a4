package docs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/internal/sys"
)

// A host is where a reader follows pages: a folder that was empty, in which his shell begins, an environment, and a
// network of its own or the machine's.
type host struct {
	dir, network string
	env          []string
}

// explained is `chorus explain` in a block, which goes on though that ends with 1, as it does where there is a rank to
// blame.
const explained = `explained() {
	local out status=0
	out=$(chorus explain "$@") || status=$?
	printf '%s\n' "$out"
	[ $status = 0 ] || [ $status = 1 -a -n "$out" ]
}
`

// run carries out the commands of one block as the reader's shell would, and returns what they printed. The next block
// has the variables that this one exports, and its folder.
func (h *host) run(ctx context.Context, t *testing.T, commands string) (string, error) {
	t.Helper()
	kept := filepath.Join(t.TempDir(), "environment")
	for r, brief := range briefly {
		commands = r.ReplaceAllString(commands, brief)
	}
	args := []string{"bash", "-e", "-c", explained + commands + "\n{ export -p; printf 'cd %q\\n' \"$PWD\"; } >" + kept}
	if _, err := os.Stat(h.exported()); err == nil {
		args[3] = ". " + h.exported() + "\n" + args[3]
	}
	if h.network != "" {
		args = append([]string{"ip", "netns", "exec", h.network}, args...)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = h.dir, h.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	sys.SetDeathSignal(cmd.SysProcAttr)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if err == nil {
		err = os.Rename(kept, h.exported())
	}
	return out.String(), err
}

func (h *host) exported() string { return h.dir + ".environment" }

// follow does what a page says, from top to bottom, on one host or on two that share the folder, but for the commands
// that are left out. Lines that the page shows as a block's output must be in the output; their order and the times in
// them don't matter. Those of observability.md are of jobs that observe/job_test.go runs.
func follow(t *testing.T, page, by string, hosts ...*host) {
	t.Helper()
	shell := 0
	all := slices.DeleteFunc(steps(read(t, page)), func(s step) bool { return s.by != "" && s.by != by })
	for i := 0; i < len(all); i++ {
		if s := all[i]; s.file != "" {
			if err := os.WriteFile(filepath.Join(hosts[0].dir, s.file), []byte(s.text), 0o666); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if all[i].text = without(page, all[i].text); len(commands(all[i].text)) == 0 {
			continue
		}
		// A block for the second node that follows right after one for the first runs at the same time.
		together := all[i : i+1]
		switch {
		case all[i].on == "both":
			together = slices.Repeat(together, len(hosts))
		case all[i].on == "a" && i+1 < len(all) && all[i+1].on == "b":
			together = all[i : i+2]
			i++
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		outs, errs := make([]string, len(together)), make([]error, len(together))
		var both sync.WaitGroup
		for j, s := range together {
			both.Go(func() { outs[j], errs[j] = hosts[j].run(ctx, t, s.text) })
		}
		both.Wait()
		cancel()
		for j, s := range together {
			t.Logf("%s:\n%s%s", page, s.text, outs[j])
			if errs[j] != nil {
				t.Fatalf("%s: %v", page, errs[j])
			}
			shell++
		}
		for _, line := range shown(all[i].says) {
			if page != "observability.md" && !slices.Contains(shown(strings.Join(outs, "\n")), line) {
				t.Errorf("%s shows a line that isn't there: %s", page, line)
			}
		}
	}
	if shell == 0 {
		t.Errorf("%s has no commands", page)
	}
}

// briefly says what stands for commands that would take long, or end with 1 though all is well.
var briefly = map[*regexp.Regexp]string{
	regexp.MustCompile(`\bchorus bench [a-z]\w+`):         "$0 --iters 2",
	regexp.MustCompile(`\bchorus (chaos .*)--rounds \d+`): "chorus ${1}--rounds 5",
	regexp.MustCompile(`(?m)^chorus top\b`):               "$0 --looks 1",
	regexp.MustCompile(`(?m)^chorus explain\b`):           "explained",
}

var times = regexp.MustCompile(`\d+\.\d+ s\b`)

// shown returns the lines of an output without what differs from run to run.
func shown(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(times.ReplaceAllString(line, "T")); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// dist returns the folder with what `make wheels` has built. These tests are long: they install, compile and run whole
// jobs.
func dist(t *testing.T) string {
	t.Helper()
	if os.Getenv("CHORUS_TEST_LONG") != "1" {
		t.Skip("left out: CHORUS_TEST_LONG")
	}
	dist, err := filepath.Abs("../dist")
	if err != nil {
		t.Fatal(err)
	}
	if wheels, err := filepath.Glob(dist + "/chorus_comms-*.whl"); err != nil || len(wheels) == 0 {
		t.Skip("left out: no wheels in dist: make wheels")
	}
	return dist
}

// reader returns a host for a reader with nothing installed: the parts of the environment that the machine needs, no Go
// module and no Python package of ours. The tools in bin come before all others.
func reader(t *testing.T, bin string, env ...string) *host {
	t.Helper()
	home := t.TempDir()
	// The directory for temporary files has no other jobs. Its name is short, for sockets.
	temporary, err := os.MkdirTemp("", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(temporary) })
	h := &host{dir: filepath.Join(home, "empty")}
	if err := os.Mkdir(h.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	without := []string{"PWD", "OLDPWD", "VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "GOFLAGS", "HOME", "TMPDIR"}
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if !slices.Contains(without, name) &&
			!strings.HasPrefix(name, "CHORUS_") && !strings.HasPrefix(name, "TORCHCOMM") {
			h.env = append(h.env, v)
		}
	}
	// The pages share Go's cache of compiled packages, so that each need not compile the standard library.
	cache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	h.env = append(h.env, "GOCACHE="+strings.TrimSpace(string(cache)))
	h.env = append(h.env, "HOME="+home, "TMPDIR="+temporary, "PATH="+bin+":"+os.Getenv("PATH"), "OMP_NUM_THREADS=1")
	// Open MPI starts nothing as root, and no more ranks than cores, unless told to.
	h.env = append(h.env, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMPI_MCA_rmaps_base_oversubscribe=1")
	h.env = append(h.env, env...)
	return h
}

// withPyTorch returns a host with PyTorch, which is that of the tests, where it lies. Where there are no compilers, who
// calls one fails.
func withPyTorch(t *testing.T, compilers bool, env ...string) *host {
	t.Helper()
	found, err := filepath.Glob("../.venv/lib/python3*/site-packages")
	if err != nil || len(found) == 0 {
		t.Skip("left out: no PyTorch in .venv: make venv")
	}
	packages, bin := t.TempDir(), t.TempDir()
	for _, folder := range append(found, elsewhere(t, found[0])...) {
		entries, err := os.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			name := strings.ToLower(e.Name())
			if strings.Contains(name, "chorus") || strings.Contains(name, "accinte") || strings.HasSuffix(name, ".pth") ||
				name == "torchcomms" {
				continue
			}
			path, err := filepath.Abs(filepath.Join(folder, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(path, filepath.Join(packages, e.Name())); err != nil && !errors.Is(err, fs.ErrExist) {
				t.Fatal(err)
			}
		}
	}
	script(t, bin, "torchrun", "#!/usr/bin/env python3\nfrom torch.distributed.run import main\nmain()\n")
	if !compilers {
		for _, name := range []string{"go", "gcc", "cc", "clang", "g++", "c++"} {
			script(t, bin, name, "#!/bin/sh\necho \"$0: there is no compiler on this machine\" >&2\nexit 127\n")
		}
	}
	return reader(t, bin, append(env, "PYTHONPATH="+packages, "PIP_FIND_LINKS="+dist(t), "PIP_QUIET=1")...)
}

// deviceOf adds chorus_device and torch_accinte to a host that has PyTorch, as make python has compiled it.
func deviceOf(t *testing.T, h *host) *host {
	t.Helper()
	extension, _ := filepath.Glob("../python/device/chorus_device/_C*.so")
	found, _ := filepath.Glob("../.venv/lib/python3*/site-packages/chorus_device-*.dist-info")
	accinte, _ := filepath.Glob("../.venv/lib/python3*/site-packages/torch_accinte-*.dist-info")
	if len(extension) == 0 || len(found) == 0 || len(accinte) == 0 {
		t.Skip("left out: chorus_device isn't compiled: make python")
	}
	found = append(append(found, accinte...), "../python/device/chorus_device", "../python/accinte/torch_accinte")
	for i, v := range h.env {
		if packages, ok := strings.CutPrefix(v, "PYTHONPATH="); ok {
			also := t.TempDir()
			for _, path := range found {
				path, err := filepath.Abs(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(path, filepath.Join(also, filepath.Base(path))); err != nil {
					t.Fatal(err)
				}
			}
			h.env[i] = v[:len(v)-len(packages)] + also + ":" + packages
		}
	}
	return h
}

// elsewhere returns the folders outside of this repository that a .pth file of a folder with Python packages names.
func elsewhere(t *testing.T, folder string) []string {
	t.Helper()
	var folders []string
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	paths, _ := filepath.Glob(folder + "/*.pth")
	for _, path := range paths {
		for line := range strings.Lines(read(t, path)) {
			line = strings.TrimSpace(line)
			if info, err := os.Stat(line); err == nil && info.IsDir() && filepath.IsAbs(line) && !strings.HasPrefix(line, root) {
				folders = append(folders, line)
			}
		}
	}
	return folders
}

func script(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o777); err != nil {
		t.Fatal(err)
	}
}

// TestFollowPyTorch is a PyTorch user's first ten minutes, with a wheel alone, and with a clone.
func TestFollowPyTorch(t *testing.T) {
	dist(t)
	t.Run("release", func(t *testing.T) { follow(t, "pytorch-ten-minutes.md", "release", withPyTorch(t, false)) })
	t.Run("index", func(t *testing.T) {
		h := withPyTorch(t, false)
		if out, err := h.run(t.Context(), t, "python3 -m venv venv\n. venv/bin/activate"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		follow(t, "../python/README.md", "release", h)
	})
	t.Run("clone", func(t *testing.T) {
		follow(t, "pytorch-ten-minutes.md", "clone", withPyTorch(t, true, fromClone(t)...))
	})
}

// TestFollowGo is a Go programmer's first ten minutes, with the module as a proxy gives it, and with a clone.
func TestFollowGo(t *testing.T) {
	dist(t)
	t.Run("release", func(t *testing.T) {
		follow(t, "first-job.md", "release", reader(t, t.TempDir(), throughProxy(t)...))
	})
	t.Run("clone", func(t *testing.T) { follow(t, "first-job.md", "clone", reader(t, t.TempDir(), fromClone(t)...)) })
}

// TestFollowAdapters makes a program with an adapter.
func TestFollowAdapters(t *testing.T) {
	dist(t)
	follow(t, "adapters.md", "clone", reader(t, t.TempDir(), fromClone(t)...))
}

// TestFollowDevice makes a device of PyTorch outside of the repository.
func TestFollowDevice(t *testing.T) {
	dist(t)
	follow(t, "new-device.md", "clone", deviceOf(t, withPyTorch(t, true, fromClone(t)...)))
}

// TestFollowClone does what README.md says, and then what other pages say, each in the clone and the environment that
// README.md has made.
func TestFollowClone(t *testing.T) {
	dist(t)
	h := deviceOf(t, withPyTorch(t, true, fromClone(t)...))
	if !t.Run("README.md", func(t *testing.T) { follow(t, "../README.md", "clone", h) }) {
		return
	}
	installed := read(t, h.exported())
	for _, p := range inClone {
		t.Run(strings.TrimPrefix(p.page, "../"), func(t *testing.T) {
			if err := os.WriteFile(h.exported(), []byte(installed), 0o666); err != nil {
				t.Fatal(err)
			}
			if out, err := h.run(t.Context(), t, "cd "+h.dir+"/chorus\n"+p.supposed); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if strings.Contains(read(t, p.page), "mpirun") {
				if _, err := exec.LookPath("mpirun"); err != nil {
					t.Skip("left out: no mpirun")
				}
			}
			if p.after != "" {
				defer h.run(context.WithoutCancel(t.Context()), t, p.after)
			}
			follow(t, p.page, "clone", h)
		})
	}
}

// TestFollowTwoNodes runs jobs on two nodes that a cable joins, each a network namespace with names of its own.
func TestFollowTwoNodes(t *testing.T) {
	dist(t)
	a := withPyTorch(t, true, fromClone(t)...)
	// As the page supposes, the command is there, and with it the package.
	before := "python3 -m venv ../venv\n. ../venv/bin/activate\npip install -q chorus-comms numpy"
	if out, err := a.run(t.Context(), t, before); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	networks, b := nodes(t, "node-a", "node-b"), *a
	a.network, b.network = networks[0], networks[1]
	follow(t, "two-nodes.md", "clone", a, &b)
	// networks.md supposes a program of its reader, and a secret.
	mine := "printf '#!/usr/bin/env python3\\n' | cat - sum.py >train\nchmod +x train\nexport CHORUS_SECRET_FILE=$PWD/job.secret"
	if out, err := a.run(t.Context(), t, mine); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	follow(t, "networks.md", "clone", a, &b)
}

// nodes makes two network namespaces that a cable joins, in which both hosts are known by their names.
func nodes(t *testing.T, names ...string) []string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("left out: making network namespaces needs root")
	}
	ip := func(args ...string) error {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
		}
		return nil
	}
	var networks []string
	var hosts strings.Builder
	hosts.WriteString("127.0.0.1 localhost\n")
	for i, name := range names {
		fmt.Fprintf(&hosts, "10.78.0.%d %s\n", i+1, name)
		networks = append(networks, fmt.Sprintf("chorus-docs-%d-%s", os.Getpid(), name))
	}
	for _, network := range networks {
		if err := ip("netns", "add", network); err != nil {
			t.Skipf("left out: this machine lets nobody make network namespaces: %v", err)
		}
		etc := filepath.Join("/etc/netns", network) // which ip netns exec lays over /etc
		t.Cleanup(func() {
			os.RemoveAll(etc)
			os.Remove("/etc/netns") // unless others have something there
			ip("netns", "delete", network)
		})
		if err := os.MkdirAll(etc, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(etc, "hosts"), []byte(hosts.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for i, network := range networks {
		if i == 0 {
			if err := ip("-n", network, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns",
				networks[1]); err != nil {
				t.Fatal(err)
			}
		}
		for _, args := range [][]string{{"link", "set", "lo", "up"}, {"address", "add", fmt.Sprintf("10.78.0.%d/24", i+1),
			"dev", "cable"}, {"address", "add", fmt.Sprintf("fd00::%d/64", i+1), "dev", "cable", "nodad"},
			{"link", "set", "cable", "up"}} {
			if err := ip(append([]string{"-n", network}, args...)...); err != nil {
				t.Fatal(err)
			}
		}
	}
	return networks
}
