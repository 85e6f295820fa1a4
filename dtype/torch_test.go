package dtype

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"
)

// torchScript reads float32 values, and writes for each narrow type the values of all its codes, then the codes of the
// values.
const torchScript = `
import sys, numpy, torch
values = torch.from_numpy(numpy.frombuffer(sys.stdin.buffer.read(), dtype=numpy.float32).copy())
for narrow, bits in [(torch.float16, torch.int16), (torch.bfloat16, torch.int16), (torch.float8_e4m3fn, torch.int8), (torch.float8_e5m2, torch.int8)]:
    width = 16 if bits == torch.int16 else 8
    codes = torch.arange(1 << width, dtype=torch.int32).to(bits)
    sys.stdout.buffer.write(codes.view(narrow).to(torch.float32).numpy().tobytes())
    sys.stdout.buffer.write((values.to(narrow).view(bits).to(torch.int32) & ((1 << width) - 1)).numpy().tobytes())
`

// All codes widened, and the neighbourhood of every midpoint and many random values narrowed, are what PyTorch makes of
// them.
func TestTorch(t *testing.T) {
	const python = "../.venv/bin/python"
	if os.Getenv("CHORUS_TEST_PYTORCH") == "0" {
		t.Skip("CHORUS_TEST_PYTORCH=0")
	}
	if _, err := os.Stat(python); err != nil {
		t.Skip("no PyTorch: make venv installs it")
	}
	r := rand.New(rand.NewPCG(1, 2))
	var values []float32
	for _, f := range formats {
		for code := range f.inf {
			mid := float32((f.exact(code) + f.exact(code+1)) / 2)
			values = append(values, mid, math.Nextafter32(mid, 0), -math.Nextafter32(mid, math.MaxFloat32))
		}
	}
	for range 200_000 {
		values = append(values, math.Float32frombits(r.Uint32()))
	}
	var in bytes.Buffer
	if err := binary.Write(&in, binary.LittleEndian, values); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-c", torchScript)
	cmd.Stdin, cmd.Stderr = &in, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		if exec.CommandContext(ctx, python, "-c", "import torch, numpy").Run() != nil {
			t.Skip("PyTorch can't be imported")
		}
		t.Fatal(err)
	}
	rest := bytes.NewReader(out)
	for _, f := range formats {
		decoded, encoded := make([]float32, 1<<f.bits), make([]int32, len(values))
		if err := binary.Read(rest, binary.LittleEndian, decoded); err != nil {
			t.Fatal(err)
		}
		if err := binary.Read(rest, binary.LittleEndian, encoded); err != nil {
			t.Fatal(err)
		}
		for c, want := range decoded {
			if got := f.value(c); math.Float32bits(got) != math.Float32bits(want) && !(got != got && want != want) {
				t.Errorf("%s %#x is %v, in PyTorch %v", f.name, c, got, want)
			}
		}
		for i, want := range encoded {
			if got := f.from32(values[i]); got != int(want) && !(f.isNaN(got) && f.isNaN(int(want))) {
				t.Errorf("%s of %v is %#x, in PyTorch %#x", f.name, values[i], got, want)
			}
		}
	}
}
