package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/hostmem"
)

type sharedFacts struct {
	MemoryFile       string `json:"memory_file"`      // "works", or why not
	HugeMemoryFile   string `json:"huge_memory_file"` // the same
	CrossProcessCopy string `json:"cross_process_copy"`
	YamaScope        string `json:"yama_scope"`
}

func (d *diagnosis) sharedMemory(ctx context.Context) {
	s := &d.Shared
	s.MemoryFile = works(tryMemoryFile())
	if s.MemoryFile != "works" {
		d.warn("memory cannot be shared between processes (%s): ranks on this host will use TCP", s.MemoryFile)
	}
	s.HugeMemoryFile = works(tryHugeMemoryFile(d.Memory.HugePageBytes))
	s.CrossProcessCopy = works(tryCrossProcessCopy(ctx))
	if s.CrossProcessCopy != "works" {
		d.warn("no copying between processes (%s): memory that peers cannot map is staged, which costs one more copy",
			s.CrossProcessCopy)
	}
	s.YamaScope = "not in this kernel"
	if scope := readText("/proc/sys/kernel/yama/ptrace_scope"); scope != "" {
		s.YamaScope = scope + map[string]string{
			"0": " (processes of one user may copy)",
			"1": " (only parents may copy from their children)",
			"2": " (only administrators may copy)",
			"3": " (no process may copy)",
		}[scope]
	}
}

func works(err error) string {
	if err != nil {
		return err.Error()
	}
	return "works"
}

// tryMemoryFile shares memory as the ranks do: through a sealed memory file that is mapped twice.
func tryMemoryFile() error {
	const size = 1 << 16
	seg, err := hostmem.NewSparse(hostmem.LeastShared)
	if err != nil {
		return err
	}
	defer seg.Close()
	if err := seg.Commit(0, size); err != nil {
		return err
	}
	m, err := hostmem.Map(seg.FD(), size, seg.Color())
	if err != nil {
		return err
	}
	defer m.Unmap()
	seg.Bytes()[size-1] = 42
	if m.Bytes()[size-1] != 42 {
		return fmt.Errorf("two mappings of a memory file differ")
	}
	return nil
}

const (
	probeWord = 0x43686f7275732121
	probeTime = 10 * time.Second
)

// tryCrossProcessCopy lets one child copy from another. That is what ranks do, which are siblings; a parent may be
// allowed to copy from its child where siblings may not from each other.
func tryCrossProcessCopy(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	owner := exec.CommandContext(ctx, self, "probe-copy")
	hold, err := owner.StdinPipe() // the owner lives until it is closed
	if err != nil {
		return err
	}
	out, err := owner.StdoutPipe()
	if err != nil {
		return err
	}
	if err := owner.Start(); err != nil {
		return err
	}
	defer owner.Wait()
	defer hold.Close()
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return fmt.Errorf("the probe did not begin: %w", err)
	}
	text, err := exec.CommandContext(ctx, self, "probe-copy", strconv.Itoa(owner.Process.Pid),
		strings.TrimSpace(addr)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s", strings.TrimPrefix(strings.TrimSpace(string(text)), "chorus: "))
	}
	return nil
}

// newProbeCopyCmd is for chorus doctor alone. Without arguments it tells where in its memory a word is, and waits; with
// a pid and such a place it copies the word.
func newProbeCopyCmd() *cobra.Command {
	return &cobra.Command{
		Use:    "probe-copy [PID ADDRESS]",
		Short:  "Copy a word between processes",
		Hidden: true,
		Args:   cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return ownProbeWord(cmd)
			}
			pid, err := strconv.Atoi(args[0])
			if err != nil {
				return err
			}
			addr, err := strconv.ParseUint(args[1], 10, 64)
			if err != nil {
				return err
			}
			return copyProbeWord(pid, uintptr(addr))
		},
	}
}

func ownProbeWord(cmd *cobra.Command) error {
	// Mapped rather than allocated: its address must not change.
	mem, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return fmt.Errorf("mmap: %w", err)
	}
	defer unix.Munmap(mem)
	binary.NativeEndian.PutUint64(mem, probeWord)
	fmt.Fprintln(cmd.OutOrStdout(), uint64(uintptr(unsafe.Pointer(&mem[0]))))
	_, err = io.Copy(io.Discard, cmd.InOrStdin()) // the process that asked has made its copy when this ends
	return err
}
