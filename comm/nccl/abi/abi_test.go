package abi

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The bytes of a configuration are those that a C compiler gives ncclConfig_t of that version.
func TestConfigSize(t *testing.T) {
	for v, size := range map[Version]uint64{21400: 24, 21700: 40, 21803: 48, 22602: 48, 22703: 72, 22803: 80} {
		c, err := Pack(v, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.words[0] != size || uint64(len(c.words))*8 != size || c.words[1] != uint64(v)<<32|configMagic {
			t.Errorf("%v: %#x, want %d bytes", v, c.words, size)
		}
	}
}

func TestConfig(t *testing.T) {
	set := map[string]string{"blocking": "0", "netName": "Socket", "splitShare": "1", "commName": "a name",
		"nvlsCTAs": "-3"}
	c, err := Pack(22703, set)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Free()
	got, err := Unpack(22803, c.Pointer()) // a later library takes it as well
	if err != nil || !maps.Equal(got, set) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := Unpack(21803, c.Pointer()); err == nil {
		t.Error("an older library takes it")
	}
	for _, x := range []struct {
		v              Version
		name, value, w string
	}{{21803, "commName", "x", "commName came with 2.27.0"}, {22703, "minCTAs", "many", "is no number"},
		{22703, "minCTAs", "99999999999", "is no number"}} {
		if _, err := Pack(x.v, map[string]string{x.name: x.value}); err == nil || !strings.Contains(err.Error(), x.w) {
			t.Errorf("%+v: %v", x, err)
		}
	}
}

func TestVersion(t *testing.T) {
	for v, s := range map[Version]string{22703: "2.27.3", 2708: "2.7.8", 21304: "2.13.4", 21800: "2.18.0"} {
		if v.String() != s {
			t.Errorf("%d is %v", v, v)
		}
		if got, err := ParseVersion(s); err != nil || got != v {
			t.Errorf("%s is %d, %v", s, got, err)
		}
	}
	if v, err := ParseVersion("2.27"); err != nil || v != 22700 {
		t.Errorf("2.27 is %d, %v", v, err)
	}
	if _, err := ParseVersion("newest"); err == nil {
		t.Error("newest is a version")
	}
}

func TestInspect(t *testing.T) {
	exe, err := filepath.Abs("abi_test.go")
	if err != nil {
		t.Fatal(err)
	}
	if f := Inspect(exe); f.Err == nil {
		t.Errorf("a Go file is a library: %+v", f)
	}
	all := FamilyNamed("nccl").Find("/no/such/libnccl.so")
	if len(all) == 0 || all[0].Err == nil || all[0].Path != "/no/such/libnccl.so" {
		t.Errorf("%+v", all)
	}
	has, lacks, err := capabilities(func(s string) bool { return s != "ncclCommWindowDeregister" && s != "ncclSend" })
	if err == nil || !strings.Contains(err.Error(), "it lacks ncclSend") || slices.Contains(has, "windows") ||
		!slices.Contains(lacks, "windows (2.27)") {
		t.Errorf("%v, %v, %v", has, lacks, err)
	}
}
