package kernel

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math/cmplx"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
)

// torchScript evaluates a line of `dtype|file file ...|statements; expression` each: a, b, c, d are the tensors of the
// files, of that type unless a file's name says another. It writes how many results there are, and of each the name of
// the type and the bytes. A line that PyTorch refuses has none.
const torchScript = `
import sys, torch
import torch.nn.functional as F
from math import inf, nan
torch.set_num_threads(1)
out = sys.stdout.buffer
def number(n): out.write(n.to_bytes(8, "little"))
def text(b): number(len(b)); out.write(b)
for line in sys.stdin:
    dtype, files, code = line.rstrip("\n").split("|", 2)
    names = {"torch": torch, "F": F, "inf": inf, "nan": nan, "dtype": getattr(torch, dtype)}
    for name, file in zip("abcdef", files.split()):
        kind = file.rsplit(".", 1)[1]
        names[name] = torch.frombuffer(bytearray(open(file, "rb").read()), dtype=getattr(torch, kind))
    try:
        *before, last = code.split("; ")
        for s in before: exec(s, names)
        r = eval(last, names)
    except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError) as e:
        number(0)
        text(str(e).encode())
        out.flush()
        continue
    r = r if isinstance(r, (tuple, list)) else (r,)
    number(len(r))
    for x in r:
        text(str(x.dtype)[6:].encode())
        x = x.detach().resolve_conj().contiguous().view(-1)
        text(bytes(x.view(torch.uint8).numpy().tobytes()) if x.numel() else b"")
    out.flush()
`

// tensorResult is one of PyTorch's.
type tensorResult struct {
	dtype dtype.DType
	data  []byte
}

// pytorch is the process that evaluates lines for all tests of the package. It ends when its input does: with the
// tests.
var pytorch struct {
	in  io.Writer
	out *bufio.Reader
}

// torch evaluates lines of [torchScript]; a line that PyTorch refuses has no results.
func torch(t *testing.T, lines []string) [][]tensorResult {
	t.Helper()
	if pytorch.out == nil {
		cmd := testutil.PythonCommand(t, torchScript)
		cmd = &exec.Cmd{Path: cmd.Path, Args: cmd.Args, Env: cmd.Env, Stderr: os.Stderr}
		out, err := cmd.StdoutPipe()
		if err == nil {
			pytorch.in, err = cmd.StdinPipe()
		}
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		pytorch.out = bufio.NewReader(out)
	}
	if len(lines) == 0 {
		return nil
	}
	go func() { _, _ = io.WriteString(pytorch.in, strings.Join(lines, "\n")+"\n") }()
	number := func() int {
		var n uint64
		if err := binary.Read(pytorch.out, binary.LittleEndian, &n); err != nil {
			t.Fatalf("PyTorch has ended: %v", err)
		}
		return int(n)
	}
	text := func() []byte {
		b := make([]byte, number())
		if _, err := io.ReadFull(pytorch.out, b); err != nil {
			t.Fatalf("PyTorch has ended: %v", err)
		}
		return b
	}
	all := make([][]tensorResult, len(lines))
	for k := range lines {
		n := number()
		if n == 0 {
			if reason := text(); testing.Verbose() {
				t.Logf("refused: %s: %.100s", lines[k], reason)
			}
		}
		for range n {
			dt, err := dtype.Parse(string(text()))
			if err != nil {
				t.Fatal(err)
			}
			all[k] = append(all[k], tensorResult{dt, text()})
		}
	}
	return all
}

// file writes a tensor's memory for PyTorch.
func (a *array) file(t *testing.T, dir string, name int) string {
	t.Helper()
	file := filepath.Join(dir, fmt.Sprintf("%d.%v", name, a.Type))
	if err := os.WriteFile(file, a.data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// equal compares a result with PyTorch's.
func (a *array) equal(t *testing.T, what string, want tensorResult, tolerance float64) {
	t.Helper()
	a.intact(t, what)
	if a.Type != want.dtype {
		t.Errorf("%s: the result is %v, and PyTorch's %v", what, a.Type, want.dtype)
		return
	}
	x, y := a.elements(), elements(want.dtype, want.data)
	if len(x) != len(y) {
		t.Errorf("%s: %d elements, and PyTorch has %d", what, len(x), len(y))
		return
	}
	for i := range x {
		if !nearComplex(x[i], y[i], tolerance) {
			t.Errorf("%s: element %d is %v, and PyTorch's %v", what, i, x[i], y[i])
			return
		}
	}
}

// forgive takes a's element where the result's is NaN and a's is infinite or zero.
func (r tensorResult) forgive(a *array) {
	x, y, size := a.elements(), elements(r.dtype, r.data), r.dtype.Size()
	for i := range x {
		if cmplx.IsNaN(y[i]) && (cmplx.IsInf(x[i]) || x[i] == 0) {
			copy(r.data[i*size:(i+1)*size], a.data[i*size:])
		}
	}
}
