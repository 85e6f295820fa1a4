package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	core "k8s.io/api/core/v1"

	"github.com/chorus-comms/chorus/internal/testutil"
)

// probeVar, in the environment, makes this test binary a client that gets an URL, as the kubelet's probes do.
const probeVar = "CHORUS_TEST_PROBE"

func TestMain(m *testing.M) {
	url := os.Getenv(probeVar)
	if url == "" {
		os.Exit(m.Run())
	}
	client := http.Client{Timeout: 5 * time.Second}
	answer, err := client.Get(url)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	text, _ := io.ReadAll(answer.Body)
	fmt.Printf("%d %s", answer.StatusCode, text)
}

// image carries out the Dockerfile's commands, and returns the root of what its last stage has.
func image(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../examples/clusters/kubernetes/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	build, last, ok := strings.Cut(string(text), "\nFROM scratch\n")
	if !ok || !strings.Contains(last, "COPY --from=build /image/ /\nUSER 65532:65532\n") {
		t.Fatalf("the last stage is\n%s", last)
	}
	root := t.TempDir()
	program := regexp.MustCompile(`(?m)^ARG PROGRAM=(\S+)$`).FindStringSubmatch(build)
	for _, m := range regexp.MustCompile(`(?m)^RUN (.*go build.*)$`).FindAllStringSubmatch(build, -1) {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(m[1], "/image/", root+"/"))
		cmd.Dir, cmd.Env = "../..", append(os.Environ(), "PROGRAM="+program[1])
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", m[1], err, out)
		}
	}
	return root
}

// A cluster is a network name space with a switch, to which pods are connected.
type cluster struct {
	*testing.T
	dir, image string
	pid        string // of a process in it
}

// newCluster makes one, which ends with the test. Without the permission the test is skipped.
func newCluster(t *testing.T, image string) *cluster {
	t.Helper()
	for _, name := range []string{"ip", "unshare", "nsenter", "mount"} {
		if _, err := exec.LookPath(name); err != nil || os.Geteuid() != 0 {
			t.Skipf("left out: name spaces need root and %s (Debian: iproute2, util-linux, mount)", name)
		}
	}
	c := &cluster{T: t, dir: t.TempDir(), image: image}
	os.Chmod(c.dir, 0o755)
	cmd := exec.Command("unshare", "--net", "sh", "-c", "echo $$; exec cat")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close(); cmd.Wait() })
	if _, err := fmt.Fscanln(out, &c.pid); err != nil {
		t.Skip("left out: no permission for name spaces")
	}
	c.ip("link add switch type bridge")
	c.ip("addr add 10.213.65.1/24 dev switch")
	c.ip("link set switch up")
	return c
}

func (c *cluster) ip(args string) {
	c.Helper()
	cmd := exec.Command("nsenter", append([]string{"--net", "--target", c.pid, "ip"}, strings.Fields(args)...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		c.Fatalf("ip %s: %v: %s", args, err, out)
	}
}

// address is that of a pod.
func address(pod int) string { return fmt.Sprint("10.213.65.", pod+10) }

// inPod makes a pod's host of the name spaces that it begins in: the image is the root, and can't be written to; the
// volumes are where they are mounted. Then it runs the container's command as the container's user.
const inPod = `set -e
root=$1 name=$2 user=$3 cable=$4
shift 4
hostname "$name"
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
while [ "$1" != -- ]; do mount -t tmpfs -o "$2" volume "$root$1"; shift 2; done
shift
mount --bind "$root.secret" "$root/run/chorus"
mount -o remount,bind,ro "$root"
ip link set lo up
read -r _ <"$cable"
exec chroot --userspec="$user:$user" --groups="$user" "$root" "$@"
`

// start starts a pod's container. Its output goes to out. first is the number of its first process.
func (c *cluster) start(number int, p *pod, hosts string, secret *core.Secret, out io.Writer) (cmd *exec.Cmd, first int) {
	c.Helper()
	s := &p.template.Spec
	container := &s.Containers[0]
	root := filepath.Join(c.dir, p.name)
	do := func(err error) {
		c.Helper()
		if err != nil {
			c.Fatal(err)
		}
	}
	do(os.CopyFS(root, os.DirFS(c.image)))
	for _, dir := range []string{"etc", "proc", "dev", "tmp", "run/chorus"} {
		do(os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	do(os.WriteFile(filepath.Join(root, "etc/hosts"), []byte(hosts), 0o644))
	// The kubelet gives the files of a secret to the group, which may read them.
	group, user := int(*s.SecurityContext.FSGroup), int(*s.SecurityContext.RunAsUser)
	do(os.Mkdir(root+".secret", 0o755))
	for name, data := range secret.Data {
		file := filepath.Join(root+".secret", name)
		do(os.WriteFile(file, data, 0o440))
		do(os.Chown(file, 0, group))
	}
	cable := filepath.Join(c.dir, p.name+".cable")
	do(syscall.Mkfifo(cable, 0o600))

	args := []string{"--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", inPod, "pod",
		root, p.name, strconv.Itoa(user), cable}
	for _, mount := range container.VolumeMounts {
		for _, v := range s.Volumes {
			if v.Name == mount.Name && v.EmptyDir != nil {
				args = append(args, mount.MountPath, fmt.Sprintf("mode=2777,gid=%d,size=%d", group, v.EmptyDir.SizeLimit.Value()))
			}
		}
	}
	args = append(append(append(args, "--"), container.Command...), container.Args...)
	cmd = exec.CommandContext(c.Context(), "unshare", args...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", "HOSTNAME=" + p.name}
	for _, v := range append(container.Env, p.env...) {
		cmd.Env = append(cmd.Env, v.Name+"="+p.variable(v.Name))
	}
	cmd.Stdout, cmd.Stderr = out, out
	do(cmd.Start())
	c.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })

	// The first process in the pod is the only child of unshare.
	testutil.Eventually(c, func() bool {
		pid := strconv.Itoa(cmd.Process.Pid)
		text, _ := os.ReadFile(filepath.Join("/proc", pid, "task", pid, "children"))
		first, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return first != 0
	}, "the pod %s begins", p.name)
	port := fmt.Sprint("pod", number)
	c.ip(fmt.Sprintf("link add %s type veth peer name eth0 netns %d", port, first))
	c.ip(fmt.Sprintf("link set %s master switch up", port))
	for _, args := range []string{"addr add " + address(number) + "/24 dev eth0", "link set eth0 up"} {
		in := exec.Command("nsenter", append([]string{"--net", "--target", strconv.Itoa(first), "ip"}, strings.Fields(args)...)...)
		if out, err := in.CombinedOutput(); err != nil {
			c.Fatalf("%s: %v: %s", args, err, out)
		}
	}
	plugged, err := os.OpenFile(cable, os.O_RDWR, 0) // which doesn't wait for the reader
	do(err)
	c.Cleanup(func() { plugged.Close() })
	_, err = plugged.WriteString("\n")
	do(err)
	return cmd, first
}

// rank is a process of the program in the pod that has this first process.
func rank(t *testing.T, first int) int {
	t.Helper()
	space := func(pid any) string {
		link, _ := os.Readlink(fmt.Sprintf("/proc/%v/ns/pid", pid))
		return link
	}
	all, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		pid := filepath.Base(filepath.Dir(file))
		if name, _ := os.ReadFile(file); string(name) == "train\n" && space(pid) == space(first) {
			n, _ := strconv.Atoi(pid)
			return n
		}
	}
	t.Fatal("no rank is there any more")
	return 0
}

// probe gets what the liveness probe of a pod gets: status and text.
func (c *cluster) probe(number int, p *pod) string {
	probe := p.template.Spec.Containers[0].LivenessProbe.HTTPGet
	cmd := exec.Command("nsenter", "--net", "--target", c.pid, os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=http://%s:%d%s", probeVar, address(number), p.probePort(), probe.Path))
	out, _ := cmd.CombinedOutput()
	return string(out)
}

// TestPods runs the pods of each kind of job as a cluster would: with the image that the Dockerfile builds as their
// root, with their variables, volumes, user and names, and with the liveness probe.
func TestPods(t *testing.T) {
	root := image(t)
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			// The probes need some seconds.
			longer := func(text []byte) []byte {
				return bytes.ReplaceAll(text, []byte("args: [train]"), []byte(`args: [train, -epochs, "40"]`))
			}
			m, err := build(kind, t.TempDir(), longer)
			if err != nil {
				t.Fatal(err)
			}
			pods, err := m.pods()
			if err != nil {
				t.Fatal(err)
			}
			c := newCluster(t, root)
			hosts := "127.0.0.1 localhost\n"
			for i, p := range pods {
				hosts += fmt.Sprintln(address(i), strings.Join(append(p.names, p.name), " "))
			}
			var outputs [nodes]bytes.Buffer
			var started []*exec.Cmd
			var first [nodes]int
			for i, p := range pods {
				cmd, pid := c.start(i, p, hosts, m["v1 Secret"].(*core.Secret), &outputs[i])
				started, first[i] = append(started, cmd), pid
			}
			ended := make(chan error, 1)
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
			defer cancel()
			go func() {
				var errs []error
				for _, cmd := range started {
					errs = append(errs, cmd.Wait())
				}
				ended <- errors.Join(errs...)
			}()
			probed := map[int]string{}
			for len(probed) < nodes {
				for i, p := range pods {
					if answer := c.probe(i, p); strings.HasPrefix(answer, fmt.Sprintf("200 %d ranks answer", ranks)) {
						probed[i] = answer
					}
				}
				select {
				case err := <-ended:
					t.Fatalf("the probes %v have seen no ranks: %v\n%s\n%s", probed, err, &outputs[0], &outputs[1])
				default:
				}
			}
			// The probe fails while a rank is stopped. It's the same for all kinds.
			if kind == "job" {
				pid := rank(t, first[0])
				syscall.Kill(pid, syscall.SIGSTOP)
				testutil.Eventually(t, func() bool {
					return regexp.MustCompile(`^503 rank \d does not answer: it's stopped`).MatchString(c.probe(0, pods[0]))
				}, "the probe says that a rank is stopped")
				syscall.Kill(pid, syscall.SIGCONT)
			}
			select {
			case err = <-ended:
			case <-ctx.Done():
				t.Fatal("the job doesn't end")
			}
			if err != nil || !strings.Contains(outputs[0].String(), fmt.Sprintf("%d ranks, ", nodes*ranks)) ||
				strings.Contains(outputs[0].String(), "WARN") {
				t.Errorf("%v\n%s\n%s", err, &outputs[0], &outputs[1])
			}
		})
	}
}
