package shm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/hostmem"
	"github.com/chorus-comms/chorus/internal/sys"
)

// Tests between processes: the test is rank 0, and the other ranks are copies of
// the test binary that run one of the bodies below.

// bodies are what the other ranks do; each ends with its process.
var bodies = map[string]func(f *Fabric, w *fabric.Waiter) error{}

const bodyVar, rankVar, sizeVar, optionsVar = "CHORUS_SHM_BODY", "CHORUS_SHM_RANK", "CHORUS_SHM_SIZE",
	"CHORUS_SHM_OPTIONS"

func TestMain(m *testing.M) {
	name := os.Getenv(bodyVar)
	if name == "" {
		probe, err := hostmem.NewSegment(1)
		if errors.Is(err, unix.ENOSYS) {
			fmt.Println("left out:", err)
			os.Exit(0)
		} else if err == nil {
			probe.Close()
		}
		os.Exit(m.Run())
	}
	if err := runBody(name); err != nil {
		fmt.Fprintf(os.Stderr, "rank %s: %v\n", os.Getenv(rankVar), err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runBody(name string) error {
	rank, _ := strconv.Atoi(os.Getenv(rankVar))
	size, _ := strconv.Atoi(os.Getenv(sizeVar))
	var options map[string]string
	if err := json.Unmarshal([]byte(os.Getenv(optionsVar)), &options); err != nil {
		return err
	}
	file := os.NewFile(3, "exchange")
	enc, dec := json.NewEncoder(file), json.NewDecoder(bufio.NewReader(file))
	f, err := open(fabric.Config{
		Rank: rank, Size: size, HostID: "here", Timeout: patience, Options: options,
		Exchange: func(_ context.Context, payload []byte) (all [][]byte, err error) {
			if err := enc.Encode(payload); err != nil {
				return nil, err
			}
			return all, dec.Decode(&all)
		},
	})
	if err != nil {
		return err
	}
	if err := bodies[name](f, newWaiter()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return f.Close(ctx)
}

// job is a world whose rank 0 is the test.
type job struct {
	*Fabric
	children []*exec.Cmd // by rank; nil for 0
}

// startJob starts the other ranks and joins them. Their output goes to the test's.
func startJob(t testing.TB, size int, body string, options map[string]string) *job {
	t.Helper()
	j := &job{children: make([]*exec.Cmd, size)}
	files := make([]*os.File, size)
	encoded, _ := json.Marshal(options)
	for r := 1; r < size; r++ {
		pair := socketPair(t, unix.SOCK_STREAM)
		theirs := os.NewFile(uintptr(pair[1]), "exchange")
		files[r] = os.NewFile(uintptr(pair[0]), "exchange")
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), bodyVar+"="+body, rankVar+"="+strconv.Itoa(r), sizeVar+"="+strconv.Itoa(size),
			optionsVar+"="+string(encoded))
		cmd.ExtraFiles = []*os.File{theirs}
		cmd.Stderr = os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{}
		sys.SetDeathSignal(cmd.SysProcAttr)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		theirs.Close()
		j.children[r] = cmd
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	}
	f, err := open(fabric.Config{
		Rank: 0, Size: size, HostID: "here", Timeout: patience, Options: options,
		Exchange: func(_ context.Context, payload []byte) ([][]byte, error) {
			all := make([][]byte, size)
			all[0] = payload
			for r := 1; r < size; r++ {
				if err := json.NewDecoder(files[r]).Decode(&all[r]); err != nil {
					return nil, fmt.Errorf("rank %d: %w", r, err)
				}
			}
			for r := 1; r < size; r++ {
				if err := json.NewEncoder(files[r]).Encode(all); err != nil {
					return nil, fmt.Errorf("rank %d: %w", r, err)
				}
				files[r].Close()
			}
			return all, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	j.Fabric = f
	return j
}

// socketPair makes two sockets of a kind that are joined, and that children don't inherit.
func socketPair(t testing.TB, kind int) [2]int {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	pair, err := unix.Socketpair(unix.AF_UNIX, kind, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range pair {
		unix.CloseOnExec(fd)
	}
	return pair
}

// finish closes rank 0 and checks that the ranks in alive ended well.
func (j *job) finish(t testing.TB, alive ...int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := j.Close(ctx); err != nil {
		t.Error(err)
	}
	for _, r := range alive {
		timer := time.AfterFunc(patience, func() { j.children[r].Process.Kill() })
		if err := j.children[r].Wait(); err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
		timer.Stop()
	}
}
