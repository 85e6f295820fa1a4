package sys

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func TestParseCPUs(t *testing.T) {
	for text, want := range map[string]string{"": "", "0": "0", "0-3,8": "0-3,8", "8,0-1,1,2": "0-2,8",
		"5,7,9\n": "5,7,9"} {
		s, err := ParseCPUs(text)
		if err != nil || s.String() != want {
			t.Errorf("%q: %v, %v", text, s, err)
		}
	}
	for _, text := range []string{"x", "-1", "3-1", "1,,2", "0-4000000000", "0-65536"} {
		if s, err := ParseCPUs(text); err == nil {
			t.Errorf("%q: %v", text, s)
		}
	}
}

// tree writes files below a directory as /sys/devices/system has them.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// cpu describes one processor.
func cpu(files map[string]string, n, socket int, siblings string) {
	at := fmt.Sprintf("cpu/cpu%d/topology/", n)
	files[at+"physical_package_id"], files[at+"thread_siblings_list"] = fmt.Sprint(socket), siblings
}

// Two sockets of four cores with two threads each, numbered as Linux does it on x86: the second threads after all first
// ones. Socket 1 comes first in the order of its nodes; core 2, and the second thread of core 6, are not there.
func TestCores(t *testing.T) {
	files := map[string]string{"node/node0/cpulist": "4-7,12-13,15", "node/node2/cpulist": "0-1,3,8-9,11",
		"node/node3/cpulist": "", "node/possible": "0-3"}
	for n := range 8 {
		siblings := fmt.Sprintf("%d,%d", n, n+8)
		if n == 6 {
			siblings = "6"
		}
		cpu(files, n, n/4, siblings)
		cpu(files, n+8, n/4, siblings)
	}
	sys := tree(t, files)
	all := CPUSet{0, 1, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 15}
	got, err := Cores(sys, all)
	want := []Core{
		{CPUSet{4, 12}, 1, 0}, {CPUSet{5, 13}, 1, 0}, {CPUSet{6}, 1, 0}, {CPUSet{7, 15}, 1, 0},
		{CPUSet{0, 8}, 0, 2}, {CPUSet{1, 9}, 0, 2}, {CPUSet{3, 11}, 0, 2},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	// Processors that aren't allowed are left out.
	got, err = Cores(sys, CPUSet{3, 5, 11, 13, 15})
	want = []Core{{CPUSet{5, 13}, 1, 0}, {CPUSet{15}, 1, 0}, {CPUSet{3, 11}, 0, 2}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	// core_cpus_list is the newer name; a package of -1 is none.
	files = map[string]string{"cpu/cpu1/topology/core_cpus_list": "1,3", "cpu/cpu3/topology/core_cpus_list": "1,3",
		"cpu/cpu1/topology/physical_package_id": "-1"}
	got, err = Cores(tree(t, files), CPUSet{1, 3})
	if want := []Core{{CPUSet{1, 3}, -1, 0}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	// Nothing is said.
	got, err = Cores(t.TempDir(), CPUSet{2, 7})
	if want := []Core{{CPUSet{2}, 0, 0}, {CPUSet{7}, 0, 0}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	// Nonsense is.
	for _, files := range []map[string]string{
		{"cpu/cpu0/topology/physical_package_id": "x"}, {"cpu/cpu0/topology/thread_siblings_list": "0-"},
		{"node/node0/cpulist": "all"},
	} {
		if got, err := Cores(tree(t, files), CPUSet{0}); err == nil {
			t.Errorf("%v: %v", files, got)
		}
	}
}

// The kernel's description of this host has each processor that this process may use, exactly once.
func TestThisHost(t *testing.T) {
	may, err := AllowedCPUs()
	if err != nil {
		t.Skip(err)
	}
	cores, err := Cores("/sys/devices/system", may)
	if err != nil {
		t.Fatal(err)
	}
	var all CPUSet
	n := 0
	for _, c := range cores {
		all, n = all.Or(c.CPUs), n+len(c.CPUs)
	}
	if !reflect.DeepEqual(all, may) || n != len(may) {
		t.Errorf("cores %v of the processors %v", cores, may)
	}
}
