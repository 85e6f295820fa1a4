package libfile

import (
	"slices"
	"testing"
)

// The folder of the packages is known by PyTorch's libraries, wherever Python is.
func TestPackageFolders(t *testing.T) {
	const maps = `7f5c00000000-7f5c00021000 rw-p 00000000 00:00 0
7f5c10000000-7f5c11000000 r-xp 00000000 08:01 4242    /usr/local/lib/python3.12/dist-packages/torch/lib/libtorch_cpu.so
7f5c11000000-7f5c12000000 rw-p 00001000 08:01 4242    /usr/local/lib/python3.12/dist-packages/torch/lib/libtorch_cpu.so
7f5c12000000-7f5c13000000 r-xp 00000000 08:01 4243    /usr/lib/x86_64-linux-gnu/libc.so.6
7f5c13000000-7f5c14000000 r-xp 00000000 08:01 4244    /home/user name/.venv/lib/python3.12/site-packages/torch/lib/libc10.so
7ffe00000000-7ffe00021000 rw-p 00000000 00:00 0       [stack]
`
	want := []string{"/usr/local/lib/python3.12/dist-packages", "/home/user name/.venv/lib/python3.12/site-packages"}
	if got := packageFolders(maps); !slices.Equal(got, want) {
		t.Errorf("folders %q", got)
	}
}

// Environments that are active come behind.
func TestInWheels(t *testing.T) {
	t.Setenv("VIRTUAL_ENV", "/venv")
	t.Setenv("CONDA_PREFIX", "")
	want := []string{"/venv/lib/python3*/site-packages/a/b.so", "/venv/lib/python3*/site-packages/c.so"}
	if got := InWheels("a/b.so", "c.so"); !slices.Equal(got, want) {
		t.Errorf("candidates %q", got)
	}
}
