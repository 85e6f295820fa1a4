package config

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/internal/testutil"
)

// allocatorTexts are settings of all kinds, good and bad.
var allocatorTexts = []string{
	"", "max_split_size_mb:128", "max_split_size_mb:19", "max_split_size_mb:20", "max_split_size_mb:x",
	"max_non_split_rounding_mb:20", "max_non_split_rounding_mb:1", "large_segment_size_mb:10", "large_segment_size_mb:11",
	"roundup_power2_divisions:4", "roundup_power2_divisions:3", "roundup_power2_divisions:0",
	"roundup_power2_divisions:[64:8,256:4,>:1]",
	"roundup_power2_divisions:[64:3]", "roundup_power2_divisions:[63:4]", "roundup_power2_divisions:[>:4]",
	"roundup_power2_divisions:[64:0]",
	"garbage_collection_threshold:0.6", "garbage_collection_threshold:1", "garbage_collection_threshold:0",
	"expandable_segments:True", "expandable_segments:true", "nope:1", ",max_split_size_mb:30", "max_split_size_mb:30,",
	"max_split_size_mb:128 , garbage_collection_threshold : 0.6", "per_process_memory_fraction:0.5",
	"per_process_memory_fraction:1.5",
	"pinned_max_round_threshold_mb:0", "pinned_max_cached_size_mb:1",
	"pinned_use_background_threads:True,release_lock_on_cudamalloc:True",
}

// TestAllocatorLikePyTorch demands that a text is accepted or refused as PyTorch does.
func TestAllocatorLikePyTorch(t *testing.T) {
	cmd := testutil.PythonCommand(t, `
import json, sys, torch
def accepted(text):
    try:
        torch._C._accelerator_setAllocatorSettings(text)
    except Exception:
        return False
    return True
print(json.dumps([accepted(text) for text in json.load(sys.stdin)]))
`)
	in, err := json.Marshal(allocatorTexts)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stderr = strings.NewReader(string(in)), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var want []bool
	if err := json.Unmarshal(out, &want); err != nil {
		t.Fatal(err)
	}
	for i, text := range allocatorTexts {
		if _, err := ParseAllocator(text); (err == nil) != want[i] {
			t.Errorf("%q: %v, but PyTorch accepts it: %v", text, err, want[i])
		}
	}
}

func TestParseAllocator(t *testing.T) {
	a, err := ParseAllocator("roundup_power2_divisions:[4:8,16:4,>:2], max_split_size_mb:64,expandable_segments:True,backend:native")
	want := DefaultAllocator()
	want.RoundupDivisions = [16]int{8, 8, 8, 0, 4, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2}
	want.MaxSplitSize, want.Expandable, want.Ignored = 64<<20, true, "backend:native"
	if err != nil || a != want {
		t.Errorf("%v\ngot  %+v\nwant %+v", err, a, want)
	}
	if a, err := ParseAllocator("roundup_power2_divisions:[1:2"); err == nil || a != DefaultAllocator() {
		t.Errorf("an open list gives %v, %+v", err, a)
	}
}

func TestDeviceAllocator(t *testing.T) {
	load := func(env map[string]string) Allocator {
		c, err := Load(from(env))
		if err != nil {
			t.Fatal(err)
		}
		return c.DeviceAllocator()
	}
	old := map[string]string{"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}
	if a := load(old); a.MaxSplitSize != 64<<20 {
		t.Error("the old variable doesn't hold alone")
	}
	old["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
	old["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
	if a := load(old); a.MaxSplitSize != Unlimited || !a.Expandable || !a.NoCaching {
		t.Errorf("the old variable wins: %+v", a)
	}
}

// FuzzParseAllocator reads any text; what is wrong leaves the default.
func FuzzParseAllocator(f *testing.F) {
	for _, text := range []string{"", "max_split_size_mb:128,garbage_collection_threshold:0.6",
		"roundup_power2_divisions:[256:1,512:2,>:8]",
		"expandable_segments:True", "a:[", "max_split_size_mb:99999999999999999999", "garbage_collection_threshold:NaN",
		",:,"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseAllocator(text)
		if err != nil && !reflect.DeepEqual(a, DefaultAllocator()) {
			t.Errorf("%q: %v leaves %+v", text, err, a)
		}
		if err == nil && !(a.GarbageThreshold >= 0 && a.GarbageThreshold < 1) {
			t.Errorf("%q: a threshold of %v", text, a.GarbageThreshold)
		}
	})
}
