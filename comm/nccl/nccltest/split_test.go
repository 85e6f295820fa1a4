//go:build linux

package nccltest_test

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/comm/nccl/abi"
)

// firstVar is set in the process of rank 0.
const firstVar = "CHORUS_TEST_FIRST"

// A part of a communicator may be split when the process of the whole one's rank 0, which had its id, has ended.
func TestSplitWithoutTheFirst(t *testing.T) {
	_, lib := standIn(t)
	var id abi.UniqueID
	words := unsafe.Slice((*byte)(unsafe.Pointer(&id)), unsafe.Sizeof(id))
	// half splits the communicator of all: rank 0, and ranks 1 and 2.
	half := func(rank int32) (part abi.Comm) {
		var c abi.Comm
		if r := lib.CommInitRank(&c, 3, id, rank); r != abi.Success {
			t.Errorf("rank %d: ncclCommInitRank: %v", rank, r)
		} else if r := lib.CommSplit(c, min(rank, 1), rank, &part, nil); r != abi.Success {
			t.Errorf("rank %d: ncclCommSplit: %v", rank, r)
		}
		return part
	}
	if os.Getenv(firstVar) != "" {
		if r := lib.GetUniqueID(&id); r != abi.Success {
			t.Fatal(r)
		}
		fmt.Println(hex.EncodeToString(words))
		half(0)
		return
	}
	first := exec.Command(os.Args[0], "-test.run=^TestSplitWithoutTheFirst$")
	first.Env = append(os.Environ(), firstVar+"=1")
	out, err := first.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	defer first.Process.Kill()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if _, err := hex.Decode(words, []byte(strings.TrimSpace(line))); err != nil {
		t.Fatal(err)
	}
	var parts [2]abi.Comm
	var ranks sync.WaitGroup
	for i := range parts {
		ranks.Go(func() { parts[i] = half(int32(i) + 1) })
	}
	ranks.Wait()
	if err := first.Wait(); err != nil {
		t.Fatal(err)
	}
	var pieces [2]abi.Comm
	over := make(chan abi.Result, 2)
	for i, part := range parts {
		go func() { over <- lib.CommSplit(part, int32(i), 0, &pieces[i], nil) }()
	}
	for range parts {
		select {
		case r := <-over:
			if r != abi.Success {
				t.Errorf("ncclCommSplit of the half: %v", r)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("ncclCommSplit of the half doesn't return")
		}
	}
}
